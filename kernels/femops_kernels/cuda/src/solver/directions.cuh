// Vector updates and inner products of conjugate gradients around a preconditioner, whose vectors z
// may have another type; which of them is PART. The last thread of a launch leaves the sums.

constexpr int PIECE = 16 / sizeof(T);
constexpr int AHEAD = PART == INNER || PART == INNERS ? 2 : 1;  // pieces, where nothing is stored

template <int N, class Z>
__device__ __forceinline__ void write_scaled(Z* to, T factor, const Pack<T, N>& from) {
    Pack<Z, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.v[j] = Z(factor * from.v[j]);
    write_pack(to, pack);
}

// Entries that lie one after the other, from the i-th on.
template <int N>
__device__ __forceinline__ void update(const Arguments& a, long long i, double (&sums)[2]) {
    if constexpr (PART == INNER) {
        const auto r = read_pack<N>(a.r + i);
        const auto z = read_pack<N>(a.z + i);
#pragma unroll
        for (int j = 0; j < N; ++j) sums[0] += double(r.v[j]) * z.v[j];
    } else if constexpr (PART == INNERS) {
        const auto product = read_pack<N>(a.product + i), r = read_pack<N>(a.r + i);
        const auto z = read_pack<N>(a.z + i);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            sums[0] += double(product.v[j]) * z.v[j];
            sums[1] += double(r.v[j]) * z.v[j];
        }
    } else if constexpr (PART == MOVE) {
        const auto p = read_pack<N>(a.p + i), product = read_pack<N>(a.product + i);
        auto x = read_pack<N>(a.x + i), r = read_pack<N>(a.r + i);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            x.v[j] += a.factor * p.v[j];
            r.v[j] -= a.factor * product.v[j];
            sums[0] += double(r.v[j]) * r.v[j];
        }
        write_pack(a.x + i, x);
        write_pack(a.r + i, r);
        write_scaled(a.z + i, a.scale, r);
    } else {
        auto p = read_pack<N>(a.p + i);
        const auto z = read_pack<N>(a.z + i);
#pragma unroll
        for (int j = 0; j < N; ++j) p.v[j] = a.factor * p.v[j] + a.scale * T(z.v[j]);
        write_pack(a.p + i, p);
    }
}

ENTRY(THREADS, BLOCKS, Arguments) {
    double sums[2] = {0, 0};
    const long long first = (long long)blockIdx.x * THREADS + threadIdx.x;
    const long long step = (long long)gridDim.x * THREADS;
#pragma unroll AHEAD
    for (long long k = first; k < a.pieces; k += step) update<PIECE>(a, k * PIECE, sums);
#pragma unroll 1
    for (long long i = a.pieces * PIECE + first; i < a.count; i += step) update<1>(a, i, sums);
    if constexpr (PART != TURN) {
        if (all_sums(sums, a.partial, a.counters)) {
            a.sums[0] = sums[0];
            a.sums[1] = sums[1];
        }
    }
}
