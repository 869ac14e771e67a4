// State of a solve by conjugate gradients, which stays on the device. The last thread of a launch
// changes it when its sums are known; the next launch reads it. Of many ranks it only has the sums of
// its own entries: the host adds those of all, and changes it.

constexpr int ITERATIONS = 0, RHO = 1, RESIDUAL = 2, STATUS = 3;  // as the host looks at them
constexpr int STOPPED = 4, ALPHA = 5, BETA = 6, GOAL = 7, LIMIT = 8, SUMS = 9;
constexpr double CONVERGED = 1, BREAKDOWN = 2;
constexpr double TINY = 1e-18;  // the square root of the smallest float32, and more

// p.Ap is known.
__device__ __forceinline__ void set_curvature(double* state, double curvature) {
    if (curvature > 0) {
        state[ALPHA] = state[RHO] / curvature;
    } else {
        state[STATUS] = BREAKDOWN;
        state[STOPPED] = 1;
    }
}

// r.Mr and r.r are known.
__device__ __forceinline__ void set_residual(double* state, double rho, double rr) {
    state[RHO] = rho;
    state[RESIDUAL] = sqrt(rr);
    const bool last = state[ITERATIONS] >= state[LIMIT];
    if (state[RESIDUAL] <= state[GOAL]) {
        state[STATUS] = CONVERGED;
    } else if (!last && !(rho > 0)) {
        // squares may underflow while the residual is not yet zero: nothing is left to reduce
        state[STATUS] = state[RESIDUAL] < TINY ? CONVERGED : BREAKDOWN;
    }
    state[STOPPED] = last || state[STATUS] != 0;
}
