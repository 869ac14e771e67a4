// Vector updates and inner products of conjugate gradients around a preconditioner, whose vectors z
// may have another type; which of them is PART. The last thread of a launch leaves the sums.

template <class Z>
__device__ __forceinline__ void set(Z* at, T value) {
    *at = Z(value);
}

ENTRY(THREADS, BLOCKS, Arguments) {
    double sums[2] = {0, 0};
    const long long step = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < a.count; i += step) {
        if constexpr (PART == INNER) {
            sums[0] += double(a.r[i]) * a.z[i];
        } else if constexpr (PART == INNERS) {
            const double z = a.z[i];
            sums[0] += double(a.product[i]) * z;
            sums[1] += double(a.r[i]) * z;
        } else if constexpr (PART == MOVE) {
            a.x[i] += a.factor * a.p[i];
            const T r = a.r[i] - a.factor * a.product[i];
            a.r[i] = r;
            set(a.z + i, a.scale * r);
            sums[0] += double(r) * r;
        } else {
            a.p[i] = a.factor * a.p[i] + a.scale * T(a.z[i]);
        }
    }
    if constexpr (PART != TURN) {
        if (all_sums(sums, a.partial, a.counters)) {
            a.sums[0] = sums[0];
            a.sums[1] = sums[1];
        }
    }
}
