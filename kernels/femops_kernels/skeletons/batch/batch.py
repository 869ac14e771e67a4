"""One batch of elements: gather, interpolate, q-function, transposed interpolation, scatter.

With several fields and test functions, the components of all fields follow each other at the
points, and so do those of the test functions. The components after them are functionals.

Sum factorisation (3a)-(4f) in one to three dimensions: z-lines first (they are gathered), then
y, then x.  Derivatives are taken by the collocated matrix D at the quadrature points, so a
gradient costs ``DIM`` contractions on top of the interpolation (exact as long as Q1D >= P1D).  In
fewer dimensions the missing directions have length one.

Work arrays are lexicographic, x fastest, in lane vectors: ``value`` (NCOMP, Q3, Q2, Q1), ``slab``
(Q2, P1) or (P2, Q1), ``along_x`` (NCOMP, Q1), ``along_y`` (NCOMP, Q2, Q1), ``along_z``
(NCOMP, Q3, Q2, Q1). Planes of ``value`` and ``along_z`` are LAYER lane vectors apart. NCOMP is the
larger number of components. The work arrays of ``geometry.py`` follow.
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lane_math import add_lines, lane_minimum
from femops_kernels.simd.lanes import fill, load, store, word
from femops_kernels.simd.lines import contract, load_line, store_line
from femops_kernels.skeletons.batch.ahead import ask_ahead
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.batch.pieces import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

Q2, Q3 = Q1D if DIM > 1 else 1, Q1D if DIM > 2 else 1
PLANE = Q2 * Q1D
LAYER = PLANE + (DIM > 2 and PLANE % PAGE == 0)  # lane vectors from one plane to the next
VOLUME = Q3 * LAYER
X_LINES = Q2 * Q3
VALUE_BYTES = VOLUME * LANE_BYTES
NCOMP = max(NCOMP_IN, NCOMP_OUT)
GRAD_LANES = NCOMP * (VOLUME + PLANE + Q1D) if GRAD_IN or GRAD_OUT else 0
OWN_LANES = NCOMP * VOLUME + PLANE + GRAD_LANES
# A later batch's dofs are prefetched line by line, or plane by plane where lines are short.
ASK_BY_LINE, ASK_BY_PLANE = Q1D > LINES_ASK, 3 < Q1D <= LINES_ASK
ASKS = X_LINES if ASK_BY_LINE else Q3
# Measured: with one vector, where memory is the limit, lines in registers are slower.
IN_REGISTERS = OVER_VECTORS and SHORT and NCOMP == 1 and GRAD_IN and GRAD_OUT
WORK_LANES = OWN_LANES + PLANE_MODE_LANES + LINE_MODE_LANES


def has_slopes(side, ranges):
    """True if derivatives of a side's components are used, which stand in one of the ranges."""
    return any(first <= side.first < end for first, end, _ in ranges)


def steps_in(side):
    """Contractions from the nodes to the points, for one component of a field."""
    p1, p2, _ = side.shape
    along_z, along_y = p1 * p2 if DIM > 2 else 0, p1 if DIM > 1 else 0
    slopes = PLANE if DIM > 2 and has_slopes(side, SLOPES_IN) else 0
    return along_z + Q3 * (along_y + Q2) + slopes


def steps_out(side):
    """Contractions from the points to the nodes, for one component of a test function."""
    _, p2, p3 = side.shape
    return (PLANE if DIM > 2 else 0) + p3 * ((Q1D if DIM > 1 else 0) + p2)


def steps_at_points():
    """Contractions at the points, and the q-function counted in contractions (measured)."""
    slopes = sum([end - first for first, end, _ in (*SLOPES_IN, *SLOPES_OUT)])
    return slopes * (X_LINES + (Q3 * Q1D if DIM > 1 else 0)) + X_LINES * max(1, NQDATA // 2)


STEPS_IN = sum([side.ncomp * steps_in(side) for side in SOURCES])
STEPS_OUT = sum([side.ncomp * steps_out(side) for side in TARGETS])
AT_LINE, AT_STEP, ASK_IN, ASK_POINTS, ASK_OUT = asked(
    X_LINES, STEPS_IN, steps_at_points(), STEPS_OUT
)
STEP_BYTES = AT_STEP * CACHE_LINE


@traced
def interpolate(x, side, matrices, c, value, slab, asks):
    """Values at the quadrature points of one component of a field."""
    pieces = by_pieces(side)
    p1, p2, p3 = side.shape
    along_y = p1 if DIM > 1 else 0
    if DIM == 3:
        for j in range(p2 * p1):
            ask_numbers(asks, j, AT_STEP)
            if pieces:
                line = load_line(LANE, value, j, LAYER, p3)
            else:
                line = gather_nodes(LANE, side.runs, side.ncomp, x, 2, j, c)
            store_line(LANE, value, j, LAYER, contract(matrices[2], line))
        asks = asks + p2 * p1 * STEP_BYTES
    for k3 in range(Q3):
        begin = asks + k3 * (along_y + Q2) * STEP_BYTES
        if DIM > 1:
            for j1 in range(p1):
                ask_numbers(begin, j1, AT_STEP)
                if DIM == 3:
                    line = load_line(LANE, value, k3 * LAYER + j1, p1, p2)
                elif pieces:
                    line = load_line(LANE, value, j1, p1, p2)
                else:
                    line = gather_nodes(LANE, side.runs, side.ncomp, x, 1, j1, c)
                store_line(LANE, slab, j1, p1, contract(matrices[1], line))
        for k2 in range(Q2):
            ask_numbers(begin, along_y + k2, AT_STEP)
            if DIM == 1:
                line = gather_nodes(LANE, side.runs, side.ncomp, x, 0, 0, c)
            else:
                line = load_line(LANE, slab, k2 * p1, 1, p1)
            store_line(LANE, value, k3 * LAYER + k2 * Q1D, 1, contract(matrices[0], line))


@traced
def integrate(y, side, matrices, c, value, slab, asks):
    """Contract one component of a test function along y and x, and add it to y.

    ``value`` holds (nodes in z, Q2, Q1): z is contracted already.
    """
    p1, p2, p3 = side.shape
    along_y = Q1D if DIM > 1 else 0
    for j3 in range(p3):
        begin = asks + j3 * (along_y + p2) * STEP_BYTES
        if DIM > 1:
            for k1 in range(Q1D):
                ask_numbers(begin, k1, AT_STEP)
                line = load_line(LANE, value, j3 * LAYER + k1, Q1D, Q2)
                store_line(LANE, slab, k1, Q1D, contract(matrices[1], line))
        for j2 in range(p2):
            ask_numbers(begin, along_y + j2, AT_STEP)
            line = load_line(LANE, slab if DIM > 1 else value, j2 * Q1D, 1, Q1D)
            line = contract(matrices[0], line)
            if added_by_pieces(side):
                store_line(LANE, value, j3 * LAYER + j2 * p1, 1, line)
            else:
                scatter_nodes(LANE, side.runs, side.ncomp, y, 0, j3 * p2 + j2, c, line)


@inner
def field_at_points(x, side, matrices, value, slab, along_z, asks):
    """Compute values of a field at the points, all components, and z-derivatives if used.

    Meanwhile stored numbers are prefetched, from the address ``asks`` on.
    """
    own = value + side.first * VALUE_BYTES
    places = places_of(x, side)
    if by_pieces(side):
        gather_runs(places, side, own, LAYER, VOLUME)
    for c in range(side.ncomp):
        begin = asks + c * steps_in(side) * STEP_BYTES
        interpolate(places, side, matrices, c, own + c * VALUE_BYTES, slab, begin)
        if DIM == 3 and has_slopes(side, SLOPES_IN):
            begin = begin + (steps_in(side) - PLANE) * STEP_BYTES
            for k in range(PLANE):
                ask_numbers(begin, k, AT_STEP)
                at = (side.first + c) * VOLUME + k
                line = load_line(LANE, value, at, LAYER, Q3)
                store_line(LANE, along_z, at, LAYER, contract(D, line))


@inner
def fields_at_points(x, source, value, slab, along_z):
    """Compute all fields at the points, one after the other."""
    asks = source[2] + ASK_IN
    for side, matrices in zip(SOURCES, BASES, strict=True):
        field_at_points(x, side, matrices, value, slab, along_z, asks)
        asks = asks + side.ncomp * steps_in(side) * STEP_BYTES


@inner
def add_to_test(y, side, matrices, value, slab, along_z, asks):
    """Integrate all components of a test function, and add the results to y.

    This is the transpose of `field_at_points`.
    """
    own = value + side.first * VALUE_BYTES
    places = target_of(y, side)
    for c in range(side.ncomp):
        begin = asks + c * steps_out(side) * STEP_BYTES
        if DIM == 3:
            for k in range(PLANE):
                ask_numbers(begin, k, AT_STEP)
                at = (side.first + c) * VOLUME + k
                line = load_line(LANE, value, at, LAYER, Q3)
                if has_slopes(side, SLOPES_OUT):
                    z_line = load_line(LANE, along_z, at, LAYER, Q3)
                    line = add_lines(line, contract(DT, z_line))
                store_line(LANE, value, at, LAYER, contract(matrices[2], line))
            begin = begin + PLANE * STEP_BYTES
        integrate(places, side, matrices, c, own + c * VALUE_BYTES, slab, begin)
    if added_by_pieces(side):
        scatter_runs(places, side, own, LAYER, VOLUME)


@inner
def functionals_at_points(out, value):
    """Store the functionals of a batch's elements: first minima over the points, then sums."""
    for n, c in enumerate((*MINIMA, *SUMS)):
        at = value + c * VALUE_BYTES
        store(LANE, out, n, load(LANE, at, 0))
        for k in range(1, POINTS):
            last, new = load(LANE, out, n), load(LANE, at, k + k // PLANE * (LAYER - PLANE))
            store(LANE, out, n, lane_minimum(last, new) if n < len(MINIMA) else last + new)


@traced
def line_in_registers(source, value, along_y, along_z, k3, k2):
    """As `points_of_line`, for one component: all of the line stays in registers."""
    start, point = k3 * LAYER + k2 * Q1D, k3 * PLANE + k2 * Q1D
    across = weight_of_line(k3, k2) if NWEIGHT else fill(LANE, 1.0)
    line = load_line(LANE, value, start, 1, Q1D)
    values, slopes = (), ()
    for k1, (u, ux) in enumerate(zip(line, contract(D, line), strict=True)):
        q = numbers(source, nothing(), across, point + k1, k1)
        uy = load_line(LANE, along_y, k2 * Q1D + k1, PLANE, 1)
        uz = load_line(LANE, along_z, start + k1, VOLUME, 1)
        v, vx, vy, vz = pointwise((u,), (ux,), uy, uz, q)
        if DIM > 1:
            store_line(LANE, along_y, k2 * Q1D + k1, PLANE, vy)
        if DIM > 2:
            store_line(LANE, along_z, start + k1, VOLUME, vz)
        values, slopes = values + v, slopes + vx
    result = contract(DT, slopes)
    store_line(LANE, value, start, 1, add_lines(result, values) if VALUE_OUT else result)


@traced
def points_of_line(source, value, along_x, along_y, along_z, modes, plane, ahead, k3, k2):
    """Evaluate the q-function at the Q1D points of an x-line.

    Differentiate along x before, and apply the transposed derivative after.
    """
    if ASK_BY_LINE:
        ask_ahead(ahead, k3 * Q2 + k2, ASKS)
    ask_numbers(source[2] + ASK_POINTS, k3 * Q2 + k2, AT_LINE)
    start, point = k3 * LAYER + k2 * Q1D, k3 * PLANE + k2 * Q1D
    line = modes_of_line(modes, plane, k2) if MAPPED else nothing()
    across = weight_of_line(k3, k2) if NWEIGHT else fill(LANE, 1.0)
    for first, end, _ in SLOPES_IN:
        for c in range(first, end):
            u = load_line(LANE, value, c * VOLUME + start, 1, Q1D)
            store_line(LANE, along_x, c * Q1D, 1, contract(D, u))
    for k1 in range(Q1D):
        q = numbers(source, line, across, point + k1, k1)
        u = load_line(LANE, value, start + k1, VOLUME, NCOMP_IN)
        if GRAD_IN:
            ux = load_line(LANE, along_x, k1, Q1D, NCOMP_IN)
            uy = load_line(LANE, along_y, k2 * Q1D + k1, PLANE, NCOMP_IN)
            uz = load_line(LANE, along_z, start + k1, VOLUME, NCOMP_IN)
            v, vx, vy, vz = pointwise(u, ux, uy, uz, q)
        else:
            v, vx, vy, vz = pointwise(u, u, u, u, q)
        if GRAD_OUT:
            store_line(LANE, along_x, k1, Q1D, vx)
            if DIM > 1:
                store_line(LANE, along_y, k2 * Q1D + k1, PLANE, vy)
            if DIM > 2:
                store_line(LANE, along_z, start + k1, VOLUME, vz)
        if VALUE_OUT:
            store_line(LANE, value, start + k1, VOLUME, v)
    for first, end, valued in SLOPES_OUT:
        for c in range(first, end):
            v = contract(DT, load_line(LANE, along_x, c * Q1D, 1, Q1D))
            if valued:
                v = add_lines(v, load_line(LANE, value, c * VOLUME + start, 1, Q1D))
            store_line(LANE, value, c * VOLUME + start, 1, v)


@traced
def points_of_plane(source, value, along_x, along_y, along_z, modes, plane, ahead, k3):
    """Evaluate the q-function at one plane of points, line by line.

    Differentiate along y before, and apply the transposed derivative after.
    """
    if ASK_BY_PLANE:
        ask_ahead(ahead, k3, ASKS)
    if MAPPED and DIM > 2:
        modes_of_plane(modes, plane, k3)
    for first, end, _ in SLOPES_IN if DIM > 1 else ():
        for c in range(first, end):
            for k1 in range(Q1D):
                line = load_line(LANE, value, c * VOLUME + k3 * LAYER + k1, Q1D, Q2)
                store_line(LANE, along_y, c * PLANE + k1, Q1D, contract(D, line))
    for k2 in range(Q2):
        if IN_REGISTERS:
            if ASK_BY_LINE:
                ask_ahead(ahead, k3 * Q2 + k2, ASKS)
            line_in_registers(source, value, along_y, along_z, k3, k2)
        else:
            points_of_line(source, value, along_x, along_y, along_z, modes, plane, ahead, k3, k2)
    for first, end, _ in SLOPES_OUT if DIM > 1 else ():
        for c in range(first, end):
            for k1 in range(Q1D):
                at = c * VOLUME + k3 * LAYER + k1
                line = contract(DT, load_line(LANE, along_y, c * PLANE + k1, Q1D, Q2))
                there = load_line(LANE, value, at, Q1D, Q2)
                store_line(LANE, value, at, Q1D, add_lines(line, there))


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements.

    ``x`` and ``y`` are the places of the batch's runs in the two vectors. See ``ask_ahead`` for
    ``ahead``.
    """
    value = work
    slab = value + NCOMP * VALUE_BYTES
    along_x = slab + PLANE * LANE_BYTES
    along_y = along_x + NCOMP * Q1D * LANE_BYTES
    along_z = along_y + NCOMP * PLANE * LANE_BYTES
    modes, plane = modes_of(table, b), work + OWN_LANES * LANE_BYTES
    source = sources(table, b)
    fields_at_points(x, source, value, slab, along_z)
    if MAPPED:
        ask_modes(modes)
    for k3 in range(Q3):
        points_of_plane(source, value, along_x, along_y, along_z, modes, plane, ahead, k3)
    if MINIMA or SUMS:
        out = word(table, FUNCTIONALS) + b * (len(MINIMA) + len(SUMS)) * LANE_BYTES
        functionals_at_points(out, value)
    asks = source[2] + ASK_OUT
    for side, matrices in zip(TARGETS, TRANSPOSED, strict=True):
        add_to_test(y, side, matrices, value, slab, along_z, asks)
        asks = asks + side.ncomp * steps_out(side) * STEP_BYTES
