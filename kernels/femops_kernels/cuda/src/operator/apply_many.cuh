// Applies an operator to many vectors, VECTORS of them in a block. Blocks that follow each other have
// the same elements: what they read besides the vectors comes from the second-level cache. Numbers of
// a group of vectors stand next to each other in a row, and so do their threads: a warp reads, and
// adds to, whole sectors of memory.
//
// A loop over more vectors would read the other numbers from shared memory. But the compiler would
// keep in registers what all rounds have in common: twice as many of them at p = 6.

// Moves the vectors of all fields, or of all test functions, to where those of the thread begin.
template <class... S>
__device__ __forceinline__ void move_vectors(Arguments& a, long long by, Sides<S...>) {
    (S::move(a, by), ...);
}

ENTRY(THREADS, BLOCKS, Arguments) {
    const Place at(reinterpret_cast<T*>(dynamic_shared()));
    const int portion = first_portion(a);
    Stream stream(a, portion);
    bool there;
    const long long e = element_of(a, portion, at.slot, there);
    const int group = blockIdx.x % (unsigned)a.groups, each = (a.row + VECTORS - 1) / VECTORS;
    const int panel = group / each, vector = group % each * VECTORS + at.vector;
    const bool given = vector < a.row;  // a thread without vector works along on the last one
    Arguments one = a;                  // whose vectors are one of each
    const int column = given ? vector : a.row - 1;
    move_vectors(one, panel * a.panel_in + column, Sources{});
    move_vectors(one, panel * a.panel_out + column, Targets{});
    Merge merge(one);
    merge.enter(one, e, there && given);
    Numbers numbers(one, stream, e, at.first, at.second);
    Functionals functionals;
    Fields u, ux;
    interpolate(one, merge, at, e, u, Sources{});
    if constexpr (GRAD_IN) differentiate(at, u, ux, Sources{});
    step(merge, at, numbers, functionals, u, ux);
    if constexpr (GRAD_OUT) differentiate_transposed(at, u, ux);
    integrate(one, merge, at, e, u, Targets{});
}
