"""Conjugate gradients whose vector updates are done inside the operator's sweep.

An iteration is one pass of ``merged.py``.  It gives rho = r.M r exactly and, by r - alpha v, what
rho will be: rho - 2 alpha r.M v + alpha^2 v.M v, which is good enough for beta.  The exact value
of the next pass replaces it, so nothing drifts.  Where the difference cancels, where it comes near
the tolerance and where the caller wants to see x, the updates that are due are done by themselves
(``settle``).  x is touched in every second pass only: the direction before p is (p - z) / beta.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import numbers, word
from femops_kernels.skeletons.cg.cg_begin import is_ended, is_taken, product
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.cg.cg_vectors import FLOAT64, settle, total
from femops_kernels.skeletons.cg.decisions import (
    BETA,
    ITERATIONS,
    RHO,
    begin_pass,
    end_pass,
    predicted,
)
from femops_kernels.skeletons.cg.merged_table import NSUMS

# </defaults>

before_pass, after_pass, is_predicted = inner(begin_pass), inner(end_pass), inner(predicted)


@inner
def one_pass(table, todo, sums):
    """One pass of ``merged.py``; leaves what it gives in the first row of sums."""
    before_pass(todo)
    product(table, 0, 0)
    after_pass(todo)
    for k in range(1, word(table, PASSES) + 1):
        for j in range(NSUMS):
            sums[j] += sums[k * NSUMS + j]


@entry("void(intp, float64, float64, intp, intp, intp)", thorough=False)
def iterate_merged(table, scale, tolerance, limit, steps, show):
    """Go on as ``iterate`` of ``cg.py`` does; if ``show``, x is up to date at the end.

    Vectors have entries up to the last edge, and p its tail behind them; what is to do is zero at
    the beginning.  The operator of the table is the pass; A is ``scale`` times what it applies, so
    that v is A p over ``scale``.
    """
    todo, sums = numbers(FLOAT64, word(table, TODO)), numbers(FLOAT64, word(table, SUMS))
    state, use_inverse = numbers(FLOAT64, word(table, STATE)), word(table, USE_INVERSE) != 0
    for k in range(steps):
        if is_ended(state, limit):
            return
        one_pass(table, todo, sums)
        last = state[ITERATIONS] + 1.0 >= limit or (show != 0 and k + 1 == steps)
        if is_predicted(todo, state, sums, use_inverse, scale, tolerance, last):
            continue
        settle(table)
        rho, rr = total(table, PARTIAL), total(table, SECOND)
        todo[BETA] = rho / state[RHO]
        if is_taken(state, rho, rr, tolerance):
            return
