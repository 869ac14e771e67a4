// Members that are runs in memory go through shared memory, as they are: a warp copies runs, and
// every thread then takes what it needs. In shared memory members are an odd number of numbers
// apart. What is no run is read and written where it is.

// Copies what lies between the first and the last entry of some products.
template <int LANES, int LOW, int SPAN, int PITCH, class Base>
__device__ __forceinline__ void copy_in(const Arguments& a, Base base, long long step,
                                        long long next, long long first, int here, Number* image) {
#pragma unroll 4
    for (int n = threadIdx.x; n < here * SPAN; n += THREADS) {
        const int e = n / SPAN, o = n % SPAN;
        image[e * PITCH + o] = located<LANES>(a, base, first + e, step, next)[LOW + o];
    }
}

ENTRY(THREADS, 1, Arguments) {
    Number* const memory = reinterpret_cast<Number*>(dynamic_shared());
    const long long first = (long long)blockIdx.x * MEMBERS;
    const int here = a.count - first < MEMBERS ? int(a.count - first) : MEMBERS;
    if constexpr (STAGED_A) {
        copy_in<LANES_A, LOW_A, SPAN_A, PITCH_A>(a, a.a, a.step_a, a.next_a, first, here,
                                                 memory + IMAGE_A);
    }
    if constexpr (STAGED_B) {
        copy_in<LANES_B, LOW_B, SPAN_B, PITCH_B>(a, a.b, a.step_b, a.next_b, first, here,
                                                 memory + IMAGE_B);
    }
    __syncthreads();
    const int e = threadIdx.x % MEMBERS;
    if (e < here) {
        const Number* x = memory + IMAGE_A + e * PITCH_A - LOW_A;
        const Number* y = memory + IMAGE_B + e * PITCH_B - LOW_B;
        if constexpr (!STAGED_A) x = a_of(a, first + e);
        if constexpr (!STAGED_B) y = b_of(a, first + e);
        Number* const c = STAGED_C ? memory + IMAGE_C + e * PITCH_C - LOW_C : c_of(a, first + e);
        for (int block = threadIdx.x / MEMBERS; block < ROW_BLOCKS * COLUMN_BLOCKS;
             block += THREADS / MEMBERS) {
            multiply(x, y, block, [&](int i, int j, const Number& sum) {
                Number& entry = c[c_row(i) + c_column(j)];
                if constexpr (STAGED_C) {
                    entry = sum;
                } else {
                    update(a, entry, sum);
                }
            });
        }
    }
    if constexpr (STAGED_C) {
        __syncthreads();
#pragma unroll 4
        for (int n = threadIdx.x; n < here * SPAN_C; n += THREADS) {
            const int q = n / SPAN_C, o = n % SPAN_C;
            update(a, c_of(a, first + q)[LOW_C + o], memory[IMAGE_C + q * PITCH_C + o]);
        }
    }
}
