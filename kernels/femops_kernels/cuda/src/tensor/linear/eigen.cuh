// Eigenvalues and eigenvectors of symmetric or Hermitian matrices by Jacobi's rotations (Golub and
// Van Loan, section 8.5), of which the lower triangle counts. The second operand gets the vectors as columns,
// and the eigenvalues as one more row, in ascending order; fails where numbers are not finite.

// Turns two columns, or two rows by the conjugate of the sine, against each other.
template <int SIZE>
__device__ __forceinline__ void turn(Entry (&table)[SIZE], int first, int second, int stride,
                                     T cosine, const Entry& sine) {
    UNROLL
    for (int k = 0; k < N; ++k) {
        const Entry x = table[first + k * stride], y = table[second + k * stride];
        table[first + k * stride] = x * cosine - y * conjugate(sine);
        table[second + k * stride] = x * sine + y * cosine;
    }
}

// The squares of what is not on the diagonal, and of all.
__device__ __forceinline__ void squares(const Matrix<First>& a, T& off, T& whole) {
    off = whole = 0;
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = 0; j < N; ++j) {
            const T one = square(a[i * N + j]);
            whole += one;
            if (i != j) off += one;
        }
    }
}

// Divides by the largest entry, so that squares neither overflow nor vanish; returns it.
__device__ __forceinline__ T scale_down(Matrix<First>& a) {
    T most = 0;
    UNROLL
    for (int k = 0; k < N * N; ++k) most = fmax(most, size_of(a[k]));
    if (!(most > 0)) most = 1;
    UNROLL
    for (int k = 0; k < N * N; ++k) a[k] = a[k] / most;
    return most;
}

__device__ __forceinline__ void rotate(Matrix<First>& a, Matrix<Second>& vectors, T least) {
    UNROLL
    for (int p = 0; p < N - 1; ++p) {
        UNROLL
        for (int q = p + 1; q < N; ++q) {
            const Entry off = a[p * N + q];
            const T length = length_of(off);
            if (!(length > least)) continue;
            const T difference = real_part(a[q * N + q]) - real_part(a[p * N + p]);
            const T theta = difference / (length + length);
            const T tangent = (theta < 0 ? T(-1) : T(1)) / (fabs(theta) + sqrt(theta * theta + 1));
            const T cosine = 1 / sqrt(tangent * tangent + 1);
            const Entry sine = off * (tangent * cosine / length);
            turn(a, p, q, N, cosine, sine);
            turn(a, p * N, q * N, 1, cosine, conjugate(sine));
            turn(vectors, p, q, N, cosine, sine);
            a[p * N + q] = a[q * N + p] = entry(0);
            a[p * N + p] = entry(real_part(a[p * N + p]));
            a[q * N + q] = entry(real_part(a[q * N + q]));
        }
    }
}

__device__ __forceinline__ void sort(Matrix<Second>& vectors) {
    UNROLL
    for (int end = N - 1; end > 0; --end) {
        UNROLL
        for (int j = 0; j < end; ++j) {
            const bool swap = real_part(vectors[N * N + j]) > real_part(vectors[N * N + j + 1]);
            UNROLL
            for (int i = 0; i <= N; ++i) {
                const Entry x = vectors[i * N + j], y = vectors[i * N + j + 1];
                vectors[i * N + j] = swap ? y : x;
                vectors[i * N + j + 1] = swap ? x : y;
            }
        }
    }
}

__device__ __forceinline__ void find_eigenvalues(Matrix<First>& a, Matrix<Second>& vectors,
                                                 int& status) {
    constexpr T TINY = sizeof(T) == 8 ? T(1e-31) : T(1e-13);  // of the norm's square: what is left
    constexpr T LEAST = sizeof(T) == 8 ? T(1e-17) : T(1e-8);  // of the norm: what is not turned
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = 0; j < N; ++j) vectors[i * N + j] = entry(i == j ? 1 : 0);
        UNROLL
        for (int j = i + 1; j < N; ++j) a[i * N + j] = conjugate(a[j * N + i]);
        a[i * N + i] = entry(real_part(a[i * N + i]));
    }
    const T norm = scale_down(a);
    T off, whole;
    squares(a, off, whole);
#pragma unroll 1
    for (int sweep = 0; sweep < SWEEPS && off > whole * TINY; ++sweep) {
        rotate(a, vectors, sqrt(whole) * LEAST);
        squares(a, off, whole);
    }
    UNROLL
    for (int i = 0; i < N; ++i) vectors[N * N + i] = entry(real_part(a[i * N + i]) * norm);
    note(!finite(whole), 1, status);
    sort(vectors);
}
