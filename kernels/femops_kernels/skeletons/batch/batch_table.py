"""One batch of elements whose functions are no products: by tables at the quadrature points.

A table has a row for each value or derivative at a point, and a column for each function. It is
cut into tiles of some rows, whose sums stay in registers, so that a number of an element is loaded
once for all of them. A tile is stored column by column. Rows of zeros complete the last tile.

Work arrays, in lane vectors: ``nodes`` of one component, ``into`` (NCOMP_IN, kinds, POINTS) and
``out`` (NCOMP_OUT, kinds, POINTS), padded alike. Kinds are the value, if the q-function has it,
then the derivatives.
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lane_math import lane_minimum
from femops_kernels.simd.lanes import fill, fma, load, store, word
from femops_kernels.simd.lines import fill_entry, load_line, store_line
from femops_kernels.simd.matrix import Tiles
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.batch.map_table import *
from femops_kernels.skeletons.batch.pieces import target_of
from femops_kernels.skeletons.chunk.copies import places_of
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

TABLES_IN = (Tiles(((1.0,) * 8,) * 8, 8),)  # for each field, a column for each function
TABLES_OUT = (Tiles(((1.0,) * 8,) * 32, 32),)  # for each test function, a row for each function

# </defaults>

ASK_BY_LINE = ASK_BY_PLANE = False
KINDS_IN, KINDS_OUT = VALUE_IN + DIM * GRAD_IN, VALUE_OUT + DIM * GRAD_OUT
ROWS_OUT = KINDS_OUT * POINTS
SPAN_IN, SPAN_OUT = max([table.count * table.size for table in TABLES_IN]), ROWS_OUT
# where derivatives begin; those along a direction that there is not are not read
AT_X_IN, AT_X_OUT = VALUE_IN * POINTS, VALUE_OUT * POINTS
AT_Y_IN = AT_X_IN + POINTS * (DIM > 1)
AT_Z_IN = AT_X_IN + 2 * POINTS * (DIM > 2)
MOST_NODES_OF_SIDE = max(
    [side.num_nodes for side in SOURCES] + [table.count * table.size for table in TABLES_OUT]
)
WORK_LANES = MOST_NODES_OF_SIDE + NCOMP_IN * SPAN_IN + NCOMP_OUT * SPAN_OUT


@traced
def multiply(tiles, source, target):
    """Store the products of all rows of a table with lane vectors."""
    for tile in range(tiles.count):
        sums = (fill(LANE, 0.0),) * tiles.size
        for j in range(tiles.columns):
            u, at = load(LANE, source, j), (tile * tiles.columns + j) * tiles.size
            sums = tuple(
                [fma(fill_entry(LANE, tiles, at + k), u, each) for k, each in enumerate(sums)]
            )
        store_line(LANE, target, tile * tiles.size, 1, sums)


@inner
def fields_at_points(x, nodes, into):
    """Compute values and derivatives of all fields at the points."""
    for side, tiles in zip(SOURCES, TABLES_IN, strict=True):
        places, p1 = places_of(x, side), side.shape[0]
        for c in range(side.ncomp * bool(KINDS_IN)):
            for j in range(side.num_nodes // p1):
                line = gather_nodes(LANE, side.runs, side.ncomp, places, 0, j, c)
                store_line(LANE, nodes, j * p1, 1, line)
            multiply(tiles, nodes, into + (side.first + c) * SPAN_IN * LANE_BYTES)


@inner
def weight_sign(modes):
    """Sign of the determinants if the q-function takes Jacobians, else 1."""
    return load(LANE, modes, SIGN_AT) if NJACOBIAN else fill(LANE, 1.0)


@inner
def inputs_at(source, modes, across, into, k):
    """Arguments of the q-function at point k."""
    q = numbers(source, modes, across, k, k)
    u = load_line(LANE, into, k, SPAN_IN, NCOMP_IN)
    ux = load_line(LANE, into, AT_X_IN + k, SPAN_IN, NCOMP_IN) if GRAD_IN else u
    uy = load_line(LANE, into, AT_Y_IN + k, SPAN_IN, NCOMP_IN) if GRAD_IN else u
    uz = load_line(LANE, into, AT_Z_IN + k, SPAN_IN, NCOMP_IN) if GRAD_IN else u
    return u, ux, uy, uz, q


@traced
def points_of_element(source, modes, into, out):
    """Evaluate the q-function at all points."""
    across = weight_sign(modes)
    for k in range(POINTS):
        v, vx, vy, vz = pointwise(*inputs_at(source, modes, across, into, k))
        if VALUE_OUT:
            store_line(LANE, out, k, SPAN_OUT, v)
        if GRAD_OUT:
            store_line(LANE, out, AT_X_OUT + k, SPAN_OUT, vx)
            if DIM > 1:
                store_line(LANE, out, AT_X_OUT + POINTS + k, SPAN_OUT, vy)
            if DIM > 2:
                store_line(LANE, out, AT_X_OUT + 2 * POINTS + k, SPAN_OUT, vz)


@inner
def functionals_at_points(functionals, out):
    """Store the functionals of a batch's elements: first minima over the points, then sums."""
    for n, c in enumerate((*MINIMA, *SUMS)):
        at = out + c * SPAN_OUT * LANE_BYTES
        store(LANE, functionals, n, load(LANE, at, 0))
        for k in range(1, POINTS):
            last, new = load(LANE, functionals, n), load(LANE, at, k)
            store(LANE, functionals, n, lane_minimum(last, new) if n < len(MINIMA) else last + new)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements; arguments as in ``batch.py``."""
    nodes, into = work, work + MOST_NODES_OF_SIDE * LANE_BYTES
    out = into + NCOMP_IN * SPAN_IN * LANE_BYTES
    fields_at_points(x, nodes, into)
    points_of_element(sources(table, b), modes_of(table, b), into, out)
    for side, tiles in zip(TARGETS, TABLES_OUT, strict=True):
        places, p1 = target_of(y, side), side.shape[0]
        for c in range(side.ncomp):
            multiply(tiles, out + (side.first + c) * SPAN_OUT * LANE_BYTES, nodes)
            for j in range(side.num_nodes // p1):
                line = load_line(LANE, nodes, j * p1, 1, p1)
                scatter_nodes(LANE, side.runs, side.ncomp, places, 0, j, c, line)
    if MINIMA or SUMS:
        functionals = word(table, FUNCTIONALS) + b * (len(MINIMA) + len(SUMS)) * LANE_BYTES
        functionals_at_points(functionals, out)
