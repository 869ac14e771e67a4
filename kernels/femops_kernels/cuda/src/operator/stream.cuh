// What is stored at points, as a thread of the kernel reads it: pieces of 16 bytes, which the threads
// of a block have side by side; those of one line share them. Each loads its own when it comes to the points, in as many registers
// as there are, from the second-level cache, where the block has asked for all of it before.

struct Stream {
    const S* pieces;

    __device__ __forceinline__ Stream(const Arguments& a, int portion) {
        if constexpr (NQDATA == 0) return;
        constexpr int LINE = 128, COUNT = (STREAM_BYTES + LINE - 1) / LINE;
        const char* block =
            reinterpret_cast<const char*>(a.points) + (long long)portion * STREAM_BYTES;
#pragma unroll
        for (int n = 0; n < COUNT; n += THREADS) {
            const int line = n + threadIdx.x;
            if (n + THREADS <= COUNT || line < COUNT) prefetch_line(block + line * LINE);
        }
        pieces = reinterpret_cast<const S*>(block) + threadIdx.x / VECTORS * PIECE;
    }
    __device__ __forceinline__ Pack<S> piece(int n) const {
        const S* from = pieces + (long long)n * (THREADS / VECTORS) * PIECE;
        if constexpr (MANY) return read_pack<PIECE>(from);  // other blocks read it too
        return load_pack(from);
    }
    __device__ __forceinline__ void next(const Arguments&, int) {}
};
