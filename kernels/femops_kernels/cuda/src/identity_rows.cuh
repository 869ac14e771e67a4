// Constrained entries: each thread sets one.

ENTRY(THREADS, 1, Arguments) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < a.count) a.y[a.positions[i]] = a.factor * a.x[a.positions[i]];
}
