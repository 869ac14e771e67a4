// The way of an element between its nodes and its points.
//
// The threads of an element are a plane of lines in 3-D. In each phase a thread has one line of the
// element in registers, along z, y or x; between phases the lines go through shared memory, so that
// a number is read and written once per direction, not once per product. Thread (first, second) has
// the x-line j = first, k = second; the y-line i = first, k = second; the z-line i = first,
// j = second. Its points are those of its x-line.

constexpr int PENCIL = DIM == 3 ? STRIDE_Z : STRIDE_Y;  // along the last direction

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

// Keeps the factors of the test function at the i-th point of the thread's line.
__device__ __forceinline__ void write_point(const Place& at, Fields& v, Fields& vx, int i,
                                            const T (&out)[NCOMP_OUT], const T (&out_x)[NCOMP_OUT],
                                            const T (&out_y)[NCOMP_OUT],
                                            const T (&out_z)[NCOMP_OUT]) {
#pragma unroll
    for (int c = 0; c < NCOMP_TEST; ++c) {
        if constexpr (VALUE_OUT) v[c][i] = out[c];
        if constexpr (GRAD_OUT) {
            vx[c][i] = out_x[c];
            if constexpr (DIM > 1) at.buffer(OF_Y, c)[at.x_line() + i * STRIDE_X] = out_y[c];
            if constexpr (DIM > 2) at.buffer(0, c)[at.x_line() + i * STRIDE_X] = out_z[c];
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
