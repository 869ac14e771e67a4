// Rate of shared memory: numbers of 8 bytes, neighbours read and written by neighbouring threads.
//
// Each thread has a column of its own. Where it writes is known only when it runs, so that all that
// it reads has to be read again.

constexpr int ROWS = 8;

ENTRY(THREADS, 1, Arguments) {
    long long* column = reinterpret_cast<long long*>(dynamic_shared()) + threadIdx.x;
    long long sums[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; ++k) column[k * THREADS] = sums[k] = threadIdx.x + k;
    for (int round = 0; round < a.rounds; ++round) {
#pragma unroll
        for (int k = 0; k < ROWS; ++k) sums[k] ^= column[k * THREADS];
#pragma unroll
        for (int k = 0; k < ROWS; ++k) column[((round + k) % ROWS) * THREADS] = sums[k];
    }
    long long all = 0;
#pragma unroll
    for (int k = 0; k < ROWS; ++k) all ^= sums[k];
    a.y[(long long)blockIdx.x * THREADS + threadIdx.x] = all;
}
