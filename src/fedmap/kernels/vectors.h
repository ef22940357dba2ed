// What both kernels share: eight floats in a register, and the question whether all numbers of an
// operand are finite.

#pragma once

#include <immintrin.h>

namespace {

using Vec = __m256;
constexpr int LANES = 8;

inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }

// A finite number times zero is zero, NaN and infinity times zero are NaN. Four sums, or each would
// wait for the one before.
inline bool finite(const float* p, long n) {
    const Vec zero = _mm256_setzero_ps();
    Vec sum[4] = {zero, zero, zero, zero};
    long i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int v = 0; v < 4; ++v) sum[v] = _mm256_fmadd_ps(load(p + i + v * LANES), zero, sum[v]);
    float rest = 0;
    for (; i < n; ++i) rest += p[i] * 0.0f;
    const Vec all = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
    return rest == 0 && _mm256_movemask_ps(_mm256_cmp_ps(all, zero, _CMP_EQ_OQ)) == 0xff;
}

}  // namespace
