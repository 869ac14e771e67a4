// Rate of atomics: neighbouring threads add to neighbouring entries of a vector that caches hold.

ENTRY(THREADS, 1, Arguments) {
    // no division in the loop, which would take longer than an addition
    const int count = a.count, step = gridDim.x * THREADS % count;
    int at = (blockIdx.x * THREADS + threadIdx.x) % count;
    for (int round = 0; round < a.rounds; ++round) {
        atomicAdd(a.y + at, T(1));
        at += step;
        if (at >= count) at -= count;
    }
}
