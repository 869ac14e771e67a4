// The diagonal of an operator: sum over the points of D's entries times a basis function's values or
// derivatives twice, D by the q-function of unit vectors. The 1-D matrices are products of basis
// functions, of their values (0), one of them a derivative (1), or both (2); what is left to be
// contracted along y and z in one way is summed before, as in element matrices.

// The ways along y and z: (0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2).
constexpr int WAYS = DIM == 3 ? 6 : DIM == 2 ? 3 : 1;

__device__ __forceinline__ int way_of(int y, int z) { return z == 0 ? y : z == 1 ? 3 + y : 5; }
__device__ __forceinline__ int along_y(int way) { return way < 3 ? way : way == 4; }
__device__ __forceinline__ int along_z(int way) { return way < 3 ? 0 : way < 5 ? 1 : 2; }

// Whether anything is to be contracted in a way: it has no more derivatives than D's entries.
__device__ __forceinline__ bool is_met(int way) {
    const int most = GRAD_IN + GRAD_OUT;
    return along_y(way) + along_z(way) <= most;
}

using Lines = T[WAYS][Target::P];

__device__ __forceinline__ void contract_nodes(int kind, const T (&points)[Q], T (&nodes)[Target::P]) {
#pragma unroll
    for (int n = 0; n < Target::P; ++n) {
        T sum = 0;
#pragma unroll
        for (int i = 0; i < Q; ++i) sum += SQUARES[(kind * Q + i) * Target::P + n] * points[i];
        nodes[n] = sum;
    }
}

// At the i-th point of the line: D's column of the c-th component's factor `in`, contracted along x.
__device__ __forceinline__ void add_column(int i, int c, int in, const T (&q)[NUMBERS > 0 ? NUMBERS : 1],
                                           Lines& lines) {
    T u[4][NCOMP_IN] = {}, v[4][NCOMP_OUT];
    u[in][c] = 1;
    pointwise(u[0], u[1], u[2], u[3], q, v[0], v[1], v[2], v[3]);
#pragma unroll
    for (int out = 0; out <= DIM; ++out) {
        if (out == 0 ? VALUE_OUT : GRAD_OUT) {
            const int x = (in == 1) + (out == 1), y = (in == 2) + (out == 2);
            const int way = way_of(y, (in == 3) + (out == 3));
#pragma unroll
            for (int n = 0; n < Target::P; ++n) {
                lines[way][n] += SQUARES[(x * Q + i) * Target::P + n] * v[out][c];
            }
        }
    }
}

// Contracts what is left of a way along y and z; adds to the thread's pencil of nodes.
__device__ __forceinline__ void add_way(const Place& at, int way, const T (&line)[Target::P],
                                        T (&sum)[Target::P]) {
    T points[Q], nodes[Target::P];
    T* work = at.buffer(0, 0);
    __syncthreads();  // it may still be read
    store_line<STRIDE_X>(work + at.x_line(), line);
    __syncthreads();
    if constexpr (DIM == 3) {
        if (at.first < Target::P) {
            load_line<STRIDE_Y>(work + at.y_line(), points);
            contract_nodes(along_y(way), points, nodes);
            store_line<STRIDE_Y>(work + at.y_line(), nodes);
        }
        __syncthreads();
    }
    if (at.template has_pencil<Target::P>()) {
        load_line<PENCIL>(work + at.pencil(), points);
        contract_nodes(DIM == 3 ? along_z(way) : along_y(way), points, nodes);
#pragma unroll
        for (int n = 0; n < Target::P; ++n) sum[n] += nodes[n];
    }
}

ENTRY(THREADS, BLOCKS, Arguments) {
    const Place at(reinterpret_cast<T*>(dynamic_shared()));
    const int portion = first_portion(a);
    Stream stream(a, portion);
    bool there;
    const long long e = element_of(a, portion, at.slot, there);
    Merge merge(a);
    merge.enter(a, e, there);
    Numbers numbers(a, stream, e, at.first, at.second);
#pragma unroll
    for (int c = 0; c < NCOMP_OUT; ++c) {
        Lines lines = {};
#pragma unroll
        for (int i = 0; i < Q; ++i) {
            T q[NUMBERS > 0 ? NUMBERS : 1];
            numbers.at(i, q);
#pragma unroll
            for (int in = 0; in <= DIM; ++in) {
                if (in == 0 ? VALUE_IN : GRAD_IN) add_column(i, c, in, q, lines);
            }
        }
        T sum[Target::P] = {};
#pragma unroll
        for (int way = 0; way < WAYS; ++way) {
            if constexpr (DIM == 1) {
#pragma unroll
                for (int n = 0; n < Target::P; ++n) sum[n] = lines[way][n];
            } else if (is_met(way)) {
                add_way(at, way, lines[way], sum);
            }
        }
        if (there && at.template has_pencil<Target::P>()) {
            scatter<Target>(a, merge, e, Pencil<Target>(a, at, e), c, sum);
        }
    }
}
