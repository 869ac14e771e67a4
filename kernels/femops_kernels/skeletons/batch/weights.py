"""The weight of a point: a product of numbers, one for each direction."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import fill
from femops_kernels.simd.lines import fill_entry
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>


@inner
def weight_of_line(k3, k2):
    """Product of the quadrature weights of the directions across a line of points."""
    if DIM == 1:
        return fill(LANE, 1.0)
    w = fill_entry(LANE, WEIGHTS, k2)
    return w * fill_entry(LANE, WEIGHTS, k3) if DIM > 2 else w
