"""One batch of elements: the results of a q-function are stored at the quadrature points.

Fields and derivatives at the points are computed as in ``batch.py``, with the same work arrays. The
results of the q-function stay at the points. Nothing is added to y.
"""

# <defaults>

from femops_kernels.simd.compiling import traced
from femops_kernels.simd.lanes import Lane, fill, narrow, word
from femops_kernels.simd.lines import contract, load_line, store_line
from femops_kernels.skeletons.batch.batch import (
    ASK_POINTS,
    AT_LINE,
    LAYER,
    NCOMP,
    OWN_LANES,
    PLANE,
    Q2,
    Q3,
    VALUE_BYTES,
    VOLUME,
    fields_at_points,
)
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.batch.pieces import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

FILLED = 1  # numbers of a point
FILLED_LANE = Lane(8, "float64")  # how these are stored; LANE or narrower
FILLED_BYTES = 64
# </defaults>


@traced
def fill_points_of_line(source, out, value, along_x, along_y, along_z, modes, plane, k3, k2):
    """Numbers at the points of an x-line."""
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
            found, _, _, _ = pointwise(u, ux, uy, uz, q)
        else:
            found, _, _, _ = pointwise(u, u, u, u, q)
        store_line(FILLED_LANE, out, (point + k1) * FILLED, 1, narrow(FILLED_LANE, found))


@traced
def fill_points_of_plane(source, out, value, along_x, along_y, along_z, modes, plane, k3):
    """Store the numbers at one plane of points, line by line, after differentiating along y."""
    if MAPPED and DIM > 2:
        modes_of_plane(modes, plane, k3)
    for first, end, _ in SLOPES_IN if DIM > 1 else ():
        for c in range(first, end):
            for k1 in range(Q1D):
                line = load_line(LANE, value, c * VOLUME + k3 * LAYER + k1, Q1D, Q2)
                store_line(LANE, along_y, c * PLANE + k1, Q1D, contract(D, line))
    for k2 in range(Q2):
        fill_points_of_line(source, out, value, along_x, along_y, along_z, modes, plane, k3, k2)


@traced
def batch(table, b, x, y, work, ahead):
    """Store the numbers of batch b of elements in FILLED_AT, (batch, point, number, slot)."""
    value = work
    slab = value + NCOMP * VALUE_BYTES
    along_x = slab + PLANE * LANE_BYTES
    along_y = along_x + NCOMP * Q1D * LANE_BYTES
    along_z = along_y + NCOMP * PLANE * LANE_BYTES
    modes, plane = modes_of(table, b), work + OWN_LANES * LANE_BYTES
    source = sources(table, b)
    fields_at_points(x, source, value, slab, along_z)
    out = word(table, FILLED_AT) + b * POINTS * FILLED * FILLED_BYTES
    for k3 in range(Q3):
        fill_points_of_plane(source, out, value, along_x, along_y, along_z, modes, plane, k3)
