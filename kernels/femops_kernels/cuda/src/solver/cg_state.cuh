// State of a solve by conjugate gradients, which stays on the device. The last thread of a launch
// changes it when its sums are known; the next launch reads it. Of many ranks it only has the sums of
// its own entries: the host adds those of all, and changes it.

// As in cg_state.py; what is due is x += DROP p, r -= DROP q and p = M r + BETA p.
constexpr int ITERATIONS = 0, RHO = 1, RESIDUAL = 2, STATUS = 3;
constexpr int DROP = 4, BETA = 7, GOAL = 9, LIMIT = 10, NATURAL = 13;
constexpr double CONVERGED = 1, BREAKDOWN = 2;
constexpr int STOPPED = 20, SUMS = 21;  // of a device alone
constexpr double TINY = 1e-18;  // the square root of the smallest float32, and more

// p.Ap is known.
__device__ __forceinline__ void set_curvature(double* state, double curvature) {
    if (curvature > 0) {
        state[DROP] = state[RHO] / curvature;
    } else {
        state[STATUS] = BREAKDOWN;
        state[STOPPED] = 1;
    }
}

// r.Mr and r.r are known.
__device__ __forceinline__ void set_residual(double* state, double rho, double rr) {
    state[RHO] = rho;
    state[RESIDUAL] = sqrt(state[NATURAL] != 0 ? fabs(rho) : rr);
    const bool last = state[ITERATIONS] >= state[LIMIT];
    if (state[RESIDUAL] <= state[GOAL]) {
        state[STATUS] = CONVERGED;
    } else if (!last && !(rho > 0)) {
        // squares may underflow while the residual is not yet zero: nothing is left to reduce
        state[STATUS] = state[RESIDUAL] < TINY ? CONVERGED : BREAKDOWN;
    }
    state[STOPPED] = last || state[STATUS] != 0;
}
