// Cholesky factors A = L L^H, L in place of A; fails at the first column without a finite positive
// pivot.

__device__ __forceinline__ void factor_positive(Matrix<First>& a, int& status) {
    UNROLL
    for (int j = 0; j < N; ++j) {
        T pivot = real_part(a[j * N + j]);
        UNROLL
        for (int k = 0; k < j; ++k) pivot -= square(a[j * N + k]);
        const bool good = usable_pivot(pivot);
        note(!good, j + 1, status);
        const T root = sqrt(good ? pivot : T(1)), scale = 1 / root;
        a[j * N + j] = entry(root);
        UNROLL
        for (int i = j + 1; i < N; ++i) {
            Entry sum = a[i * N + j];
            UNROLL
            for (int k = 0; k < j; ++k) sum = sum - a[i * N + k] * conjugate(a[j * N + k]);
            a[i * N + j] = sum * scale;
            a[j * N + i] = entry(0);
        }
    }
}
