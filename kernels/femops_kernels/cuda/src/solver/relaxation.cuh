// A step of a relaxation, a weighted residual or correction of a multigrid cycle, in one pass:
//
//     old = scales (a product + f right) + b current + c old.
//
// Vectors are whole pieces of 16 bytes. They are read as usual: those of coarse levels stay in the
// cache. Product, right and current may be missing; old is not read where c is zero.

constexpr int PIECE = 16 / sizeof(T);

__device__ __forceinline__ void add_scaled(Pack<T>& sum, T factor, const T* from, long long i) {
    const Pack<T> pack = read_pack<PIECE>(from + i);
#pragma unroll
    for (int j = 0; j < PIECE; ++j) sum.v[j] += factor * pack.v[j];
}

ENTRY(THREADS, 1, Arguments) {
    const long long i = ((long long)blockIdx.x * THREADS + threadIdx.x) * PIECE;
    if (i >= a.count) return;
    Pack<T> sum = {};
    if (a.product != nullptr) add_scaled(sum, a.a, a.product, i);
    if (a.right != nullptr) add_scaled(sum, a.f, a.right, i);
    const Pack<T> scales = read_pack<PIECE>(a.scales + i);
#pragma unroll
    for (int j = 0; j < PIECE; ++j) sum.v[j] *= scales.v[j];
    if (a.current != nullptr) add_scaled(sum, a.b, a.current, i);
    if (a.c != T(0)) add_scaled(sum, a.c, a.old, i);
    write_pack(a.old + i, sum);
}
