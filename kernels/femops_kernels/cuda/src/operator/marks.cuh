// Marks of constrained entries: only elements that meet any look them up.
struct Marks {
    const unsigned char* marks;
    bool any;

    __device__ __forceinline__ Marks(const unsigned char* flags, const unsigned char* marks_,
                                     long long e, int bit)
        : marks(marks_), any(flags != nullptr && (flags[e] & bit)) {}
    __device__ __forceinline__ bool has(long long at, int bit) const { return marks[at] & bit; }
};

// The first N nodes of a pencil.
template <class S, int N>
__device__ __forceinline__ void gather(const Arguments& a, const Merge& merge, long long e,
                                       const int (&dofs)[S::P], int c, T (&line)[N]) {
    const Marks marks(S::flags(a), S::marks(a), e, CLEARED);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        line[n] = merge.template read<S>(a, dofs[n], (long long)dofs[n] * S::NCOMP + c);
    }
    if (marks.any) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (marks.has((long long)dofs[n] * S::NCOMP + c, CLEARED)) line[n] = 0;
        }
    }
}

// What an element adds to an entry of the result: stored if no other element has the dof, else
// added at once, or left for later in the elements' order.
template <class S>
__device__ __forceinline__ void put(const Arguments& a, long long at, long long part, bool alone,
                                    T value) {
    if (alone) {
        T* there = S::vector(a) + spread(a, at);
        if (a.add) value += *there;
        *there = value;
    } else if constexpr (REPRODUCIBLE) {
        S::parts(a)[part] = value;
    } else {
        atomicAdd(add_at<S>(a, at), value);
    }
}
