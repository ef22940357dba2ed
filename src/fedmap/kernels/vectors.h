// What the kernels share: a register of LANES floats, 8 with AVX2 and 16 with AVX-512, and the
// question whether all numbers of an operand are finite. Registers also have C++'s + - *.

#pragma once

#include <immintrin.h>

#include <cstdint>

#ifndef LANES  // as many as the compiler may use
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#endif

namespace {

inline void prefetch(const float* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

#if LANES == 16

using Vec = __m512;
using Ints = __m512i;
using Mask = __mmask16;
constexpr int REGISTERS = 32;

inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Ints load(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline void store(int32_t* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Vec spread(const float* p) { return _mm512_set1_ps(*p); }
inline Ints spread(int32_t i) { return _mm512_set1_epi32(i); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec largest(Vec a, Vec b) { return _mm512_max_ps(a, b); }  // b where one of them is NaN
inline Mask above(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Mask at_most(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
inline Mask not_a_number(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
inline Mask either(Mask a, Mask b) { return Mask(a | b); }
inline Vec choose(Mask m, Vec yes, Vec no) { return _mm512_mask_mov_ps(no, m, yes); }
inline Ints choose(Mask m, Ints yes, Ints no) { return _mm512_mask_mov_epi32(no, m, yes); }
inline Ints ones_where(Mask m, Ints v) { return choose(m, spread(-1), v); }
// a bit for each lane
inline unsigned unequal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }

#else

using Vec = __m256;
using Ints = __m256i;
using Mask = __m256;
constexpr int REGISTERS = 16;

inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline Ints load(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline void store(int32_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline Vec spread(const float* p) { return _mm256_broadcast_ss(p); }
inline Ints spread(int32_t i) { return _mm256_set1_epi32(i); }
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec largest(Vec a, Vec b) { return _mm256_max_ps(a, b); }  // b where one of them is NaN
inline Mask above(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
inline Mask at_most(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
inline Mask not_a_number(Vec a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
inline Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
inline Vec choose(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }
inline Ints choose(Mask m, Ints yes, Ints no) {
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(m));
}
inline Ints ones_where(Mask m, Ints v) { return _mm256_or_si256(v, _mm256_castps_si256(m)); }
// a bit for each lane
inline unsigned unequal(Vec a, Vec b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NEQ_UQ));
}

#endif

// A finite number times zero is zero, NaN and infinity times zero are NaN. Four sums, or each would
// wait for the one before.
inline bool finite(const float* p, long n) {
    const Vec zero = {};
    Vec sum[4] = {zero, zero, zero, zero};
    long i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int v = 0; v < 4; ++v) sum[v] = fma(load(p + i + v * LANES), zero, sum[v]);
    float rest = 0;
    for (; i < n; ++i) rest += p[i] * 0.0f;
    return rest == 0 && !unequal((sum[0] + sum[1]) + (sum[2] + sum[3]), zero);
}

}  // namespace
