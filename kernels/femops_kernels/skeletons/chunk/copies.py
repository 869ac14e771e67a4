"""Copies of the dofs that a chunk does not own: number, and places in the work space.

This file is part of two kernels: that of a chunk (``chunk.py``) and that of its batches
(``batches.py``).
"""

# <defaults>
from femops_kernels.simd.addresses import PLACE_BYTES
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def count(table, starts, chunk):
    """Number of entries of a chunk in a list with prefix sums ``starts``."""
    return word(word(table, starts), chunk + 1) - word(word(table, starts), chunk)


@inner
def copies(table, work, ncomp_in, ncomp_out):
    """Addresses of the copy of IN, the saved entries of OUT, and the work space after them."""
    kept = work + ncomp_in * word(table, IN_LOCAL_SIZE) * REAL_BYTES
    return work, kept, kept + ncomp_out * word(table, OUT_LOCAL_SIZE) * REAL_BYTES


@inner
def is_copied(table, chunk, alpha):
    """True if the chunk reads its owned piece of IN from a copy."""
    return alpha != 1.0 or count(table, CLEARED_START, chunk) > 0


@inner
def read_from(table, x, chunk, local, ncomp, alpha):
    """Address from which the chunk's owned piece of IN is read, less the offset of the piece."""
    if is_copied(table, chunk, alpha):
        return local - word(word(table, IN_OWNED_START), chunk) * ncomp * REAL_BYTES
    return x


@inner
def places_of(vector, side):
    """Address of the places of the runs of a field or test function."""
    return vector + side.first_run * LANE_WIDTH * PLACE_BYTES
