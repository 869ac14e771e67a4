"""One batch of elements of a form that multiplies values alone (mass), plane by plane.

Sum factorisation is that of ``batch.py``. Without derivatives, planes of points do not depend on
each other, and neither do lines of points. So each line is interpolated, multiplied and contracted
back before the next. The steps along y and x of a plane stay in the first-level cache. Only steps
along z go through the whole element: one after nodes are gathered, one before they are scattered.

Work arrays, in lane vectors: ``value`` (NCOMP, Q3, SIDE), whose planes hold (I2, P_IN) nodes and
then (O2, P_OUT); ``slab`` (NCOMP, Q2, LINE), whose lines hold P_IN and then P_OUT; ``points``
(NCOMP, Q1D). With one component, lines of points stay in registers.
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lanes import fill
from femops_kernels.simd.lines import contract, load_line, store_line
from femops_kernels.skeletons.batch.ahead import ask_ahead
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.batch.pieces import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

Q2, Q3 = Q1D if DIM > 1 else 1, Q1D if DIM > 2 else 1
SOURCE, TARGET = SOURCES[0], TARGETS[0]
_, I2, I3 = SOURCE.shape
_, O2, O3 = TARGET.shape
NCOMP = max(NCOMP_IN, NCOMP_OUT)
SIDE = max(I2 * P_IN, O2 * P_OUT)
SIDE += DIM > 2 and SIDE % PAGE == 0  # lane vectors from one plane of nodes to the next
LINE = max(P_IN, P_OUT)
SLAB = Q2 * LINE
OWN_LANES = NCOMP * (Q3 * SIDE + SLAB + Q1D)
# As in ``batch.py``; measured: with fewer points it does not pay.
ASK_BY_LINE, ASK_BY_PLANE = Q1D > LINES_ASK, 3 < Q1D <= LINES_ASK
IN_REGISTERS = SHORT and DIM > 1 and NCOMP == 1
BX, BTX = BASES[0][0], TRANSPOSED[0][0]  # along x
IN_PIECES, OUT_PIECES = by_pieces(SOURCE) and Q3 >= I3, added_by_pieces(TARGET) and Q3 >= O3
X_LINES = Q2 * Q3
STEPS_IN = NCOMP_IN * I2 * P_IN if DIM > 2 else 0  # contractions along z
STEPS_OUT = NCOMP_OUT * O2 * P_OUT if DIM > 2 else 0
POINT_STEPS = Q3 * (NCOMP_IN * (P_IN + Q2) + NCOMP_OUT * (P_OUT + Q2))
AT_LINE, AT_STEP, ASK_IN, ASK_POINTS, ASK_OUT = asked(X_LINES, STEPS_IN, POINT_STEPS, STEPS_OUT)
WORK_LANES = OWN_LANES + PLANE_MODE_LANES + LINE_MODE_LANES


@traced
def points_of_line(source, points, modes, plane, k3, k2):
    """The q-function at the Q1D points of an x-line."""
    start = (k3 * Q2 + k2) * Q1D
    line = modes_of_line(modes, plane, k2) if MAPPED else nothing()
    across = weight_of_line(k3, k2) if NWEIGHT else fill(LANE, 1.0)
    for k1 in range(Q1D):
        q = numbers(source, line, across, start + k1, k1)
        u = load_line(LANE, points, k1, Q1D, NCOMP_IN)
        v, _, _, _ = pointwise(u, u, u, u, q)
        store_line(LANE, points, k1, Q1D, v)


@inner
def line_at_points(source, line, k3, k2):
    """Return the nodes of an x-line after interpolation, q-function and the transposed matrix.

    All stays in registers. For one component.
    """
    start = (k3 * Q2 + k2) * Q1D
    across = weight_of_line(k3, k2) if NWEIGHT else fill(LANE, 1.0)
    factors = ()
    for k1, u in enumerate(contract(BX, line)):
        q = numbers(source, nothing(), across, start + k1, k1)
        v, _, _, _ = pointwise((u,), (u,), (u,), (u,), q)
        factors += v
    return contract(BTX, factors)


@traced
def plane_of_points(source, x, value, slab, points, modes, plane, ahead, k3):
    """Interpolate a plane from its nodes to its points and back, along y and x."""
    if DIM > 1:
        for c in range(NCOMP_IN):
            for j1 in range(P_IN):
                if DIM > 2:
                    line = load_line(LANE, value, (c * Q3 + k3) * SIDE + j1, P_IN, I2)
                    store_line(LANE, slab, c * SLAB + j1, LINE, contract(BASES[0][1], line))
                elif IN_PIECES:
                    line = load_line(LANE, value, c * SIDE + j1, P_IN, I2)
                    store_line(LANE, slab, c * SLAB + j1, LINE, contract(BASES[0][1], line))
                else:
                    line = gather_nodes(LANE, RUNS_IN, NCOMP_IN, x, 1, j1, c)
                    store_line(LANE, slab, c * SLAB + j1, LINE, contract(BASES[0][1], line))
    for k2 in range(Q2):
        if ASK_BY_LINE:
            ask_ahead(ahead, k3 * Q2 + k2, X_LINES)
        ask_numbers(source[2] + ASK_POINTS, k3 * Q2 + k2, AT_LINE)
        if IN_REGISTERS:
            line = load_line(LANE, slab, k2 * LINE, 1, P_IN)
            line = line_at_points(source, line, k3, k2)
            store_line(LANE, slab, k2 * LINE, 1, line)
        for c in range(0 if IN_REGISTERS else NCOMP_IN):
            if DIM > 1:
                line = load_line(LANE, slab, c * SLAB + k2 * LINE, 1, P_IN)
                store_line(LANE, points, c * Q1D, 1, contract(BX, line))
            else:
                line = gather_nodes(LANE, RUNS_IN, NCOMP_IN, x, 0, 0, c)
                store_line(LANE, points, c * Q1D, 1, contract(BX, line))
        if not IN_REGISTERS:
            points_of_line(source, points, modes, plane, k3, k2)
        for c in range(0 if IN_REGISTERS else NCOMP_OUT):
            line = load_line(LANE, points, c * Q1D, 1, Q1D)
            store_line(LANE, slab, c * SLAB + k2 * LINE, 1, contract(BTX, line))


@traced
def planes_of_nodes(x, value, asks):
    """Gather the nodes; in three dimensions interpolate their z-lines to planes of points."""
    if IN_PIECES:
        gather_runs(x, SOURCE, value, SIDE, Q3 * SIDE)
    if DIM > 2:
        for c in range(NCOMP_IN):
            for j in range(I2 * P_IN):
                ask_numbers(asks, c * I2 * P_IN + j, AT_STEP)
                if IN_PIECES:
                    line = load_line(LANE, value, c * Q3 * SIDE + j, SIDE, I3)
                else:
                    line = gather_nodes(LANE, RUNS_IN, NCOMP_IN, x, 2, j, c)
                store_line(LANE, value, c * Q3 * SIDE + j, SIDE, contract(BASES[0][2], line))


@traced
def add_planes_of_nodes(y, value, asks):
    """Contract the z-lines of planes of points, and add to y: transpose of `planes_of_nodes`."""
    if DIM > 2:
        for c in range(NCOMP_OUT):
            for j in range(O2 * P_OUT):
                ask_numbers(asks, c * O2 * P_OUT + j, AT_STEP)
                line = load_line(LANE, value, c * Q3 * SIDE + j, SIDE, Q3)
                line = contract(TRANSPOSED[0][2], line)
                if OUT_PIECES:
                    store_line(LANE, value, c * Q3 * SIDE + j, SIDE, line)
                else:
                    scatter_nodes(LANE, RUNS_OUT, NCOMP_OUT, y, 2, j, c, line)
    if OUT_PIECES:
        scatter_runs(y, TARGET, value, SIDE, Q3 * SIDE)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements; arguments as in ``batch.py``."""
    value = work
    slab = value + NCOMP * Q3 * SIDE * LANE_BYTES
    points = slab + NCOMP * SLAB * LANE_BYTES
    modes, plane = modes_of(table, b), work + OWN_LANES * LANE_BYTES
    source = sources(table, b)
    if MAPPED:
        ask_modes(modes)
    planes_of_nodes(x, value, source[2] + ASK_IN)
    for k3 in range(Q3):
        if ASK_BY_PLANE:
            ask_ahead(ahead, k3, Q3)
        if MAPPED and DIM > 2:
            modes_of_plane(modes, plane, k3)
        plane_of_points(source, x, value, slab, points, modes, plane, ahead, k3)
        for c in range(NCOMP_OUT):
            if DIM == 1:
                line = load_line(LANE, slab, c * SLAB, 1, P_OUT)
                scatter_nodes(LANE, RUNS_OUT, NCOMP_OUT, y, 0, 0, c, line)
            else:
                for j1 in range(P_OUT):
                    line = load_line(LANE, slab, c * SLAB + j1, LINE, Q2)
                    line = contract(TRANSPOSED[0][1], line)
                    if DIM > 2:
                        store_line(LANE, value, (c * Q3 + k3) * SIDE + j1, P_OUT, line)
                    elif OUT_PIECES:
                        store_line(LANE, value, c * SIDE + j1, P_OUT, line)
                    else:
                        scatter_nodes(LANE, RUNS_OUT, NCOMP_OUT, y, 1, j1, c, line)
    add_planes_of_nodes(y, value, source[2] + ASK_OUT)
