"""Nodes of a batch's elements in memory of their own, read and added to by pieces of runs.

Where runs are long (from order 3 on) this takes fewer instructions than lines of single nodes.
"""

# <defaults>

from femops_kernels.simd.compiling import inner
from femops_kernels.simd.pieces import gather_piece, scatter_piece
from femops_kernels.simd.runs import PIECES
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>

# Measured: shorter runs don't pay.
LONG_IN = DIM > 1 and RUNS_IN.longest * NCOMP_IN >= 4
LONG_OUT = DIM > 1 and RUNS_OUT.longest * NCOMP_OUT >= 4


@inner
def gather_runs(x, nodes, plane, component):
    """Read all nodes: x fastest, then y; planes and components so many lane vectors apart."""
    for n in PIECES:
        for k in range(len(RUNS_IN.pieces(n, NCOMP_IN, LANE_WIDTH))):
            gather_piece(LANE, RUNS_IN, NCOMP_IN, n, (plane, component), x, nodes, k)


@inner
def scatter_runs(y, nodes, plane, component):
    """Add all nodes, which stand in the same way."""
    for n in PIECES:
        for k in range(len(RUNS_OUT.pieces(n, NCOMP_OUT, LANE_WIDTH))):
            scatter_piece(LANE, RUNS_OUT, NCOMP_OUT, n, (plane, component), y, nodes, k)
