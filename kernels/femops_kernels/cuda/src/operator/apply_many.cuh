// Applies an operator to many vectors. Blocks that follow each other have the same elements and other
// tiles of vectors, and a block does one vector of its tile after the other: what it reads besides
// the vectors comes from caches after the first time, and so do numbers next to each other in a row.

ENTRY(THREADS, BLOCKS, Arguments) {
    const Place at(reinterpret_cast<T*>(dynamic_shared()));
    const int portion = first_portion(a);
    Stream stream(a, portion);
    bool there;
    const long long e = element_of(a, portion, at.slot, there);
    Numbers numbers(a, stream, e, at.first, at.second);
    const int tile = blockIdx.x % (unsigned)a.tiles, each = (a.row + TILE - 1) / TILE;  // of a panel
    const int panel = tile / each, first = tile % each * TILE;
    const int behind = first + TILE < a.row ? first + TILE : a.row;
    Arguments one = a;  // whose vectors are one of each
    for (int s = first; s < behind; ++s) {
        one.x = a.x + panel * a.panel_in + s;
        one.y = a.y + panel * a.panel_out + s;
        Merge merge(one);
        merge.enter(one, e, there);
        Functionals functionals;
        Fields u, ux;
        interpolate(one, merge, at, e, u, Sources{});
        if constexpr (GRAD_IN) differentiate(at, u, ux, Sources{});
        step(merge, at, numbers, functionals, u, ux);
        if constexpr (GRAD_OUT) differentiate_transposed(at, u, ux);
        integrate(one, merge, at, e, u, Targets{});
        if constexpr (DIM > 1) at.wait();  // all have read what the next vector overwrites
    }
}
