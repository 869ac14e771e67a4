// With PARTS = 1 a thread has all nodes of its element, and the sums of all test functions, in
// registers. Else PARTS threads share a column: its nodes are in shared memory, each thread has some
// of the points and some of the sums, and leaves its factors of the test functions for the others.

// The nodes that a thread has.
template <class S>
__device__ __forceinline__ void gather_nodes(const Arguments& a, const Merge& merge, const Place& at,
                                             long long e, Fields& u) {
    const Marks marks(S::flags(a), S::marks(a), e, CLEARED);
#pragma unroll
    for (int m = 0; m < S::MINE; ++m) {
        const int n = m * PARTS + at.first;
        if (PARTS > 1 && n >= S::N) break;
        const int dof = dof_of<S, false>(a, e, n);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            const long long entry = (long long)dof * S::NCOMP + c;
            T value = merge.template read<S>(a, dof, entry);
            if (marks.any && marks.has(entry, CLEARED)) value = 0;
            const int number = S::BEGIN + n * S::NCOMP + c;
            if constexpr (PARTS > 1) {
                at.node(number) = value;
            } else {
                u.v[number] = value;
            }
        }
    }
}

template <class... S>
__device__ __forceinline__ void interpolate(const Arguments& a, const Merge& merge, const Place& at,
                                            long long e, Fields& u, Sides<S...>) {
    (gather_nodes<S>(a, merge, at, e, u), ...);
    at.wait();
}

// A field's values and derivatives at a point.
template <class S>
__device__ __forceinline__ void evaluate(const T* tables, const Place& at, const Fields& u, int k,
                                         T (&in)[NCOMP_IN], T (&in_x)[NCOMP_IN],
                                         T (&in_y)[NCOMP_IN], T (&in_z)[NCOMP_IN]) {
#pragma unroll
    for (int c = S::FIRST; c < S::FIRST + S::NCOMP; ++c) in[c] = in_x[c] = in_y[c] = in_z[c] = 0;
#pragma unroll UNROLLED_NODES
    for (int n = 0; n < S::N; ++n) {
        T row[1 + DIM];
        S::template row<VALUE_IN, GRAD_IN>(tables, k, n, row);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            const int number = S::BEGIN + n * S::NCOMP + c, to = S::FIRST + c;
            const T node = PARTS > 1 ? at.node(number) : u.v[number];
            if constexpr (VALUE_IN) in[to] += row[0] * node;
            if constexpr (GRAD_IN) in_x[to] += row[1] * node;
            if constexpr (GRAD_IN && DIM > 1) in_y[to] += row[2] * node;
            if constexpr (GRAD_IN && DIM > 2) in_z[to] += row[3] * node;
        }
    }
}

template <class... S>
__device__ __forceinline__ void evaluate_all(const T* tables, const Place& at, const Fields& u, int k,
                                             T (&in)[NCOMP_IN], T (&in_x)[NCOMP_IN],
                                             T (&in_y)[NCOMP_IN], T (&in_z)[NCOMP_IN], Sides<S...>) {
    (evaluate<S>(tables, at, u, k, in, in_x, in_y, in_z), ...);
}

// Adds a point's factors of a test function to the thread's sums.
template <class S>
__device__ __forceinline__ void add_point(const T* tables, const Place& at, int k, Fields& sums,
                                          const T (&v)[SLOTS_OUT > 0 ? SLOTS_OUT : 1]) {
    constexpr int AT_X = VALUE_OUT ? NCOMP_TEST : 0;
#pragma unroll
    for (int m = 0; m < S::MINE; ++m) {
        const int n = m * PARTS + at.first;
        T row[1 + DIM];
        S::template row<VALUE_OUT, GRAD_OUT>(tables, k, PARTS > 1 && n >= S::N ? 0 : n, row);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            T& sum = sums.v[S::SUMS + m * S::NCOMP + c];
            if constexpr (VALUE_OUT) sum += row[0] * v[S::FIRST + c];
#pragma unroll
            for (int d = 0; d < DIM; ++d) {
                if constexpr (GRAD_OUT) sum += row[1 + d] * v[AT_X + d * NCOMP_TEST + S::FIRST + c];
            }
        }
    }
}

template <class... S>
__device__ __forceinline__ void add_to_all(const T* tables, const Place& at, int k, Fields& sums,
                                           const T (&v)[SLOTS_OUT > 0 ? SLOTS_OUT : 1], Sides<S...>) {
    (add_point<S>(tables, at, k, sums, v), ...);
}

// A point's factors of all test functions.
__device__ __forceinline__ void work_at(int k, const Place& at, const Numbers& numbers, Merge& merge,
                                        Functionals& functionals, const Fields& u,
                                        T (&v)[SLOTS_OUT > 0 ? SLOTS_OUT : 1]) {
    T q[NUMBERS > 0 ? NUMBERS : 1];
    numbers.at(k, q);
    T in[NCOMP_IN], in_x[NCOMP_IN], in_y[NCOMP_IN], in_z[NCOMP_IN];
    T out[NCOMP_OUT], out_x[NCOMP_OUT], out_y[NCOMP_OUT], out_z[NCOMP_OUT];
    evaluate_all(numbers.tables, at, u, k, in, in_x, in_y, in_z, Sources{});
    pointwise(in, in_x, in_y, in_z, q, out, out_x, out_y, out_z);
    merge.add(in, in_x, in_y, in_z, out, out_x, out_y, out_z);
    functionals.add(k, out);
    constexpr int AT_X = VALUE_OUT ? NCOMP_TEST : 0;
#pragma unroll
    for (int c = 0; c < NCOMP_TEST; ++c) {
        if constexpr (VALUE_OUT) v[c] = out[c];
        if constexpr (GRAD_OUT) v[AT_X + c] = out_x[c];
        if constexpr (GRAD_OUT && DIM > 1) v[AT_X + NCOMP_TEST + c] = out_y[c];
        if constexpr (GRAD_OUT && DIM > 2) v[AT_X + 2 * NCOMP_TEST + c] = out_z[c];
    }
}

// From the nodes of all fields to the sums of all test functions, which take their place.
__device__ __forceinline__ void step(Merge& merge, const Place& at, const Numbers& numbers,
                                     Functionals& functionals, Fields& u, Fields&) {
    Fields sums = {};
    T v[SLOTS_OUT > 0 ? SLOTS_OUT : 1];
    if constexpr (PARTS == 1) {
#pragma unroll UNROLLED_POINTS
        for (int k = 0; k < POINTS; ++k) {
            work_at(k, at, numbers, merge, functionals, u, v);
            add_to_all(numbers.tables, at, hidden(k), sums, v, Targets{});
        }
    } else {
        for (int begin = 0; begin < POINTS; begin += PARTS) {
            if (begin + at.first < POINTS) {
                work_at(begin + at.first, at, numbers, merge, functionals, u, v);
#pragma unroll
                for (int n = 0; n < SLOTS_OUT; ++n) at.factor(at.first, n) = v[n];
            }
            at.wait();
            for (int part = 0; part < PARTS && begin + part < POINTS; ++part) {
#pragma unroll
                for (int n = 0; n < SLOTS_OUT; ++n) v[n] = at.factor(part, n);
                add_to_all(numbers.tables, at, begin + part, sums, v, Targets{});
            }
            at.wait();
        }
    }
    u = sums;
}

// Adds the thread's sums of a test function to the result.
template <class S>
__device__ __forceinline__ void scatter_nodes(const Arguments& a, Merge& merge, const Place& at,
                                              long long e, const Fields& u) {
    if (!merge.there) return;
    const Marks marks(S::flags(a), S::marks(a), e, CONSTRAINED);
#pragma unroll
    for (int m = 0; m < S::MINE; ++m) {
        const int n = m * PARTS + at.first;
        if (PARTS > 1 && n >= S::N) break;
        const int dof = dof_of<S, true>(a, e, n);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            put_node<S>(a, merge, e, n, dof, c, marks, u.v[S::SUMS + m * S::NCOMP + c]);
        }
    }
}

template <class... S>
__device__ __forceinline__ void integrate(const Arguments& a, Merge& merge, const Place& at,
                                          long long e, const Fields& u, Sides<S...>) {
    (scatter_nodes<S>(a, merge, at, e, u), ...);
}
