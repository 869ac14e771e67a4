"""Diagonals of the element matrices of one batch, added to a vector.

A diagonal entry sums, over the points, entries of D times two factors: values or derivatives of
the entry's basis function. The q-function of unit vectors gives D. The 1-D matrices are products of
two values of a basis function (kind 0), of a value and a derivative (1), or of two derivatives (2).
Entries of D with the same kinds are summed before they are contracted. After each direction,
results with the same kinds in the remaining directions are summed.

Faces have one point in their last direction, so matrices there have one column. If there are
several test functions, they are the two sides of one field on faces between elements, and have the
same matrices.

Work arrays of each component, in lane vectors: ``points`` (KINDS, Q1D), ``slab`` (kinds of y and z,
Q2, P_OUT), ``planes`` (kinds of z, Q3, O2, P_OUT).
"""

# <defaults>

from femops_kernels.simd.addresses import scatter_nodes
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lane_math import add_lines
from femops_kernels.simd.lanes import fill
from femops_kernels.simd.lines import contract, fill_entry, load_line, store_line
from femops_kernels.simd.matrix import Matrix1D
from femops_kernels.skeletons.batch.ahead import ask_ahead
from femops_kernels.skeletons.batch.face_nodes import *
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.batch.pieces import target_of
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# for each direction and kind, products (nodes, points) of values and derivatives at the points
SQUARES = ((Matrix1D(((1.0, 0.0), (0.0, 1.0))),) * 3,) * 3
ON_FACES = False

# </defaults>

Q1 = Q1D if DIM > 1 or not ON_FACES else 1
NUMBER_LINES = -(-Q1 * NQDATA * STORED_BYTES // CACHE_LINE)  # cache lines of an x-line's numbers
Q2 = Q1D if DIM > 2 or (DIM == 2 and not ON_FACES) else 1
Q3 = Q1D if DIM > 2 and not ON_FACES else 1
_, O2, O3 = TARGETS[0].shape
COMPONENTS = tuple(range(NCOMP_OUT))
# Inputs and results of the q-function: the value (0), or a derivative along a direction (1 to 3).
INTO = ((0,) if VALUE_IN else ()) + (tuple(range(1, DIM + 1)) if GRAD_IN else ())
OUT = ((0,) if VALUE_OUT else ()) + (tuple(range(1, DIM + 1)) if GRAD_OUT else ())
# Pairs of an input and a result, by the kinds of their products along x, y and z.
PAIRS = {}
for _in in INTO:
    for _out in OUT:
        _kinds = tuple((_in == d) + (_out == d) for d in (1, 2, 3))
        PAIRS[_kinds] = (*PAIRS.get(_kinds, ()), (_in, _out))
KINDS = tuple(PAIRS)
KINDS_YZ = tuple(dict.fromkeys(kinds[1:] for kinds in KINDS))
KINDS_Z = tuple(dict.fromkeys(kinds[1] for kinds in KINDS_YZ))
SLAB, PLANES = Q2 * P_OUT, Q3 * O2 * P_OUT
# numbers of lane vectors for one component
ALL_POINTS, ALL_SLABS, ALL_PLANES = len(KINDS) * Q1, len(KINDS_YZ) * SLAB, len(KINDS_Z) * PLANES
OWN_LANES = NCOMP_OUT * (ALL_POINTS + ALL_SLABS + ALL_PLANES)
BEHIND = NODE_LANES if ON_FACES else PLANE_MODE_LANES + LINE_MODE_LANES
WORK_LANES = OWN_LANES + BEHIND


@inner
def summed(lines):
    """Sum of lines."""
    total = lines[0]
    for line in lines[1:]:
        total = add_lines(total, line)
    return total


@inner
def entries_of_point(points, q, k1):
    """Store the entries of D at a point that couple a component with itself, summed by kinds."""
    one, zero = fill(LANE, 1.0), fill(LANE, 0.0)
    for c in COMPONENTS:
        unit = (zero,) * c + (one,) + (zero,) * (NCOMP_IN - 1 - c)
        columns = {}
        for slot in INTO:
            given = [(zero,) * NCOMP_IN] * 4
            given[slot] = unit
            columns[slot] = pointwise(*given, q)
        for k, kinds in enumerate(KINDS):
            entries = [(columns[slot][out][c],) for slot, out in PAIRS[kinds]]
            store_line(LANE, points, c * ALL_POINTS + k * Q1 + k1, 1, summed(entries))


@inner
def weight_across(k3, k2):
    """Product of the quadrature weights of the directions across a line of points."""
    if ON_FACES:
        return fill_entry(LANE, WEIGHTS, k2) if DIM > 2 else fill(LANE, 1.0)
    return weight_of_line(k3, k2)


@traced
def line_of_points(source, points, slab, modes, plane, k3, k2):
    """Compute the entries of D at a line of points, and contract them along x."""
    ask_numbers(source[2] + FAR, k3 * Q2 + k2, NUMBER_LINES)
    line = modes_of_line(modes, plane, k2) if MAPPED else nothing()
    across = weight_across(k3, k2) if NWEIGHT else fill(LANE, 1.0)
    for k1 in range(Q1):
        q = numbers(source, line, across, (k3 * Q2 + k2) * Q1 + k1, k1)
        entries_of_point(points, q, k1)
    for c in range(NCOMP_OUT):
        for j, left in enumerate(KINDS_YZ):
            parts = []
            for k, kinds in enumerate(KINDS):
                if kinds[1:] == left:
                    entries = load_line(LANE, points, c * ALL_POINTS + k * Q1, 1, Q1)
                    parts.append(contract(SQUARES[0][kinds[0]], entries))
            store_line(LANE, slab, c * ALL_SLABS + j * SLAB + k2 * P_OUT, 1, summed(parts))


@traced
def contract_y(slab, planes, k3, j1):
    """Contract the y-lines of plane k3 that belong to node j1 of the x direction."""
    for j, left in enumerate(KINDS_Z):
        parts = []
        for k, kinds in enumerate(KINDS_YZ):
            if kinds[1] == left:
                entries = load_line(LANE, slab, k * SLAB + j1, P_OUT, Q2)
                parts.append(contract(SQUARES[1][kinds[0]], entries) if DIM > 1 else entries)
        store_line(LANE, planes, j * PLANES + k3 * O2 * P_OUT + j1, P_OUT, summed(parts))


@inner
def add_line(y, side, nodes, turns, c, along, j, line):
    """Add a line of nodes in the last direction to y. On faces, store it for `add_nodes`."""
    if ON_FACES:
        near = line[: side.layers]
        keep_inwards(y, side, nodes, turns, c, j % P_OUT, j // P_OUT, near)
    else:
        scatter_nodes(LANE, side.runs, side.ncomp, y, along, j, c, line)


@traced
def scatter_diagonal(planes, y, side, nodes, turns, c):
    """Contract along z, and add to the vector of a test function."""
    if DIM == 1:
        line = load_line(LANE, planes, 0, 1, P_OUT)
        add_line(y, side, nodes, turns, c, 0, 0, line)
    elif DIM == 2:
        for j1 in range(P_OUT):
            line = load_line(LANE, planes, j1, P_OUT, O2)
            add_line(y, side, nodes, turns, c, 1, j1, line)
    else:
        for j in range(O2 * P_OUT):
            parts = []
            for k, kind in enumerate(KINDS_Z):
                entries = load_line(LANE, planes, k * PLANES + j, O2 * P_OUT, Q3)
                parts.append(contract(SQUARES[2][kind], entries))
            add_line(y, side, nodes, turns, c, 2, j, summed(parts))


@traced
def batch(table, b, x, y, work, ahead):
    """Add the diagonals of batch b of elements to y; x is not read."""
    points = work
    slab = points + NCOMP_OUT * ALL_POINTS * LANE_BYTES
    planes = slab + NCOMP_OUT * ALL_SLABS * LANE_BYTES
    modes, plane = modes_of(table, b), work + OWN_LANES * LANE_BYTES
    source = sources(table, b)
    for k3 in range(Q3):
        ask_ahead(ahead, k3, Q3)
        if MAPPED and DIM > 2:
            modes_of_plane(modes, plane, k3)
        for k2 in range(Q2):
            line_of_points(source, points, slab, modes, plane, k3, k2)
        for c in range(NCOMP_OUT):
            for j1 in range(P_OUT):
                there = c * ALL_PLANES * LANE_BYTES
                contract_y(slab + c * ALL_SLABS * LANE_BYTES, planes + there, k3, j1)
    for side in TARGETS:
        places, behind = target_of(y, side), work + OWN_LANES * LANE_BYTES
        nodes = results_of(y, side, behind) if ON_FACES else behind
        turns = turns_out(table, side, b) if ON_FACES else 0
        for c in range(side.ncomp):
            own = planes + (side.first + c) * ALL_PLANES * LANE_BYTES
            scatter_diagonal(own, places, side, nodes, turns, c)
        if ON_FACES:
            add_nodes(y, side, nodes, behind, turns)
