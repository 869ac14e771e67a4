// Bandwidth of reading: an array read once, by 16 bytes; nothing is written, which `never` hides
// from the compiler.

constexpr int PIECE = 16 / sizeof(T), EACH = 8;

ENTRY(THREADS, 1, Arguments) {
    const long long first = (long long)blockIdx.x * EACH * THREADS + threadIdx.x;
    T sum = 0;
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const long long i = (first + k * THREADS) * PIECE;
        if (i < a.count) {
            const Pack<T> pack = load_pack(a.x + i);
#pragma unroll
            for (int j = 0; j < PIECE; ++j) sum += pack.v[j];
        }
    }
    if (sum == a.never) a.y[0] = sum;
}
