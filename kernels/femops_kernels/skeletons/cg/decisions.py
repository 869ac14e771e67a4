"""The state machine of conjugate gradients: the next action, and its factors.

A solve starts with r = b - A x and p = M r. An iteration is a sweep (v = A p and p.v), a move (x, r
and their sums) and a turn (p = M r + beta p). A merged sweep also does the move and the turn that
the last sweep has left due. It computes rho = r.M r exactly. The next residual is r - alpha v, so
the sweep predicts the next rho as rho - 2 alpha r.M v + alpha^2 v.M v. This is accurate enough for
beta. The exact value of the next sweep replaces it, so errors do not accumulate. If the difference
cancels, near the tolerance, and if x is requested, a separate move follows the sweep. Only every
second sweep updates x, because (p - M r) / beta is the direction before p.

These are plain Python functions. They are compiled into the loop of the host, and called as Python
between the messages of ranks. Ranks with a device each decide as merged sweeps do. A device alone
decides in ``cg_state.cuh``, by exact sums.
"""

# <defaults>
from math import inf, sqrt

from femops_kernels.skeletons.cg.cg_state import *


def decision(function):
    """Return the function unchanged. In compiled code, compile it as an inner function."""
    return function


# </defaults>

UNDERFLOW = 1e-18  # the square root of the smallest float32, and more
CANCELLED = 1e-3  # a predicted square below this part of the last one is computed instead
NEAR_END = 4.0  # and one below this many times the tolerance's
SMALL_BETA = 0.1  # p - z has lost too many digits to be divided by less


@decision
def ended(state):
    """True if there is no further iteration: status, limit, or nothing left to reduce."""
    if state[STATUS] != RUNNING or state[ITERATIONS] >= state[LIMIT]:
        return True
    if not state[RHO] > 0.0:
        # The squares of a residual may underflow while it is not yet zero: nothing is left to
        # reduce. An indefinite preconditioner gives the same at a residual that is not.
        state[STATUS] = CONVERGED if state[RESIDUAL] < UNDERFLOW else BREAKDOWN
    return state[STATUS] != RUNNING


@decision
def next_sweep(state):
    """Return SWEEP, or STOP if the solve has ended or pauses."""
    return STOP if ended(state) or state[ITERATIONS] >= state[PAUSE] else SWEEP


@decision
def first(state, steps, show):
    """Prepare the state for at most ``steps`` iterations, and return the first action.

    If ``show`` is True, x is up to date after the last iteration.
    """
    done = max(state[ITERATIONS], 0.0)
    state[PAUSE] = done + steps
    state[SHOWN] = state[PAUSE] if show else state[LIMIT]
    return START if state[ITERATIONS] < 0.0 else next_sweep(state)


@decision
def after_sweep(state, sums):
    """Return the action after a sweep.

    Sums that the sweep has not computed are NaN. Then no norm is predicted, and a move follows.
    """
    done = state[TOUCH] != 0.0 or state[NEAR] == 0.0
    state[FAR] = 0.0 if done else state[NEAR] / state[BETA]
    state[DROP], state[NEAR] = 0.0, 0.0
    rho, rr = sums[S_RHO], sums[S_RR]
    if not (state[SCALE] * sums[S_PV] > 0.0 and rho > 0.0):
        state[STATUS] = BREAKDOWN
        return MOVE if state[FAR] != 0.0 else STOP
    drop = rho / sums[S_PV]
    next_rho = rho - 2.0 * drop * sums[S_RMV] + drop * drop * sums[S_VMV]
    next_rr = rr - 2.0 * drop * sums[S_RV] + drop * drop * sums[S_VV]
    state[DROP], state[NEAR] = drop, drop / state[SCALE]
    state[RHO], state[BETA] = rho, next_rho / rho
    state[ITERATIONS] += 1.0
    known = CANCELLED * rho < next_rho < inf and CANCELLED * rr < next_rr < inf
    square = next_rho if state[NATURAL] != 0.0 else next_rr
    far_off = square > NEAR_END * state[GOAL] * state[GOAL]
    if not (known and far_off) or state[ITERATIONS] >= min(state[SHOWN], state[LIMIT]):
        return MOVE
    state[RESIDUAL] = sqrt(square)
    state[TOUCH] = 1.0 if state[FAR] != 0.0 or state[BETA] < SMALL_BETA else 0.0
    return next_sweep(state)


@decision
def after_move(state, rho, rr, turns):
    """Return the action after a move or the start, whose sums are rho = r.M r and rr = r.r.

    The action is a turn only if ``turns`` is True.
    """
    state[DROP], state[NEAR], state[FAR], state[TOUCH] = 0.0, 0.0, 0.0, 0.0
    state[BETA], state[RHO] = rho / state[RHO], rho
    state[RESIDUAL] = sqrt(abs(rho) if state[NATURAL] != 0.0 else rr)
    if state[STATUS] == RUNNING and state[RESIDUAL] <= state[GOAL]:
        state[STATUS] = CONVERGED
    return TURN if turns and state[STATUS] == RUNNING else next_sweep(state)


@decision
def begin(state, sums):
    """Store the norms at the start, and the norm at which the solve has converged."""
    state[ITERATIONS], state[NORM] = 0.0, sqrt(sums[S_RR])
    state[FIRST] = sqrt(abs(sums[S_RHO])) if state[NATURAL] != 0.0 else state[NORM]
    if state[RELATIVE] > 0.0:
        state[GOAL] = max(state[LEAST], state[RELATIVE] * state[FIRST])


@decision
def following(state, action, sums):
    """Return the action that follows ``action``, which has computed ``sums``."""
    if action == SWEEP:
        return after_sweep(state, sums)
    if action == TURN:
        return next_sweep(state)
    if action == START:
        begin(state, sums)
    turns = action == MOVE and state[MERGED] == 0.0
    return after_move(state, sums[S_RHO], sums[S_RR], turns)
