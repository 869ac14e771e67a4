// Contractions of a line of numbers in registers with a 1-D matrix, (3a)-(4f) of the tensor report.
//
// A matrix is a type M: M::rows, M::cols, M::sign, and its entries. Where turning it upside down
// and around gives sign times itself, M::even(r, c) and M::odd(r, c) multiply sums and differences
// of mirrored numbers (half the multiplications); with sign 0 M::entry(r, c) are the entries.
// Indices are known when the loops are unrolled, so that an entry's place in constant memory is known.

template <class M>
struct Transposed {
    static constexpr int rows = M::cols, cols = M::rows, sign = M::sign;
    static constexpr bool identity = M::identity;
    static __device__ __forceinline__ T entry(int r, int c) { return M::entry(c, r); }
    static __device__ __forceinline__ T even(int r, int c) {
        return sign > 0 ? M::even(c, r) : M::odd(c, r);
    }
    static __device__ __forceinline__ T odd(int r, int c) {
        return sign > 0 ? M::odd(c, r) : M::even(c, r);
    }
};

template <class M>
__device__ __forceinline__ void contract_full(const T (&x)[M::cols], T (&y)[M::rows]) {
#pragma unroll
    for (int r = 0; r < M::rows; ++r) {
        T sum = M::entry(r, 0) * x[0];
#pragma unroll
        for (int c = 1; c < M::cols; ++c) sum += M::entry(r, c) * x[c];
        y[r] = sum;
    }
}

template <class M>
__device__ __forceinline__ void contract_split(const T (&x)[M::cols], T (&y)[M::rows]) {
    constexpr int R = M::rows, C = M::cols, HALF = C / 2, UP = (C + 1) / 2;
    T sums[UP], differences[HALF > 0 ? HALF : 1];
#pragma unroll
    for (int c = 0; c < HALF; ++c) {
        sums[c] = x[c] + x[C - 1 - c];
        differences[c] = x[c] - x[C - 1 - c];
    }
    if constexpr (C % 2 == 1) sums[HALF] = x[HALF];
#pragma unroll
    for (int r = 0; r < (R + 1) / 2; ++r) {
        const bool middle = 2 * r + 1 == R;
        T even = 0, odd = 0;
        if (!middle || M::sign > 0) {
            even = M::even(r, 0) * sums[0];
#pragma unroll
            for (int c = 1; c < UP; ++c) even += M::even(r, c) * sums[c];
        }
        if (HALF > 0 && (!middle || M::sign < 0)) {
            odd = M::odd(r, 0) * differences[0];
#pragma unroll
            for (int c = 1; c < HALF; ++c) odd += M::odd(r, c) * differences[c];
        }
        if (middle) {
            y[r] = M::sign > 0 ? even : odd;
        } else {
            y[r] = even + odd;
            y[R - 1 - r] = M::sign > 0 ? even - odd : odd - even;
        }
    }
}

// y = M x.
template <class M>
__device__ __forceinline__ void contract(const T (&x)[M::cols], T (&y)[M::rows]) {
    if constexpr (M::identity) {
#pragma unroll
        for (int r = 0; r < M::rows; ++r) y[r] = x[r];
    } else if constexpr (M::sign == 0) {
        contract_full<M>(x, y);
    } else {
        contract_split<M>(x, y);
    }
}

template <int STRIDE, int N>
__device__ __forceinline__ void load_line(const T* from, T (&line)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) line[i] = from[i * STRIDE];
}

template <int STRIDE, int N>
__device__ __forceinline__ void store_line(T* to, const T (&line)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i * STRIDE] = line[i];
}

template <int STRIDE, int N>
__device__ __forceinline__ void add_line(const T* from, T (&line)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) line[i] += from[i * STRIDE];
}
