"""One batch of elements whose functions are no products: by tables at the quadrature points.

A table has a row for each value or derivative at a point, and a column for each function. Four rows
are multiplied at a time, so that a number of an element is loaded for four products. Rows are
padded with zeros to a multiple of four.

Work arrays, in lane vectors: ``nodes`` of one component, ``into`` (NCOMP_IN, kinds, POINTS) and
``out`` (NCOMP_OUT, kinds, POINTS), padded alike. Kinds are the value, if the q-function has it,
then the derivatives.
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import traced
from femops_kernels.simd.lanes import fill, fma, load
from femops_kernels.simd.lines import fill_entry, load_line, store_line
from femops_kernels.simd.matrix import Matrix1D
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.batch.pieces import target_of
from femops_kernels.skeletons.chunk.copies import places_of
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

TABLES_IN = (Matrix1D(((1.0, 0.0),) * 8),)  # for each field (kinds * POINTS, functions)
TABLES_OUT = (Matrix1D(((1.0,) * 8,) * 4),)  # transposed, of each test function

# </defaults>

ASK_BY_LINE = ASK_BY_PLANE = False
KINDS_IN, KINDS_OUT = VALUE_IN + DIM * GRAD_IN, VALUE_OUT + DIM * GRAD_OUT
SPAN_IN, SPAN_OUT = (4 * -(-kinds * POINTS // 4) for kinds in (KINDS_IN, KINDS_OUT))
# where derivatives begin; those along a direction that there is not are not read
AT_X_IN, AT_X_OUT = VALUE_IN * POINTS, VALUE_OUT * POINTS
AT_Y_IN = AT_X_IN + POINTS * (DIM > 1)
AT_Z_IN = AT_X_IN + 2 * POINTS * (DIM > 2)
MOST_NODES_OF_SIDE = max([4 * -(-side.num_nodes // 4) for side in (*SOURCES, *TARGETS)])
WORK_LANES = MOST_NODES_OF_SIDE + NCOMP_IN * SPAN_IN + NCOMP_OUT * SPAN_OUT


@traced
def multiply(matrix, source, target):
    """Store the products of all rows of a table with lane vectors."""
    rows, columns = matrix.shape
    for tile in range(rows // 4):
        a = b = c = d = fill(LANE, 0.0)
        first = 4 * tile * columns
        for j in range(columns):
            u = load(LANE, source, j)
            a = fma(fill_entry(LANE, matrix, first + j), u, a)
            b = fma(fill_entry(LANE, matrix, first + columns + j), u, b)
            c = fma(fill_entry(LANE, matrix, first + 2 * columns + j), u, c)
            d = fma(fill_entry(LANE, matrix, first + 3 * columns + j), u, d)
        store_line(LANE, target, 4 * tile, 1, (a, b, c, d))


@traced
def points_of_element(source, into, out):
    """Evaluate the q-function at all points."""
    for k in range(POINTS):
        q = numbers(source, nothing(), fill(LANE, 1.0), k, k)
        u = load_line(LANE, into, k, SPAN_IN, NCOMP_IN)
        ux = load_line(LANE, into, AT_X_IN + k, SPAN_IN, NCOMP_IN) if GRAD_IN else u
        uy = load_line(LANE, into, AT_Y_IN + k, SPAN_IN, NCOMP_IN) if GRAD_IN else u
        uz = load_line(LANE, into, AT_Z_IN + k, SPAN_IN, NCOMP_IN) if GRAD_IN else u
        v, vx, vy, vz = pointwise(u, ux, uy, uz, q)
        if VALUE_OUT:
            store_line(LANE, out, k, SPAN_OUT, v)
        if GRAD_OUT:
            store_line(LANE, out, AT_X_OUT + k, SPAN_OUT, vx)
            if DIM > 1:
                store_line(LANE, out, AT_X_OUT + POINTS + k, SPAN_OUT, vy)
            if DIM > 2:
                store_line(LANE, out, AT_X_OUT + 2 * POINTS + k, SPAN_OUT, vz)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements; arguments as in ``batch.py``."""
    nodes, into = work, work + MOST_NODES_OF_SIDE * LANE_BYTES
    out = into + NCOMP_IN * SPAN_IN * LANE_BYTES
    for side, matrix in zip(SOURCES, TABLES_IN, strict=True):
        places, p1 = places_of(x, side), side.shape[0]
        for c in range(side.ncomp):
            for j in range(side.num_nodes // p1):
                line = gather_nodes(LANE, side.runs, side.ncomp, places, 0, j, c)
                store_line(LANE, nodes, j * p1, 1, line)
            multiply(matrix, nodes, into + (side.first + c) * SPAN_IN * LANE_BYTES)
    points_of_element(sources(table, b), into, out)
    for side, matrix in zip(TARGETS, TABLES_OUT, strict=True):
        places, p1 = target_of(y, side), side.shape[0]
        for c in range(side.ncomp):
            multiply(matrix, out + (side.first + c) * SPAN_OUT * LANE_BYTES, nodes)
            for j in range(side.num_nodes // p1):
                line = load_line(LANE, nodes, j * p1, 1, p1)
                scatter_nodes(LANE, side.runs, side.ncomp, places, 0, j, c, line)
