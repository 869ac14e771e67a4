"""Preconditioned conjugate gradients, the whole iteration compiled."""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import numbers, word
from femops_kernels.skeletons.cg.cg_begin import is_ended, is_taken, product, square
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.cg.cg_vectors import FLOAT64, direction, dot, step, total
from femops_kernels.skeletons.cg.decisions import BREAKDOWN, ITERATIONS, RHO, STATUS

# </defaults>


@inner
def iterations(table, tolerance, limit, steps):
    """Up to ``steps`` iterations, until |r| <= tolerance or ``limit`` iterations in all.

    The state has the iteration count, r.M r, |r| and a status, so that the iteration can be
    continued.
    """
    state = numbers(FLOAT64, word(table, STATE))
    for _ in range(steps):
        if is_ended(state, limit):
            return
        product(table, word(table, P), word(table, AP))
        dot(table)
        curvature = total(table, PARTIAL)
        if not curvature > 0.0:
            state[STATUS] = BREAKDOWN
            return
        before = state[RHO]
        step(table, before / curvature)
        rho, rr = total(table, PARTIAL), square(table)
        state[ITERATIONS] += 1.0
        if is_taken(state, rho, rr, tolerance):
            return
        direction(table, rho / before)


@entry("void(intp, float64, intp, intp)", thorough=False)
def iterate(table, tolerance, limit, steps):
    """Do some ``iterations``."""
    iterations(table, tolerance, limit, steps)
