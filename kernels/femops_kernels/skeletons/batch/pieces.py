"""Nodes of a batch's elements in memory of their own, read and added to by pieces of runs.

Where runs are long (from order 3 on) this takes fewer instructions than lines of single nodes.
"""

# <defaults>

from femops_kernels.simd.compiling import inner
from femops_kernels.simd.pieces import gather_piece, scatter_piece
from femops_kernels.simd.runs import PIECES
from femops_kernels.skeletons.chunk.copies import places_of
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>


def by_pieces(side):
    """True if a field's runs are long enough to be read by pieces (measured)."""
    return DIM > 1 and side.runs.longest * side.ncomp >= 4


def added_by_pieces(side):
    """True if results are added to a test function's runs by pieces."""
    return by_pieces(side)


@inner
def target_of(vector, side):
    """Address of the places of a test function's runs, to which results are added."""
    return places_of(vector, side)


@inner
def gather_runs(x, side, nodes, plane, component):
    """Read all nodes, x fastest, then y. ``plane``, ``component``: distances in lane vectors."""
    for n in PIECES:
        for k in range(len(side.runs.pieces(n, side.ncomp, LANE_WIDTH))):
            gather_piece(LANE, side.runs, side.ncomp, n, (plane, component), x, nodes, k)


@inner
def scatter_runs(y, side, nodes, plane, component):
    """Add all nodes, which stand as `gather_runs` leaves them."""
    for n in PIECES:
        for k in range(len(side.runs.pieces(n, side.ncomp, LANE_WIDTH))):
            scatter_piece(LANE, side.runs, side.ncomp, n, (plane, component), y, nodes, k)
