"""Contributions of other ranks to the dofs of a merged pass."""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.simd.lanes import get, put, word
from femops_kernels.skeletons.cg.merged_sums import FLOAT64, add_products, corrected
from femops_kernels.skeletons.cg.merged_table import *
from femops_kernels.skeletons.chunk.defaults import LANE

# </defaults>


@entry("void(intp, intp, intp, intp, intp, float64, float64)", thorough=False)
def receive(table, values, positions, count, work, alpha, beta):
    """Add values of other ranks to entries of v, where positions are not negative; correct sums."""
    r, p, v, m = word(table, R), word(table, P), word(table, V), word(table, M)
    total = 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(count):
        at = word(positions, k)
        if at >= 0:
            old = get(LANE, v, at)
            new = old + get(LANE, values, k)
            put(LANE, v, at, new)
            total = corrected(total, get(LANE, r, at), get(LANE, p, at), old, new, get(LANE, m, at))
    sums = word(table, SUMS) + 2 * word(table, CHUNKS) * NSUMS * 8
    for k in range(NSUMS):
        put(FLOAT64, sums, k, 0.0)
    add_products(sums, total)
