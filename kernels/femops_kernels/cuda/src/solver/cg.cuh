// Vector updates of conjugate gradients, and sums: those of an ACTION. Each thread has some entries.
// The start is a move from r = b, with q = A x and p = 0. Of RANKS, where the host waits for sums, a
// sweep forms all there are, and a turn moves as well.

constexpr bool MOVES = ACTION == MOVE || (RANKS && ACTION == TURN);
constexpr bool ALL = RANKS && ACTION == SWEEP;

ENTRY(THREADS, BLOCKS, Arguments) {
    const T drop = T(a.state[DROP]), far = T(a.state[FAR]), behind = T(a.state[BEHIND]);
    const bool late = ACTION == MOVE && a.touch && (far != 0 || behind != 0);
    if (a.state[STOPPED] != 0 && !late) return;
    const T beta = T(a.state[BETA]);
    double sums[ALL ? NSUMS : 2] = {0};
    const long long step = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < a.count; i += step) {
        const T m = a.inverse != nullptr ? a.inverse[i] : T(1);
        T r = a.r[i];
        if constexpr (MOVES) {
            if (a.touch) {
                T x = a.x[i];
                if (drop != 0) x += drop * a.p[i];
                if (far != 0) x += far * (a.p[i] - m * r);
                if (behind != 0) x += behind * a.old[i];
                a.x[i] = x;
            }
            r -= drop * a.q[i];
            a.r[i] = r;
            if constexpr (MERGED) a.q[i] = 0;
        }
        if constexpr (ACTION == TURN) a.p[i] = m * r + beta * a.old[i];
        if constexpr (ACTION == SWEEP) {
            const double v = a.q[i];
            sums[ALL ? S_PV : 0] += a.p[i] * v;
            if constexpr (ALL) {
                sums[S_RV] += r * v;
                sums[S_VV] += v * v;
                sums[S_RMV] += r * v * m;
                sums[S_VMV] += v * v * m;
            }
        }
        if constexpr (ALL || ACTION == MOVE) {
            sums[S_RHO] += double(r) * r * m;
            sums[S_RR] += double(r) * r;
        }
    }
    if constexpr (ACTION != TURN) {
        if (all_sums(sums, a.partial, a.counters)) {
            if constexpr (RANKS) {
                for (int k = 0; k < (ALL ? NSUMS : 2); ++k) a.state[SUMS + k] = sums[k];
            } else if constexpr (ACTION == SWEEP) {
                set_curvature(a.state, sums[0]);
            } else {
                set_moved(a.state, a.touch, sums[S_RHO], sums[S_RR]);
            }
        }
    }
}
