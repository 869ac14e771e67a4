"""Stored numbers of a batch, for kernels that compute no numbers from the geometry."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import widen, word
from femops_kernels.simd.lines import load_line
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def element_line(table, b, first, count):
    """``count`` numbers of an element, from number ``first`` on."""
    factors = word(table, ELEMENT) + b * NELEMENT * LANE_BYTES
    return load_line(LANE, factors, first, 1, count)


@inner
def point_line(table, b, k):
    """All numbers of a point."""
    at = (b * POINTS + k) * NQDATA
    return widen(LANE, load_line(STORED, word(table, QDATA), at, 1, NQDATA))
