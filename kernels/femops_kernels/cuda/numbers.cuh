// The numbers that the pointwise step is given: stored, or computed from the element's geometry.
//
// Jacobians and positions come from the modes of an element's geometry (products of polynomials of
// each direction): those of y and z once for the thread's line of points, those of x at the point.
// What is stored at points is a stream for each thread, in pieces of 16 bytes, which the threads of
// a block have side by side.

constexpr int NUMBERS = NELEMENT + NJACOBIAN + NPOSITION + NWEIGHT + NCONSTANT + NQDATA;
constexpr bool MAPPED = NJACOBIAN + NPOSITION > 0;
constexpr int MODES = DIM == 3 ? G1D * G1D * G1D : DIM == 2 ? G1D * G1D : G1D;  // of a component
constexpr int PIECE = 16 / sizeof(S);
constexpr int PIECES = (Q * NQDATA + PIECE - 1) / PIECE;

struct Numbers {
    T element[NELEMENT > 0 ? NELEMENT : 1];
    T constant[NCONSTANT > 0 ? NCONSTANT : 1];
    T across;                                   // the weights of the directions across the line
    T modes[MAPPED ? DIM : 1][DIM][G1D];        // value, y- and z-derivative; component; mode in x
    const S* stream;
    Pack<S> piece;

    __device__ __forceinline__ Numbers(const Arguments& a, long long e, int j, int k) {
#pragma unroll
        for (int n = 0; n < NELEMENT; ++n) element[n] = __ldg(a.elements + e * NELEMENT + n);
#pragma unroll
        for (int n = 0; n < NCONSTANT; ++n) constant[n] = __ldg(a.constants + n);
        if constexpr (NWEIGHT > 0) {
            across = 1;
            if constexpr (DIM > 1) across = WEIGHTS[j];
            if constexpr (DIM > 2) across *= WEIGHTS[k];
        }
        if constexpr (NQDATA > 0) {
            // what the block will read at the points is on its way while it interpolates
            constexpr int BYTES = 16 * PIECES * THREADS, LINE = 128, COUNT = (BYTES + LINE - 1) / LINE;
            const char* block = reinterpret_cast<const char*>(a.points) + block_of(a) * BYTES;
#pragma unroll
            for (int n = 0; n < COUNT; n += THREADS) {
                const int line = n + threadIdx.x;
                if (n + THREADS <= COUNT || line < COUNT) prefetch_line(block + line * LINE);
            }
            stream = reinterpret_cast<const S*>(block) + threadIdx.x * PIECE;
        }
        if constexpr (MAPPED) set_modes(a.modes + e * DIM * MODES, j, k);
    }

    __device__ __forceinline__ void set_modes(const T* all, int j, int k) {
#pragma unroll
        for (int d = 0; d < DIM; ++d) {
#pragma unroll
            for (int m = 0; m < G1D; ++m) {
                T sums[3] = {0, 0, 0};
                if constexpr (DIM == 1) sums[0] = __ldg(all + d * MODES + m);
                if constexpr (DIM > 1) {
#pragma unroll
                    for (int n = 0; n < MODES / G1D; ++n) {
                        const int y = n % G1D, z = n / G1D;
                        const T mode = __ldg(all + d * MODES + n * G1D + m);
                        const T above = DIM > 2 ? MODE[k * G1D + z] : T(1);
                        sums[0] += mode * (above * MODE[j * G1D + y]);
                        sums[1] += mode * (above * SLOPE[j * G1D + y]);
                        if constexpr (DIM > 2) {
                            sums[2] += mode * (SLOPE[k * G1D + z] * MODE[j * G1D + y]);
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < DIM; ++i) modes[i][d][m] = sums[i];
            }
        }
    }

    static __device__ __forceinline__ T row(const T* table, int i, const T (&modes)[G1D]) {
        T sum = table[i * G1D] * modes[0];
#pragma unroll
        for (int m = 1; m < G1D; ++m) sum += table[i * G1D + m] * modes[m];
        return sum;
    }

    // At the i-th point of the line; points are asked for in order.
    __device__ __forceinline__ void at(int i, T (&q)[NUMBERS > 0 ? NUMBERS : 1]) {
        int n = 0;
#pragma unroll
        for (int k = 0; k < NELEMENT; ++k) q[n++] = element[k];
        if constexpr (NJACOBIAN > 0) {
#pragma unroll
            for (int d = 0; d < DIM; ++d) {
#pragma unroll
                for (int along = 0; along < DIM; ++along) {
                    q[n++] = row(along == 0 ? SLOPE : MODE, i, modes[along][d]);
                }
            }
        }
        if constexpr (NPOSITION > 0) {
#pragma unroll
            for (int d = 0; d < DIM; ++d) q[n++] = row(MODE, i, modes[0][d]);
        }
        if constexpr (NWEIGHT > 0) q[n++] = DIM > 1 ? across * WEIGHTS[i] : WEIGHTS[i];
#pragma unroll
        for (int k = 0; k < NCONSTANT; ++k) q[n++] = constant[k];
#pragma unroll
        for (int k = 0; k < NQDATA; ++k) {
            const int number = i * NQDATA + k;
            if (number % PIECE == 0) {
                piece = load_pack(stream + (long long)(number / PIECE) * THREADS * PIECE);
            }
            q[n++] = T(piece.v[number % PIECE]);
        }
    }
};
