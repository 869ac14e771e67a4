// Solves with one triangle, X in place of the right sides; fails at the first zero of a diagonal.

// With CONJUGATED, T's complex conjugate.
template <bool LOWER, bool TRANSPOSED, bool UNIT, bool CONJUGATED>
__device__ __forceinline__ void substitute(const Matrix<First>& t, Matrix<Second>& x,
                                           int& status) {
    constexpr bool FORWARD = LOWER != TRANSPOSED;
    constexpr int RIGHT = Second::COLUMNS;
    UNROLL
    for (int step = 0; step < N; ++step) {
        const int i = FORWARD ? step : N - 1 - step;
        UNROLL
        for (int before = 0; before < step; ++before) {
            const int k = FORWARD ? before : N - 1 - before;
            const Entry there = TRANSPOSED ? t[k * N + i] : t[i * N + k];
            const Entry factor = CONJUGATED ? conjugate(there) : there;
            UNROLL
            for (int r = 0; r < RIGHT; ++r) {
                x[i * RIGHT + r] = x[i * RIGHT + r] - factor * x[k * RIGHT + r];
            }
        }
        if constexpr (!UNIT) {
            const bool good = size_of(t[i * N + i]) > 0;
            note(!good, i + 1, status);
            const Entry pivot = good ? t[i * N + i] : entry(1);
            const Entry scale = inverse(CONJUGATED ? conjugate(pivot) : pivot);
            UNROLL
            for (int r = 0; r < RIGHT; ++r) x[i * RIGHT + r] = x[i * RIGHT + r] * scale;
        }
    }
}

// Fails at a row of the triangle that has an entry which is not finite.
template <bool LOWER, bool UNIT>
__device__ __forceinline__ void check_rows(const Matrix<First>& t, int& status) {
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = 0; j < N; ++j) {
            const bool read = (LOWER ? j < i : j > i) || (!UNIT && j == i);
            note(read && !finite(size_of(t[i * N + j])), i + 1, status);
        }
    }
}
