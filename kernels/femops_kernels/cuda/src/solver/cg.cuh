// Vector updates of conjugate gradients, and sums: those of an ACTION. Each thread has some pieces of
// vectors, which are whole ones, padded by zeros. All loads of a piece come before its stores, so that
// they are under way together.
// The start is a move from r = b, with q = A x and p = 0. Of RANKS, where the host waits for sums, a
// sweep forms all there are, and a turn moves as well.

constexpr bool MOVES = ACTION == MOVE || (RANKS && ACTION == TURN);
constexpr bool ALL = RANKS && ACTION == SWEEP;
constexpr int PIECE = ALL ? 2 : 16 / sizeof(T);  // four of ALL need more registers than there are
constexpr int AHEAD = ACTION == SWEEP && !RANKS ? 2 : 1;  // pieces, where nothing is stored
using Piece = Pack<T, PIECE>;

// A piece of a vector, or the number where there is none to be read.
__device__ __forceinline__ Piece piece_of(const T* vector, long long i, bool there, T number) {
    if (there) return read_pack<PIECE>(vector + i);
    Piece piece;
#pragma unroll
    for (int j = 0; j < PIECE; ++j) piece.v[j] = number;
    return piece;
}

ENTRY(THREADS, BLOCKS, Arguments) {
    const T drop = T(a.state[DROP]), far = T(a.state[FAR]), behind = T(a.state[BEHIND]);
    const bool late = ACTION == MOVE && a.touch && (far != 0 || behind != 0);
    if (a.state[STOPPED] != 0 && !late) return;
    const T beta = T(a.state[BETA]);
    const bool touch = MOVES && a.touch, needs_p = touch && (drop != 0 || far != 0);
    double sums[ALL ? NSUMS : 2] = {0};
    const long long step = (long long)gridDim.x * THREADS * PIECE;
    long long i = ((long long)blockIdx.x * THREADS + threadIdx.x) * PIECE;
#pragma unroll AHEAD
    for (; i < a.count; i += step) {
        const bool needs_old = ACTION == TURN || (touch && behind != 0);
        const Piece m = piece_of(a.inverse, i, a.inverse != nullptr, T(1));
        const Piece q = piece_of(a.q, i, MOVES || ACTION == SWEEP, T(0));
        const Piece old = piece_of(a.old, i, needs_old, T(0));
        Piece p = piece_of(a.p, i, needs_p || ACTION == SWEEP, T(0));
        Piece x = piece_of(a.x, i, touch, T(0));
        Piece r = read_pack<PIECE>(a.r + i);
#pragma unroll
        for (int j = 0; j < PIECE; ++j) {
            if constexpr (MOVES) {
                if (drop != 0) x.v[j] += drop * p.v[j];
                if (far != 0) x.v[j] += far * (p.v[j] - m.v[j] * r.v[j]);
                if (behind != 0) x.v[j] += behind * old.v[j];
                r.v[j] -= drop * q.v[j];
            }
            if constexpr (ACTION == TURN) p.v[j] = m.v[j] * r.v[j] + beta * old.v[j];
            if constexpr (ACTION == SWEEP) {
                const double v = q.v[j];
                sums[ALL ? S_PV : 0] += p.v[j] * v;
                if constexpr (ALL) {
                    sums[S_RV] += r.v[j] * v;
                    sums[S_VV] += v * v;
                    sums[S_RMV] += r.v[j] * v * m.v[j];
                    sums[S_VMV] += v * v * m.v[j];
                }
            }
            if constexpr (ALL || ACTION == MOVE) {
                sums[S_RHO] += double(r.v[j]) * r.v[j] * m.v[j];
                sums[S_RR] += double(r.v[j]) * r.v[j];
            }
        }
        if (touch) write_pack(a.x + i, x);
        if constexpr (MOVES) write_pack(a.r + i, r);
        if constexpr (MOVES && MERGED) write_pack(a.q + i, Piece{});
        if constexpr (ACTION == TURN) write_pack(a.p + i, p);
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
