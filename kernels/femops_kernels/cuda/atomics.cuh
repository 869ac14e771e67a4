// Rate of atomics: neighbouring threads add to neighbouring entries of a vector that caches hold.

ENTRY(THREADS, 1, Arguments) {
    const long long first = (long long)blockIdx.x * THREADS + threadIdx.x;
    const long long step = (long long)gridDim.x * THREADS;
    for (int round = 0; round < a.rounds; ++round) {
        atomicAdd(a.y + (first + round * step) % a.count, T(1));
    }
}
