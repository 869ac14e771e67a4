// A thread for a block of c of one product, products side by side in a warp: where members stand
// together entry by entry, a warp reads and writes runs of memory. Nothing is exchanged. The blocks
// of a large c are shared by CHUNKS thread blocks.

ENTRY(THREADS, 1, Arguments) {
    constexpr int EACH = THREADS / MEMBERS;
    const long long p = (long long)(blockIdx.x / CHUNKS) * MEMBERS + threadIdx.x % MEMBERS;
    if (p >= a.count) return;
    const Number *const x = a_of(a, p), *const y = b_of(a, p);
    Number* const c = c_of(a, p);
    for (int block = blockIdx.x % CHUNKS * EACH + threadIdx.x / MEMBERS;
         block < ROW_BLOCKS * COLUMN_BLOCKS; block += CHUNKS * EACH) {
        multiply(x, y, block, [&](int i, int j, const Number& sum) {
            update(a, c[c_row(i) + c_column(j)], sum);
        });
    }
}
