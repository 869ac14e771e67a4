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
// A field or test function is a type S: S::P nodes per direction, S::NCOMP components of which the
// first is number S::FIRST among those of all, S::B the interpolation, and where its arguments are.
//
// Strides of work arrays are chosen so that few lines meet in a bank (`shared_memory.py`). A block has
// ELEMENTS of them one after the other.

constexpr int VOLUME = Q * STRIDE_X;
constexpr int PENCIL = DIM == 3 ? STRIDE_Z : STRIDE_Y;  // along the last direction
constexpr int NFUNCTIONALS = NCOMP_OUT - NCOMP_TEST;

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

template <class S>
__device__ __forceinline__ void gather(const Arguments& a, const Merge& merge, long long e,
                                       const int (&dofs)[S::P], int c, T (&line)[S::P]) {
    const Marks marks(S::flags(a), S::marks(a), e, CLEARED);
#pragma unroll
    for (int n = 0; n < S::P; ++n) {
        line[n] = merge.template read<S>(a, dofs[n], (long long)dofs[n] * S::NCOMP + c);
    }
    if (marks.any) {
#pragma unroll
        for (int n = 0; n < S::P; ++n) {
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
    // For the other threads of the element: only for them, if they are whole warps or parts of one.
    __device__ __forceinline__ void wait() const {
        if constexpr (32 % LINES == 0) {
            wait_for_warp();
        } else if constexpr (LINES % 32 == 0 && ELEMENTS <= NAMED_BARRIERS) {
            wait_for_part(slot, LINES);
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
    bool inside;      // whether no other element has it, but for its ends

    __device__ __forceinline__ Pencil(const Arguments& a, const Place& place, long long e)
        : first(e * BELOW * S::P + place.second * S::P + place.first) {
        const Nodes found(place.first, place.second);
        found.find(S::starts(a) + e * found.RUNS, S::turned(a), dofs);
        inside = found.inside;
    }
    __device__ __forceinline__ long long at(int n, int c) const {
        return (long long)dofs[n] * S::NCOMP + c;
    }
    __device__ __forceinline__ long long part(int n, int c) const {
        return (first + n * BELOW) * S::NCOMP + c;
    }
    template <bool INSIDE>
    __device__ __forceinline__ void put_all(const Arguments& a, int c,
                                            const T (&line)[S::P]) const {
#pragma unroll
        for (int n = 0; n < S::P; ++n) {
            const bool alone = INSIDE && Nodes::is_inside(n);
            put<S>(a, at(n, c), part(n, c), alone, a.alpha * line[n]);
        }
    }
};

template <class S>
__device__ __forceinline__ void scatter(const Arguments& a, Merge& merge, long long e,
                                        const Pencil<S>& nodes, int c, const T (&line)[S::P]) {
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
    for (int n = 0; n < S::P; ++n) {
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

// From the nodes to points along the last direction.
template <class S>
__device__ __forceinline__ void from_nodes(const Arguments& a, const Merge& merge, const Place& at,
                                           long long e, Fields& u) {
    if (at.template has_pencil<S::P>()) {
        int dofs[S::P];
        const Dofs<S::P, S::BROKEN> nodes(at.first, at.second);
        nodes.find(S::starts(a) + e * nodes.RUNS, S::turned(a), dofs);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            T line[S::P], points[Q];
            gather<S>(a, merge, e, dofs, c, line);
            contract<typename S::B>(line, points);
            if constexpr (DIM == 1) {
#pragma unroll
                for (int i = 0; i < Q; ++i) u[S::FIRST + c][i] = points[i];
            } else {
                store_line<PENCIL>(at.buffer(0, S::FIRST + c) + at.pencil(), points);
            }
        }
    }
}

// Along y in 3-D.
template <class S>
__device__ __forceinline__ void along_second(const Place& at) {
    if (at.first < S::P && !S::B::identity) {
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            T line[S::P], points[Q];
            T* there = at.buffer(0, S::FIRST + c) + at.y_line();
            load_line<STRIDE_Y>(there, line);
            contract<typename S::B>(line, points);
            store_line<STRIDE_Y>(there, points);
        }
    }
}

template <class S>
__device__ __forceinline__ void along_first(const Place& at, Fields& u) {
#pragma unroll
    for (int c = 0; c < S::NCOMP; ++c) {
        T line[S::P];
        load_line<STRIDE_X>(at.buffer(0, S::FIRST + c) + at.x_line(), line);
        contract<typename S::B>(line, u[S::FIRST + c]);
    }
}

// Values of all fields at the thread's line of points, from the nodes.
template <class... S>
__device__ __forceinline__ void interpolate(const Arguments& a, const Merge& merge, const Place& at,
                                            long long e, Fields& u, Sides<S...>) {
    (from_nodes<S>(a, merge, at, e, u), ...);
    if constexpr (DIM > 1) at.wait();
    if constexpr (DIM == 3 && !(S::B::identity && ...)) {
        (along_second<S>(at), ...);
        at.wait();
    }
    if constexpr (DIM > 1) (along_first<S>(at, u), ...);
}

// A direction's contraction of lines that lie in shared memory, in place or from one to another.
template <class M, int STRIDE>
__device__ __forceinline__ void along(const T* from, T* to) {
    T line[Q], result[Q];
    load_line<STRIDE>(from, line);
    contract<M>(line, result);
    store_line<STRIDE>(to, result);
}

// The values at a thread's points go where others find them, and give derivatives along x.
template <class S>
__device__ __forceinline__ void differentiate_first(const Place& at, const Fields& u, Fields& ux) {
#pragma unroll
    for (int c = S::FIRST; c < S::FIRST + S::NCOMP; ++c) {
        contract<D>(u[c], ux[c]);
        if constexpr (DIM > 1) {
            if constexpr (!S::B::identity) store_line<STRIDE_X>(at.buffer(0, c) + at.x_line(), u[c]);
        }
    }
}

// Reference derivatives: of x in registers, of y and z in shared memory at the line's points.
template <class... S>
__device__ __forceinline__ void differentiate(const Place& at, const Fields& u, Fields& ux,
                                              Sides<S...>) {
    (differentiate_first<S>(at, u, ux), ...);
    if constexpr (DIM > 1) at.wait();
    if constexpr (DIM == 2) {
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            along<D, STRIDE_Y>(at.buffer(0, c) + at.y_line(), at.buffer(0, c) + at.y_line());
        }
        at.wait();
    }
    if constexpr (DIM == 3) {
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            along<D, STRIDE_Y>(at.buffer(0, c) + at.y_line(), at.buffer(1, c) + at.y_line());
        }
        at.wait();  // all have read u
#pragma unroll
        for (int c = 0; c < NCOMP_IN; ++c) {
            along<D, STRIDE_Z>(at.buffer(0, c) + at.pencil(), at.buffer(0, c) + at.pencil());
        }
        at.wait();
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

__device__ __forceinline__ void step(Merge& merge, const Place& at, Numbers& numbers,
                                     Functionals& functionals, Fields& u, Fields& ux) {
#pragma unroll
    for (int i = 0; i < Q; ++i) {
        T q[NUMBERS > 0 ? NUMBERS : 1];
        numbers.at(i, q);
        T in[NCOMP_IN], in_x[NCOMP_IN], in_y[NCOMP_IN], in_z[NCOMP_IN];
        T out[NCOMP_OUT], out_x[NCOMP_OUT], out_y[NCOMP_OUT], out_z[NCOMP_OUT];
        read_point(at, u, ux, i, in, in_x, in_y, in_z);
        pointwise(in, in_x, in_y, in_z, q, out, out_x, out_y, out_z);
        merge.add(in, in_x, in_y, in_z, out, out_x, out_y, out_z);
        functionals.add(i, out);
#pragma unroll
        for (int c = 0; c < NCOMP_TEST; ++c) {
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
        if constexpr (!PERSISTENT) at.wait();  // which has just waited
#pragma unroll
        for (int c = 0; c < NCOMP_TEST; ++c) {
            T* y = at.buffer(OF_Y, c) + at.y_line();
            along<DT, STRIDE_Y>(y, y);
            if constexpr (DIM == 3) {
                T* z = at.buffer(0, c) + at.pencil();
                along<DT, STRIDE_Z>(z, z);
            }
        }
        at.wait();
    }
#pragma unroll
    for (int c = 0; c < NCOMP_TEST; ++c) {
        T sum[Q];
        contract<DT>(vx[c], sum);
        if constexpr (DIM > 1) add_line<STRIDE_X>(at.buffer(OF_Y, c) + at.x_line(), sum);
        if constexpr (DIM > 2) add_line<STRIDE_X>(at.buffer(0, c) + at.x_line(), sum);
#pragma unroll
        for (int i = 0; i < Q; ++i) v[c][i] = VALUE_OUT ? v[c][i] + sum[i] : sum[i];
    }
}

template <class S>
__device__ __forceinline__ void back_along_first(const Place& at, const Fields& v) {
#pragma unroll
    for (int c = S::FIRST; c < S::FIRST + S::NCOMP; ++c) {
        T nodes[S::P];
        contract<Transposed<typename S::B>>(v[c], nodes);
        store_line<STRIDE_X>(at.buffer(0, c) + at.x_line(), nodes);
    }
}

template <class S>
__device__ __forceinline__ void back_along_second(const Place& at) {
    if (at.first < S::P && !S::B::identity) {
#pragma unroll
        for (int c = S::FIRST; c < S::FIRST + S::NCOMP; ++c) {
            T line[Q], nodes[S::P];
            T* there = at.buffer(0, c) + at.y_line();
            load_line<STRIDE_Y>(there, line);
            contract<Transposed<typename S::B>>(line, nodes);
            store_line<STRIDE_Y>(there, nodes);
        }
    }
}

template <class S>
__device__ __forceinline__ void to_nodes(const Arguments& a, Merge& merge, const Place& at,
                                         long long e, const Fields& v) {
    if (merge.there && at.template has_pencil<S::P>()) {
        const Pencil<S> pencil(a, at, e);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            T line[Q], nodes[S::P];
            if constexpr (DIM == 1) {
#pragma unroll
                for (int i = 0; i < Q; ++i) line[i] = v[S::FIRST + c][i];
            } else {
                load_line<PENCIL>(at.buffer(0, S::FIRST + c) + at.pencil(), line);
            }
            contract<Transposed<typename S::B>>(line, nodes);
            scatter<S>(a, merge, e, pencil, c, nodes);
        }
    }
}

// From the thread's line of points back to the nodes of all test functions.
template <class... S>
__device__ __forceinline__ void integrate(const Arguments& a, Merge& merge, const Place& at,
                                          long long e, const Fields& v, Sides<S...>) {
    if constexpr (DIM > 1) {
        (back_along_first<S>(at, v), ...);
        at.wait();
    }
    if constexpr (DIM == 3 && !(S::B::identity && ...)) {
        (back_along_second<S>(at), ...);
        at.wait();
    }
    (to_nodes<S>(a, merge, at, e, v), ...);
}
