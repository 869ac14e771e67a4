"""Preconditioned conjugate gradients, the whole iteration compiled."""

# <defaults>
from numba import njit

from femops_kernels.skeletons.cg.cg_vectors import direction, dot, start, step
from femops_kernels.skeletons.cg.decisions import (
    BREAKDOWN,
    ITERATIONS,
    RHO,
    STATUS,
    ended,
    taken,
)
from femops_kernels.skeletons.chunk.driver import apply

REAL = "float64"
# </defaults>

is_ended, is_taken = njit(ended), njit(taken)


@njit(
    f"void(intp, intp, intp, intp, intp, intp, {REAL}[:, ::1], {REAL}[::1], {REAL}[::1], "
    "boolean, int64[::1], float64[:, ::1], float64[::1], float64, int64, int64)",
    cache=True,
    nogil=True,
)
def iterate(
    rows,
    alphas,
    count,
    work,
    work_bytes,
    team,
    vectors,
    b,
    inverse,
    use_inverse,
    edges,
    partial,
    state,
    tolerance,
    limit,
    steps,
):
    """Up to ``steps`` iterations, until |r| <= tolerance or ``limit`` iterations in all.

    ``vectors`` holds x, r, p and A p; ``state`` the iteration count, r.M r, |r| and a status, so
    that the iteration can be continued: it is begun when the count is negative.
    """
    x, r, p, ap = vectors[0], vectors[1], vectors[2], vectors[3]
    if state[ITERATIONS] < 0:
        apply(rows, alphas, count, x.ctypes.data, r.ctypes.data, work, work_bytes, team)
        rho, rr = start(team, b, vectors, inverse, use_inverse, edges, partial)
        state[ITERATIONS] = 0.0
        is_taken(state, rho, rr, tolerance)
    for _ in range(steps):
        if is_ended(state, limit):
            return
        apply(rows, alphas, count, p.ctypes.data, ap.ctypes.data, work, work_bytes, team)
        curvature = dot(team, p, ap, edges, partial)
        if not curvature > 0.0:
            state[STATUS] = BREAKDOWN
            return
        before = state[RHO]
        rho, rr = step(team, before / curvature, vectors, inverse, use_inverse, edges, partial)
        state[ITERATIONS] += 1.0
        if is_taken(state, rho, rr, tolerance):
            return
        direction(team, rho / before, vectors, inverse, use_inverse, edges)
