"""Results of a batch's elements, added to the vector one element after the other.

So several contributions to a dof are added in the order of the elements, whatever the width of
lanes: without this, a wide batch adds node by node what narrow batches add element by element.

The batch leaves its lines of nodes in ``results`` (component, node). ``add_elements`` adds what no
other element has directly. The other numbers it turns into ``turned`` (slot, number), an element
beside the next, and adds slot by slot.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lines import store_line
from femops_kernels.simd.pieces import add_piece, scatter_piece, turn_piece
from femops_kernels.simd.runs import PIECES
from femops_kernels.simd.tracing import traced
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>

LONG_OUT = False  # lines of results are kept, see ``scatter_nodes``
NUMBERS = NCOMP_OUT * NODES_OUT  # results of an element
ELEMENT_LANES = 2 * NUMBERS
SPREAD = P_OUT**2, NODES_OUT  # lane vectors between planes, and between components


@inner
def scatter_nodes(lane, runs, ncomp, results, along, j, component, line):
    """Keep a line of nodes; arguments as of `femops_kernels.simd.addresses.scatter_nodes`."""
    below = P_OUT**along
    if along == 0:
        first = j * P_OUT
    elif along == DIM - 1:
        first = j
    else:
        first = j // below * below * P_OUT + j % below
    store_line(LANE, results, component * NODES_OUT + first, below, line)


@traced
def add_elements(y, results):
    """Add the results of a batch; y is where its runs begin."""
    turned = results + NUMBERS * LANE_BYTES
    for n in PIECES:
        first, end, count = RUNS_OUT.own_pieces(n, NCOMP_OUT, LANE_WIDTH)
        for k in range(first):
            turn_piece(LANE, RUNS_OUT, NCOMP_OUT, n, SPREAD, results, turned, k)
        for k in range(first, end):
            scatter_piece(LANE, RUNS_OUT, NCOMP_OUT, n, SPREAD, y, results, k)
        for k in range(end, count):
            turn_piece(LANE, RUNS_OUT, NCOMP_OUT, n, SPREAD, results, turned, k)
    for slot in range(LANE_WIDTH):
        for n in PIECES:
            first, end, count = RUNS_OUT.own_pieces(n, NCOMP_OUT, LANE_WIDTH)
            for k in range(first):
                add_piece(LANE, RUNS_OUT, NCOMP_OUT, n, y, turned, slot, k)
            for k in range(end, count):
                add_piece(LANE, RUNS_OUT, NCOMP_OUT, n, y, turned, slot, k)
