// Stores what the q-function computes of fields, as numbers.cuh of another kernel reads it: for each
// thread of that a stream in pieces of 16 bytes, which the threads of a block have side by side. What
// does not depend on a field is computed without one. That kernel has GROUP elements in a block, of
// which this one's are a part, and reads numbers of the type F.

constexpr int FILLED_PIECE = 16 / sizeof(F);
constexpr int FILLED_PIECES = (POINTS * NCOMP_OUT + FILLED_PIECE - 1) / FILLED_PIECE;

ENTRY(THREADS, BLOCKS, Arguments) {
    const Place at(reinterpret_cast<T*>(dynamic_shared()));
    const int portion = first_portion(a);
    Stream stream(a, portion);
    bool there;
    const long long e = element_of(a, portion, at.slot, there);
    Merge merge(a);
    merge.enter(a, e, there);
    Numbers numbers(a, stream, e, at.first, at.second);
    Fields u, ux;
    if constexpr (VALUE_IN || GRAD_IN) interpolate(a, merge, at, e, u, Sources{});
    if constexpr (GRAD_IN) differentiate(at, u, ux, Sources{});
    const long long place = (long long)portion * ELEMENTS + at.slot, block = place / GROUP;
    const int thread = (int)(place % GROUP) * LINES + threadIdx.x % LINES;
    Pack<F>* filled =
        reinterpret_cast<Pack<F>*>(a.parts) + block * FILLED_PIECES * GROUP * LINES + thread;
    Pack<F> piece = {};
#pragma unroll
    for (int i = 0; i < POINTS; ++i) {
        T q[NUMBERS > 0 ? NUMBERS : 1];
        numbers.at(i, q);
        T in[NCOMP_IN], in_x[NCOMP_IN], in_y[NCOMP_IN], in_z[NCOMP_IN];
        T out[NCOMP_OUT], unused[NCOMP_OUT];
        read_point(at, u, ux, i, in, in_x, in_y, in_z);
        pointwise(in, in_x, in_y, in_z, q, out, unused, unused, unused);
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) {
            const int number = i * NCOMP_OUT + c;
            piece.v[number % FILLED_PIECE] = F(out[c]);
            if (there && (number % FILLED_PIECE == FILLED_PIECE - 1 || number == POINTS * NCOMP_OUT - 1)) {
                filled[number / FILLED_PIECE * GROUP * LINES] = piece;
                piece = Pack<F>{};  // what is behind the last number is zero
            }
        }
    }
}
