"""Preconditioned conjugate gradients, the whole iteration compiled."""

# <defaults>
from math import sqrt

from numba import njit

from femops_kernels.skeletons.cg.cg_vectors import (
    dot_blocks,
    start_blocks,
    step_blocks,
    total,
    turn_blocks,
)
from femops_kernels.skeletons.chunk.driver import apply

REAL = "float64"
# </defaults>

ITERATIONS, RHO, RESIDUAL, STATUS = 0, 1, 2, 3  # entries of `state`
RUNNING, CONVERGED, BREAKDOWN = 0, 1, 2
UNDERFLOW = 1e-18  # the square root of the smallest float32, and more


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
    blocks = len(edges) - 1
    if state[ITERATIONS] < 0:
        apply(rows, alphas, count, x.ctypes.data, r.ctypes.data, work, work_bytes, team)
        start_blocks(team, blocks, b, r, p, inverse, use_inverse, edges, partial)
        rho, rr = total(partial[0]), total(partial[1])
        state[ITERATIONS], state[RHO], state[RESIDUAL] = 0.0, rho, sqrt(rr)
        if state[RESIDUAL] <= tolerance:
            state[STATUS] = CONVERGED
            return
    for _ in range(steps):
        if state[ITERATIONS] >= limit:
            return
        if not state[RHO] > 0.0:
            # The squares of a residual may underflow while it is not yet zero: nothing is left
            # to reduce. An indefinite preconditioner gives the same at a residual that is not.
            state[STATUS] = CONVERGED if state[RESIDUAL] < UNDERFLOW else BREAKDOWN
            return
        apply(rows, alphas, count, p.ctypes.data, ap.ctypes.data, work, work_bytes, team)
        dot_blocks(team, blocks, p, ap, edges, partial)
        curvature = total(partial[0])
        if not curvature > 0.0:
            state[STATUS] = BREAKDOWN
            return
        alpha = state[RHO] / curvature
        step_blocks(team, blocks, alpha, x, r, p, ap, inverse, use_inverse, edges, partial)
        rho, rr = total(partial[0]), total(partial[1])
        beta = rho / state[RHO]
        state[ITERATIONS] += 1.0
        state[RHO], state[RESIDUAL] = rho, sqrt(rr)
        if state[RESIDUAL] <= tolerance:
            state[STATUS] = CONVERGED
            return
        turn_blocks(team, blocks, beta, r, p, inverse, use_inverse, edges)
