// The diagonal of an operator by tables: sum over the points of D's entries times a function's values
// or derivatives twice, D by the q-function of unit vectors.

__device__ __forceinline__ void set_column(int in, int c, const T (&q)[NUMBERS > 0 ? NUMBERS : 1],
                                           T (&d)[1 + DIM]) {
    T u[4][NCOMP_IN] = {}, v[4][NCOMP_OUT] = {};
    u[in][c] = 1;
    pointwise(u[0], u[1], u[2], u[3], q, v[0], v[1], v[2], v[3]);
#pragma unroll
    for (int out = 0; out <= DIM; ++out) d[out] = (out == 0 ? VALUE_OUT : GRAD_OUT) ? v[out][c] : T(0);
}

ENTRY(THREADS, BLOCKS, Arguments) {
    const Place at(reinterpret_cast<T*>(dynamic_shared()));
    const int portion = first_portion(a);
    Stream stream(a, portion);
    bool there;
    const long long e = element_of(a, portion, at.slot, there);
    Merge merge(a);
    merge.enter(a, e, there);
    Numbers numbers(a, stream, e, at.first, at.second);
    Fields sums = {};
    for (int k = 0; k < POINTS; ++k) {
        T q[NUMBERS > 0 ? NUMBERS : 1];
        numbers.at(k, q);
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) {
            T d[1 + DIM][1 + DIM] = {};
#pragma unroll
            for (int in = 0; in <= DIM; ++in) {
                if (in == 0 ? VALUE_IN : GRAD_IN) set_column(in, c, q, d[in]);
            }
#pragma unroll
            for (int m = 0; m < Target::MINE; ++m) {
                const int n = PARTS > 1 && m * PARTS + at.first >= Target::N ? 0 : m * PARTS + at.first;
                T of[1 + DIM], to[1 + DIM], sum = 0;
                Source::template row<VALUE_IN, GRAD_IN>(numbers.tables, k, n, of);
                Target::template row<VALUE_OUT, GRAD_OUT>(numbers.tables, k, n, to);
#pragma unroll
                for (int in = 0; in <= DIM; ++in) {
#pragma unroll
                    for (int out = 0; out <= DIM; ++out) {
                        const bool met = (in == 0 ? VALUE_IN : GRAD_IN) && (out == 0 ? VALUE_OUT : GRAD_OUT);
                        if (met) sum += of[in] * to[out] * d[in][out];
                    }
                }
                sums.v[Target::SUMS + m * Target::NCOMP + c] += sum;
            }
        }
    }
    integrate(a, merge, at, e, sums, Targets{});
}
