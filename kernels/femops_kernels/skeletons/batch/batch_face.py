"""One batch of faces whose functions have derivatives: as ``batch.py``, with points on the face.

Elements are turned so that their last direction leads inwards from the face (``face_nodes.py``).
Its lines of nodes are contracted to two numbers, the value and the derivative at the face.  Both
are interpolated along the face, where derivatives are taken of the values.

Work arrays, in lane vectors: ``value`` (NCOMP, 2, Q2, Q1), values and then inward derivatives;
``slab`` as in ``batch.py``; ``along_x`` and ``along_y`` (NCOMP, Q2, Q1); the nodes of a side.
"""

# <defaults>

from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lane_math import add_lines
from femops_kernels.simd.lanes import fill
from femops_kernels.simd.lines import contract, fill_entry, load_line, store_line
from femops_kernels.skeletons.batch.ahead import ask_ahead
from femops_kernels.skeletons.batch.batch import NCOMP, functionals_at_points, has_slopes
from femops_kernels.skeletons.batch.face_nodes import *
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

Q1, Q2 = Q1D if DIM > 1 else 1, Q1D if DIM > 2 else 1
SPAN = POINTS + (POINTS % PAGE == 0)  # lane vectors from one array of points to the next
ALONG = SPAN * LANE_BYTES
VALUE_BYTES = 2 * ALONG
OWN_LANES = NCOMP * 4 * SPAN + SPAN
WORK_LANES = OWN_LANES + NODE_LANES
X_LINES = Q2


def tangential(side):
    """Nodes of a side along the two directions of the face."""
    return side.p1d if DIM > 1 else 1, side.p1d if DIM > 2 else 1


def planes_of(side, ranges):
    """Planes of a side that are used: values (0), inward derivatives (1)."""
    return (0, 1) if has_slopes(side, ranges) else (0,)


def steps_in(side):
    """Contractions to points, and lines of nodes that lead inwards, of one component of a field."""
    p1, p2 = tangential(side)
    return p2 * p1 + (len(planes_of(side, SLOPES_IN)) * (p1 + Q2) if DIM > 1 else 0)


def steps_out(side):
    """Contractions from points, and lines of nodes, of one component of a test function."""
    p1, p2 = tangential(side)
    return p2 * p1 + (2 * (Q1 + p2) if DIM > 1 else 0)


SLOPES = sum([end - first for first, end, _ in (*SLOPES_IN, *SLOPES_OUT)])
POINT_STEPS = SLOPES * (Q2 + Q1) + X_LINES * max(1, NQDATA // 2)
STEPS_IN = sum([side.ncomp * steps_in(side) for side in SOURCES])
STEPS_OUT = sum([side.ncomp * steps_out(side) for side in TARGETS])
AT_LINE, AT_STEP, ASK_IN, ASK_POINTS, ASK_OUT = asked(X_LINES, STEPS_IN, POINT_STEPS, STEPS_OUT)
STEP_BYTES = AT_STEP * CACHE_LINE


@traced
def interpolate_face(x, side, matrices, end, c, own, slab, nodes, turns, asks):
    """Values, and inward derivatives, of one component of a field at the points of the face."""
    p1, p2 = tangential(side)
    for j2 in range(p2):
        for j1 in range(p1):
            ask_numbers(asks, j2 * p1 + j1, AT_STEP)
            line = line_inwards(x, side, nodes, turns, c, j1, j2)
            store_line(LANE, own, j2 * p1 + j1, SPAN, contract(end, line))
    for k in planes_of(side, SLOPES_IN) if DIM > 1 else ():
        plane = own + k * ALONG
        begin = asks + (p2 * p1 + k * (p1 + Q2)) * STEP_BYTES
        for j1 in range(p1):
            ask_numbers(begin, j1, AT_STEP)
            line = load_line(LANE, plane, j1, p1, p2)
            store_line(LANE, slab, j1, p1, contract(matrices[1], line) if DIM > 2 else line)
        for k2 in range(Q2):
            ask_numbers(begin, p1 + k2, AT_STEP)
            line = contract(matrices[0], load_line(LANE, slab, k2 * p1, 1, p1))
            store_line(LANE, plane, k2 * Q1, 1, line)


@traced
def integrate_face(y, side, matrices, end, c, own, slab, nodes, turns, asks):
    """Integrate one component of a test function: the transpose of `interpolate_face`."""
    p1, p2 = tangential(side)
    for k in (0, 1) if DIM > 1 else ():
        plane = own + k * ALONG
        begin = asks + k * (Q1 + p2) * STEP_BYTES
        for k1 in range(Q1):
            ask_numbers(begin, k1, AT_STEP)
            line = load_line(LANE, plane, k1, Q1, Q2)
            store_line(LANE, slab, k1, Q1, contract(matrices[1], line) if DIM > 2 else line)
        for j2 in range(p2):
            ask_numbers(begin, Q1 + j2, AT_STEP)
            line = contract(matrices[0], load_line(LANE, slab, j2 * Q1, 1, Q1))
            store_line(LANE, plane, j2 * p1, 1, line)
    for j2 in range(p2):
        for j1 in range(p1):
            ask_numbers(asks, steps_out(side) - p2 * p1 + j2 * p1 + j1, AT_STEP)
            line = contract(end, load_line(LANE, own, j2 * p1 + j1, SPAN, 2))
            keep_inwards(y, side, nodes, turns, c, j1, j2, line)


@traced
def slopes_along(value, along_x, along_y):
    """Derivatives of the fields along the face."""
    for first, end, _ in SLOPES_IN if DIM > 1 else ():
        for c in range(first, end):
            for k2 in range(Q2):
                at = k2 * Q1
                line = load_line(LANE, value, 2 * c * SPAN + at, 1, Q1)
                store_line(LANE, along_x, c * SPAN + at, 1, contract(D, line))
            for k1 in range(Q1 if DIM > 2 else 0):
                line = load_line(LANE, value, 2 * c * SPAN + k1, Q1, Q2)
                store_line(LANE, along_y, c * SPAN + k1, Q1, contract(D, line))


@traced
def add_slopes_along(value, along_x, along_y):
    """Apply the transpose of `slopes_along`, and add the result to the values.

    If the q-function has no values, the result replaces them.
    """
    for first, end, valued in SLOPES_OUT if DIM > 1 else ():
        for c in range(first, end):
            for k2 in range(Q2):
                at = 2 * c * SPAN + k2 * Q1
                line = contract(DT, load_line(LANE, along_x, c * SPAN + k2 * Q1, 1, Q1))
                if valued:
                    line = add_lines(line, load_line(LANE, value, at, 1, Q1))
                store_line(LANE, value, at, 1, line)
            for k1 in range(Q1 if DIM > 2 else 0):
                at = 2 * c * SPAN + k1
                line = contract(DT, load_line(LANE, along_y, c * SPAN + k1, Q1, Q2))
                line = add_lines(line, load_line(LANE, value, at, Q1, Q2))
                store_line(LANE, value, at, Q1, line)


@inner
def store_results(value, along_x, along_y, k, results):
    """Store the results of the q-function at point k. Results that it does not have are zero."""
    v, vx, vy, vz = results
    zeros = (fill(LANE, 0.0),) * NCOMP_OUT
    inwards = (vx, vx, vy, vz)[DIM]
    if GRAD_OUT and DIM > 1:
        store_line(LANE, along_x, k, SPAN, vx)
    if GRAD_OUT and DIM > 2:
        store_line(LANE, along_y, k, SPAN, vy)
    store_line(LANE, value, k, 2 * SPAN, v if VALUE_OUT else zeros)
    store_line(LANE, value, SPAN + k, 2 * SPAN, inwards if GRAD_OUT else zeros)


@traced
def points_of_face(source, value, along_x, along_y, ahead):
    """Evaluate the q-function at all points of the faces."""
    slopes_along(value, along_x, along_y)
    for k2 in range(Q2):
        ask_ahead(ahead, k2, Q2)
        ask_numbers(source[2] + ASK_POINTS, k2, AT_LINE)
        across = fill_entry(LANE, WEIGHTS, k2) if NWEIGHT and DIM > 2 else fill(LANE, 1.0)
        for k1 in range(Q1):
            k = k2 * Q1 + k1
            q = numbers(source, nothing(), across, k, k1)
            u = load_line(LANE, value, k, 2 * SPAN, NCOMP_IN)
            if GRAD_IN:
                un = load_line(LANE, value, SPAN + k, 2 * SPAN, NCOMP_IN)
                ux = load_line(LANE, along_x, k, SPAN, NCOMP_IN) if DIM > 1 else un
                uy = load_line(LANE, along_y, k, SPAN, NCOMP_IN) if DIM > 2 else un
                results = pointwise(u, ux, uy, un, q)
            else:
                results = pointwise(u, u, u, u, q)
            store_results(value, along_x, along_y, k, results)
    add_slopes_along(value, along_x, along_y)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of faces; arguments as in ``batch.py``."""
    value = work
    slab = value + NCOMP * VALUE_BYTES
    along_x = slab + ALONG
    along_y = along_x + NCOMP * ALONG
    nodes = work + OWN_LANES * LANE_BYTES
    source = sources(table, b)
    asks = source[2] + ASK_IN
    for side, matrices, end in zip(SOURCES, BASES, ENDS_IN, strict=True):
        places, turns = places_of(x, side), turns_in(table, side, b)
        read_nodes(places, side, nodes, turns)
        for c in range(side.ncomp):
            own = value + (side.first + c) * VALUE_BYTES
            begin = asks + c * steps_in(side) * STEP_BYTES
            interpolate_face(places, side, matrices, end, c, own, slab, nodes, turns, begin)
        asks = asks + side.ncomp * steps_in(side) * STEP_BYTES
    points_of_face(source, value, along_x, along_y, ahead)
    if MINIMA or SUMS:
        out = word(table, FUNCTIONALS) + b * (len(MINIMA) + len(SUMS)) * LANE_BYTES
        functionals_at_points(out, value)
    asks = source[2] + ASK_OUT
    for side, matrices, end in zip(TARGETS, TRANSPOSED, ENDS_OUT, strict=True):
        places, turns = target_of(y, side), turns_out(table, side, b)
        kept = results_of(y, side, nodes)
        for c in range(side.ncomp):
            own = value + (side.first + c) * VALUE_BYTES
            begin = asks + c * steps_out(side) * STEP_BYTES
            integrate_face(places, side, matrices, end, c, own, slab, kept, turns, begin)
        asks = asks + side.ncomp * steps_out(side) * STEP_BYTES
        add_nodes(y, side, kept, nodes, turns)
