"""A chunk of y: constrained entries are a multiple of those of x, all others are zero.

This is the first term of an operator whose other terms only add to y. The entry points are those of
``chunk.py``.
"""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.simd.lanes import get, put, word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.identity_rows_table import *

# </defaults>


@entry
def sweep(table, x, y, chunk, work, alpha: float, beta: float):
    """One chunk; y is not read, as this is the first term."""
    firsts, starts = word(table, FIRST_ENTRY), word(table, CONSTRAINED_START)
    constrained, keep = word(table, CONSTRAINED), get(LANE, word(table, KEEP), 0)
    for i in range(word(firsts, chunk), word(firsts, chunk + 1)):
        put(LANE, y, i, 0.0)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        i = word(constrained, k)
        put(LANE, y, i, alpha * keep * get(LANE, x, i))


@entry
def combine(table, x, y, chunk, work, alpha: float, beta: float):
    """Do nothing: chunks share no entry."""
