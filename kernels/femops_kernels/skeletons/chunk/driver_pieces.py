"""Driver of an application in pieces, between which messages of ranks come and go."""

# <defaults>
from femops_kernels.simd.compiling import function
from femops_kernels.skeletons.chunk.driver_loops import *

# </defaults>


@function
def some(row, alphas, x, y, work, work_bytes, team, order, count):
    """Apply terms to ``count`` chunks of a list, without `combined`; see ``driver.py``."""
    sweep_ordered(team, count, row, alphas, x, y, work, work_bytes, order)


@function
def combined(row, alphas, x, y, work, team):
    """Add up the buffers of terms when all their chunks are done; see ``driver.py``."""
    combine_terms(team, row, alphas, x, y, work)
