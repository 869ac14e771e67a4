"""The beginning of conjugate gradients."""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import numbers, word
from femops_kernels.simd.lines import call_driver
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.cg.cg_vectors import FLOAT64, start, total
from femops_kernels.skeletons.cg.decisions import ITERATIONS, ended, taken

# </defaults>

is_ended, is_taken = inner(ended), inner(taken)


@inner
def product(table, x, y):
    """Set y = A x, of addresses."""
    rows, alphas, count = word(table, ROWS), word(table, ALPHAS), word(table, COUNT)
    work, work_bytes, team = word(table, WORK), word(table, WORK_BYTES), word(table, TEAM)
    call_driver(word(table, DRIVER), rows, alphas, count, x, y, work, work_bytes, team)


@inner
def square(table):
    """Square of the residual, from the sums that an update has left."""
    return total(table, PARTIAL if word(table, NATURAL) != 0 else SECOND)


@inner
def beginning(table, tolerance):
    """Set r = b - A x and p = M r, and the count of iterations to zero."""
    if word(table, GUESSED) != 0:
        product(table, word(table, X), word(table, R))
    start(table)
    state = numbers(FLOAT64, word(table, STATE))
    state[ITERATIONS] = 0.0
    is_taken(state, total(table, PARTIAL), square(table), tolerance)


@entry("void(intp, float64)", thorough=False)
def begin(table, tolerance):
    """Do the ``beginning``."""
    beginning(table, tolerance)
