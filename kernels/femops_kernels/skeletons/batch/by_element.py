"""Results of a batch's elements, added to the vector one element after the other.

So contributions to a dof are added in the order of the elements, whatever the width of lanes.
Otherwise a batch adds node by node, and the order depends on the number of its elements.

The batch leaves its results in ``results`` (component, node). Where no other element shares the
nodes, ``add_elements`` adds the results directly. It transposes the other results into ``turned``
(slot, number), and adds them slot by slot.
"""

# <defaults>
from math import prod

from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lines import store_line
from femops_kernels.simd.pieces import add_piece, scatter_piece, turn_piece
from femops_kernels.simd.runs import PIECES
from femops_kernels.skeletons.chunk.copies import places_of
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>

NUMBERS = sum(side.ncomp * side.all_nodes for side in TARGETS)  # results of an element
MOST_NUMBERS = max([side.ncomp * side.all_nodes for side in TARGETS], default=0)
ELEMENT_LANES = NUMBERS + MOST_NUMBERS


def numbers_before(side):
    """Number of an element's results for the test functions that precede ``side``."""
    return sum(one.ncomp * one.all_nodes for one in TARGETS if one.first < side.first)


def added_by_pieces(side):
    """False: ``scatter_nodes`` keeps all lines of results."""
    return False


@inner
def target_of(results, side):
    """Address of the results of a test function. Results of earlier test functions come first."""
    return results + numbers_before(side) * LANE_BYTES


@inner
def scatter_nodes(lane, runs, ncomp, results, along, j, component, line):
    """Store a line of nodes in ``results``, instead of adding it to the vector.

    Arguments are those of `femops_kernels.simd.addresses.scatter_nodes`.
    """
    below, count, nodes = prod(runs.shape[:along]), runs.shape[along], prod(runs.shape)
    if along == 0:
        first = j * count
    elif along == DIM - 1:
        first = j
    else:
        first = j // below * below * count + j % below
    store_line(LANE, results, component * nodes + first, below, line)


@inner
def add_target(y, results, turned, side):
    """Add the results of a batch for one test function; y is where its runs begin."""
    runs, ncomp = side.runs, side.ncomp
    # lane vectors between planes, and between components
    spread = prod(runs.shape[:2]), side.all_nodes
    for n in PIECES:
        first, end, count = runs.own_pieces(n, ncomp, LANE_WIDTH)
        for k in range(first):
            turn_piece(LANE, runs, ncomp, n, spread, results, turned, k)
        for k in range(first, end):
            scatter_piece(LANE, runs, ncomp, n, spread, y, results, k)
        for k in range(end, count):
            turn_piece(LANE, runs, ncomp, n, spread, results, turned, k)
    for slot in range(LANE_WIDTH):
        for n in PIECES:
            first, end, count = runs.own_pieces(n, ncomp, LANE_WIDTH)
            for k in range(first):
                add_piece(LANE, runs, ncomp, n, y, turned, slot, k)
            for k in range(end, count):
                add_piece(LANE, runs, ncomp, n, y, turned, slot, k)


@traced
def add_elements(y, results):
    """Add the results of a batch for all test functions."""
    turned = results + NUMBERS * LANE_BYTES
    for side in TARGETS:
        add_target(places_of(y, side), target_of(results, side), turned, side)
