// Applies an operator, or a form on several fields.

ENTRY(THREADS, BLOCKS, Arguments) {
    if (Merge::stopped(a)) return;
    const Place at(reinterpret_cast<T*>(dynamic_shared() + Merge::BYTES));
    bool there;
    const long long e = element_of(a, at.slot, there);
    Merge merge(a, e, there);
    Numbers numbers(a, e, at.first, at.second);
    Functionals functionals;
    Fields u, ux;
    interpolate(a, merge, at, e, u, Sources{});
    if constexpr (GRAD_IN) differentiate(at, u, ux, Sources{});
    step(merge, at, numbers, functionals, u, ux);
    if constexpr (GRAD_OUT) differentiate_transposed(at, u, ux);
    integrate(a, merge, at, e, u, Targets{});
    functionals.finish(a, at, e, there);
    merge.finish(a);
}
