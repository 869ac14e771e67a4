// Zeros where elements add to what they share; a warp has an element. Dofs inside an element are
// stored by it alone, and left out.

ENTRY(THREADS, 1, Arguments) {
    const int e = (int)(((long long)blockIdx.x * THREADS + threadIdx.x) / 32), lane = threadIdx.x % 32;
    if (e >= a.count) return;
    const long long inside = (long long)a.starts[(long long)e * RUNS + CENTRE] * NCOMP;
    const long long end = (long long)a.touched[e + 1] * NCOMP;
    for (long long i = (long long)a.touched[e] * NCOMP + lane; i < inside; i += 32) a.y[i] = T(0);
    for (long long i = inside + INSIDE * NCOMP + lane; i < end; i += 32) a.y[i] = T(0);
}
