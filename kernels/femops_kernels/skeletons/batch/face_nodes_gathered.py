"""Nodes of elements at faces, read line by line; ``face_nodes.py`` reads all nodes at once.

The dof numbers of an element are stored in the order of the face, so no node is reordered. Kernels
of many vectors use this file: the lanes are the vectors of one element.
"""

# <defaults>
from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>

NODE_LANES = 0


@inner
def turns_in(table, side, b):
    """Return 0 for the address of the turns: the dof numbers are in the order of the face."""
    return 0


turns_out = turns_in


@inner
def read_nodes(x, side, nodes, turns):
    """Do nothing: `line_inwards` reads the nodes."""


@inner
def line_inwards(x, side, nodes, turns, c, j1, j2):
    """Read the line of a field's nodes that leads inwards from node (j1, j2) of the face."""
    j = j2 * (side.p1d if DIM > 1 else 1) + j1
    return gather_nodes(LANE, side.runs, side.ncomp, x, DIM - 1, j, c)


@inner
def results_of(y, side, nodes):
    """Return ``nodes``, which `keep_inwards` does not use: it adds the results at once."""
    return nodes


@inner
def keep_inwards(y, side, nodes, turns, c, j1, j2, line):
    """Add to y the results of the line that leads inwards from node (j1, j2) of the face."""
    j = j2 * (side.p1d if DIM > 1 else 1) + j1
    scatter_nodes(LANE, side.runs, side.ncomp, y, DIM - 1, j, c, line)


@inner
def add_nodes(y, side, kept, nodes, turns):
    """Do nothing: `keep_inwards` has added the results."""
