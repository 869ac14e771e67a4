// As stream.cuh, through shared memory: one thread has the whole block's copied there while they
// interpolate, and asks for what a later block will copy. No thread has registers for what comes.

struct Stream {
    const Pack<S>* pieces;
    Arrival* arrival;

    __device__ __forceinline__ Stream(const Arguments& a) {
        char* here = dynamic_shared() + STAGE_AT;
        pieces = reinterpret_cast<const Pack<S>*>(here) + threadIdx.x;
        arrival = reinterpret_cast<Arrival*>(here + STREAM_BYTES);
        if (threadIdx.x == 0) {
            const long long block = block_of(a);
            const char* from = reinterpret_cast<const char*>(a.points) + block * STREAM_BYTES;
            begin_copy(*arrival, here, from, STREAM_BYTES);
            if (block + a.ahead < a.blocks) {
                prefetch_bytes(from + (long long)a.ahead * STREAM_BYTES, STREAM_BYTES);
            }
        }
        __syncthreads();  // all know what they are going to wait for
    }
    // Pieces are asked for in order.
    __device__ __forceinline__ Pack<S> piece(int n) const {
        if (n == 0) wait_for_copy(*arrival);
        return pieces[n * THREADS];
    }
};
