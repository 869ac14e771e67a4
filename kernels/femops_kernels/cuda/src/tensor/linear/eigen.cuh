// Eigenvalues and eigenvectors of symmetric matrices by Jacobi's rotations (Golub and Van Loan,
// section 8.5), of which the lower triangle counts. The second operand gets the vectors as columns,
// and the eigenvalues as one more row, in ascending order; fails where numbers are not finite.

// Turns two rows, or two columns, against each other.
template <int SIZE>
__device__ __forceinline__ void turn(T (&table)[SIZE], int first, int second, int stride, T cosine,
                                     T sine) {
    UNROLL
    for (int k = 0; k < N; ++k) {
        const T x = table[first + k * stride], y = table[second + k * stride];
        table[first + k * stride] = cosine * x - sine * y;
        table[second + k * stride] = sine * x + cosine * y;
    }
}

// The squares of what is not on the diagonal, and of all.
__device__ __forceinline__ void squares(const Matrix<First>& a, T& off, T& whole) {
    off = whole = 0;
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = 0; j < N; ++j) {
            whole += a[i * N + j] * a[i * N + j];
            if (i != j) off += a[i * N + j] * a[i * N + j];
        }
    }
}

// Divides by the largest entry, so that squares neither overflow nor vanish; returns it.
__device__ __forceinline__ T scale_down(Matrix<First>& a) {
    constexpr T LARGE = sizeof(T) == 8 ? T(1e300) : T(1e36);
    T most = 0;
    UNROLL
    for (int k = 0; k < N * N; ++k) most = fmax(most, fabs(a[k]));
    if (!(most * LARGE > 1 && most < LARGE)) most = 1;
    UNROLL
    for (int k = 0; k < N * N; ++k) a[k] /= most;
    return most;
}

__device__ __forceinline__ void rotate(Matrix<First>& a, Matrix<Second>& vectors, T least) {
    UNROLL
    for (int p = 0; p < N - 1; ++p) {
        UNROLL
        for (int q = p + 1; q < N; ++q) {
            const T off = a[p * N + q];
            if (!(fabs(off) > least)) continue;
            const T theta = (a[q * N + q] - a[p * N + p]) / (off + off);
            const T tangent = (theta < 0 ? T(-1) : T(1)) / (fabs(theta) + sqrt(theta * theta + 1));
            const T cosine = 1 / sqrt(tangent * tangent + 1), sine = tangent * cosine;
            turn(a, p * N, q * N, 1, cosine, sine);
            turn(a, p, q, N, cosine, sine);
            turn(vectors, p, q, N, cosine, sine);
            a[p * N + q] = a[q * N + p] = 0;
        }
    }
}

__device__ __forceinline__ void sort(Matrix<Second>& vectors) {
    UNROLL
    for (int end = N - 1; end > 0; --end) {
        UNROLL
        for (int j = 0; j < end; ++j) {
            const bool swap = vectors[N * N + j] > vectors[N * N + j + 1];
            UNROLL
            for (int i = 0; i <= N; ++i) {
                const T x = vectors[i * N + j], y = vectors[i * N + j + 1];
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
        for (int j = 0; j < N; ++j) vectors[i * N + j] = i == j ? 1 : 0;
        UNROLL
        for (int j = i + 1; j < N; ++j) a[i * N + j] = a[j * N + i];
    }
    const T norm = scale_down(a);
    T off, whole;
    squares(a, off, whole);
#pragma unroll 1
    for (int sweep = 0; sweep < SWEEPS && off > whole * TINY; ++sweep) {
        rotate(a, vectors, sqrt(whole) * LEAST);
        squares(a, off, whole);
    }
    T sum = 0;
    UNROLL
    for (int i = 0; i < N; ++i) {
        vectors[N * N + i] = a[i * N + i] * norm;
        sum += a[i * N + i] * 0;
    }
    note(!(sum == 0), 1, status);
    sort(vectors);
}
