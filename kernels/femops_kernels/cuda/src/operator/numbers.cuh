// The numbers that the q-function is given: stored, or computed from the element's geometry.
//
// Jacobians and positions come from the modes of an element's geometry (products of polynomials of
// each direction): those of y and z once for the thread's line of points, those of x at the point.
// What is stored at points comes from the thread's stream.

constexpr int NUMBERS = NELEMENT + NJACOBIAN + NPOSITION + NWEIGHT + NCONSTANT + NQDATA;
constexpr bool MAPPED = NJACOBIAN + NPOSITION > 0;
constexpr int MODES = DIM == 3 ? G1D * G1D * G1D : DIM == 2 ? G1D * G1D : G1D;  // of a component

struct Numbers {
    T element[NELEMENT > 0 ? NELEMENT : 1];
    T constant[NCONSTANT > 0 ? NCONSTANT : 1];
    T across;                                   // the weights of the directions across the line
    T modes[MAPPED ? DIM : 1][DIM][G1D];        // value, y- and z-derivative; component; mode in x
    Stream& stream;
    Pack<S> piece;

    __device__ __forceinline__ Numbers(const Arguments& a, Stream& stream_, long long e, int j, int k)
        : stream(stream_) {
#pragma unroll
        for (int n = 0; n < NELEMENT; ++n) element[n] = __ldg(a.elements + e * NELEMENT + n);
#pragma unroll
        for (int n = 0; n < NCONSTANT; ++n) constant[n] = __ldg(a.constants + n);
        if constexpr (NWEIGHT > 0) {
            across = 1;
            if constexpr (DIM > 1) across = WEIGHTS[j];
            if constexpr (DIM > 2) across *= WEIGHTS[k];
        }
        if constexpr (MAPPED) set_modes(a.modes + e * DIM * MODES, j, k);
    }

    __device__ __forceinline__ void set_modes(const T* all, int j, int k) {
#pragma unroll
        for (int d = 0; d < DIM; ++d) {
#pragma unroll
            for (int m = 0; m < G1D; ++m) {
                T values[G1D], slopes[G1D];  // by mode in y: value and z-derivative
#pragma unroll
                for (int y = 0; y < (DIM > 1 ? G1D : 1); ++y) {
                    T line[G1D];
#pragma unroll
                    for (int z = 0; z < (DIM > 2 ? G1D : 1); ++z) {
                        line[z] = __ldg(all + d * MODES + (z * G1D + y) * G1D + m);
                    }
                    values[y] = DIM > 2 ? value(k, line) : line[0];
                    if constexpr (DIM > 2) slopes[y] = slope(k, line);
                }
                modes[0][d][m] = DIM > 1 ? value(j, values) : values[0];
                if constexpr (DIM > 1) modes[1][d][m] = slope(j, values);
                if constexpr (DIM > 2) modes[2][d][m] = value(j, slopes);
            }
        }
    }

    // Sums of modes, and of their slopes, at a point of a direction.
    static __device__ __forceinline__ T value(int i, const T (&modes)[G1D]) {
        return row<MODE_ZEROS, MODE_ONES>(MODE + i * G1D, modes);
    }
    static __device__ __forceinline__ T slope(int i, const T (&modes)[G1D]) {
        return row<SLOPE_ZEROS, SLOPE_ONES>(SLOPE + i * G1D, modes);
    }

    // Where bits of ZEROS and ONES are set, nothing is multiplied.
    template <unsigned ZEROS, unsigned ONES>
    static __device__ __forceinline__ T row(const T* factors, const T (&modes)[G1D]) {
        T sum = 0;
        bool begun = false;
#pragma unroll
        for (int m = 0; m < G1D; ++m) {
            if (ZEROS >> m & 1) continue;
            const T product = ONES >> m & 1 ? modes[m] : factors[m] * modes[m];
            sum = begun ? sum + product : product;
            begun = true;
        }
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
                    q[n++] = along == 0 ? slope(i, modes[0][d]) : value(i, modes[along][d]);
                }
            }
        }
        if constexpr (NPOSITION > 0) {
#pragma unroll
            for (int d = 0; d < DIM; ++d) q[n++] = value(i, modes[0][d]);
        }
        if constexpr (NWEIGHT > 0) {
            q[n++] = DIM == 1 ? WEIGHTS[i] : FACES ? across : across * WEIGHTS[i];
        }
#pragma unroll
        for (int k = 0; k < NCONSTANT; ++k) q[n++] = constant[k];
#pragma unroll
        for (int k = 0; k < NQDATA; ++k) {
            const int number = i * NQDATA + k;
            if (number % PIECE == 0) piece = stream.piece(number / PIECE);
            q[n++] = T(piece.v[number % PIECE]);
        }
    }
};
