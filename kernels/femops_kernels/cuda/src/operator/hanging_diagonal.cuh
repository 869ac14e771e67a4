// Entries of a diagonal for dofs in the places of nodes that hang (hanging.cuh): those of C^T A C. Of
// one such place of all elements, ADD = 0 sets the ghosts to what a dof there is interpolated to: a
// column of C. Then an operator's kernel multiplies them. With ADD = 1 the column times the result
// is added to the dof's entry of the diagonal, and the result is set to zero.

ENTRY(THREADS, 1, Arguments) {
    const unsigned t = threadIdx.x, node = t % NODES, slot = t / NODES;
    const int unit = (int)(blockIdx.x * UNITS + slot);
    const bool there = unit < a.count;
    const int* given = a.units + 3LL * (there ? unit : 0);
    const int shape = __ldg(given + 2);
    const int position = there ? __ldg(a.positions + (shape >> 4) * (int)NODES + node) : -1;
    const int column = __ldg(a.columns + (shape >> 4));  // the place among the unit's nodes, or -1
    T* own = a.ghosts + ((long long)__ldg(given + 1) + position) * NCOMP;
    T value = 0;
    if (position >= 0 && column >= 0) {
        value = __ldg(a.halves + (shape & 3) * P * P + node % P * P + column % P);
        if (NODES > P) value *= __ldg(a.halves + (shape >> 2 & 3) * P * P + node / P * P + column / P);
    }
    if constexpr (!ADD) {
        for (int c = 0; position >= 0 && c < NCOMP; ++c) own[c] = c == a.component ? value : T(0);
    } else {
        T* work = reinterpret_cast<T*>(dynamic_shared());
        work[t] = position >= 0 ? value * own[a.component] : T(0);
        for (int c = 0; position >= 0 && c < NCOMP; ++c) own[c] = 0;
        __syncthreads();
        if (node != 0 || !there || column < 0) return;
        T sum = 0;
        for (unsigned n = 0; n < NODES; ++n) sum += work[t + n];
        const long long place = (long long)unit * NODES + column;
        const long long dof = __ldg(a.lists + (long long)__ldg(given) * NODES + column);
        if (REPRODUCIBLE) {
            a.parts[a.begin + place * NCOMP + a.component] = sum;
        } else {
            T* to = dof < a.owned ? a.y + dof * NCOMP : a.theirs + (dof - a.owned) * NCOMP;
            atomicAdd(to + a.component, sum);
        }
    }
}
