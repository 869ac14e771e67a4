// What kernels find on a GPU; put before each of them. The compiler needs no header: it knows
// threadIdx and the like, atomicAdd, __threadfence, __ldg, __ldcs, double2, float4 and the functions of <cmath>,
// those for float and double overloaded, by itself.

// 16 bytes of numbers that lie one after the other: what a thread loads at once.
template <typename T>
struct alignas(16) Pack {
    T v[16 / sizeof(T)];
};

// Loads of 16 bytes, at an address that is a multiple of 16, of what is read only once.
__device__ __forceinline__ Pack<double> load_pack(const double* from) {
    const double2 two = __ldcs(reinterpret_cast<const double2*>(from));
    return {{two.x, two.y}};
}

__device__ __forceinline__ Pack<float> load_pack(const float* from) {
    const float4 four = __ldcs(reinterpret_cast<const float4*>(from));
    return {{four.x, four.y, four.z, four.w}};
}

__device__ __forceinline__ Pack<int> load_pack(const int* from) {
    const int4 four = __ldcs(reinterpret_cast<const int4*>(from));
    return {{four.x, four.y, four.z, four.w}};
}

// Asks for a line of the second-level cache.
__device__ __forceinline__ void prefetch_line(const void* at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// The block's dynamic shared memory, at a multiple of 16 bytes.
__device__ __forceinline__ char* dynamic_shared() {
    extern __shared__ __align__(16) char dynamic_shared_memory[];
    return dynamic_shared_memory;
}

// Opens the entry point, whose body follows: run by blocks of at most MOST_THREADS threads, of
// which a multiprocessor shall have room for LEAST_BLOCKS; `a` are its arguments.
#define ENTRY(MOST_THREADS, LEAST_BLOCKS, Arguments)                         \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS, LEAST_BLOCKS) \
        entry(const __grid_constant__ Arguments a)

