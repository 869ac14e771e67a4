"""One batch of elements by tables: the results of a q-function are stored at the points.

Fields at the points are computed as in ``batch_table.py``. Nothing is added to y.
"""

# <defaults>

from femops_kernels.simd.compiling import traced
from femops_kernels.simd.lanes import Lane, narrow, word
from femops_kernels.simd.lines import store_line
from femops_kernels.skeletons.batch.batch_table import *
from femops_kernels.skeletons.batch.map_table import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

FILLED = 1  # numbers of a point
FILLED_LANE = Lane(8, "float64")  # how these are stored; LANE or narrower
FILLED_BYTES = 64
# </defaults>


@traced
def fill_points(source, modes, into, out):
    """Store the numbers of all points."""
    across = weight_sign(modes)
    for k in range(POINTS):
        found, _, _, _ = pointwise(*inputs_at(source, modes, across, into, k))
        store_line(FILLED_LANE, out, k * FILLED, 1, narrow(FILLED_LANE, found))


@traced
def batch(table, b, x, y, work, ahead):
    """Store the numbers of batch b of elements in FILLED_AT, (batch, point, number, slot)."""
    into = work + (MOST_NODES_OF_SIDE + MOST_MODES) * LANE_BYTES
    fields_at_points(x, work, into)
    out = word(table, FILLED_AT) + b * POINTS * FILLED * FILLED_BYTES
    fill_points(sources(table, b), modes_of(table, b), into, out)
