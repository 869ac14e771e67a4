"""Conjugate gradients whose vector updates are done inside the operator's sweep.

An iteration is one pass of ``merged.py``.  It gives rho = r.M r exactly and, by r - alpha v, what
rho will be: rho - 2 alpha r.M v + alpha^2 v.M v, which is good enough for beta.  The exact value
of the next pass replaces it, so nothing drifts.  Where the difference cancels, where it comes near
the tolerance and where the caller wants to see x, the updates that are due are done by themselves
(``settle``).  x is touched in every second pass only: the direction before p is (p - z) / beta.
"""

# <defaults>
from math import inf, sqrt

from numba import njit, prange

from femops_kernels.skeletons.cg.cg import (
    BREAKDOWN,
    CONVERGED,
    ITERATIONS,
    RESIDUAL,
    RHO,
    STATUS,
    UNDERFLOW,
)
from femops_kernels.skeletons.cg.cg_vectors import total
from femops_kernels.skeletons.chunk.driver import LOOPS, apply

REAL = "float64"
# </defaults>

DROP, BETA, NEAR, FAR, TOUCH = 0, 1, 2, 3, 4  # what the next pass does, see merged_table.py
S_RHO, S_RR, S_PV, S_RV, S_VV, S_RMV, S_VMV = 0, 1, 2, 3, 4, 5, 6
CANCELLED = 1e-3  # a predicted square below this part of the last one is computed instead
NEAR_END = 4.0  # and one below this many times the tolerance's
SMALL_BETA = 0.1  # p - z has lost too many digits to be divided by less


@njit(nogil=True, parallel=LOOPS)
def settle(todo, vectors, inverse, use_inverse, edges, partial):
    """Do the updates of x and r that are due; returns r.M r and r.r."""
    x, r, p, v = vectors[0], vectors[1], vectors[2], vectors[3]
    drop, near, far = todo[DROP], todo[NEAR], todo[FAR]
    for k in prange(len(edges) - 1):
        s, t = 0.0, 0.0
        for i in range(edges[k], edges[k + 1]):
            m = inverse[i] if use_inverse else 1.0
            x[i] += near * p[i] + far * (p[i] - r[i] * m)
            ri = r[i] - drop * v[i]
            r[i] = ri
            s += ri * ri * m
            t += ri * ri
        partial[0, k], partial[1, k] = s, t
    todo[DROP], todo[NEAR], todo[FAR] = 0.0, 0.0, 0.0
    return total(partial[0]), total(partial[1])


@njit
def one_pass(launch, todo, sums):
    """Run one pass of ``merged.py``; leaves its results in the first row of sums."""
    rows, alphas, count, work, work_bytes = launch
    # two updates are due, or the older direction could not be had from p any more
    touch = todo[NEAR] != 0.0 and (todo[FAR] != 0.0 or todo[BETA] < SMALL_BETA)
    todo[TOUCH] = 1.0 if touch else 0.0
    # the count is not a constant: of a loop of known length LLVM has dropped the first launch
    apply(rows, alphas, count, 0, 0, work, work_bytes)
    todo[FAR] = 0.0 if touch or todo[NEAR] == 0.0 else todo[NEAR] / todo[BETA]
    todo[DROP], todo[NEAR] = 0.0, 0.0
    for k in range(1, len(sums)):
        for j in range(sums.shape[1]):
            sums[0, j] += sums[k, j]


@njit
def predict(todo, state, given, use_inverse, scale):
    """Set up the next pass; returns whether its rho and r.r are known well enough, and r.r."""
    rho, rr = given[S_RHO], given[S_RR]
    drop = rho / given[S_PV]
    rmv, vmv = (given[S_RMV], given[S_VMV]) if use_inverse else (given[S_RV], given[S_VV])
    next_rho = rho - 2.0 * drop * rmv + drop * drop * vmv
    next_rr = rr - 2.0 * drop * given[S_RV] + drop * drop * given[S_VV]
    todo[DROP], todo[NEAR] = drop, drop / scale
    todo[BETA] = next_rho / rho
    state[RHO] = rho
    known = CANCELLED * rho < next_rho < inf and CANCELLED * rr < next_rr < inf
    return known, next_rr


@njit(
    f"void(intp, intp, intp, intp, intp, {REAL}[:, ::1], {REAL}[::1], boolean, int64[::1], "
    "float64[:, ::1], float64[::1], float64[::1], float64[:, ::1], float64, float64, int64, int64, "
    "boolean)",
    cache=True,
    nogil=True,
)
def iterate_merged(
    rows,
    alphas,
    count,
    work,
    work_bytes,
    vectors,
    inverse,
    use_inverse,
    edges,
    partial,
    state,
    todo,
    sums,
    scale,
    tolerance,
    limit,
    steps,
    show,
):
    """Go on as ``iterate`` of ``cg.py`` does; if ``show``, x is up to date at the end.

    ``vectors`` have entries up to the last edge, and p its tail behind them; ``todo`` is zero at
    the beginning.  The operator is ``scale`` times what passes apply, so that v is A p over
    ``scale``.
    """
    launch = rows, alphas, count, work, work_bytes
    for k in range(steps):
        if state[ITERATIONS] >= limit:
            return
        if not state[RHO] > 0.0:
            state[STATUS] = CONVERGED if state[RESIDUAL] < UNDERFLOW else BREAKDOWN
            return
        one_pass(launch, todo, sums)
        if not (scale * sums[0, S_PV] > 0.0 and sums[0, S_RHO] > 0.0):
            rho, rr = settle(todo, vectors, inverse, use_inverse, edges, partial)
            state[RHO], state[RESIDUAL], state[STATUS] = rho, sqrt(rr), BREAKDOWN
            return
        known, rr = predict(todo, state, sums[0], use_inverse, scale)
        state[ITERATIONS] += 1.0
        last = state[ITERATIONS] >= limit or (show and k + 1 == steps)
        if known and rr > NEAR_END * tolerance * tolerance and not last:
            state[RESIDUAL] = sqrt(rr)
            continue
        before = state[RHO]
        rho, rr = settle(todo, vectors, inverse, use_inverse, edges, partial)
        todo[BETA], state[RHO], state[RESIDUAL] = rho / before, rho, sqrt(rr)
        if state[RESIDUAL] <= tolerance:
            state[STATUS] = CONVERGED
            return
