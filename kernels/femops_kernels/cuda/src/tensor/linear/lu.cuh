// LU factors with rows exchanged, A[p] = L U, in place of A; fails at the first column without a
// finite pivot. Where rows are is known when the loops are unrolled: they are exchanged by selection.

template <int COLUMNS>
__device__ __forceinline__ void exchange(Entry (&table)[N * COLUMNS], int j, int row) {
    UNROLL
    for (int i = 0; i < N; ++i) {
        if (i > j && i == row) {
            UNROLL
            for (int k = 0; k < COLUMNS; ++k) {
                const Entry kept = table[j * COLUMNS + k];
                table[j * COLUMNS + k] = table[i * COLUMNS + k];
                table[i * COLUMNS + k] = kept;
            }
        }
    }
}

// A is factored; the same is done to the rows of X if it is eliminated, else rows are exchanged.
template <bool ELIMINATED, int COLUMNS>
__device__ __forceinline__ void factor_any(Matrix<First>& a, Entry (&x)[N * COLUMNS],
                                           int& status) {
    UNROLL
    for (int j = 0; j < N; ++j) {
        int row = j;
        T most = size_of(a[j * N + j]);
        UNROLL
        for (int i = j + 1; i < N; ++i) {
            const T size = size_of(a[i * N + j]);
            if (size > most) {
                most = size;
                row = i;
            }
        }
        exchange<N>(a, j, row);
        exchange<COLUMNS>(x, j, row);
        const bool good = usable_pivot(size_of(a[j * N + j]));
        note(!good, j + 1, status);
        if (ELIMINATED && !good) a[j * N + j] = entry(1);
        const Entry scale = inverse(good ? a[j * N + j] : entry(1));
        UNROLL
        for (int i = j + 1; i < N; ++i) {
            const Entry factor = a[i * N + j] * scale;
            a[i * N + j] = factor;
            UNROLL
            for (int k = j + 1; k < N; ++k) a[i * N + k] = a[i * N + k] - factor * a[j * N + k];
            if constexpr (ELIMINATED) {
                UNROLL
                for (int r = 0; r < COLUMNS; ++r) {
                    x[i * COLUMNS + r] = x[i * COLUMNS + r] - factor * x[j * COLUMNS + r];
                }
            }
        }
    }
}
