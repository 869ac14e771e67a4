"""Groups of vectors. A task is the work on one chunk for one group."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>


@inner
def group_blocks(table, group, skipped):
    """First block of vectors of a group, and the end; a block is a lane of vectors.

    The first block of a row begins ``skipped`` numbers before the row.
    """
    blocks, groups = -(-(word(table, NVEC) + skipped) // LANE_WIDTH), word(table, PANEL_GROUPS)
    group = group % groups
    return blocks * group // groups, blocks * (group + 1) // groups


@inner
def group_columns(table, group, skipped):
    """First number of a row that belongs to a group, and the end."""
    first, end = group_blocks(table, group, skipped)
    begin = max(first * LANE_WIDTH - skipped, 0)
    return begin, min(end * LANE_WIDTH - skipped, word(table, NVEC))


@inner
def panel_of(table, group, x, y):
    """Addresses in x and y at which the panel of a group begins."""
    panel = group // word(table, PANEL_GROUPS)
    return x + panel * word(table, IN_PANEL_BYTES), y + panel * word(table, OUT_PANEL_BYTES)


@inner
def buffer_of(table, group):
    """Address of the panel of a group in the buffer of a test function."""
    panel = group // word(table, PANEL_GROUPS)
    return word(table, BUFFER) + panel * word(table, BUFFER_PANEL_BYTES)
