// As stream.cuh, through shared memory: one thread has a whole portion's copied there, and asks for
// what will be copied later. No thread has registers for what comes. A persistent block has the next
// portion's copied as soon as all have read this one's, while they work on.

struct Stream {
    const Pack<S>* pieces;
    Arrival* arrival;
    unsigned parity;  // of the number of copies before
    template <class R>
    static constexpr int RUNS = Dofs<R::P, R::BROKEN>::RUNS;

    __device__ __forceinline__ Stream(const Arguments& a, int portion) : parity(0) {
        char* here = dynamic_shared() + STAGE_AT;
        pieces = reinterpret_cast<const Pack<S>*>(here) + threadIdx.x / VECTORS;
        arrival = reinterpret_cast<Arrival*>(here + STREAM_BYTES);
        if (threadIdx.x == 0) {
            prepare(*arrival);
            bring(a, portion);
        }
        __syncthreads();  // all know what they are going to wait for
    }
    // By one thread.
    __device__ __forceinline__ void bring(const Arguments& a, int portion) const {
        const char* from =
            reinterpret_cast<const char*>(a.points) + (long long)portion * STREAM_BYTES;
        begin_copy(*arrival, dynamic_shared() + STAGE_AT, from, STREAM_BYTES);
        const int ahead = PERSISTENT ? gridDim.x : a.ahead;
        const bool first = !MANY || blockIdx.x % (unsigned)a.groups == 0;  // of the portion's blocks
        if (first && portion + ahead < a.behind) {
            prefetch_bytes(from + (long long)ahead * STREAM_BYTES, STREAM_BYTES);
        }
    }
    // Asks for the runs of a portion's elements, which its gather will wait for first. Where the order
    // of elements is a list, that would have to be waited for here.
    template <class... R>
    static __device__ __forceinline__ void ask_for_runs(const Arguments& a, int portion, Sides<R...>) {
        const long long first = (long long)portion * ELEMENTS;
        if (ORDERED || first + ELEMENTS > a.count) return;
        (prefetch_around(R::starts(a) + first * RUNS<R>, ELEMENTS * RUNS<R> * sizeof(int)), ...);
    }
    // Pieces are asked for in order.
    __device__ __forceinline__ Pack<S> piece(int n) const {
        if (n == 0) wait_for_copy(*arrival, parity);
        return pieces[n * (THREADS / VECTORS)];
    }
    // All pieces have been read: those of the next portion may come. Waits for the block.
    __device__ __forceinline__ void next(const Arguments& a, int portion) {
        if constexpr (PERSISTENT) {
            order_before_copies();
            __syncthreads();
            if (threadIdx.x == 0 && portion < a.behind) {
                bring(a, portion);
                ask_for_runs(a, portion, Sources{});
            }
            parity ^= 1;
        }
    }
};
