"""One batch of elements by their stored matrices: gather, multiply, scatter.

The matrices of a batch are (row, column, slot): each lane vector holds one entry of as many element
matrices as there are slots.  Rows and columns go component after component.  Memory bounds this,
so rows are read one after the other, each once.
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lanes import fill, fma, load, store, word
from femops_kernels.simd.lines import load_line, store_line
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

COLUMNS = NCOMP_IN * NODES_IN
FOURS = COLUMNS - COLUMNS % 4
LINES_IN, LINES_OUT = NODES_IN // P_IN, NODES_OUT // P_OUT  # along x
WORK_LANES = COLUMNS + P_OUT


@inner
def product(row, values):
    """Product of a row by the gathered values, in four sums."""
    a = b = c = d = fill(LANE, 0.0)
    for j in range(0, FOURS, 4):
        a = fma(load(LANE, row, j), load(LANE, values, j), a)
        b = fma(load(LANE, row, j + 1), load(LANE, values, j + 1), b)
        c = fma(load(LANE, row, j + 2), load(LANE, values, j + 2), c)
        d = fma(load(LANE, row, j + 3), load(LANE, values, j + 3), d)
    for j in range(FOURS, COLUMNS):
        a = fma(load(LANE, row, j), load(LANE, values, j), a)
    return (a + b) + (c + d)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements; arguments as in ``batch.py``, the data are A."""
    rows = word(table, QDATA) + b * NCOMP_OUT * NODES_OUT * COLUMNS * LANE_BYTES
    results = work + COLUMNS * LANE_BYTES
    for c in range(NCOMP_IN):
        for j in range(LINES_IN):
            line = gather_nodes(LANE, RUNS_IN, NCOMP_IN, x, 0, j, c)
            store_line(LANE, work, c * NODES_IN + j * P_IN, 1, line)
    for c in range(NCOMP_OUT):
        for j in range(LINES_OUT):
            for i in range(P_OUT):
                row = rows + (c * NODES_OUT + j * P_OUT + i) * COLUMNS * LANE_BYTES
                store(LANE, results, i, product(row, work))
            line = load_line(LANE, results, 0, 1, P_OUT)
            scatter_nodes(LANE, RUNS_OUT, NCOMP_OUT, y, 0, j, c, line)
