"""One batch of elements whose functions are no products: by tables at the quadrature points.

A table has a row for each value or derivative at a point, and a column for each function. It is
cut into tiles of some rows, whose sums stay in registers, so that a number of an element is loaded
once for all of them. A tile is stored column by column. Rows of zeros complete the last tile.

Derivatives of functions of degree p are of degree p - 1. So they may have a chain of two tables in
place of one: coefficients of the derivatives along all directions in a basis, and its values.

Work arrays, in lane vectors: ``nodes`` and ``modes`` of one component, ``into`` (NCOMP_IN, kinds,
POINTS) and ``out`` (NCOMP_OUT, kinds, POINTS), padded alike. Kinds are the value, if the q-function
has it, then the derivatives.
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

# for each field (functions -> DIM * modes, modes -> points), or None; for each test function these
# transposed
CHAINS_IN = ((Tiles(((1.0,) * 12,) * 8, 8), Tiles(((1.0,) * 8,) * 4, 4)),)
CHAINS_OUT = ((Tiles(((1.0,) * 8,) * 12, 12), Tiles(((1.0,) * 4,) * 8, 8)),)

# </defaults>

ASK_BY_LINE = ASK_BY_PLANE = False
KINDS_IN, KINDS_OUT = VALUE_IN + DIM * GRAD_IN, VALUE_OUT + DIM * GRAD_OUT
SPAN_OUT = KINDS_OUT * POINTS
PADDED_IN = [tiles.count * tiles.size for tiles in TABLES_IN]
PADDED_IN += [(KINDS_IN - 1) * POINTS + c[1].count * c[1].size for c in CHAINS_IN if c]
SPAN_IN = max(PADDED_IN)
# where derivatives begin; those along a direction that there is not are not read
AT_X_IN, AT_X_OUT = VALUE_IN * POINTS, VALUE_OUT * POINTS
AT_Y_IN = AT_X_IN + POINTS * (DIM > 1)
AT_Z_IN = AT_X_IN + 2 * POINTS * (DIM > 2)
MOST_NODES_OF_SIDE = max(
    [side.num_nodes for side in SOURCES] + [table.count * table.size for table in TABLES_OUT]
)
# modes are padded on both ways
MODES_IN = [c[0].count * c[0].size for c in CHAINS_IN if c]
MODES_OUT = [(DIM - 1) * c[0].columns // DIM + c[1].count * c[1].size for c in CHAINS_OUT if c]
MOST_MODES = max([0, *MODES_IN, *MODES_OUT])
WORK_LANES = MOST_NODES_OF_SIDE + MOST_MODES + NCOMP_IN * SPAN_IN + NCOMP_OUT * SPAN_OUT


@traced
def multiply(tiles, source, target, added):
    """Store the products of all rows of a table with lane vectors, or add them."""
    for tile in range(tiles.count):
        sums = (fill(LANE, 0.0),) * tiles.size
        if added:
            sums = load_line(LANE, target, tile * tiles.size, 1, tiles.size)
        for j in range(tiles.columns):
            u, at = load(LANE, source, j), (tile * tiles.columns + j) * tiles.size
            sums = tuple(
                [fma(fill_entry(LANE, tiles, at + k), u, each) for k, each in enumerate(sums)]
            )
        store_line(LANE, target, tile * tiles.size, 1, sums)


@inner
def multiply_along(tiles, source, target, step_in, step_out):
    """Multiply for each direction, whose lane vectors are steps apart."""
    for d in range(DIM):
        begin = source + d * step_in * LANE_BYTES
        multiply(tiles, begin, target + d * step_out * LANE_BYTES, False)


@inner
def fields_at_points(x, nodes, into):
    """Compute values and derivatives of all fields at the points."""
    modes = nodes + MOST_NODES_OF_SIDE * LANE_BYTES
    for side, tiles, chain in zip(SOURCES, TABLES_IN, CHAINS_IN, strict=True):
        places, p1 = places_of(x, side), side.shape[0]
        for c in range(side.ncomp * bool(KINDS_IN)):
            for j in range(side.num_nodes // p1):
                line = gather_nodes(LANE, side.runs, side.ncomp, places, 0, j, c)
                store_line(LANE, nodes, j * p1, 1, line)
            own = into + (side.first + c) * SPAN_IN * LANE_BYTES
            multiply(tiles, nodes, own, False)
            if chain:
                multiply(chain[0], nodes, modes, False)
                begin = own + AT_X_IN * LANE_BYTES
                multiply_along(chain[1], modes, begin, chain[1].columns, POINTS)


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
    nodes, modes = work, work + MOST_NODES_OF_SIDE * LANE_BYTES
    into = modes + MOST_MODES * LANE_BYTES
    out = into + NCOMP_IN * SPAN_IN * LANE_BYTES
    if MAPPED:
        ask_modes(modes_of(table, b))
    fields_at_points(x, nodes, into)
    points_of_element(sources(table, b), modes_of(table, b), into, out)
    for side, tiles, chain in zip(TARGETS, TABLES_OUT, CHAINS_OUT, strict=True):
        places, p1 = target_of(y, side), side.shape[0]
        for c in range(side.ncomp):
            own = out + (side.first + c) * SPAN_OUT * LANE_BYTES
            multiply(tiles, own, nodes, False)
            if chain:
                begin, step = own + AT_X_OUT * LANE_BYTES, chain[0].columns // DIM
                multiply_along(chain[1], begin, modes, POINTS, step)
                multiply(chain[0], modes, nodes, VALUE_OUT)
            for j in range(side.num_nodes // p1):
                line = load_line(LANE, nodes, j * p1, 1, p1)
                scatter_nodes(LANE, side.runs, side.ncomp, places, 0, j, c, line)
    if MINIMA or SUMS:
        functionals = word(table, FUNCTIONALS) + b * (len(MINIMA) + len(SUMS)) * LANE_BYTES
        functionals_at_points(functionals, out)
