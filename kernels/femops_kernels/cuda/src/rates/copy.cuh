// Bandwidth: arrays read and written once, by 16 bytes, all that a thread reads before it writes.

constexpr int PIECE = 16 / sizeof(T), EACH = 4;

ENTRY(THREADS, 1, Arguments) {
    const long long first = (long long)blockIdx.x * EACH * THREADS + threadIdx.x;
    Pack<T> packs[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const long long i = (first + k * THREADS) * PIECE;
        if (i < a.count) packs[k] = load_pack(a.x + i);
    }
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const long long i = (first + k * THREADS) * PIECE;
        if (i < a.count) *reinterpret_cast<Pack<T>*>(a.y + i) = packs[k];
    }
}
