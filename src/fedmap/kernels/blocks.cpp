// Chains of [convolution -> ReLU -> optional 2x2 max pool], forward and backward, on one thread.
// Here with 8 floats in a register; wide.cpp is the same with 16.
//
// Between blocks a sample lies as [group of channels][row][column][channel], with as many channels
// in a group as a register has floats, its zero border included. Forward is dense: a tile of
// pixels x output channels stays in registers until it is pooled and rectified. For backward it
// keeps, for each output, where the winner's window starts in the block's input, or DEAD where ReLU
// cut the winner. Backward is sparse: pooling and ReLU leave less than a quarter of the
// convolution's outputs with a gradient, and only those are visited; each adds  gradient * window
// to the weights' gradient and  gradient * weights  to its window's.
// All sums have a fixed order, so the same call gives the same bits.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#ifndef LANES
#define LANES 8
#endif
#include "vectors.h"

// fedmap_forward_8, ...
#define JOIN(name, lanes) fedmap_##name##_##lanes
#define WITH(name, lanes) JOIN(name, lanes)
#define EXPORTED(name) WITH(name, LANES)

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

namespace {

constexpr int32_t DEAD = -1;  // all of its bits are ones
constexpr long TOGETHER = 4;  // samples that forward works on at a time: they share the weights
// Floats of a channel group that backward works on at a time: half of the nearest cache.
constexpr long SLICE = 4096;

inline long ceil_div(long a, long b) { return (a + b - 1) / b; }
inline void clear(float* p, long n) { std::memset(p, 0, n * sizeof(float)); }

struct Shape {  // as the caller gives it
    int32_t channels, height, width, outputs, kernel, padding, pool;
};

struct Block : Shape {
    long stride;              // input: floats from pixel to pixel,
    long groups, row, plane;  //   groups of channels, floats in a row and in a group
    long out_groups, rows, columns, out_plane;  // output, after pooling
    long taps;                                  // weights of one output
    long patch_row, patch;  // a window within one group, in whole registers: a row of it, all of it

    float *x, *w, *bias, *dx, *dw, *dbias;
    int32_t* winner;  // [group][row][column][channel]; null when no gradient will be asked for

    // The images of a first block need not fill registers, unless they get a gradient.
    Block(const Shape& shape, bool images) : Shape(shape) {
        const bool narrow =
            images && (channels == 3 || (channels == 1 && (kernel == 3 || kernel == 5)));
        stride = narrow ? channels : LANES;
        groups = ceil_div(channels, stride);
        row = (width + 2 * padding) * stride;
        plane = (height + 2 * padding) * row;
        out_groups = ceil_div(outputs, LANES);
        rows = (height + 2 * padding - kernel + 1) / (pool ? 2 : 1);
        columns = (width + 2 * padding - kernel + 1) / (pool ? 2 : 1);
        out_plane = rows * columns * LANES;
        taps = long(kernel) * kernel * channels;
        patch_row = ceil_div(kernel * stride, LANES) * LANES;
        patch = kernel * patch_row;
    }
    long in_size() const { return groups * plane; }
    long out_size() const { return out_groups * out_plane; }
    long patches() const { return outputs * groups * patch; }
    long inside() const {
        return padding * (row + stride);
    }  // from the border's corner to the first pixel
};

// Hands out parts of one piece of memory, each on its own cache line and with room for a register
// that reaches past its end.
struct Pool {
    float* base;  // null: only count
    long used = 0;
    float* take(long n) {
        float* p = base ? base + used : nullptr;
        used += ceil_div(n + LANES, 16) * 16;
        return p;
    }
};

// Scratch lives as long as the thread: a training step should not ask the system for pages.
float* scratch(long n) {
    thread_local std::vector<float> memory;
    if (long(memory.size()) < n + 16) memory.resize(n + 16);
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) &
                                    ~uintptr_t(63));
}

template <class F>
void with_scratch(F place) {
    Pool count{nullptr};
    place(count);
    Pool pool{scratch(count.used)};
    place(pool);
}

using Chain = std::vector<Block>;

Chain chain(const Shape* shapes, int n, bool input_gradient) {
    Chain blocks;
    for (int i = 0; i < n; ++i) blocks.emplace_back(shapes[i], i == 0 && !input_gradient);
    return blocks;
}

// What forward keeps of n samples for backward.
void keep(Chain& blocks, Pool& pool, long n) {
    for (Block& b : blocks) {
        b.x = pool.take(n * b.in_size());
        b.winner = reinterpret_cast<int32_t*>(pool.take(n * b.out_size()));
    }
}

// -------------------------------------------------------------------------------------------------
// forward

template <int STRIDE, int KERNEL>  // kernel 0: known only at run time
struct Input {
    static constexpr int stride = STRIDE, kernel = KERNEL;
};

struct Target {               // where a block writes its outputs
    float* y;                 // first pixel
    long sample, plane, row;  // floats from sample to sample, from group to group, from row to row
    int32_t* winner;
};

template <class In, int R, int C, int V>
inline __attribute__((always_inline)) void accumulate(const Block& b, const float* x,
                                                      const float* w, Vec (&sum)[R][C][V]) {
    constexpr int S = In::stride, K = In::kernel;
    const long row = b.row;
    if constexpr (K && V == 1) {  // one channel: a row of the kernel fits into registers, and each
                                  // pixel is loaded once for it
        for (int ky = 0; ky < K; ++ky, x += row, w += K * LANES) {
            Vec weight[K];
            UNROLL for (int k = 0; k < K; ++k) weight[k] = load(w + k * LANES);
            UNROLL for (int i = 0; i < C + K - 1; ++i) UNROLL for (int r = 0; r < R; ++r) {
                const Vec value = spread(x + r * row + i);
                UNROLL for (int k = 0; k < K; ++k) if (i >= k && i - k < C) sum[r][i - k][0] =
                    fma(value, weight[k], sum[r][i - k][0]);
            }
        }
        return;
    }
    for (long group = 0; group < b.groups; ++group, x += b.plane) {
        const long channels = std::min<long>(S, b.channels - group * S);
        const long pieces = channels == S ? 1 : b.kernel,
                   length = channels == S ? b.kernel * S : channels;
        for (int ky = 0; ky < b.kernel; ++ky)
            for (long piece = 0; piece < pieces; ++piece) {
                const float* p = x + ky * row + piece * S;
                for (const float* end = p + length; p != end; ++p, w += V * LANES) {
                    Vec weight[V];
                    UNROLL for (int v = 0; v < V; ++v) weight[v] = load(w + v * LANES);
                    UNROLL for (int r = 0; r < R; ++r) UNROLL for (int c = 0; c < C; ++c) {
                        const Vec value = spread(p + r * row + c * S);
                        UNROLL for (int v = 0; v < V; ++v) sum[r][c][v] =
                            fma(value, weight[v], sum[r][c][v]);
                    }
                }
            }
    }
}

// P x C pixels of the convolution, V groups of output channels: accumulated, pooled if P is 2,
// rectified, written.
template <class In, int P, int C, int V>
void tile(const Block& b, const float* x, const float* w, const float* bias, const Target& to,
          long y0, long x0) {
    constexpr int S = In::stride;
    const long row = b.row, origin = y0 * row + x0 * S;
    Vec sum[P][C][V];
    UNROLL for (int r = 0; r < P; ++r) UNROLL for (int c = 0; c < C; ++c)
        UNROLL for (int v = 0; v < V; ++v) sum[r][c][v] = load(bias + v * LANES);
    accumulate<In>(b, x + origin, w, sum);

    const Vec zero = Vec{};
    UNROLL for (int c = 0; c < C; c += P) UNROLL for (int v = 0; v < V; ++v) {
        const long oy = y0 / P, ox = (x0 + c) / P, start = origin + c * S;
        Vec best = sum[0][c][v];
        Ints where = spread(int32_t(start));
        if constexpr (P == 2) {
            const Vec others[3] = {sum[0][c + 1][v], sum[1][c][v], sum[1][c + 1][v]};
            const long starts[3] = {start + S, start + row, start + row + S};
            UNROLL for (int i = 0; i < 3;
                        ++i) {  // strictly greater: the first of equals wins; a NaN always wins
                const Mask wins = either(above(others[i], best), not_a_number(others[i]));
                best = choose(wins, others[i], best);
                where = choose(wins, spread(int32_t(starts[i])), where);
            }
        }
        store(to.y + v * to.plane + oy * to.row + ox * LANES,
              largest(zero, best));  // in this order NaN stays NaN
        if (to.winner) {
            store(to.winner + v * b.out_plane + (oy * b.columns + ox) * LANES,
                  ones_where(at_most(best, zero), where));
        }
    }
}

// A tile of `wide` pixels, C at the most.
template <class In, int P, int C, int V>
void tile_of(long wide, const Block& b, const float* x, const float* w, const float* bias,
             const Target& to, long y0, long x0) {
    if (wide == C) return tile<In, P, C, V>(b, x, w, bias, to, y0, x0);
    if constexpr (C > P) tile_of<In, P, C - P, V>(wide, b, x, w, bias, to, y0, x0);
}

// As few tiles as can be, and all about as wide: a narrow one would wait for its own sums.
template <class In, int P, int C, int V>
void row_of_tiles(const Block& b, const float* x, const float* w, const float* bias,
                  const Target& to, long y0) {
    for (long left = b.columns, wide; left; left -= wide) {
        wide = ceil_div(left, ceil_div(left * P, C));
        tile_of<In, P, C, V>(wide * P, b, x, w, bias, to, y0, (b.columns - left) * P);
    }
}

template <class In, int V>
void convolve_groups(const Block& b, const float* x, const float* w, const float* bias,
                     const Target& to) {
    // pixels of a tile: sums fill most registers, the rest is for weights and a pixel
    constexpr int PIXELS = LANES == 16 ? 8 : V > 1 ? 4 : In::kernel ? 8 : 12;
    constexpr int POOLED = LANES == 16 && V == 2 ? 6 : PIXELS / 2;
    for (long y = 0; y < b.rows; ++y)
        if (b.pool)
            row_of_tiles<In, 2, POOLED, V>(b, x, w, bias, to, 2 * y);
        else
            row_of_tiles<In, 1, PIXELS, V>(b, x, w, bias, to, y);
}

// Groups of outputs that are computed together: threes, and twos where threes do not fit.
inline int together(long left) { return left == 1 ? 1 : left == 2 || left == 4 ? 2 : 3; }

template <class In>
void convolve(const Block& b, const float* x, const Target& to, long n) {
    const float* w = b.w;
    for (long group = 0, v; group < b.out_groups; group += v) {
        v = together(b.out_groups - group);
        const auto run = v == 3   ? convolve_groups<In, 3>
                         : v == 2 ? convolve_groups<In, 2>
                                  : convolve_groups<In, 1>;
        for (long s = 0; s < n; ++s) {
            Target mine = to;
            mine.y += s * to.sample + group * to.plane;
            if (to.winner) mine.winner += s * b.out_size() + group * b.out_plane;
            run(b, x + s * b.in_size(), w, b.bias + group * LANES, mine);
        }
        w += b.taps * v * LANES;
    }
}

// [output][channel][ky][kx] -> for outputs computed together [group][ky][kx][channel][output].
void pack_forward(Block& b, const float* weight, const float* bias) {
    const long area = long(b.kernel) * b.kernel, lanes = b.out_groups * LANES;
    for (long o = 0; o < lanes; ++o) b.bias[o] = bias && o < b.outputs ? bias[o] : 0;
    float* w = b.w;
    for (long first = 0, wide; first < lanes; first += wide) {
        wide = together(b.out_groups - first / LANES) * LANES;
        for (long c0 = 0; c0 < b.channels; c0 += b.stride) {
            const long channels = std::min(b.stride, b.channels - c0);
            for (long o = 0; o < wide; ++o) {
                const float* from =
                    first + o < b.outputs ? weight + (first + o) * b.taps + c0 * area : nullptr;
                for (long c = 0; c < channels; ++c)
                    for (long a = 0; a < area; ++a)
                        w[(a * channels + c) * wide + o] = from ? *from++ : 0;
            }
            w += area * channels * wide;
        }
    }
}

void clear_border(const Block& b, float* x) {
    const long edge = b.padding * b.row, side = b.padding * b.stride;
    if (edge == 0) return;
    for (long group = 0; group < b.groups; ++group, x += b.plane) {
        clear(x, edge);
        clear(x + b.plane - edge, edge);
        for (long y = edge; y < b.plane - edge; y += b.row)
            clear(x + y, side), clear(x + y + b.row - side, side);
    }
}

void pack_sample(const Block& b, const float* image, float* x) {
    clear_border(b, x);
    for (long c = 0; c < b.groups * b.stride; ++c) {
        float* to = x + c / b.stride * b.plane + b.inside() + c % b.stride;
        for (long y = 0; y < b.height; ++y, to += b.row)
            if (b.stride == 1)
                std::copy_n(image, b.width, to),
                    image += b.width;  // a row at once: many times faster
            else
                for (long i = 0; i < b.width; ++i) to[i * b.stride] = c < b.channels ? *image++ : 0;
    }
}

// -------------------------------------------------------------------------------------------------
// backward

struct Live {  // an output with a gradient, and where its window starts in the input
    int32_t at;
    float g;
};

// The live outputs of one channel of one sample. `at` steps from pixel to pixel by LANES, `g` by
// `step` and from row to row by `row`.
Live* find_live(const Block& b, const int32_t* at, const float* g, long step, long row,
                int32_t base, Live* live) {
    for (long y = 0; y < b.rows; ++y, g += row)
        for (long c = 0; c < b.columns;
             ++c, at += LANES) {  // always written, kept only if alive: no branch to mispredict
            *live = {base + *at, g[c * step]};
            live += *at != DEAD;
        }
    return live;
}

// The next row. The compiler is not to see through it: it would keep a sum for every address that a
// window has, and run short of registers for them.
template <class T>
inline T* step(T* p, long row) {
    p += row;
    asm("" : "+r"(p));
    return p;
}

// dw += g * window for all live outputs of one channel; R rows and V registers of the window.
// Returns the sum of g.
template <int R, int V>
float add_to_weights(const Block& b, const Live* live, long n, const float* x, float* dw) {
    constexpr int U =
        R * V <= 6
            ? 2
            : 1;  // few sums: two sets of them, or each addition would wait for the one before
    const long row = b.row;
    Vec sum[U][R][V], total = Vec{};
    UNROLL for (int u = 0; u < U; ++u) UNROLL for (int r = 0; r < R; ++r)
        UNROLL for (int v = 0; v < V; ++v) sum[u][r][v] = Vec{};
    const auto add = [&](Vec(&to)[R][V], const Live& one) __attribute__((always_inline)) {
        const Vec g = spread(&one.g);
        const float* p = x + one.at;
        total += g;
        UNROLL for (int r = 0; r < R; ++r, p = step(p, row)) UNROLL for (int v = 0; v < V; ++v)
            to[r][v] = fma(g, load(p + v * LANES), to[r][v]);
    };
    long i = 0;
    for (; i + U <= n; i += U) UNROLL for (int u = 0; u < U; ++u) add(sum[u], live[i + u]);
    if (i < n) add(sum[0], live[i]);
    UNROLL for (int r = 0; r < R; ++r) UNROLL for (int v = 0; v < V; ++v) {
        float* to = dw + r * b.patch_row + v * LANES;
        Vec all = sum[0][r][v];
        if constexpr (U == 2) all += sum[1][r][v];
        store(to, load(to) + all);
    }
    return total[0];
}

// dx += g * weights in the windows of all live outputs of one channel.
template <int R, int V>
void add_to_input(const Block& b, const Live* live, long n, float* dx, const float* weights) {
    const long row = b.row;
    Vec w[R][V];
    UNROLL for (int r = 0; r < R; ++r) UNROLL for (int v = 0; v < V; ++v) w[r][v] =
        load(weights + r * b.patch_row + v * LANES);
    const auto add = [&](const Live& one) __attribute__((always_inline)) {
        const Vec g = spread(&one.g);
        float* p = dx + one.at;
        UNROLL for (int r = 0; r < R; ++r, p = step(p, row)) UNROLL for (int v = 0; v < V; ++v)
            store(p + v * LANES, fma(g, w[r][v], load(p + v * LANES)));
    };
    const long half = n / 2;  // neighbors overlap and would wait for each other's stores: go
                              // through both halves at once
    for (long i = 0; i < half; ++i) add(live[i]), add(live[half + i]);
    if (n % 2) add(live[n - 1]);
}

// A window is worked on in parts: as many of its rows as there are registers for.
struct Part {
    long x, w;  // where it starts in a group of the input and in a patch of the weights
    float (*add_to_weights)(const Block&, const Live*, long, const float*, float*);
    void (*add_to_input)(const Block&, const Live*, long, float*, const float*);
};

constexpr int WINDOW = REGISTERS - 4, LARGEST = 7;

template <int R = 1, int V = 1>
Part part(const Block& b, long ky, long rows, long wide) {
    if (rows == R && wide == V)
        return {ky * b.row, ky * b.patch_row, add_to_weights<R, V>, add_to_input<R, V>};
    if constexpr ((R + 1) * V <= WINDOW && R < LARGEST) {
        if (rows != R) return part<R + 1, V>(b, ky, rows, wide);
    }
    if constexpr (V < LARGEST) return part<1, V + 1>(b, ky, rows, wide);
    return {};
}

std::vector<Part> parts(const Block& b) {
    std::vector<Part> all;
    const long wide = b.patch_row / LANES;
    for (long ky = 0, rows; ky < b.kernel; ky += rows) {
        rows = std::min<long>(WINDOW / wide, b.kernel - ky);
        all.push_back(part(b, ky, rows, wide));
    }
    return all;
}

// One block, samples first .. first + n. The gradient of its output is dout as the caller has it,
// or dx of the block above.
void block_backward(Block& b, const std::vector<Part>& window, const Block* above,
                    const float* dout, long first, long n, Live* lists, bool own, bool down) {
    const long area = b.rows * b.columns, capacity = area * n;
    const float* x = b.x + first * b.in_size();
    float* dx = b.dx + first * b.in_size();
    if (down) clear(dx, n * b.in_size());
    for (long group = 0; group < b.out_groups; ++group) {
        const long o0 = group * LANES, outputs = std::min<long>(LANES, b.outputs - o0);
        long count[LANES];
        for (long o = 0; o < outputs; ++o) {
            Live* const list = lists + o * capacity;
            Live* end = list;
            for (long s = 0; s < n; ++s) {
                const int32_t* at = b.winner + (first + s) * b.out_size() + group * b.out_plane + o;
                const float* g = above ? above->dx + (first + s) * above->in_size() +
                                             group * above->plane + above->inside() + o
                                       : dout + ((first + s) * b.outputs + o0 + o) * area;
                end = find_live(b, at, g, above ? LANES : 1, above ? above->row : b.columns,
                                s * b.in_size(), end);
            }
            count[o] = end - list;
        }
        for (long in = 0; in < b.groups;
             ++in) {  // one group of the input at a time: it stays in the nearest cache
            const auto patch = [&](long o) { return ((o0 + o) * b.groups + in) * b.patch; };
            if (own)
                for (long o = 0; o < outputs; ++o)
                    for (const Part& p : window) {
                        const float* from = x + in * b.plane + p.x;
                        const float sum = p.add_to_weights(b, lists + o * capacity, count[o], from,
                                                           b.dw + patch(o) + p.w);
                        if (in == 0 && p.w == 0) b.dbias[o0 + o] += sum;
                    }
            if (down)
                for (long o = 0; o < outputs; ++o)
                    for (const Part& p : window)
                        p.add_to_input(b, lists + o * capacity, count[o], dx + in * b.plane + p.x,
                                       b.w + patch(o) + p.w);
        }
    }
}

// The places of a weight in [output][channel][ky][kx] and in [output][group][ky][kx][channel] with
// rows in whole registers.
template <class F>
void each_weight(const Block& b, F f) {
    long i = 0;
    for (long o = 0; o < b.outputs; ++o)
        for (long c = 0; c < b.channels; ++c)
            for (long ky = 0; ky < b.kernel; ++ky) {
                const long packed =
                    (o * b.groups + c / b.stride) * b.patch + ky * b.patch_row + c % b.stride;
                for (long kx = 0; kx < b.kernel; ++kx) f(i++, packed + kx * b.stride);
            }
}

}  // namespace

extern "C" {

// Floats that forward keeps of n samples for backward. input_gradient: the images will get a
// gradient (the same in all three calls).
long EXPORTED(memory)(const Shape* shapes, int blocks, long n, int input_gradient) {
    Chain all = chain(shapes, blocks, input_gradient);
    Pool count{nullptr};
    keep(all, count, n);
    return count.used;
}

// Images and output are [sample][channel][row][column]. biases[i] may be null; memory is null when
// no gradient will be asked for. Tells whether backward may leave out gradients of zero: not where
// a weight or an input is not finite, since zero times it is NaN.
int EXPORTED(forward)(const Shape* shapes, int blocks, long n, const float* images,
                      const float* const* weights, const float* const* biases, float* output,
                      float* memory, int input_gradient) {
    Chain all = chain(shapes, blocks, input_gradient);
    const Block &first = all.front(), &last = all.back();
    float* result;
    Pool kept{memory};
    keep(all, kept, n);
    with_scratch([&](Pool& pool) {
        for (Block& b : all) {
            b.w = pool.take(b.taps * b.out_groups * LANES);
            b.bias = pool.take(b.out_groups * LANES);
            if (!memory) b.x = pool.take(TOGETHER * b.in_size());
        }
        result = pool.take(TOGETHER * last.out_size());
    });
    bool all_finite = true;
    for (int i = 0; i < blocks; ++i) {
        pack_forward(all[i], weights[i], biases[i]);
        if (memory) all_finite = all_finite && finite(weights[i], all[i].taps * all[i].outputs);
    }

    for (long s = 0; s < n; s += TOGETHER) {
        const long size = std::min(TOGETHER, n - s), at = memory ? s : 0;
        for (long k = 0; k < size; ++k, images += first.channels * first.height * first.width)
            pack_sample(first, images, first.x + (at + k) * first.in_size());
        for (int i = 0; i < blocks; ++i) {
            const Block& b = all[i];
            Target to{result, b.out_size(), b.out_plane, b.columns * LANES,
                      memory ? b.winner + s * b.out_size() : nullptr};
            if (i + 1 < blocks) {
                const Block& next = all[i + 1];
                float* y = next.x + at * next.in_size();
                for (long k = 0; k < size; ++k) clear_border(next, y + k * next.in_size());
                to = {y + next.inside(), next.in_size(), next.plane, next.row, to.winner};
            }
            const auto run = b.stride == LANES ? convolve<Input<LANES, 0>>
                             : b.stride == 3   ? convolve<Input<3, 0>>
                             : b.kernel == 5   ? convolve<Input<1, 5>>
                                               : convolve<Input<1, 3>>;
            const float* const x = b.x + at * b.in_size();
            if (memory) all_finite = all_finite && finite(x, size * b.in_size());
            run(b, x, to, size);
        }
        for (long k = 0; k < size; ++k)
            for (long o = 0; o < last.outputs; ++o) {
                const float* p =
                    result + k * last.out_size() + o / LANES * last.out_plane + o % LANES;
                for (long i = 0; i < last.out_plane; i += LANES) *output++ = p[i];
            }
    }
    return all_finite;
}

// dimages, dweights[i] and dbiases[i] are null where no gradient is wanted.
void EXPORTED(backward)(const Shape* shapes, int blocks, long n, const float* const* weights,
                       float* memory, const float* dout, float* const* dweights,
                       float* const* dbiases, float* dimages, int input_gradient) {
    Chain all = chain(shapes, blocks, input_gradient);
    int lowest = 0;  // below it nothing wants a gradient
    if (!dimages)
        while (lowest < blocks && !dweights[lowest] && !dbiases[lowest]) ++lowest;
    const auto down = [&](int i) { return i > lowest || dimages; };

    const auto slice = [&](const Block& b) {
        return std::max<long>(1, std::min(n, SLICE / b.plane));
    };
    Live* lists;
    Pool kept{memory};
    keep(all, kept, n);
    with_scratch([&](Pool& pool) {
        long largest = 0, most = 0;
        for (Block& b : all) {
            b.w = pool.take(b.patches());
            b.dw = pool.take(b.patches());
            b.dbias = pool.take(b.outputs);
            largest = std::max(largest, n * b.in_size());
            most = std::max(most, LANES * slice(b) * b.rows * b.columns);
        }
        lists = reinterpret_cast<Live*>(pool.take(2 * most));
        float* const dx[2] = {pool.take(largest),
                              pool.take(largest)};  // of this block and of the one above
        for (int i = 0; i < blocks; ++i) all[i].dx = dx[i % 2];
    });

    for (int i = blocks - 1; i >= lowest; --i) {
        Block& b = all[i];
        const auto window = parts(b);
        clear(b.dw, b.patches());
        clear(b.dbias, b.outputs);
        if (down(i)) {
            clear(b.w, b.patches());
            each_weight(b, [&](long plain, long packed) { b.w[packed] = weights[i][plain]; });
        }
        for (long s = 0, size; s < n; s += size) {
            size = std::min(slice(b), n - s);
            block_backward(b, window, i + 1 < blocks ? &all[i + 1] : nullptr, dout, s, size, lists,
                           dweights[i] || dbiases[i], down(i));
        }
        if (dweights[i])
            each_weight(b, [&](long plain, long packed) { dweights[i][plain] = b.dw[packed]; });
        if (dbiases[i]) std::memcpy(dbiases[i], b.dbias, b.outputs * sizeof(float));
    }
    if (!dimages) return;
    const Block& b = all[0];
    for (long s = 0; s < n; ++s)
        for (long c = 0; c < b.channels; ++c) {
            const float* p = b.dx + s * b.in_size() + c / LANES * b.plane + b.inside() + c % LANES;
            for (long y = 0; y < b.height; ++y, p += b.row)
                for (long i = 0; i < b.width; ++i) *dimages++ = p[i * LANES];
        }
}
}
