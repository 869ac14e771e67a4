"""Conjugate gradients whose vector updates are done inside the operator's sweep.

An iteration is one pass of ``merged.py``.  It gives rho = r.M r exactly and, by r - alpha v, what
rho will be: rho - 2 alpha r.M v + alpha^2 v.M v, which is good enough for beta.  The exact value
of the next pass replaces it, so nothing drifts.  Where the difference cancels, where it comes near
the tolerance and where the caller wants to see x, the updates that are due are done by themselves
(``settle``).  x is touched in every second pass only: the direction before p is (p - z) / beta.
"""

# <defaults>
from numba import njit

from femops_kernels.skeletons.cg.cg import is_ended, is_taken
from femops_kernels.skeletons.cg.cg_vectors import settle
from femops_kernels.skeletons.cg.decisions import (
    BETA,
    ITERATIONS,
    RHO,
    begin_pass,
    end_pass,
    predicted,
)
from femops_kernels.skeletons.chunk.driver import apply

REAL = "float64"
# </defaults>

before_pass, after_pass, is_predicted = njit(begin_pass), njit(end_pass), njit(predicted)


@njit
def one_pass(launch, todo, sums):
    """One pass of ``merged.py``; leaves what it gives in the first row of sums."""
    rows, alphas, count, work, work_bytes, team = launch
    before_pass(todo)
    # the count is not a constant: of a loop of known length LLVM has dropped the first launch
    apply(rows, alphas, count, 0, 0, work, work_bytes, team)
    after_pass(todo)
    for k in range(1, len(sums)):
        for j in range(sums.shape[1]):
            sums[0, j] += sums[k, j]


@njit(
    f"void(intp, intp, intp, intp, intp, intp, {REAL}[:, ::1], {REAL}[::1], boolean, int64[::1], "
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
    team,
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
    launch = rows, alphas, count, work, work_bytes, team
    for k in range(steps):
        if is_ended(state, limit):
            return
        one_pass(launch, todo, sums)
        last = state[ITERATIONS] + 1.0 >= limit or (show and k + 1 == steps)
        if is_predicted(todo, state, sums[0], use_inverse, scale, tolerance, last):
            continue
        rho, rr = settle(team, todo, vectors, inverse, use_inverse, edges, partial)
        todo[BETA] = rho / state[RHO]
        if is_taken(state, rho, rr, tolerance):
            return
