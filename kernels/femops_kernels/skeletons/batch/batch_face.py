"""One batch of faces whose functions have derivatives: as ``batch.py``, with points on the face.

Elements are turned so that their last direction leads inwards from the face (``face_nodes.py``).
Its lines of nodes are contracted to two numbers, the value and the derivative at the face.  Both
are interpolated along the face, where derivatives are taken of the values.

Work arrays, in lane vectors: ``value`` (NCOMP, 2, Q2, Q1), values and then inward derivatives;
``slab`` as in ``batch.py``; ``along_x`` and ``along_y`` (NCOMP, Q2, Q1); the nodes of a side.
"""

# <defaults>

from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lanes import fill
from femops_kernels.simd.line_math import add_lines
from femops_kernels.simd.lines import contract, fill_entry, load_line, store_line
from femops_kernels.skeletons.batch.ahead import ask_ahead
from femops_kernels.skeletons.batch.batch import NCOMP, functionals_at_points, has_slopes
from femops_kernels.skeletons.batch.face_nodes import *
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

Q1, Q2 = Q1D if DIM > 1 else 1, Q1D if DIM > 2 else 1
ALONG = POINTS * LANE_BYTES
VALUE_BYTES = 2 * ALONG
OWN_LANES = NCOMP * 4 * POINTS + POINTS
WORK_LANES = OWN_LANES + NODE_LANES


def tangential(side):
    """Nodes of a side along the two directions of the face."""
    return side.p1d if DIM > 1 else 1, side.p1d if DIM > 2 else 1


def planes_of(side, ranges):
    """Planes of a side that are used: values (0), inward derivatives (1)."""
    return (0, 1) if has_slopes(side, ranges) else (0,)


@traced
def interpolate_face(x, side, matrix, end, c, own, slab, nodes, turns):
    """Values, and inward derivatives, of one component of a field at the points of the face."""
    p1, p2 = tangential(side)
    for j2 in range(p2):
        for j1 in range(p1):
            line = line_inwards(x, side, nodes, turns, c, j1, j2)
            store_line(LANE, own, j2 * p1 + j1, POINTS, contract(end, line))
    for k in planes_of(side, SLOPES_IN) if DIM > 1 else ():
        plane = own + k * ALONG
        for j1 in range(p1):
            line = load_line(LANE, plane, j1, p1, p2)
            store_line(LANE, slab, j1, p1, contract(matrix, line) if DIM > 2 else line)
        for k2 in range(Q2):
            line = contract(matrix, load_line(LANE, slab, k2 * p1, 1, p1))
            store_line(LANE, plane, k2 * Q1, 1, line)


@traced
def integrate_face(y, side, matrix, end, c, own, slab, nodes, turns):
    """Integrate one component of a test function: the transpose of `interpolate_face`."""
    p1, p2 = tangential(side)
    for k in (0, 1) if DIM > 1 else ():
        plane = own + k * ALONG
        for k1 in range(Q1):
            line = load_line(LANE, plane, k1, Q1, Q2)
            store_line(LANE, slab, k1, Q1, contract(matrix, line) if DIM > 2 else line)
        for j2 in range(p2):
            line = contract(matrix, load_line(LANE, slab, j2 * Q1, 1, Q1))
            store_line(LANE, plane, j2 * p1, 1, line)
    for j2 in range(p2):
        for j1 in range(p1):
            line = contract(end, load_line(LANE, own, j2 * p1 + j1, POINTS, 2))
            keep_inwards(y, side, nodes, turns, c, j1, j2, line)


@traced
def slopes_along(value, along_x, along_y):
    """Derivatives of the fields along the face."""
    for first, end, _ in SLOPES_IN if DIM > 1 else ():
        for c in range(first, end):
            for k2 in range(Q2):
                at = k2 * Q1
                line = load_line(LANE, value, 2 * c * POINTS + at, 1, Q1)
                store_line(LANE, along_x, c * POINTS + at, 1, contract(D, line))
            for k1 in range(Q1 if DIM > 2 else 0):
                line = load_line(LANE, value, 2 * c * POINTS + k1, Q1, Q2)
                store_line(LANE, along_y, c * POINTS + k1, Q1, contract(D, line))


@traced
def add_slopes_along(value, along_x, along_y):
    """Apply the transpose of `slopes_along`, and add the result to the values.

    If the q-function has no values, the result replaces them.
    """
    for first, end, valued in SLOPES_OUT if DIM > 1 else ():
        for c in range(first, end):
            for k2 in range(Q2):
                at = 2 * c * POINTS + k2 * Q1
                line = contract(DT, load_line(LANE, along_x, c * POINTS + k2 * Q1, 1, Q1))
                if valued:
                    line = add_lines(line, load_line(LANE, value, at, 1, Q1))
                store_line(LANE, value, at, 1, line)
            for k1 in range(Q1 if DIM > 2 else 0):
                at = 2 * c * POINTS + k1
                line = contract(DT, load_line(LANE, along_y, c * POINTS + k1, Q1, Q2))
                line = add_lines(line, load_line(LANE, value, at, Q1, Q2))
                store_line(LANE, value, at, Q1, line)


@inner
def store_results(value, along_x, along_y, k, results):
    """Store the results of the q-function at point k. Results that it does not have are zero."""
    v, vx, vy, vz = results
    zeros = (fill(LANE, 0.0),) * NCOMP_OUT
    inwards = (vx, vx, vy, vz)[DIM]
    if GRAD_OUT and DIM > 1:
        store_line(LANE, along_x, k, POINTS, vx)
    if GRAD_OUT and DIM > 2:
        store_line(LANE, along_y, k, POINTS, vy)
    store_line(LANE, value, k, 2 * POINTS, v if VALUE_OUT else zeros)
    store_line(LANE, value, POINTS + k, 2 * POINTS, inwards if GRAD_OUT else zeros)


@traced
def points_of_face(source, value, along_x, along_y, ahead):
    """Evaluate the q-function at all points of the faces."""
    slopes_along(value, along_x, along_y)
    for k2 in range(Q2):
        ask_ahead(ahead, k2, Q2)
        across = fill_entry(LANE, WEIGHTS, k2) if NWEIGHT and DIM > 2 else fill(LANE, 1.0)
        for k1 in range(Q1):
            k = k2 * Q1 + k1
            q = numbers(source, nothing(), across, k, k1)
            u = load_line(LANE, value, k, 2 * POINTS, NCOMP_IN)
            if GRAD_IN:
                un = load_line(LANE, value, POINTS + k, 2 * POINTS, NCOMP_IN)
                ux = load_line(LANE, along_x, k, POINTS, NCOMP_IN) if DIM > 1 else un
                uy = load_line(LANE, along_y, k, POINTS, NCOMP_IN) if DIM > 2 else un
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
    for side, matrix, end in zip(SOURCES, BASES, ENDS_IN, strict=True):
        places, turns = places_of(x, side), turns_in(table, side, b)
        read_nodes(places, side, nodes, turns)
        for c in range(side.ncomp):
            own = value + (side.first + c) * VALUE_BYTES
            interpolate_face(places, side, matrix, end, c, own, slab, nodes, turns)
    points_of_face(sources(table, b), value, along_x, along_y, ahead)
    if MINIMA or SUMS:
        out = word(table, FUNCTIONALS) + b * (len(MINIMA) + len(SUMS)) * LANE_BYTES
        functionals_at_points(out, value)
    for side, matrix, end in zip(TARGETS, TRANSPOSED, ENDS_OUT, strict=True):
        places, turns = target_of(y, side), turns_out(table, side, b)
        kept = results_of(y, side, nodes)
        for c in range(side.ncomp):
            own = value + (side.first + c) * VALUE_BYTES
            integrate_face(places, side, matrix, end, c, own, slab, kept, turns)
        add_nodes(y, side, kept, nodes, turns)
