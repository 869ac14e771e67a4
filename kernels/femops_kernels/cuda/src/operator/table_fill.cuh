// As fill.cuh, of elements by tables: a number of a point stands beside those of the GROUP elements in
// a block of the kernel that reads it.

ENTRY(THREADS, BLOCKS, Arguments) {
    const Place at(reinterpret_cast<T*>(dynamic_shared()));
    const int portion = first_portion(a);
    Stream stream(a, portion);
    bool there;
    const long long e = element_of(a, portion, at.slot, there);
    Merge merge(a);
    merge.enter(a, e, there);
    Numbers numbers(a, stream, e, at.first, at.second);
    Fields u;
    if constexpr (VALUE_IN || GRAD_IN) interpolate(a, merge, at, e, u, Sources{});
    const long long place = (long long)portion * ELEMENTS + at.slot;
    F* filled = reinterpret_cast<F*>(a.parts) + place / GROUP * POINTS * NCOMP_OUT * GROUP + place % GROUP;
    for (int k = at.first; k < POINTS && there; k += PARTS) {
        T q[NUMBERS > 0 ? NUMBERS : 1];
        numbers.at(k, q);
        T in[NCOMP_IN], in_x[NCOMP_IN], in_y[NCOMP_IN], in_z[NCOMP_IN];
        T out[NCOMP_OUT], unused[NCOMP_OUT];
        evaluate_all(numbers.tables, at, u, k, in, in_x, in_y, in_z, Sources{});
        pointwise(in, in_x, in_y, in_z, q, out, unused, unused, unused);
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) filled[(k * NCOMP_OUT + c) * GROUP] = F(out[c]);
    }
}
