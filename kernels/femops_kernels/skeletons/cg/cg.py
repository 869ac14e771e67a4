"""The loop of preconditioned conjugate gradients; see ``decisions.py``."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import numbers, word
from femops_kernels.simd.lines import call_driver
from femops_kernels.skeletons.cg.cg_state import *
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.cg.cg_vectors import FLOAT64, total, updated_vectors
from femops_kernels.skeletons.cg.decisions import first, following

# </defaults>


@inner
def product(table):
    """Set v = A p.

    A merged sweep first does the vector updates that are due. It has the addresses of its vectors.
    """
    rows, alphas, count = word(table, ROWS), word(table, ALPHAS), word(table, COUNT)
    work, work_bytes, team = word(table, WORK), word(table, WORK_BYTES), word(table, TEAM)
    p, v = word(table, P), word(table, V)
    call_driver(word(table, DRIVER), rows, alphas, count, p, v, work, work_bytes, team)


@inner
def act(table, action, state, sums):
    """Do an action, and store its sums."""
    rows = word(table, MORE_ROWS)
    if action == SWEEP:
        product(table)
    if action == SWEEP and rows != 0:
        for k in range(1, rows + 1):
            for j in range(NSUMS):
                sums[j] += sums[k * NSUMS + j]
        return
    updated_vectors(table, action)
    if action == SWEEP:
        sums[S_RHO], sums[S_PV] = state[RHO], total(table, PARTIAL)
    elif action != TURN:
        sums[S_RHO], sums[S_RR] = total(table, PARTIAL), total(table, SECOND)


@inner
def iterations(table, steps, show):
    """Do up to ``steps`` iterations. If ``show`` is True, x is up to date at the end."""
    state, sums = numbers(FLOAT64, word(table, STATE)), numbers(FLOAT64, word(table, SUMS))
    action = first(state, steps, show)
    while action != STOP:
        act(table, action, state, sums)
        action = following(state, action, sums)
