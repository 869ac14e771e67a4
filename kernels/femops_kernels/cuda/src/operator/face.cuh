// The way of a face between the nodes of its element and its points, where functions have derivatives.
//
// The element is turned so that its last direction leads inwards from the face. A thread contracts its
// line of nodes in this direction to two numbers, the value and the derivative at the face (S::End).
// Nodes whose functions have neither there are left out: those behind the first S::End::cols.
// Both are interpolated along the face, where derivatives are taken of the values. A thread has one
// point, (first, second).
//
// A component has an array of the points of the face for each of these: values, and where anything is
// a derivative, inward derivatives and those along x and y. All are in shared memory.

constexpr int VALUES = 0, INWARDS = 1, ALONG_X = 2, ALONG_Y = 3;
constexpr int ACROSS = DIM == 3 ? Q : 1;  // lines of points along x

// Contracts lines of several arrays, of which each has EACH, in turn by the threads of the face.
template <class M, int STRIDE, int EACH>
__device__ __forceinline__ void all_lines(const Place& at, int arrays, const T* from, T* to) {
    constexpr int APART = STRIDE == STRIDE_X ? STRIDE_Y : STRIDE_X;
    for (int n = at.second * Q + at.first; n < arrays * EACH; n += LINES) {
        const int begin = n / EACH * VOLUME + n % EACH * APART;
        along<M, STRIDE>(from + begin, to + begin);
    }
}

// The same of the values of a field or test function in place, and of its inward derivatives.
template <class S, class M, int STRIDE, int EACH, bool SLOPES>
__device__ __forceinline__ void along_face(const Place& at) {
    T* values = at.buffer(VALUES, S::FIRST);
    all_lines<M, STRIDE, EACH>(at, S::NCOMP, values, values);
    if constexpr (SLOPES) {
        T* slopes = at.buffer(INWARDS, S::FIRST);
        all_lines<M, STRIDE, EACH>(at, S::NCOMP, slopes, slopes);
    }
}

// From the thread's line of nodes to its values at the face.
template <class S>
__device__ __forceinline__ void from_nodes(const Arguments& a, const Merge& merge, const Place& at,
                                           long long e) {
    if (at.template has_pencil<S::P>()) {
        int dofs[S::P];
        const Dofs<S::P, S::BROKEN> nodes(at.first, at.second);
        nodes.find(S::starts(a) + e * nodes.RUNS, S::turned(a), dofs);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            T line[S::End::cols], end[2];
            gather<S>(a, merge, e, dofs, c, line);
            contract<typename S::End>(line, end);
            at.buffer(VALUES, S::FIRST + c)[at.pencil()] = end[0];
            if constexpr (GRAD_IN) at.buffer(INWARDS, S::FIRST + c)[at.pencil()] = end[1];
        }
    }
}

// Values of all fields, and inward derivatives, at the points.
template <class... S>
__device__ __forceinline__ void interpolate(const Arguments& a, const Merge& merge, const Place& at,
                                            long long e, Fields&, Sides<S...>) {
    (from_nodes<S>(a, merge, at, e), ...);
    if constexpr (DIM == 3) {
        at.wait();
        (along_face<S, typename S::B, STRIDE_Y, S::P, GRAD_IN>(at), ...);
    }
    if constexpr (DIM > 1) {
        at.wait();
        (along_face<S, typename S::B, STRIDE_X, ACROSS, GRAD_IN>(at), ...);
        at.wait();
    }
}

// Derivatives along the face.
template <class... S>
__device__ __forceinline__ void differentiate(const Place& at, const Fields&, Fields&, Sides<S...>) {
    const T* values = at.buffer(VALUES, 0);
    if constexpr (DIM > 1) all_lines<D, STRIDE_X, ACROSS>(at, NCOMP_IN, values, at.buffer(ALONG_X, 0));
    if constexpr (DIM > 2) all_lines<D, STRIDE_Y, Q>(at, NCOMP_IN, values, at.buffer(ALONG_Y, 0));
    if constexpr (DIM > 1) at.wait();
}

// The fields' factors at the point. The derivative in the last direction is the inward one.
__device__ __forceinline__ void read_point(const Place& at, const Fields&, const Fields&, int,
                                           T (&in)[NCOMP_IN], T (&in_x)[NCOMP_IN],
                                           T (&in_y)[NCOMP_IN], T (&in_z)[NCOMP_IN]) {
    T(&inwards)[NCOMP_IN] = DIM == 1 ? in_x : DIM == 2 ? in_y : in_z;
#pragma unroll
    for (int c = 0; c < NCOMP_IN; ++c) {
        if constexpr (VALUE_IN) in[c] = at.buffer(VALUES, c)[at.pencil()];
        if constexpr (GRAD_IN) {
            if constexpr (DIM > 1) in_x[c] = at.buffer(ALONG_X, c)[at.pencil()];
            if constexpr (DIM > 2) in_y[c] = at.buffer(ALONG_Y, c)[at.pencil()];
            inwards[c] = at.buffer(INWARDS, c)[at.pencil()];
        }
    }
}

// The test functions' factors, where no other thread has read.
__device__ __forceinline__ void write_point(const Place& at, Fields&, Fields&, int,
                                            const T (&out)[NCOMP_OUT], const T (&out_x)[NCOMP_OUT],
                                            const T (&out_y)[NCOMP_OUT],
                                            const T (&out_z)[NCOMP_OUT]) {
    const T(&inwards)[NCOMP_OUT] = DIM == 1 ? out_x : DIM == 2 ? out_y : out_z;
#pragma unroll
    for (int c = 0; c < NCOMP_TEST; ++c) {
        T value = 0;
        if constexpr (VALUE_OUT) value = out[c];
        at.buffer(VALUES, c)[at.pencil()] = value;
        if constexpr (GRAD_OUT) {
            if constexpr (DIM > 1) at.buffer(ALONG_X, c)[at.pencil()] = out_x[c];
            if constexpr (DIM > 2) at.buffer(ALONG_Y, c)[at.pencil()] = out_y[c];
            at.buffer(INWARDS, c)[at.pencil()] = inwards[c];
        }
    }
}

// Transposed derivatives along the face are added to the values.
__device__ __forceinline__ void differentiate_transposed(const Place& at, Fields&, Fields&) {
    using DT = Transposed<D>;
    if constexpr (DIM > 1) {
        T *x = at.buffer(ALONG_X, 0), *y = at.buffer(DIM > 2 ? ALONG_Y : ALONG_X, 0);
        at.wait();
        all_lines<DT, STRIDE_X, ACROSS>(at, NCOMP_TEST, x, x);
        if constexpr (DIM > 2) all_lines<DT, STRIDE_Y, Q>(at, NCOMP_TEST, y, y);
        at.wait();
#pragma unroll
        for (int c = 0; c < NCOMP_TEST; ++c) {
            T sum = at.buffer(ALONG_X, c)[at.pencil()];
            if constexpr (DIM > 2) sum += at.buffer(ALONG_Y, c)[at.pencil()];
            at.buffer(VALUES, c)[at.pencil()] += sum;
        }
    }
}

template <class S>
__device__ __forceinline__ void to_nodes(const Arguments& a, Merge& merge, const Place& at,
                                         long long e) {
    if (merge.there && at.template has_pencil<S::P>()) {
        const Pencil<S> pencil(a, at, e);
#pragma unroll
        for (int c = 0; c < S::NCOMP; ++c) {
            T end[2] = {at.buffer(VALUES, S::FIRST + c)[at.pencil()], T(0)}, nodes[S::End::cols];
            if constexpr (GRAD_OUT) end[1] = at.buffer(INWARDS, S::FIRST + c)[at.pencil()];
            contract<Transposed<typename S::End>>(end, nodes);
            scatter<S>(a, merge, e, pencil, c, nodes);
        }
    }
}

// From the points back to the nodes of all test functions.
template <class... S>
__device__ __forceinline__ void integrate(const Arguments& a, Merge& merge, const Place& at,
                                          long long e, const Fields&, Sides<S...>) {
    if constexpr (DIM > 1) {
        at.wait();
        (along_face<S, Transposed<typename S::B>, STRIDE_X, ACROSS, GRAD_OUT>(at), ...);
        at.wait();
    }
    if constexpr (DIM == 3) {
        (along_face<S, Transposed<typename S::B>, STRIDE_Y, S::P, GRAD_OUT>(at), ...);
        at.wait();
    }
    (to_nodes<S>(a, merge, at, e), ...);
}
