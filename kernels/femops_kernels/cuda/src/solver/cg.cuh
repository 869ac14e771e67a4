// Vector updates of conjugate gradients, each thread some entries: those of an ACTION.

ENTRY(THREADS, BLOCKS, Arguments) {
    if (a.state[STOPPED] != 0) return;
    const T drop = T(a.state[DROP]), beta = T(a.state[BETA]);
    double sums[2] = {0, 0};
    const long long step = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < a.count; i += step) {
        const T m = a.inverse != nullptr ? a.inverse[i] : T(1);
        if constexpr (ACTION == START) {
            const T r = a.b[i] - a.q[i];  // q is A x, or zero
            a.r[i] = r;
            if constexpr (MERGED) a.q[i] = 0;
            if constexpr (!MERGED) a.p[i] = m * r;
            sums[0] += double(r) * r * m;
            sums[1] += double(r) * r;
        } else if constexpr (ACTION == SWEEP) {
            sums[0] += double(a.p[i]) * a.q[i];
        } else if constexpr (ACTION == MOVE) {
            a.x[i] += drop * a.p[i];
            const T r = a.r[i] - drop * a.q[i];
            a.r[i] = r;
            if constexpr (MERGED) a.q[i] = 0;
            sums[0] += double(r) * r * m;
            sums[1] += double(r) * r;
        } else {
            a.p[i] = m * a.r[i] + beta * a.p[i];
        }
    }
    if constexpr (ACTION != TURN) {
        if (all_sums(sums, a.partial, a.counters)) {
            if constexpr (RANKS) {
                a.state[SUMS] = sums[0];
                a.state[SUMS + 1] = sums[1];
            } else if constexpr (ACTION == SWEEP) {
                set_curvature(a.state, sums[0]);
            } else {
                if constexpr (ACTION == MOVE) {
                    a.state[BETA] = sums[0] / a.state[RHO];
                    a.state[ITERATIONS] += 1;
                }
                set_residual(a.state, sums[0], sums[1]);
            }
        }
    }
}
