// The way of an element whose functions are no products: dense tables of the values and derivatives
// of all functions at all points. A thread has a column, which is one element, and of several vectors
// one. Threads of a warp have different columns and the same entry of a table.
//
// With PARTS = 1 a thread has all nodes of its element, and the sums of all test functions, in
// registers. Else PARTS threads share a column: its nodes are in shared memory, each thread has some
// of the points and some of the sums, and leaves its factors of the test functions for the others.
//
// Numbers of elements are interleaved by 32 elements, those at points by the elements of a block.

constexpr int WIDTH = ELEMENTS * VECTORS, NFUNCTIONALS = NCOMP_OUT - NCOMP_TEST;
constexpr int SLOTS_OUT = NCOMP_TEST * (VALUE_OUT + DIM * GRAD_OUT);
constexpr int NUMBERS = NELEMENT + NWEIGHT + NCONSTANT + NQDATA;  // no Jacobian, no position

// The nodes of all fields, and later the sums of all test functions, that a thread has in registers.
struct Fields {
    T v[HELD];
};

__device__ __forceinline__ long long interleaved(long long e, int count, int n) {
    return (e / 32 * count + n) * 32 + e % 32;
}

struct Place {
    int vector, slot, first, second;  // first: the part of the column that the thread has
    T* work;

    __device__ __forceinline__ Place(T* shared) : second(0) {
        const unsigned column = threadIdx.x % WIDTH;
        first = PARTS > 1 ? threadIdx.x / WIDTH : 0;
        vector = column % VECTORS;
        slot = column / VECTORS;
        work = shared + column;
    }
    __device__ __forceinline__ void wait() const {
        if constexpr (PARTS > 1) __syncthreads();
    }
    __device__ __forceinline__ T& node(int n) const { return work[n * WIDTH]; }
    // The n-th factor of a part's point.
    __device__ __forceinline__ T& factor(int part, int n) const {
        return work[(NODES_IN + part * SLOTS_OUT + n) * WIDTH];
    }
};

// What is stored at points. The block asks for all of it before.
struct Stream {
    const S* points;

    __device__ __forceinline__ Stream(const Arguments& a, int portion) {
        constexpr int LINE = 128, BYTES = POINTS * NQDATA * ELEMENTS * sizeof(S);
        points = a.points + (long long)portion * POINTS * NQDATA * ELEMENTS;
        const char* block = reinterpret_cast<const char*>(points);
        for (int at = threadIdx.x * LINE; at < BYTES; at += THREADS * LINE) prefetch_line(block + at);
    }
    __device__ __forceinline__ void next(const Arguments&, int) {}
};

struct Numbers {
    T element[NELEMENT > 0 ? NELEMENT : 1], constant[NCONSTANT > 0 ? NCONSTANT : 1];
    const S* points;
    const T* tables;  // those that constant memory has no room for

    __device__ __forceinline__ Numbers(const Arguments& a, const Stream& stream, long long e, int, int)
        : points(stream.points + threadIdx.x % WIDTH / VECTORS), tables(a.tables) {
#pragma unroll
        for (int n = 0; n < NELEMENT; ++n) element[n] = __ldg(a.elements + interleaved(e, NELEMENT, n));
#pragma unroll
        for (int n = 0; n < NCONSTANT; ++n) constant[n] = __ldg(a.constants + n);
    }
    __device__ __forceinline__ void at(int k, T (&q)[NUMBERS > 0 ? NUMBERS : 1]) const {
        int n = 0;
#pragma unroll
        for (int i = 0; i < NELEMENT; ++i) q[n++] = element[i];
        if constexpr (NWEIGHT > 0) q[n++] = WEIGHTS[k];
#pragma unroll
        for (int i = 0; i < NCONSTANT; ++i) q[n++] = constant[i];
#pragma unroll
        for (int i = 0; i < NQDATA; ++i) {
            const S* from = points + (k * NQDATA + i) * ELEMENTS;
            q[n++] = T(MANY ? __ldg(from) : __ldcs(from));  // other blocks read it too, if MANY
        }
    }
};

// Functionals, the last components that the q-function gives, of each element.
struct Functionals {
    T values[NFUNCTIONALS > 0 ? NFUNCTIONALS : 1];

    // What is not a number is less than all.
    static __device__ __forceinline__ T joined(int n, T a, T b) {
        if (n >= NMINIMA) return a + b;
        return b < a || b != b ? b : a;
    }
    __device__ __forceinline__ void add(int k, const T (&out)[NCOMP_OUT]) {
#pragma unroll
        for (int n = 0; n < NFUNCTIONALS; ++n) {
            const T value = out[NCOMP_TEST + n];
            values[n] = k < PARTS ? value : joined(n, values[n], value);
        }
    }
    __device__ __forceinline__ void finish(const Arguments& a, const Place& at, long long e,
                                           bool there) const {
#pragma unroll
        for (int n = 0; n < NFUNCTIONALS; ++n) {
            T value = values[n];
            if constexpr (PARTS > 1) {
                at.wait();  // all have read what is overwritten
                at.work[at.first * WIDTH] = value;
                at.wait();
                if (at.first > 0) continue;
                for (int part = 1; part < PARTS && part < POINTS; ++part) {
                    value = joined(n, value, at.work[part * WIDTH]);
                }
            }
            if (there) a.functionals[n * (long long)a.count + e] = value;
        }
    }
};

// With AGAIN the start is loaded again: the compiler would keep it in a register all the time.
template <class S, bool AGAIN>
__device__ __forceinline__ int dof_of(const Arguments& a, long long e, int n) {
    const int* at = S::starts(a) + interleaved(e, S::RUNS, S::run(n));
    const int start = AGAIN ? *at : __ldg(at);
    if constexpr (S::RUNS < S::N) {
        if (start < 0) return __ldg(S::turned(a) + ~start + S::place(n));
    }
    return start + S::place(n);
}

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
            int again = k;
            if constexpr (UNROLLED_POINTS == 1 && POINTS > 1) {
                asm volatile("" : "+r"(again));  // else a row of the table is kept in registers
            }
            add_to_all(numbers.tables, at, again, sums, v, Targets{});
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

// Derivatives come with the values.
template <class S>
__device__ __forceinline__ void differentiate(const Place&, const Fields&, const Fields&, S) {}
__device__ __forceinline__ void differentiate_transposed(const Place&, const Fields&, const Fields&) {}

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
        const bool alone = !S::ON_FACES && n >= S::N - S::INSIDE;
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            const long long entry = (long long)dof * S::NCOMP + c, part = (e * S::N + n) * S::NCOMP + c;
            if (!(marks.any && marks.has(entry, CONSTRAINED))) {
                put<S>(a, entry, part, alone, a.alpha * u.v[S::SUMS + m * S::NCOMP + c]);
                continue;
            }
            // the element that meets a dof first tells what its row holds
            const int* touched = S::touched(a);
            if (a.keep != T(0) && dof >= touched[e] && dof < touched[e + 1]) {
                const T kept = merge.template read_constrained<S>(a, entry);
                S::vector(a)[spread(a, entry)] = a.alpha * a.keep * kept;
            }
        }
    }
}

template <class... S>
__device__ __forceinline__ void integrate(const Arguments& a, Merge& merge, const Place& at,
                                          long long e, const Fields& u, Sides<S...>) {
    (scatter_nodes<S>(a, merge, at, e, u), ...);
}
