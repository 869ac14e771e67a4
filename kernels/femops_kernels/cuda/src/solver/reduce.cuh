// Sums over all threads of a launch, in an order that depends on its shape alone.

constexpr int COLUMNS = THREADS < 16 ? THREADS : 16;  // threads that add what all have

// Sums over the block, which thread 0 has afterwards; `shared` has room for COUNT * THREADS.
template <int COUNT>
__device__ __forceinline__ void block_sums(double (&sums)[COUNT], double* shared) {
    __syncthreads();  // it may still be read
#pragma unroll
    for (int k = 0; k < COUNT; ++k) shared[k * THREADS + threadIdx.x] = sums[k];
    __syncthreads();
    for (int c = threadIdx.x; c < COUNT * COLUMNS; c += THREADS) {
        const int first = c % COLUMNS;
        double* column = shared + c / COLUMNS * THREADS + first;
        double sum = 0;
        for (int t = 0; t < THREADS - first; t += COLUMNS) sum += column[t];
        *column = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            sums[k] = 0;
            for (int t = 0; t < COLUMNS; ++t) sums[k] += shared[k * THREADS + t];
        }
    }
}

// Sums over all blocks, for one thread, to which it says true. A group of as many blocks as a block
// has threads is added by its last one to come here, such groups of groups by the last of these.
// Takes the block's shared memory; the counters are zero before and after.
template <int COUNT>
__device__ __forceinline__ bool all_sums(double (&sums)[COUNT], double* partial,
                                         unsigned* counters) {
    double* shared = reinterpret_cast<double*>(dynamic_shared());
    unsigned place = blockIdx.x, count = gridDim.x;
    for (;;) {
        block_sums(sums, shared);
        if (count == 1) return threadIdx.x == 0;
        const unsigned group = place / THREADS, first = group * THREADS;
        const unsigned members = count - first < THREADS ? count - first : THREADS;
        if (threadIdx.x == 0) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) partial[place * COUNT + k] = sums[k];
            __threadfence();
            const bool last = atomicAdd(counters + group, 1u) + 1 == members;
            if (last) {
                atomicAdd(counters + group, 0u - members);
                __threadfence();  // for the others' sums; who is not the last reads none
            }
            shared[0] = last;
        }
        __syncthreads();
        if (shared[0] == 0) return false;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            sums[k] = threadIdx.x < members ? partial[(first + threadIdx.x) * COUNT + k] : 0;
        }
        partial += count * COUNT;
        place = group;
        count = (count + THREADS - 1) / THREADS;
        counters += count;
    }
}
