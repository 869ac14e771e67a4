// What other ranks have for entries of a vector, added, unless a position is negative: each thread
// has one. Several ranks may have some for the same entry.

ENTRY(THREADS, 1, Arguments) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.count) return;
    const long long at = a.positions[i];
    if (at >= 0) atomicAdd(a.y + at, a.values[i]);
}
