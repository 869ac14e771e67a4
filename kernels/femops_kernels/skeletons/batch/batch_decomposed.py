"""One batch of elements by dense bases: B, then the q-function D, then the transpose of B.

``B`` (slot, point, node) is one array for all elements, its entries read by broadcast; slots are
the field's value and reference derivatives, as far as they are used.  Nothing is factorised: a
basis costs points times nodes ("decomposed", the second row of Table 1).
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import carrying
from femops_kernels.simd.lanes import fill, fma, get, load, store, word
from femops_kernels.simd.lines import load_line, store_line
from femops_kernels.simd.tracing import traced
from femops_kernels.skeletons.batch.stored import point_line
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

SLOTS_IN = int(VALUE_IN) + DIM * int(GRAD_IN)
SLOTS_OUT = int(VALUE_OUT) + DIM * int(GRAD_OUT)
BASIS_ROWS_IN, BASIS_ROWS_OUT = SLOTS_IN * POINTS, SLOTS_OUT * POINTS
NODES = max(NODES_IN, NODES_OUT)
GRAD_AT_IN, GRAD_AT_OUT = int(VALUE_IN) * POINTS, int(VALUE_OUT) * POINTS
ASK_BY_LINE = ASK_BY_PLANE = False
WORK_LANES = NODES + NCOMP_IN * BASIS_ROWS_IN + NCOMP_OUT * BASIS_ROWS_OUT


@carrying
def dense(matrix, rows, columns, down, across, values, out):
    """Set ``out[i] = sum_j matrix[i down + j across] values[j]``, eight rows at a time."""
    eights = rows - rows % 8
    for i in range(0, eights, 8):
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = fill(LANE, 0.0)
        for j in range(columns):
            v, k = load(LANE, values, j), i * down + j * across
            a0 = fma(fill(LANE, get(LANE, matrix, k)), v, a0)
            a1 = fma(fill(LANE, get(LANE, matrix, k + down)), v, a1)
            a2 = fma(fill(LANE, get(LANE, matrix, k + 2 * down)), v, a2)
            a3 = fma(fill(LANE, get(LANE, matrix, k + 3 * down)), v, a3)
            a4 = fma(fill(LANE, get(LANE, matrix, k + 4 * down)), v, a4)
            a5 = fma(fill(LANE, get(LANE, matrix, k + 5 * down)), v, a5)
            a6 = fma(fill(LANE, get(LANE, matrix, k + 6 * down)), v, a6)
            a7 = fma(fill(LANE, get(LANE, matrix, k + 7 * down)), v, a7)
        store_line(LANE, out, i, 1, (a0, a1, a2, a3, a4, a5, a6, a7))
    for i in range(eights, rows):
        total = fill(LANE, 0.0)
        for j in range(columns):
            entry = get(LANE, matrix, i * down + j * across)
            total = fma(fill(LANE, entry), load(LANE, values, j), total)
        store(LANE, out, i, total)


@traced
def points(table, b, ins, outs):
    """The q-function at every point; slots are (component, slot, point)."""
    for k in range(POINTS):
        q = point_line(table, b, k)
        u = load_line(LANE, ins, k, BASIS_ROWS_IN, NCOMP_IN)
        if GRAD_IN:
            ux = load_line(LANE, ins, GRAD_AT_IN + k, BASIS_ROWS_IN, NCOMP_IN)
            uy = load_line(LANE, ins, GRAD_AT_IN + (DIM > 1) * POINTS + k, BASIS_ROWS_IN, NCOMP_IN)
            uz = load_line(LANE, ins, GRAD_AT_IN + (DIM - 1) * POINTS + k, BASIS_ROWS_IN, NCOMP_IN)
            v, vx, vy, vz = pointwise(u, ux, uy, uz, q)
        else:
            v, vx, vy, vz = pointwise(u, u, u, u, q)
        if VALUE_OUT:
            store_line(LANE, outs, k, BASIS_ROWS_OUT, v)
        if GRAD_OUT:
            store_line(LANE, outs, GRAD_AT_OUT + k, BASIS_ROWS_OUT, vx)
            if DIM > 1:
                store_line(LANE, outs, GRAD_AT_OUT + POINTS + k, BASIS_ROWS_OUT, vy)
            if DIM > 2:
                store_line(LANE, outs, GRAD_AT_OUT + 2 * POINTS + k, BASIS_ROWS_OUT, vz)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements; arguments as in ``batch.py``."""
    nodes = work
    ins = nodes + NODES * LANE_BYTES
    outs = ins + NCOMP_IN * BASIS_ROWS_IN * LANE_BYTES
    for c in range(NCOMP_IN):
        for j in range(NODES_IN // P_IN):
            line = gather_nodes(LANE, RUNS_IN, NCOMP_IN, x, 0, j, c)
            store_line(LANE, nodes, j * P_IN, 1, line)
        at = ins + c * BASIS_ROWS_IN * LANE_BYTES
        dense(word(table, DENSE_IN), BASIS_ROWS_IN, NODES_IN, NODES_IN, 1, nodes, at)
    points(table, b, ins, outs)
    for c in range(NCOMP_OUT):
        at = outs + c * BASIS_ROWS_OUT * LANE_BYTES
        dense(word(table, DENSE_OUT), NODES_OUT, BASIS_ROWS_OUT, 1, NODES_OUT, at, nodes)
        for j in range(NODES_OUT // P_OUT):
            line = load_line(LANE, nodes, j * P_OUT, 1, P_OUT)
            scatter_nodes(LANE, RUNS_OUT, NCOMP_OUT, y, 0, j, c, line)
