// Where many ranks hold a vector: entries from `owned` on are ghosts, which other ranks own. They lie
// in buffers of their own: those that are read have come from their owners, what is added to the
// others goes there. Elements are worked on in an order in which those that meet ghosts are last, so
// that some blocks can be launched while messages are on their way. On one rank all this is nothing.

// Where an entry stands: numbers of many vectors stand next to each other, the vectors of a panel.
__device__ __forceinline__ long long spread(const Arguments& a, long long at) {
    if constexpr (MANY) return at * a.row;
    return at;
}

template <class S>
__device__ __forceinline__ const T* read_at(const Arguments& a, long long at) {
    if constexpr (S::GHOSTS) {
        if (at >= S::owned(a)) return S::ghosts(a) + (at - S::owned(a));
    }
    return S::vector(a) + spread(a, at);
}

template <class S>
__device__ __forceinline__ T* add_at(const Arguments& a, long long at) {
    if constexpr (S::GHOSTS) {
        if (at >= S::owned(a)) return S::ghosts(a) + (at - S::owned(a));
    }
    return S::vector(a) + spread(a, at);
}

// A portion is the elements that a block works on at a time. Number of its first one.
__device__ __forceinline__ int first_portion(const Arguments& a) {
    if constexpr (ORDERED) return a.first_portion + (int)blockIdx.x;
    if constexpr (MANY) return blockIdx.x / (unsigned)a.groups;
    return blockIdx.x;
}

// The element of a slot of the block; one that is not `there` is worked along, but adds nothing.
__device__ __forceinline__ long long element_of(const Arguments& a, int portion, int slot,
                                                bool& there) {
    const long long at = (long long)portion * ELEMENTS + slot;
    if constexpr (ORDERED) {
        const int e = __ldg(a.order + at);
        there = e >= 0;
        return there ? e : ~e;
    } else {
        there = at < a.count;
        return there ? at : a.count - 1;
    }
}
