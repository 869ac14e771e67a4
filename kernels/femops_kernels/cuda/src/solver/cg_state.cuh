// State of a solve by conjugate gradients, which stays on the device. The last thread of a launch
// changes it when its sums are known; the next launch reads it. Of many ranks it only has the sums of
// its own entries: the host adds those of all, and changes it.

// Places are those of `cg_state.py` and `state.py`. What is due is x += DROP p + FAR (p - M r),
// r -= DROP q and p = M r + BETA p, and x += BEHIND times the p before where FAR would lose digits.
constexpr double TINY = 1e-18;  // the square root of the smallest float32, and more
constexpr double SMALL_BETA = 0.1;  // p - M r has lost too many digits to be divided by less

// p.Ap is known.
__device__ __forceinline__ void set_curvature(double* state, double curvature) {
    if (curvature > 0) {
        state[DROP] = state[RHO] / curvature;
    } else {
        state[STATUS] = BREAKDOWN;
        state[STOPPED] = 1;
    }
}

// r.Mr and r.r are known after a move. If it left x alone the next one won't, even after the end.
__device__ __forceinline__ void set_moved(double* state, bool touched, double rho, double rr) {
    const double drop = touched ? 0 : state[DROP];
    if (state[STOPPED] == 0) {
        state[DROP] = 0;
        state[BETA] = rho / state[RHO];
        state[RHO] = rho;
        state[RESIDUAL] = sqrt(state[NATURAL] != 0 ? fabs(rho) : rr);
        state[ITERATIONS] += 1;
        const bool last = state[ITERATIONS] >= state[LIMIT];
        if (state[RESIDUAL] <= state[GOAL]) {
            state[STATUS] = CONVERGED;
        } else if (!last && !(rho > 0)) {
            // squares may underflow while the residual is not yet zero: nothing is left to reduce
            state[STATUS] = state[RESIDUAL] < TINY ? CONVERGED : BREAKDOWN;
        }
        state[STOPPED] = last || state[STATUS] != 0;
    }
    const bool far = state[STOPPED] == 0 && state[BETA] >= SMALL_BETA;
    state[FAR] = far ? drop / state[BETA] : 0;
    state[BEHIND] = far ? 0 : drop;
}
