// As diagonal.cuh, of faces: an entry of D at a point times products of basis functions along the face
// (SQUARES), and of their values and derivatives at the end that the face lies at (ENDS).

constexpr int NEAR = Target::End::cols;  // nodes of a line with a value or derivative at the face

// Contracts a product of factors at the points along y and x: `kind` as in diagonal.cuh.
template <int STRIDE, int EACH>
__device__ __forceinline__ void contract_all(const Place& at, int kind) {
    constexpr int P = Target::P, APART = STRIDE == STRIDE_X ? STRIDE_Y : STRIDE_X;
    for (int k = at.second * Q + at.first; k < EACH; k += LINES) {
        T* there = at.buffer(VALUES, 0) + k * APART;
        T points[Q], nodes[P];
        load_line<STRIDE>(there, points);
#pragma unroll
        for (int n = 0; n < P; ++n) {
            T sum = 0;
#pragma unroll
            for (int i = 0; i < Q; ++i) sum += SQUARES[(kind * Q + i) * P + n] * points[i];
            nodes[n] = sum;
        }
        store_line<STRIDE>(there, nodes);
    }
}

// Adds an entry of D to the thread's line of nodes: how many derivatives it has in each direction.
__device__ __forceinline__ void add_entry(const Place& at, int along_x, int along_y, int inwards,
                                          T entry, T (&sum)[NEAR]) {
    T* mine = at.buffer(VALUES, 0) + at.pencil();
    at.wait();  // it may still be read
    *mine = entry;
    at.wait();
    if constexpr (DIM == 3) {
        contract_all<STRIDE_Y, Q>(at, along_y);
        at.wait();
    }
    if constexpr (DIM > 1) {
        contract_all<STRIDE_X, DIM == 3 ? Target::P : 1>(at, along_x);
        at.wait();
    }
    if (at.template has_pencil<Target::P>()) {
#pragma unroll
        for (int n = 0; n < NEAR; ++n) sum[n] += ENDS[inwards * NEAR + n] * *mine;
    }
}

__device__ __forceinline__ bool is_entry(int in, int out) {
    return (in == 0 ? VALUE_IN : GRAD_IN) && (out == 0 ? VALUE_OUT : GRAD_OUT);
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
    T q[NUMBERS > 0 ? NUMBERS : 1];
    numbers.at(0, q);
#pragma unroll
    for (int c = 0; c < NCOMP_OUT; ++c) {
        T d[4][4] = {}, sum[NEAR] = {};
#pragma unroll
        for (int in = 0; in <= DIM; ++in) {
            T u[4][NCOMP_IN] = {}, v[4][NCOMP_OUT] = {};
            u[in][c] = 1;
            pointwise(u[0], u[1], u[2], u[3], q, v[0], v[1], v[2], v[3]);
#pragma unroll
            for (int out = 0; out <= DIM; ++out) d[in][out] = v[out][c];
        }
#pragma unroll
        for (int one = 0; one <= DIM; ++one) {
#pragma unroll
            for (int other = one; other <= DIM; ++other) {
                const int along_x = DIM > 1 ? (one == 1) + (other == 1) : 0;
                const int along_y = DIM > 2 ? (one == 2) + (other == 2) : 0;
                const int inwards = (one == DIM) + (other == DIM);
                if (!is_entry(one, other) && !is_entry(other, one)) continue;
                T entry = is_entry(one, other) ? d[one][other] : T(0);
                if (one != other && is_entry(other, one)) entry += d[other][one];
                add_entry(at, along_x, along_y, inwards, entry, sum);
            }
        }
        if (there && at.template has_pencil<Target::P>()) {
            scatter<Target>(a, merge, e, Pencil<Target>(a, at, e), c, sum);
        }
    }
}
