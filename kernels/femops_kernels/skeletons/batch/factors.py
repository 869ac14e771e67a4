"""Numbers that are constant in an element, of a kernel without points."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import word
from femops_kernels.simd.lines import load_line
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def element_line(table, b, first, count):
    """``count`` numbers of the elements of batch b, from the first of them on."""
    factors = word(table, ELEMENT) + b * NELEMENT * LANE_BYTES
    return load_line(LANE, factors, first, 1, count)
