// Applies an operator.

ENTRY(THREADS, BLOCKS, Arguments) {
    if (Merge::stopped(a)) return;
    const Place at(reinterpret_cast<T*>(dynamic_shared() + Merge::BYTES));
    bool there;
    const long long e = element_of(a, at.slot, there);
    Merge merge(a, e, there);
    Numbers numbers(a, e, at.first, at.second);
    Fields u, ux;
    interpolate(a, merge, at, e, u);
    if constexpr (GRAD_IN) differentiate(at, u, ux);
    step(merge, at, numbers, u, ux);
    if constexpr (GRAD_OUT) differentiate_transposed(at, u, ux);
    integrate(a, merge, at, e, u);
    merge.finish(a);
}
