// Applies an operator, or a form on several fields. A block works on one portion of the elements, a
// persistent block on several, one after the other.

ENTRY(THREADS, BLOCKS, Arguments) {
    if (Merge::stopped(a)) return;
    const Place at(reinterpret_cast<T*>(dynamic_shared() + Merge::BYTES));
    int portion = first_portion(a);
    Stream stream(a, portion);
    Merge merge(a);
    do {
        bool there;
        const long long e = element_of(a, portion, at.slot, there);
        merge.enter(a, e, there);
        Numbers numbers(a, stream, e, at.first, at.second);
        Functionals functionals;
        Fields u, ux;
        interpolate(a, merge, at, e, u, Sources{});
        if constexpr (GRAD_IN) differentiate(at, u, ux, Sources{});
        step(merge, at, numbers, functionals, u, ux);
        portion += gridDim.x;
        stream.next(a, portion);
        if constexpr (GRAD_OUT) differentiate_transposed(at, u, ux);
        integrate(a, merge, at, e, u, Targets{});
        functionals.finish(a, at, e, there);
        // No barrier: a thread that has read a pencil's points writes the next element's there.
    } while (PERSISTENT && portion < a.behind);
    merge.finish(a);
}
