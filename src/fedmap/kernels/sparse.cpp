// out += a * b on one thread, where many entries of a are one and the same, its background: zero in
// what has come through a ReLU, black in images. The background's products are summed once for all
// rows, and only what differs from it is multiplied.
//
// b goes through the nearest cache in blocks of DEPTH x WIDTH. Against each block every row of a
// brings its list of what differs; a row of the output stays in registers until its list is
// through. Without a background this is a quarter slower than a dense product. All sums have a
// fixed order, which does not depend on the number of rows: a row has the same bits in any batch.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "vectors.h"

#define APART __attribute__((noinline))  // inlined into each other the loops run short of registers

namespace {

constexpr long DEPTH = 64, SUMS = 8, WIDTH = SUMS * LANES;
constexpr long AHEAD = 6;  // rows of the output that are fetched in advance: they lie far apart

struct Matrix {
    const float* data;
    long row, column;  // floats from row to row and from column to column
    const float* at(long r, long c) const { return data + r * row + c * column; }
};

struct List {  // of what differs from the background in DEPTH columns of a row
    float values[DEPTH + LANES];
    int32_t rows[DEPTH + LANES];  // where their rows of the block start
    int32_t length;
};

// 8 x 8 floats, rows to columns.
inline void transpose(const float* from, long row, float* to, long to_row) {
    __m256 r[8], pairs[8], fours[8];
    for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * row);
    for (int i = 0; i < 8; i += 2)
        pairs[i] = _mm256_unpacklo_ps(r[i], r[i + 1]),
        pairs[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    for (int i = 0; i < 8; i += 4)
        for (int half = 0; half < 2; ++half) {
            fours[i + 2 * half] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0x44);
            fours[i + 2 * half + 1] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0xee);
        }
    for (int i = 0; i < 4; ++i) {
        const __m256 low = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20),
                     high = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
        _mm256_storeu_ps(to + i * to_row, low);
        _mm256_storeu_ps(to + (i + 4) * to_row, high);
    }
}

// Part of a matrix into rows of `to_row` floats.
APART void copy(const Matrix& from, long row, long rows, long column, long columns, float* to,
                long to_row) {
    if (from.column == 1) {
        for (long r = 0; r < rows; ++r)
            std::copy_n(from.at(row + r, column), columns, to + r * to_row);
        return;
    }
    long wide = 0, high = from.row == 1 ? rows / 8 * 8 : 0;  // as far as eights go
    for (; high && wide + 8 <= columns; wide += 8)
        for (long r = 0; r < high; r += 8)
            transpose(from.at(row + r, column + wide), from.column, to + r * to_row + wide, to_row);
    for (long c = 0; c < columns; ++c)
        for (long r = c < wide ? high : 0; r < rows; ++r)
            to[r * to_row + c] = *from.at(row + r, column + c);
}

// The chosen lanes move together and are stored from `to` on; what lies behind them there is lost.
#if LANES == 16
inline void pack(unsigned chosen, Vec values, Ints rows, List& to) {
    store(to.values + to.length, _mm512_maskz_compress_ps(Mask(chosen), values));
    store(to.rows + to.length, _mm512_maskz_compress_epi32(Mask(chosen), rows));
}
#else
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

inline void pack(unsigned chosen, Vec values, Ints rows, List& to) {
    const Ints from = load(packing.lanes[chosen]);
    store(to.values + to.length, _mm256_permutevar8x32_ps(values, from));
    store(to.rows + to.length, _mm256_permutevar8x32_epi32(rows, from));
}
#endif

// Where the rows of LANES columns start in a block.
struct Starts {
    int32_t at[LANES];
    Starts() {
        for (int i = 0; i < LANES; ++i) at[i] = i * WIDTH;
    }
};
const Starts starts;

// `depth` is a whole number of registers.
APART void list(const float* a, long a_row, float background, long rows, long depth, List* lists) {
    const Vec nothing = spread(&background);
    for (long r = 0; r < rows; ++r, a += a_row) {
        List& mine = lists[r];
        mine.length = 0;
        for (long k = 0; k < depth; k += LANES) {
            const Vec value = load(a + k) - nothing;
            const unsigned differs = unequal(value, Vec{});
            pack(differs, value, add(load(starts.at), spread(int32_t(k * WIDTH))), mine);
            mine.length += __builtin_popcount(differs);
        }
    }
}

// The background times all rows of a block: what each row of the output begins with.
APART void sum_up(const float* block, long depth, float background, float* sums) {
    Vec sum[SUMS] = {};
    if (background != 0)
        for (long k = 0; k < depth; ++k)
            for (long v = 0; v < SUMS; ++v) sum[v] += load(block + k * WIDTH + v * LANES);
    for (long v = 0; v < SUMS; ++v) store(sums + v * LANES, sum[v] * spread(&background));
}

APART void add_rows(const List* lists, long rows, const float* block, const float* sums, float* out,
                    long out_row) {
    for (long r = 0; r < rows; ++r, out += out_row) {
        if (r + AHEAD < rows)
            for (long i = 0; i < WIDTH; i += 16) prefetch(out + AHEAD * out_row + i);
        Vec sum[SUMS];
        for (long v = 0; v < SUMS; ++v) sum[v] = load(out + v * LANES) + load(sums + v * LANES);
        const List& mine = lists[r];
        for (int32_t i = 0, length = mine.length; i < length; ++i) {
            const Vec value = spread(mine.values + i);
            const float* b = block + mine.rows[i];
            for (long v = 0; v < SUMS; ++v) sum[v] = fma(value, load(b + v * LANES), sum[v]);
        }
        for (long v = 0; v < SUMS; ++v) store(out + v * LANES, sum[v]);
    }
}

// Nothing is left out: zero times a number that is not finite is NaN, and whoever trains has to see
// it.
APART void add_all(const Matrix& a, long k, long deep, const float* block, long rows, long wide,
                   float* out, long out_row) {
    for (long r = 0; r < rows; ++r, out += out_row)
        for (long i = 0; i < deep; ++i)
            for (long c = 0; c < wide; ++c) out[c] += *a.at(r, k + i) * block[i * WIDTH + c];
}

void add_product(const Matrix& a, float background, const Matrix& b, float* out, long out_row,
                 long rows, long depth, long columns, List* lists, float* panel) {
    alignas(64) float block[DEPTH * WIDTH] = {}, sums[WIDTH], edge[WIDTH] = {};
    for (long k = 0; k < depth; k += DEPTH) {
        const long deep = std::min(DEPTH, depth - k);
        if (a.column == 1 && deep % LANES == 0)
            list(a.at(0, k), a.row, background, rows, deep, lists);
        else {
            if (deep % LANES) std::fill_n(panel, rows * DEPTH, background);
            copy(a, 0, rows, k, deep, panel, DEPTH);
            list(panel, DEPTH, background, rows, (deep + LANES - 1) / LANES * LANES, lists);
        }
        for (long n = 0; n < columns; n += WIDTH) {
            const long wide = std::min(WIDTH, columns - n);
            copy(b, k, deep, n, wide, block, WIDTH);
            sum_up(block, deep, background, sums);
            const bool summed = background != 0;  // then the sums show what is not finite
            if (!finite(summed ? sums : block, summed ? WIDTH : deep * WIDTH)) {
                add_all(a, k, deep, block, rows, wide, out + n, out_row);
                continue;
            }
            if (wide == WIDTH)
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

extern "C" int fedmap_lanes() { return LANES; }

// out [rows x columns] += a [rows x depth] * b [depth x columns]; each with its floats from row to
// row, a and b also from column to column.
extern "C" void fedmap_add_product(long rows, long depth, long columns, const float* a, long a_row,
                                   long a_column, float background, const float* b, long b_row,
                                   long b_column, float* out, long out_row) {
    thread_local std::vector<List>
        lists;  // live as long as the thread: a training step should not ask the system for pages
    thread_local std::vector<float> panel;
    if (long(lists.size()) < rows) lists.resize(rows), panel.resize(rows * DEPTH);
    const Matrix left{a, a_row, a_column}, right{b, b_row, b_column};
    add_product(left, background, right, out, out_row, rows, depth, columns, lists.data(),
                panel.data());
}
