// Products of small matrices c = alpha a b + beta c for the members of a batch: what a thread does.
//
// A thread has a block of c in registers: rows that are ROW_BLOCKS apart and columns that are
// COLUMN_BLOCKS apart, so that threads side by side read numbers side by side. Where entries are,
// the functions a_row, a_term and so on say; a number's offset is the sum of two. A member may have
// several products at equal distances; all products are counted through, members outside.

struct alignas(2 * sizeof(T)) Complex {
    T re, im;
};

template <int P>
struct NumberOf {
    using type = T;
};
template <>
struct NumberOf<2> {
    using type = Complex;
};
using Number = NumberOf<PARTS>::type;

__device__ __forceinline__ void add_product(T& sum, T x, T y) { sum += x * y; }

__device__ __forceinline__ void add_product(Complex& sum, const Complex& x, const Complex& y) {
    sum.re += x.re * y.re;
    sum.re -= x.im * y.im;
    sum.im += x.re * y.im;
    sum.im += x.im * y.re;
}

__device__ __forceinline__ void set(T& number, T re, T) { number = re; }
__device__ __forceinline__ void set(Complex& number, T re, T im) { number = {re, im}; }

__device__ __forceinline__ Number number(T re, T im) {
    Number made;
    set(made, re, im);
    return made;
}

// The first entry of product p of an operand.
template <int LANES, class Base>
__device__ __forceinline__ Number* located(const Arguments& a, Base base, long long p,
                                           long long step, long long next) {
    const long long e = INNER ? p / a.products : p, d = INNER ? p % a.products : 0;
    if constexpr (APART) {
        return reinterpret_cast<Number*>(base[e]) + d * next;
    } else {
        return (Number*)base + (e / LANES * step + e % LANES + d * next);
    }
}

__device__ __forceinline__ const Number* a_of(const Arguments& a, long long p) {
    return located<LANES_A>(a, a.a, p, a.step_a, a.next_a);
}
__device__ __forceinline__ const Number* b_of(const Arguments& a, long long p) {
    return located<LANES_B>(a, a.b, p, a.step_b, a.next_b);
}
__device__ __forceinline__ Number* c_of(const Arguments& a, long long p) {
    return located<LANES_C>(a, a.c, p, a.step_c, a.next_c);
}

// A row of a block, and a column; beyond the last the last one.
constexpr bool EVEN_ROWS = ROW_BLOCKS * TILE_ROWS == ROWS;
constexpr bool EVEN_COLUMNS = COLUMN_BLOCKS * TILE_COLUMNS == COLUMNS;

__device__ __forceinline__ int row_of(int first, int i) {
    const int row = first + i * ROW_BLOCKS;
    return EVEN_ROWS || row < ROWS ? row : ROWS - 1;
}
__device__ __forceinline__ int column_of(int first, int j) {
    const int column = first + j * COLUMN_BLOCKS;
    return EVEN_COLUMNS || column < COLUMNS ? column : COLUMNS - 1;
}
__device__ __forceinline__ bool inside(int row, int column, int i, int j) {
    return (EVEN_ROWS || row + i * ROW_BLOCKS < ROWS) &&
           (EVEN_COLUMNS || column + j * COLUMN_BLOCKS < COLUMNS);
}

// Multiply-adds that are written out one by one; of more, the terms are a loop.
constexpr int TERMS_AT_ONCE = TILE_ROWS * TILE_COLUMNS * TERMS <= 1024 ? TERMS : 2;

// One block of c, to be scaled: `put` is given row, column and sum of each entry.
template <class Put>
__device__ __forceinline__ void multiply(const Number* x, const Number* y, int block, Put put) {
    const int row = ROW_BLOCKS == 1 ? 0 : block / COLUMN_BLOCKS;
    const int column = COLUMN_BLOCKS == 1 ? 0 : block % COLUMN_BLOCKS;
    Number sums[TILE_ROWS][TILE_COLUMNS] = {};
#pragma unroll TERMS_AT_ONCE
    for (int k = 0; k < TERMS; ++k) {
        Number left[TILE_ROWS], right[TILE_COLUMNS];
#pragma unroll
        for (int i = 0; i < TILE_ROWS; ++i) left[i] = x[a_row(row_of(row, i)) + a_term(k)];
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS; ++j) {
            right[j] = y[b_term(k) + b_column(column_of(column, j))];
        }
#pragma unroll
        for (int i = 0; i < TILE_ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < TILE_COLUMNS; ++j) add_product(sums[i][j], left[i], right[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < TILE_ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS; ++j) {
            if (inside(row, column, i, j)) {
                put(row_of(row, i), column_of(column, j), sums[i][j]);
            }
        }
    }
}

// c = alpha sum + beta c.
__device__ __forceinline__ void update(const Arguments& a, Number& c, const Number& sum) {
    Number value = number(0, 0);
    add_product(value, number(a.alpha, a.alpha_imag), sum);
    if constexpr (READS) add_product(value, number(a.beta, a.beta_imag), c);
    c = value;
}
