"""The nodes of ``face_nodes.py`` read line by line, from dof numbers that are turned to the face.

So work many vectors, whose lanes are the vectors of one element.
"""

# <defaults>
from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>

NODE_LANES = 0


@inner
def turns_in(table, side, b):
    """No address: nothing is turned."""
    return 0


turns_out = turns_in


@inner
def read_nodes(x, side, nodes, turns):
    """Nothing: lines are read one by one."""


@inner
def line_inwards(x, side, nodes, turns, c, j1, j2):
    """Nodes of a field from a node of the face inwards."""
    j = j2 * (side.p1d if DIM > 1 else 1) + j1
    return gather_nodes(LANE, side.runs, side.ncomp, x, DIM - 1, j, c)


@inner
def results_of(y, side, nodes):
    """Results are not kept."""
    return nodes


@inner
def keep_inwards(y, side, nodes, turns, c, j1, j2, line):
    """Add the results of a line inwards."""
    j = j2 * (side.p1d if DIM > 1 else 1) + j1
    scatter_nodes(LANE, side.runs, side.ncomp, y, DIM - 1, j, c, line)


@inner
def add_nodes(y, side, kept, nodes, turns):
    """Nothing: lines are added one by one."""
