// What kernels find on a GPU; put before each of them. The compiler needs no header: it knows
// threadIdx and the like, atomicAdd, __threadfence, __ldg, __ldcs, double2, float4 and the functions of <cmath>,
// those for float and double overloaded, by itself.

// Numbers that lie one after the other, 16 bytes if not told otherwise: what a thread loads at once.
template <typename T, int N = 16 / sizeof(T)>
struct alignas(N * sizeof(T)) Pack {
    T v[N];
};

// A pack at an address that is a multiple of its size, which stays in the caches, and is written.
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> read_pack(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, typename T>
__device__ __forceinline__ void write_pack(T* to, const Pack<T, N>& pack) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

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

// a / det for the determinant of an element's map, in half of the instructions of a division. The
// hardware knows the reciprocal y to 18 bits or more; with det y = 1 - e it is y (1 + e + e^2 + ...),
// and what is left out is less than 2^-54 of it. It is rounded, and the product with a. Determinants
// that are not between 2^-1007 and 2^993 are divided by as ever. It is one piece of assembly as the
// compiler fuses no multiplication and addition across a branch. Without a branch it would have
// several points under way, in up to half as many registers more.
__device__ __forceinline__ double by_determinant(double a, double det) {
    double quotient;
    asm("{\n"
        ".reg .pred far;\n"
        ".reg .b32 low, high;\n"
        ".reg .f64 y, e, minus;\n"
        "mov.b64 {low, high}, %2;\n"  // high: sign and exponent first
        "sub.u32 high, high, 0x01000000;\n"
        "setp.gt.u32 far, high, 0x7d000000;\n"
        "@far bra SLOW;\n"
        "neg.f64 minus, %2;\n"
        "rcp.approx.ftz.f64 y, %2;\n"
        "fma.rn.f64 e, minus, y, 0d3FF0000000000000;\n"
        "fma.rn.f64 e, e, e, e;\n"
        "fma.rn.f64 y, y, e, y;\n"
        "mul.rn.f64 %0, %1, y;\n"
        "bra.uni DONE;\n"
        "SLOW:\n"
        "div.rn.f64 %0, %1, %2;\n"
        "DONE:\n"
        "}"
        : "=&d"(quotient)
        : "d"(a), "d"(det));
    return quotient;
}

__device__ __forceinline__ float by_determinant(float a, float det) { return a / det; }

// The threads of a warp wait for each other, and see what the others have written.
__device__ __forceinline__ void wait_for_warp() { __syncwarp(); }

// So do some warps of a block, which together have a barrier of their own: the part-th of these.
constexpr int NAMED_BARRIERS = 15;
__device__ __forceinline__ void wait_for_part(int part, int threads) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(part + 1), "r"(threads) : "memory");
}

#if __CUDA_ARCH__ >= 900
// A copy from the device's memory to the block's shared memory, made beside what the threads do:
// sm_90 and newer can. Its place, where it comes from and its size are multiples of 16 bytes.
struct alignas(16) Arrival {
    unsigned long long barrier, unused[3];
};

// Numbers that are read once leave the second-level cache before others.
__device__ __forceinline__ unsigned long long read_once() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ unsigned shared_address(const void* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

// What the thread has done in shared memory comes before copies that are begun later, after a barrier
// if by another thread. Copies are made by the async proxy, loads and stores by the generic one, and
// a barrier alone orders accesses of one proxy (PTX ISA, "Causality order": a proxy fence along the
// path). So it needs this even where a copy only overwrites what has been read.
__device__ __forceinline__ void order_before_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// One thread prepares for copies, one after the other.
__device__ __forceinline__ void prepare(Arrival& arrival) {
    const unsigned barrier = shared_address(&arrival.barrier);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    order_before_copies();
}

// One thread begins a copy when the one before has been waited for. Others may wait for it after the
// block's next barrier, the first time after `prepare`.
__device__ __forceinline__ void begin_copy(Arrival& arrival, void* to, const void* from,
                                           unsigned bytes) {
    const unsigned barrier = shared_address(&arrival.barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(barrier), "l"(read_once())
        : "memory");
}

// Every thread that reads what was copied calls it before, with the parity of the number of copies
// before: the barrier only tells one copy from the next by it.
__device__ __forceinline__ void wait_for_copy(Arrival& arrival, unsigned parity) {
    unsigned there = 0;
    while (there == 0) {
        asm volatile(
            "{\n.reg .pred done;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
            "selp.u32 %0, 1, 0, done;\n}\n"
            : "=r"(there)
            : "r"(shared_address(&arrival.barrier)), "r"(parity)
            : "memory");
    }
}

// Asks for so many bytes, a multiple of 16 from a multiple of 16, in the second-level cache.
__device__ __forceinline__ void prefetch_bytes(const void* at, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
}

// Asks for any bytes, and for those that lie in the same 16.
__device__ __forceinline__ void prefetch_around(const void* at, unsigned bytes) {
    const unsigned before = reinterpret_cast<unsigned long long>(at) % 16;
    prefetch_bytes(static_cast<const char*>(at) - before, (before + bytes + 15) / 16 * 16);
}
#endif

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

