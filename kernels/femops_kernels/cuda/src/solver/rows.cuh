// Product with a matrix, each thread a row. The rows lie in slices of SLICE, padded to the longest of
// them: their k-th entries stand together (SELL-C of Kreutzer et al., 2014).

ENTRY(THREADS, 1, Arguments) {
    const long long row = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (row >= a.count) return;
    const long long slice = row / SLICE;
    const long long end = a.starts[slice + 1];
    T sum = 0;
    for (long long k = a.starts[slice] + row % SLICE; k < end; k += SLICE) {
        sum += a.values[k] * __ldg(a.x + a.columns[k]);
    }
    sum *= a.alpha;
    a.y[row] = a.add ? a.y[row] + sum : sum;
}
