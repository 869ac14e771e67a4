// One launch applies an operator: each element's dofs gathered, interpolated, the q-function,
// transposed interpolation, results added. (3a)-(4f) of the tensor report; derivatives are taken by
// the collocated matrix D at the quadrature points.
//
// An element has LINES threads, a plane of them in 3-D. In each phase a thread has one line of the
// element in registers, along z, y or x; between phases the lines go through shared memory, so that
// a number is read and written once per direction, not once per product. Thread (first, second) has
// the x-line j = first, k = second; the y-line i = first, k = second; the z-line i = first,
// j = second. In fewer dimensions the missing directions have length one.
//
// Strides of work arrays are chosen so that few lines meet in a bank (`shared_memory.py`). A block has
// ELEMENTS of them one after the other.

constexpr int VOLUME = Q * STRIDE_X;
constexpr int BUFFERS = DIM == 1 ? 0 : DIM == 3 && (GRAD_IN || GRAD_OUT) ? 2 : 1;
static_assert(SLAB >= BUFFERS * NCOMP * VOLUME, "elements in shared memory");
constexpr int PENCIL = DIM == 3 ? STRIDE_Z : STRIDE_Y;  // along the last direction
constexpr int NODES_BELOW = DIM == 3 ? P_OUT * P_OUT : DIM == 2 ? P_OUT : 1;  // of a pencil's steps
constexpr int CLEARED = 1, CONSTRAINED = 2;     // bits of marks

using Fields = T[NCOMP][Q];  // the thread's line of points, by component

// Marks of constrained entries: only elements that meet any look them up.
struct Marks {
    const unsigned char* marks;
    bool any;

    __device__ __forceinline__ Marks(const unsigned char* flags, const unsigned char* marks_,
                                     long long e, int bit)
        : marks(marks_), any(flags != nullptr && (flags[e] & bit)) {}
    __device__ __forceinline__ bool has(long long at, int bit) const { return marks[at] & bit; }
};

__device__ __forceinline__ void gather(const Arguments& a, const Merge& merge, long long e,
                                       const int (&dofs)[P_IN], int c, T (&line)[P_IN]) {
    const Marks marks(a.flags_in, a.marks_in, e, CLEARED);
#pragma unroll
    for (int n = 0; n < P_IN; ++n) {
        line[n] = merge.read(a, dofs[n], (long long)dofs[n] * NCOMP_IN + c);
    }
    if (marks.any) {
#pragma unroll
        for (int n = 0; n < P_IN; ++n) {
            if (marks.has((long long)dofs[n] * NCOMP_IN + c, CLEARED)) line[n] = 0;
        }
    }
}

// What an element adds to an entry of the result: stored if no other element has the dof, else
// added at once, or left for later in the elements' order.
__device__ __forceinline__ void put(const Arguments& a, long long at, long long part, bool alone,
                                    T value) {
    if (alone) {
        T* there = a.y + spread(a, at);
        if (a.add) value += *there;
        *there = value;
    } else if constexpr (REPRODUCIBLE) {
        a.parts[part] = value;
    } else {
        atomicAdd(add_at(a, at), value);
    }
}

// Where a thread's lines begin, and whether it has some where there are fewer nodes than points.
struct Place {
    int slot, first, second;
    T* work;

    __device__ __forceinline__ Place(T* shared) {
        slot = threadIdx.x / LINES;
        const int t = threadIdx.x - slot * LINES;
        first = DIM > 1 ? t % Q : 0;
        second = DIM > 2 ? t / Q : 0;
        work = shared + slot * SLAB;
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

// The nodes of a pencil, on their way to the result.
struct Pencil {
    int dofs[P_OUT];
    long long first;  // number of its first node among all nodes of all elements
    bool inside;      // whether no other element has it, but for its ends

    __device__ __forceinline__ Pencil(const Arguments& a, const Place& place, long long e)
        : first(e * NODES_BELOW * P_OUT + place.second * P_OUT + place.first) {
        const Dofs<P_OUT, BROKEN_OUT> found(place.first, place.second);
        found.find(a.starts_out + e * found.RUNS, a.turned_out, dofs);
        inside = found.inside;
    }
    __device__ __forceinline__ long long at(int n, int c) const {
        return (long long)dofs[n] * NCOMP_OUT + c;
    }
    __device__ __forceinline__ long long part(int n, int c) const {
        return (first + n * NODES_BELOW) * NCOMP_OUT + c;
    }
    template <bool INSIDE>
    __device__ __forceinline__ void put_all(const Arguments& a, int c,
                                            const T (&line)[P_OUT]) const {
#pragma unroll
        for (int n = 0; n < P_OUT; ++n) {
            const bool alone = INSIDE && Dofs<P_OUT, BROKEN_OUT>::is_inside(n);
            put(a, at(n, c), part(n, c), alone, a.alpha * line[n]);
        }
    }
};

__device__ __forceinline__ void scatter(const Arguments& a, Merge& merge, long long e,
                                        const Pencil& nodes, int c, const T (&line)[P_OUT]) {
    const Marks marks(a.flags_out, a.marks_out, e, CONSTRAINED);
    if (!marks.any) {
        if (nodes.inside) {
            nodes.put_all<true>(a, c, line);
        } else {
            nodes.put_all<false>(a, c, line);
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < P_OUT; ++n) {
        const int dof = nodes.dofs[n];
        const long long at = nodes.at(n, c), part = nodes.part(n, c);
        const bool alone = nodes.inside && Dofs<P_OUT, BROKEN_OUT>::is_inside(n);
        if (!marks.has(at, CONSTRAINED)) {
            put(a, at, part, alone, a.alpha * line[n]);
            continue;
        }
        if (REPRODUCIBLE && !alone) a.parts[part] = T(0);
        // the element that meets a dof first tells what its row holds
        if (a.keep != T(0) && dof >= a.touched[e] && dof < a.touched[e + 1]) {
            a.y[spread(a, at)] = a.alpha * a.keep * merge.read_constrained(a, at);
        }
    }
}

// Values at the thread's line of points, from the nodes.
__device__ __forceinline__ void interpolate(const Arguments& a, const Merge& merge, const Place& at,
                                            long long e, Fields& u) {
    if (at.template has_pencil<P_IN>()) {
        int dofs[P_IN];
        const Dofs<P_IN, BROKEN_IN> nodes(at.first, at.second);
        nodes.find(a.starts_in + e * nodes.RUNS, a.turned_in, dofs);
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            T line[P_IN], points[Q];
            gather(a, merge, e, dofs, c, line);
            contract<BIn>(line, points);
            if constexpr (DIM == 1) {
#pragma unroll
                for (int i = 0; i < Q; ++i) u[c][i] = points[i];
            } else {
                store_line<PENCIL>(at.buffer(0, c) + at.pencil(), points);
            }
        }
    }
    if constexpr (DIM > 1) __syncthreads();
    if constexpr (DIM == 3) {
        if (at.first < P_IN && !BIn::identity) {
#pragma unroll
            for (int c = 0; c < NCOMP_IN; ++c) {
                T line[P_IN], points[Q];
                load_line<STRIDE_Y>(at.buffer(0, c) + at.y_line(), line);
                contract<BIn>(line, points);
                store_line<STRIDE_Y>(at.buffer(0, c) + at.y_line(), points);
            }
        }
        if constexpr (!BIn::identity) __syncthreads();
    }
    if constexpr (DIM > 1) {
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            T line[P_IN];
            load_line<STRIDE_X>(at.buffer(0, c) + at.x_line(), line);
            contract<BIn>(line, u[c]);
        }
    }
}

// A direction's contraction of lines that lie in shared memory, in place or from one to another.
template <class M, int STRIDE>
__device__ __forceinline__ void along(const T* from, T* to) {
    T line[Q], result[Q];
    load_line<STRIDE>(from, line);
    contract<M>(line, result);
    store_line<STRIDE>(to, result);
}

// Reference derivatives: of x in registers, of y and z in shared memory at the line's points.
__device__ __forceinline__ void differentiate(const Place& at, const Fields& u, Fields& ux) {
#pragma unroll
    for (int c = 0; c < NCOMP_IN; ++c) {
        contract<D>(u[c], ux[c]);
        if constexpr (DIM > 1) {
            if constexpr (!BIn::identity) store_line<STRIDE_X>(at.buffer(0, c) + at.x_line(), u[c]);
        }
    }
    if constexpr (DIM > 1) __syncthreads();
    if constexpr (DIM == 2) {
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            along<D, STRIDE_Y>(at.buffer(0, c) + at.y_line(), at.buffer(0, c) + at.y_line());
        }
        __syncthreads();
    }
    if constexpr (DIM == 3) {
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            along<D, STRIDE_Y>(at.buffer(0, c) + at.y_line(), at.buffer(1, c) + at.y_line());
        }
        __syncthreads();  // all have read u
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            along<D, STRIDE_Z>(at.buffer(0, c) + at.pencil(), at.buffer(0, c) + at.pencil());
        }
        __syncthreads();
    }
}

constexpr int OF_Y = DIM == 3 ? 1 : 0;  // buffer of y-derivatives; those of z have the other

// The field's factors at the i-th point of the thread's line.
__device__ __forceinline__ void read_point(const Place& at, const Fields& u, const Fields& ux, int i,
                                           T (&in)[NCOMP_IN], T (&in_x)[NCOMP_IN],
                                           T (&in_y)[NCOMP_IN], T (&in_z)[NCOMP_IN]) {
#pragma unroll
    for (int c = 0; c < NCOMP_IN; ++c) {
        if constexpr (VALUE_IN) in[c] = u[c][i];
        if constexpr (GRAD_IN) {
            in_x[c] = ux[c][i];
            if constexpr (DIM > 1) in_y[c] = at.buffer(OF_Y, c)[at.x_line() + i * STRIDE_X];
            if constexpr (DIM > 2) in_z[c] = at.buffer(0, c)[at.x_line() + i * STRIDE_X];
        }
    }
}

__device__ __forceinline__ void step(Merge& merge, const Place& at, Numbers& numbers, Fields& u,
                                     Fields& ux) {
#pragma unroll
    for (int i = 0; i < Q; ++i) {
        T q[NUMBERS > 0 ? NUMBERS : 1];
        numbers.at(i, q);
        T in[NCOMP_IN], in_x[NCOMP_IN], in_y[NCOMP_IN], in_z[NCOMP_IN];
        T out[NCOMP_OUT], out_x[NCOMP_OUT], out_y[NCOMP_OUT], out_z[NCOMP_OUT];
        read_point(at, u, ux, i, in, in_x, in_y, in_z);
        pointwise(in, in_x, in_y, in_z, q, out, out_x, out_y, out_z);
        merge.add(in, in_x, in_y, in_z, out, out_x, out_y, out_z);
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) {
            if constexpr (VALUE_OUT) u[c][i] = out[c];
            if constexpr (GRAD_OUT) {
                ux[c][i] = out_x[c];
                if constexpr (DIM > 1) at.buffer(OF_Y, c)[at.x_line() + i * STRIDE_X] = out_y[c];
                if constexpr (DIM > 2) at.buffer(0, c)[at.x_line() + i * STRIDE_X] = out_z[c];
            }
        }
    }
}

// Transposed derivatives: their sum is added to the values of the test function's factors.
__device__ __forceinline__ void differentiate_transposed(const Place& at, Fields& v, Fields& vx) {
    using DT = Transposed<D>;
    if constexpr (DIM > 1) {
        __syncthreads();
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) {
            T* y = at.buffer(OF_Y, c) + at.y_line();
            along<DT, STRIDE_Y>(y, y);
            if constexpr (DIM == 3) {
                T* z = at.buffer(0, c) + at.pencil();
                along<DT, STRIDE_Z>(z, z);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < NCOMP_OUT; ++c) {
        T sum[Q];
        contract<DT>(vx[c], sum);
        if constexpr (DIM > 1) add_line<STRIDE_X>(at.buffer(OF_Y, c) + at.x_line(), sum);
        if constexpr (DIM > 2) add_line<STRIDE_X>(at.buffer(0, c) + at.x_line(), sum);
#pragma unroll
        for (int i = 0; i < Q; ++i) v[c][i] = VALUE_OUT ? v[c][i] + sum[i] : sum[i];
    }
}

// From the thread's line of points back to the nodes.
__device__ __forceinline__ void integrate(const Arguments& a, Merge& merge, const Place& at,
                                          long long e, const Fields& v) {
    using BT = Transposed<BOut>;
    if constexpr (DIM > 1) {
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) {
            T nodes[P_OUT];
            contract<BT>(v[c], nodes);
            store_line<STRIDE_X>(at.buffer(0, c) + at.x_line(), nodes);
        }
        __syncthreads();
    }
    if constexpr (DIM == 3 && !BT::identity) {
        if (at.first < P_OUT) {
#pragma unroll
            for (int c = 0; c < NCOMP_OUT; ++c) {
                T line[Q], nodes[P_OUT];
                load_line<STRIDE_Y>(at.buffer(0, c) + at.y_line(), line);
                contract<BT>(line, nodes);
                store_line<STRIDE_Y>(at.buffer(0, c) + at.y_line(), nodes);
            }
        }
        __syncthreads();
    }
    if (merge.there && at.template has_pencil<P_OUT>()) {
        const Pencil pencil(a, at, e);
#pragma unroll
        for (int c = 0; c < NCOMP_OUT; ++c) {
            T line[Q], nodes[P_OUT];
            if constexpr (DIM == 1) {
#pragma unroll
                for (int i = 0; i < Q; ++i) line[i] = v[c][i];
            } else {
                load_line<PENCIL>(at.buffer(0, c) + at.pencil(), line);
            }
            contract<BT>(line, nodes);
            scatter(a, merge, e, pencil, c, nodes);
        }
    }
}
