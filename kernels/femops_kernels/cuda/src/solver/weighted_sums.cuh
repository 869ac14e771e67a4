// Weighted sums of vectors, entry by entry, in one pass:
//
//     first = sum of weights times vectors,
//     second = sum of weights times vectors, then second += share (mean - second).
//
// The first sum is missing where `first` is; it may be a vector of the second sum. The vectors of a
// sum come before those that are missing. Entries stay in the order of threads, so vectors need not
// be aligned.

template <int N>
struct Terms {
    const T* vectors[N];
    T weights[N];

    // All numbers are loaded before the first is needed. That of `known` is not loaded again.
    __device__ __forceinline__ T sum(long long i, const T* known, T value) const {
        T numbers[N];
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (vectors[k] != nullptr) numbers[k] = vectors[k] == known ? value : vectors[k][i];
        }
        T total = weights[0] * numbers[0];
#pragma unroll
        for (int k = 1; k < N; ++k) {
            if (vectors[k] != nullptr) total += weights[k] * numbers[k];
        }
        return total;
    }
};

ENTRY(THREADS, 1, Arguments) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.count) return;
    T before = 0;
    if (a.first != nullptr) {
        const Terms<2> terms = {{a.a0, a.a1}, {a.f0, a.f1}};
        before = terms.sum(i, nullptr, 0);
        a.first[i] = before;
    }
    const Terms<8> terms = {{a.b0, a.b1, a.b2, a.b3, a.b4, a.b5, a.b6, a.b7},
                            {a.g0, a.g1, a.g2, a.g3, a.g4, a.g5, a.g6, a.g7}};
    T total = terms.sum(i, a.first, before);
    if (a.mean != nullptr) total += a.share * ((a.mean == a.first ? before : a.mean[i]) - total);
    a.second[i] = total;
}
