// Constrained entries: each thread sets one, of one of the vectors that stand next to each other.

ENTRY(THREADS, 1, Arguments) {
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (long long)a.count * a.row) return;
    const long long at = a.positions[i / a.row] * a.row + i % a.row;
    a.y[at] = a.factor * a.x[at];
}
