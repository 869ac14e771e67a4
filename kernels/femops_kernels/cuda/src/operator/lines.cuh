// Where a thread's lines begin, and whether it has some where there are fewer nodes than points.
struct Place {
    int vector, slot, first, second;
    T* work;

    __device__ __forceinline__ Place(T* shared) {
        vector = threadIdx.x % VECTORS;
        const unsigned line = threadIdx.x / VECTORS;  // unsigned divisions take fewer registers
        slot = line / LINES;
        const int t = line - slot * LINES;
        first = DIM > 1 ? t % Q : 0;
        second = DIM > 2 ? t / Q : 0;
        work = shared + slot * SLAB + vector;
    }
    // For the other threads of the element: only for them, if they are whole warps or parts of one.
    __device__ __forceinline__ void wait() const {
        constexpr int PART = LINES * VECTORS;
        if constexpr (32 % PART == 0) {
            wait_for_warp();
        } else if constexpr (PART % 32 == 0 && ELEMENTS <= NAMED_BARRIERS) {
            wait_for_part(slot, PART);
        } else {
            __syncthreads();
        }
    }
    __device__ __forceinline__ T* buffer(int k, int c) const {
        return work + (k * NCOMP + c) * VOLUME;
    }
    __device__ __forceinline__ int x_line() const { return second * STRIDE_Z + first * STRIDE_Y; }
    __device__ __forceinline__ int y_line() const { return second * STRIDE_Z + first * STRIDE_X; }
    __device__ __forceinline__ int pencil() const {
        return (DIM == 3 ? second * STRIDE_Y : 0) + first * STRIDE_X;
    }
    template <int P>
    __device__ __forceinline__ bool has_pencil() const {
        return DIM == 1 || (first < P && (DIM == 2 || second < P));
    }
};

// Functionals, the last components that the q-function gives: least values at the points, and sums
// over them, of each element.
struct Functionals {
    T values[NFUNCTIONALS > 0 ? NFUNCTIONALS : 1];

    // What is not a number is less than all.
    static __device__ __forceinline__ T joined(int n, T a, T b) {
        if (n >= NMINIMA) return a + b;
        return b < a || b != b ? b : a;
    }
    __device__ __forceinline__ void add(int i, const T (&out)[NCOMP_OUT]) {
#pragma unroll
        for (int n = 0; n < NFUNCTIONALS; ++n) {
            const T value = out[NCOMP_TEST + n];
            values[n] = i == 0 ? value : joined(n, values[n], value);
        }
    }
    // Joins those of an element's threads in one order, and stores them.
    __device__ __forceinline__ void finish(const Arguments& a, const Place& at, long long e,
                                           bool there) {
#pragma unroll
        for (int n = 0; n < NFUNCTIONALS; ++n) {
            T value = values[n];
            T* line = at.work + at.first;
            if constexpr (DIM > 1) {
                at.wait();  // all have read what is overwritten
                line[at.second * Q] = value;
                at.wait();
            }
            if constexpr (DIM == 3) {
                if (at.second == 0) {
                    for (int k = 1; k < Q; ++k) value = joined(n, value, line[k * Q]);
                    *line = value;
                }
                at.wait();
            }
            if (at.first != 0 || at.second != 0) continue;
            if constexpr (DIM > 1) {
                for (int k = 1; k < Q; ++k) value = joined(n, value, line[k]);
            }
            if (there) a.functionals[n * (long long)a.count + e] = value;
        }
        // all have read what the next portion's nodes overwrite
        if constexpr (PERSISTENT && DIM > 1 && NFUNCTIONALS > 0) at.wait();
    }
};

// The nodes of a pencil, on their way to the result.
template <class S>
struct Pencil {
    using Nodes = Dofs<S::P, S::BROKEN>;
    // nodes of a step along it
    static constexpr int BELOW = DIM == 3 ? S::P * S::P : DIM == 2 ? S::P : 1;

    int dofs[S::P];
    long long first;  // number of its first node among all nodes of all elements
    bool inside;      // whether no other element has it, but for its ends; false for faces

    __device__ __forceinline__ Pencil(const Arguments& a, const Place& place, long long e)
        : first(e * BELOW * S::P + place.second * S::P + place.first) {
        const Nodes found(place.first, place.second);
        found.find(S::starts(a) + e * found.RUNS, S::turned(a), dofs);
        inside = found.inside && !S::ON_FACES;
    }
    __device__ __forceinline__ long long at(int n, int c) const {
        return (long long)dofs[n] * S::NCOMP + c;
    }
    __device__ __forceinline__ long long part(int n, int c) const {
        return (first + n * BELOW) * S::NCOMP + c;
    }
    template <bool INSIDE, int N>
    __device__ __forceinline__ void put_all(const Arguments& a, int c, const T (&line)[N]) const {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const bool alone = INSIDE && Nodes::is_inside(n);
            put<S>(a, at(n, c), part(n, c), alone, a.alpha * line[n]);
        }
    }
};

template <class S, int N>
__device__ __forceinline__ void scatter(const Arguments& a, Merge& merge, long long e,
                                        const Pencil<S>& nodes, int c, const T (&line)[N]) {
    if constexpr (REPRODUCIBLE) {
#pragma unroll
        for (int n = N; n < S::P; ++n) S::parts(a)[nodes.part(n, c)] = T(0);
    }
    const Marks marks(S::flags(a), S::marks(a), e, CONSTRAINED);
    if (!marks.any) {
        if (nodes.inside) {
            nodes.template put_all<true>(a, c, line);
        } else {
            nodes.template put_all<false>(a, c, line);
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int dof = nodes.dofs[n];
        const long long at = nodes.at(n, c), part = nodes.part(n, c);
        const bool alone = nodes.inside && Pencil<S>::Nodes::is_inside(n);
        if (!marks.has(at, CONSTRAINED)) {
            put<S>(a, at, part, alone, a.alpha * line[n]);
            continue;
        }
        if (REPRODUCIBLE && !alone) S::parts(a)[part] = T(0);
        // the element that meets a dof first tells what its row holds
        const int* touched = S::touched(a);
        if (a.keep != T(0) && dof >= touched[e] && dof < touched[e + 1]) {
            S::vector(a)[spread(a, at)] = a.alpha * a.keep * merge.template read_constrained<S>(a, at);
        }
    }
}

// A direction's contraction of a line that lies in shared memory, in place or to another place.
template <class M, int STRIDE>
__device__ __forceinline__ void along(const T* from, T* to) {
    T line[M::cols], result[M::rows];
    load_line<STRIDE>(from, line);
    contract<M>(line, result);
    store_line<STRIDE>(to, result);
}
