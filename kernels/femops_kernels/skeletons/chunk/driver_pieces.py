"""Driver of an application in pieces, between which messages of ranks come and go."""

# <defaults>
from femops_kernels.simd.compiling import function
from femops_kernels.simd.lanes import word
from femops_kernels.skeletons.chunk.driver_loops import combine_chunks, sweep_ordered

# </defaults>


@function
def some(row, alpha: float, x, y, work, work_bytes, team, order, count):
    """Apply one term to ``count`` chunks of a list, without `combined`; see ``driver.py``."""
    source, target = x + word(row, 4), y + word(row, 5)
    beta = 0.0 if word(row, 6) == 0 else 1.0
    sweep_ordered(team, count, row, source, target, work, work_bytes, order, alpha, beta)


@function
def combined(row, alpha: float, x, y, work, team):
    """Add up the buffer of one term when all its chunks are done; see ``driver.py``."""
    source, target = x + word(row, 4), y + word(row, 5)
    beta = 0.0 if word(row, 6) == 0 else 1.0
    combine_chunks(team, word(row, 3), row, source, target, work, alpha, beta)
