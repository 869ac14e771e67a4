// A field and a test function of PARTS components each: a thread has one component of an element, with
// its nodes and sums in registers. The threads of a column tell each other the component's values and
// derivatives at a point through shared memory. It has two halves: what is written for a point is
// read before all threads have come to the next point, and overwritten after that.

constexpr int KINDS_IN = VALUE_IN + DIM * GRAD_IN, KINDS_OUT = VALUE_OUT + DIM * GRAD_OUT;

__device__ __forceinline__ void interpolate(const Arguments& a, const Merge& merge, const Place& at,
                                            long long e, Fields& u, Sources) {
    using S = Source;
    const Marks marks(S::flags(a), S::marks(a), e, CLEARED);
#pragma unroll
    for (int n = 0; n < S::N; ++n) {
        const int dof = dof_of<S, false>(a, e, n);
        const long long entry = (long long)dof * S::NCOMP + at.first;
        u.v[n] = merge.template read<S>(a, dof, entry);
        if (marks.any && marks.has(entry, CLEARED)) u.v[n] = 0;
    }
}

// A component's value and derivatives at a point.
__device__ __forceinline__ void evaluate(const T* tables, const Fields& u, int k, T (&own)[KINDS_IN]) {
#pragma unroll
    for (int i = 0; i < KINDS_IN; ++i) own[i] = 0;
#pragma unroll
    for (int n = 0; n < Source::N; ++n) {
        T row[1 + DIM];
        Source::template row<VALUE_IN, GRAD_IN>(tables, k, n, row);
#pragma unroll
        for (int i = 0; i < KINDS_IN; ++i) own[i] += row[i + !VALUE_IN] * u.v[n];
    }
}

// The thread's component of a point's factors of the test function.
__device__ __forceinline__ void work_at(int k, const Place& at, const Numbers& numbers, Merge& merge,
                                        const T* told, T (&own)[KINDS_OUT]) {
    T q[NUMBERS > 0 ? NUMBERS : 1];
    numbers.at(k, q);
    T in[4][NCOMP_IN], out[4][NCOMP_OUT];
#pragma unroll
    for (int c = 0; c < NCOMP_IN; ++c) {
#pragma unroll
        for (int i = 0; i < KINDS_IN; ++i) in[i + !VALUE_IN][c] = told[(c * KINDS_IN + i) * WIDTH];
    }
    pointwise(in[0], in[1], in[2], in[3], q, out[0], out[1], out[2], out[3]);
    if (at.first == 0) merge.add(in[0], in[1], in[2], in[3], out[0], out[1], out[2], out[3]);
#pragma unroll
    for (int i = 0; i < KINDS_OUT; ++i) {
#pragma unroll
        for (int c = 0; c < NCOMP_TEST; ++c) {
            if (c == at.first) own[i] = out[i + !VALUE_OUT][c];
        }
    }
}

__device__ __forceinline__ void step(Merge& merge, const Place& at, const Numbers& numbers,
                                     Functionals&, Fields& u, Fields&) {
    Fields sums = {};
#pragma unroll UNROLLED_POINTS
    for (int k = 0; k < POINTS; ++k) {
        T in[KINDS_IN], out[KINDS_OUT];
        T* told = at.work + k % 2 * PARTS * KINDS_IN * WIDTH;
        evaluate(numbers.tables, u, k, in);
#pragma unroll
        for (int i = 0; i < KINDS_IN; ++i) told[(at.first * KINDS_IN + i) * WIDTH] = in[i];
        at.wait();
        work_at(k, at, numbers, merge, told, out);
        const int again = hidden(k);
#pragma unroll
        for (int n = 0; n < Target::N; ++n) {
            T row[1 + DIM];
            Target::template row<VALUE_OUT, GRAD_OUT>(numbers.tables, again, n, row);
#pragma unroll
            for (int i = 0; i < KINDS_OUT; ++i) sums.v[n] += row[i + !VALUE_OUT] * out[i];
        }
    }
    u = sums;
}

__device__ __forceinline__ void integrate(const Arguments& a, Merge& merge, const Place& at,
                                          long long e, const Fields& u, Targets) {
    using S = Target;
    if (!merge.there) return;
    const Marks marks(S::flags(a), S::marks(a), e, CONSTRAINED);
#pragma unroll
    for (int n = 0; n < S::N; ++n) {
        put_node<S>(a, merge, e, n, dof_of<S, true>(a, e, n), at.first, marks, u.v[n]);
    }
}
