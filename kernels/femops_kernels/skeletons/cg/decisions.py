"""The decisions of conjugate gradients: when it ends, and what a merged pass is to do.

Plain Python: compiled into the loops of the host, and called as it is between the messages of
ranks.  ``cg_state.cuh`` has the same for a device.
"""

# <defaults>
from math import inf, sqrt

# </defaults>

ITERATIONS, RHO, RESIDUAL, STATUS = 0, 1, 2, 3  # entries of `state`
RUNNING, CONVERGED, BREAKDOWN = 0, 1, 2
UNDERFLOW = 1e-18  # the square root of the smallest float32, and more

DROP, BETA, NEAR, FAR, TOUCH = 0, 1, 2, 3, 4  # what the next pass does, see merged_table.py
S_RHO, S_RR, S_PV, S_RV, S_VV, S_RMV, S_VMV = 0, 1, 2, 3, 4, 5, 6
CANCELLED = 1e-3  # a predicted square below this part of the last one is computed instead
NEAR_END = 4.0  # and one below this many times the tolerance's
SMALL_BETA = 0.1  # p - z has lost too many digits to be divided by less


def ended(state, limit):
    """True if there is no further iteration: status, limit, or nothing left to reduce."""
    if state[STATUS] != RUNNING or state[ITERATIONS] >= limit:
        return True
    if not state[RHO] > 0.0:
        # The squares of a residual may underflow while it is not yet zero: nothing is left to
        # reduce. An indefinite preconditioner gives the same at a residual that is not.
        state[STATUS] = CONVERGED if state[RESIDUAL] < UNDERFLOW else BREAKDOWN
    return state[STATUS] != RUNNING


def taken(state, rho, rr, tolerance):
    """Take over r.M r and r.r; whether the solve has come to its end."""
    state[RHO], state[RESIDUAL] = rho, sqrt(rr)
    if state[STATUS] == RUNNING and state[RESIDUAL] <= tolerance:
        state[STATUS] = CONVERGED
    return state[STATUS] != RUNNING


def begin_pass(todo):
    """Decide whether a merged pass updates x."""
    # two updates are due, or the older direction could not be had from p any more
    touch = todo[NEAR] != 0.0 and (todo[FAR] != 0.0 or todo[BETA] < SMALL_BETA)
    todo[TOUCH] = 1.0 if touch else 0.0


def end_pass(todo):
    """Note which updates are due after a merged pass."""
    done = todo[TOUCH] != 0.0 or todo[NEAR] == 0.0
    todo[FAR] = 0.0 if done else todo[NEAR] / todo[BETA]
    todo[DROP], todo[NEAR] = 0.0, 0.0


def predicted(todo, state, given, use_inverse, scale, tolerance, last):
    """Set what the next pass is to do by the sums of this one; whether it can begin at once.

    It can't where the operator is found not to be positive definite, where a predicted square is
    not known well enough or near the tolerance's, and where x is wanted.
    """
    rho, rr = given[S_RHO], given[S_RR]
    if not (scale * given[S_PV] > 0.0 and rho > 0.0):
        state[STATUS] = BREAKDOWN
        return False
    drop = rho / given[S_PV]
    rmv, vmv = (given[S_RMV], given[S_VMV]) if use_inverse else (given[S_RV], given[S_VV])
    next_rho = rho - 2.0 * drop * rmv + drop * drop * vmv
    next_rr = rr - 2.0 * drop * given[S_RV] + drop * drop * given[S_VV]
    todo[DROP], todo[NEAR] = drop, drop / scale
    todo[BETA] = next_rho / rho
    state[RHO] = rho
    state[ITERATIONS] += 1.0
    known = CANCELLED * rho < next_rho < inf and CANCELLED * rr < next_rr < inf
    if known and next_rr > NEAR_END * tolerance * tolerance and not last:
        state[RESIDUAL] = sqrt(next_rr)
        return True
    return False
