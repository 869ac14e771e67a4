// The way of an element whose functions are no products: dense tables of the values and derivatives
// of all functions at all points. A thread has a column, which is one element, and of several vectors
// one. Threads of a warp have different columns and the same entry of a table.
//
// What follows is common to table_nodes.cuh and table_components.cuh, which say what a thread has.
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

// What is stored at points.
struct Stream {
    const S* points;

    __device__ __forceinline__ Stream(const Arguments& a, int portion)
        : points(a.points + (long long)portion * POINTS * NQDATA * ELEMENTS) {}
    __device__ __forceinline__ void next(const Arguments&, int) {}
};

// What the q-function is given. A point's numbers are asked for some points before: those of all
// blocks for all points would not stay in the second-level cache.
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
            if (k + AHEAD < POINTS) prefetch_line(from + AHEAD * NQDATA * ELEMENTS);
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

// Derivatives come with the values.
template <class S>
__device__ __forceinline__ void differentiate(const Place&, const Fields&, const Fields&, S) {}
__device__ __forceinline__ void differentiate_transposed(const Place&, const Fields&, const Fields&) {}

// The number of a point in a loop, of which the compiler does not know that it is the same: it would
// keep a row of a table in registers.
__device__ __forceinline__ int hidden(int k) {
    if constexpr (UNROLLED_POINTS == 1 && POINTS > 1) asm volatile("" : "+r"(k));
    return k;
}

// Adds a sum of node n to an entry of the result.
template <class S>
__device__ __forceinline__ void put_node(const Arguments& a, Merge& merge, long long e, int n,
                                         int dof, int c, const Marks& marks, T sum) {
    const long long entry = (long long)dof * S::NCOMP + c;
    if (!(marks.any && marks.has(entry, CONSTRAINED))) {
        const bool alone = !S::ON_FACES && n >= S::N - S::INSIDE;
        put<S>(a, entry, (e * S::N + n) * S::NCOMP + c, alone, a.alpha * sum);
        return;
    }
    // the element that meets a dof first tells what its row holds
    const int* touched = S::touched(a);
    if (a.keep != T(0) && dof >= touched[e] && dof < touched[e + 1]) {
        const T kept = merge.template read_constrained<S>(a, entry);
        S::vector(a)[spread(a, entry)] = a.alpha * a.keep * kept;
    }
}
