"""Driver: run the terms of an operator over all their chunks."""

# <defaults>
from femops_kernels.simd.compiling import function
from femops_kernels.simd.lanes import word
from femops_kernels.skeletons.chunk.driver_loops import *

# </defaults>


@function
def apply(rows, alphas, count, x, y, work, work_bytes, team):
    """Set y = sum_i alpha_i A_i x for ``count`` terms.

    ``rows`` and ``alphas`` are the addresses of the arrays of `femops_kernels.cpu.sweep.LaunchSum`;
    they say where in x and y each term begins, whether it is added to what stands there, and how
    many terms go through the chunks together; each thread has its own work space, ``work_bytes``
    apart.
    """
    t = 0
    while t < count:
        row, factors = rows + t * ROW_BYTES, alphas + t * FACTOR_BYTES
        sweep_chunks(team, word(row, 3), row, factors, x, y, work, work_bytes)
        combine_terms(team, row, factors, x, y, work)
        t += word(row, TOGETHER)
