// Rate of arithmetic: chains of multiply-adds, enough of them to hide their latency.

constexpr int CHAINS = 8;

ENTRY(THREADS, 1, Arguments) {
    T chains[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) chains[k] = threadIdx.x + k;
    for (int round = 0; round < a.rounds; ++round) {
#pragma unroll
        for (int k = 0; k < CHAINS; ++k) chains[k] = a.factor * chains[k] + a.term;
    }
    T sum = 0;
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) sum += chains[k];
    a.y[(long long)blockIdx.x * THREADS + threadIdx.x] = sum;
}
