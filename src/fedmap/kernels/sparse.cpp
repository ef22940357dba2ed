// out += a * b on one thread with AVX2, where many entries of a are one and the same, its
// background: zero in what has come through a ReLU, black in images. The background's products are
// summed once for all rows, and only what differs from it is multiplied.
//
// b goes through the nearest cache in blocks of SIDE x SIDE. Against each block every row of a
// brings its list of what differs; a row of the output stays in registers until its list is
// through. Without a background this is a quarter slower than a dense product. All sums have a
// fixed order, which does not depend on the number of rows: a row has the same bits in any batch.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "vectors.h"

#define APART __attribute__((noinline))  // inlined into each other the loops run short of registers

namespace {

constexpr long REGISTERS = 8, SIDE = REGISTERS * LANES;
constexpr long AHEAD = 6;  // rows of the output that are fetched in advance: they lie far apart

struct Matrix {
    const float* data;
    long row, column;  // floats from row to row and from column to column
    const float* at(long r, long c) const { return data + r * row + c * column; }
};

struct List {  // of what differs from the background in SIDE columns of a row
    float values[SIDE + LANES];
    int32_t rows[SIDE + LANES];  // where their rows of the block start
    int32_t length;
};

inline void fetch(const float* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

// 8 x 8 floats, rows to columns.
inline void transpose(const float* from, long row, float* to) {
    Vec r[8], pairs[8], fours[8];
    for (int i = 0; i < 8; ++i) r[i] = load(from + i * row);
    for (int i = 0; i < 8; i += 2)
        pairs[i] = _mm256_unpacklo_ps(r[i], r[i + 1]),
        pairs[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    for (int i = 0; i < 8; i += 4)
        for (int half = 0; half < 2; ++half) {
            fours[i + 2 * half] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0x44);
            fours[i + 2 * half + 1] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0xee);
        }
    for (int i = 0; i < 4; ++i) {
        store(to + i * SIDE, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
        store(to + (i + 4) * SIDE, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
    }
}

// Part of a matrix, at most SIDE columns wide, into rows of SIDE.
APART void copy(const Matrix& from, long row, long rows, long column, long columns, float* to) {
    if (from.column == 1) {
        for (long r = 0; r < rows; ++r)
            std::copy_n(from.at(row + r, column), columns, to + r * SIDE);
        return;
    }
    long wide = 0, high = from.row == 1 ? rows / LANES * LANES : 0;  // as far as eights go
    for (; high && wide + LANES <= columns; wide += LANES)
        for (long r = 0; r < high; r += LANES)
            transpose(from.at(row + r, column + wide), from.column, to + r * SIDE + wide);
    for (long c = 0; c < columns; ++c)
        for (long r = c < wide ? high : 0; r < rows; ++r)
            to[r * SIDE + c] = *from.at(row + r, column + c);
}

// For each choice out of eight lanes, where they come from when they move together.
struct Packing {
    int32_t lanes[256][LANES] = {};
    Packing() {
        for (int choice = 0; choice < 256; ++choice)
            for (int lane = 0, next = 0; lane < LANES; ++lane)
                if (choice >> lane & 1) lanes[choice][next++] = lane;
    }
};
const Packing packing;

// `depth` is a whole number of eights.
APART void list(const float* a, long a_row, float background, long rows, long depth, List* lists) {
    const __m256i first =
        _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(SIDE));
    const __m256i next = _mm256_set1_epi32(LANES * SIDE);
    for (long r = 0; r < rows; ++r, a += a_row) {
        List& mine = lists[r];
        __m256i at = first;
        int32_t length = 0;
        for (long k = 0; k < depth; k += LANES, at = _mm256_add_epi32(at, next)) {
            const Vec value = _mm256_sub_ps(load(a + k), _mm256_set1_ps(background));
            const int differs =
                _mm256_movemask_ps(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_NEQ_UQ));
            const __m256i together =
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packing.lanes[differs]));
            store(mine.values + length, _mm256_permutevar8x32_ps(value, together));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(mine.rows + length),
                                _mm256_permutevar8x32_epi32(at, together));
            length += __builtin_popcount(differs);
        }
        mine.length = length;
    }
}

// The background times all rows of a block: what each row of the output begins with.
APART void sum_up(const float* block, long depth, float background, float* sums) {
    Vec sum[REGISTERS] = {};
    if (background != 0)
        for (long k = 0; k < depth; ++k)
            for (long v = 0; v < REGISTERS; ++v)
                sum[v] = _mm256_add_ps(sum[v], load(block + k * SIDE + v * LANES));
    for (long v = 0; v < REGISTERS; ++v)
        store(sums + v * LANES, _mm256_mul_ps(sum[v], _mm256_set1_ps(background)));
}

APART void add_rows(const List* lists, long rows, const float* block, const float* sums, float* out,
                    long out_row) {
    for (long r = 0; r < rows; ++r, out += out_row) {
        if (r + AHEAD < rows)
            for (long i = 0; i < SIDE; i += 16) fetch(out + AHEAD * out_row + i);
        Vec sum[REGISTERS];
        for (long v = 0; v < REGISTERS; ++v)
            sum[v] = _mm256_add_ps(load(out + v * LANES), load(sums + v * LANES));
        const List& mine = lists[r];
        for (int32_t i = 0, length = mine.length; i < length; ++i) {
            const Vec value = _mm256_broadcast_ss(mine.values + i);
            const float* b = block + mine.rows[i];
            for (long v = 0; v < REGISTERS; ++v)
                sum[v] = _mm256_fmadd_ps(value, load(b + v * LANES), sum[v]);
        }
        for (long v = 0; v < REGISTERS; ++v) store(out + v * LANES, sum[v]);
    }
}

// Nothing is left out: zero times a number that is not finite is NaN, and whoever trains has to see
// it.
APART void add_all(const Matrix& a, long k, long deep, const float* block, long rows, long wide,
                   float* out, long out_row) {
    for (long r = 0; r < rows; ++r, out += out_row)
        for (long i = 0; i < deep; ++i)
            for (long c = 0; c < wide; ++c) out[c] += *a.at(r, k + i) * block[i * SIDE + c];
}

void add_product(const Matrix& a, float background, const Matrix& b, float* out, long out_row,
                 long rows, long depth, long columns, List* lists, float* panel) {
    alignas(64) float block[SIDE * SIDE] = {}, sums[SIDE], edge[SIDE] = {};
    for (long k = 0; k < depth; k += SIDE) {
        const long deep = std::min(SIDE, depth - k);
        if (a.column == 1 && deep % LANES == 0)
            list(a.at(0, k), a.row, background, rows, deep, lists);
        else {
            if (deep % LANES) std::fill_n(panel, rows * SIDE, background);
            copy(a, 0, rows, k, deep, panel);
            list(panel, SIDE, background, rows, (deep + LANES - 1) / LANES * LANES, lists);
        }
        for (long n = 0; n < columns; n += SIDE) {
            const long wide = std::min(SIDE, columns - n);
            copy(b, k, deep, n, wide, block);
            sum_up(block, deep, background, sums);
            const bool summed = background != 0;  // then the sums show what is not finite
            if (!finite(summed ? sums : block, summed ? SIDE : deep * SIDE)) {
                add_all(a, k, deep, block, rows, wide, out + n, out_row);
                continue;
            }
            if (wide == SIDE)
                add_rows(lists, rows, block, sums, out + n, out_row);
            else
                for (long r = 0; r < rows; ++r) {  // the last columns do not fill the registers
                    float* const last = out + r * out_row + n;
                    std::copy_n(last, wide, edge);
                    add_rows(lists + r, 1, block, sums, edge, 0);
                    std::copy_n(edge, wide, last);
                }
        }
    }
}

}  // namespace

// out [rows x columns] += a [rows x depth] * b [depth x columns]; each with its floats from row to
// row, a and b also from column to column.
extern "C" void fedmap_add_product(long rows, long depth, long columns, const float* a, long a_row,
                                   long a_column, float background, const float* b, long b_row,
                                   long b_column, float* out, long out_row) {
    thread_local std::vector<List>
        lists;  // live as long as the thread: a training step should not ask the system for pages
    thread_local std::vector<float> panel;
    if (long(lists.size()) < rows) lists.resize(rows), panel.resize(rows * SIDE);
    const Matrix left{a, a_row, a_column}, right{b, b_row, b_column};
    add_product(left, background, right, out, out_row, rows, depth, columns, lists.data(),
                panel.data());
}
