// Entries of a vector that other ranks need, one after the other, zero for a negative position: each
// thread has one.

ENTRY(THREADS, 1, Arguments) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.count) return;
    const long long at = a.positions[i];
    a.values[i] = at < 0 ? T(0) : a.x[at];
}
