// Stores what the q-function computes of a field, as numbers.cuh reads it: for each thread a
// stream in pieces of 16 bytes, which the threads of a block have side by side. What does not depend
// on a field is computed without one.

constexpr int FILLED_PIECES = (Q * NCOMP_OUT + PIECE - 1) / PIECE;

ENTRY(THREADS, BLOCKS, Arguments) {
    const Place at(reinterpret_cast<T*>(dynamic_shared()));
    bool there;
    const long long e = element_of(a, at.slot, there);
    Merge merge(a, e, there);
    Numbers numbers(a, e, at.first, at.second);
    Fields u, ux;
    if constexpr (VALUE_IN || GRAD_IN) interpolate(a, merge, at, e, u, Sources{});
    if constexpr (GRAD_IN) differentiate(at, u, ux, Sources{});
    Pack<S>* stream =
        reinterpret_cast<Pack<S>*>(a.parts) + block_of(a) * FILLED_PIECES * THREADS + threadIdx.x;
    Pack<S> piece = {};
#pragma unroll
    for (int i = 0; i < Q; ++i) {
        T q[NUMBERS > 0 ? NUMBERS : 1];
        numbers.at(i, q);
        T in[NCOMP_IN], in_x[NCOMP_IN], in_y[NCOMP_IN], in_z[NCOMP_IN];
        T out[NCOMP_OUT], unused[NCOMP_OUT];
        read_point(at, u, ux, i, in, in_x, in_y, in_z);
        pointwise(in, in_x, in_y, in_z, q, out, unused, unused, unused);
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) {
            const int number = i * NCOMP_OUT + c;
            piece.v[number % PIECE] = S(out[c]);
            if (there && (number % PIECE == PIECE - 1 || number == Q * NCOMP_OUT - 1)) {
                stream[number / PIECE * THREADS] = piece;
            }
        }
    }
}
