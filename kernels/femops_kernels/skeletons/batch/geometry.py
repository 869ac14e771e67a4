"""Inputs of the q-function besides the field: stored numbers, Jacobians and positions.

Jacobians and positions are computed from the modes of an element's geometry. The modes are
coefficients of products of one polynomial per direction; the first two polynomials are constant and
linear. The sum over the modes is factorised along the loops of the batch: z for a plane of points,
y for a line, x at the point. A multilinear element takes six multiplications per point in 3-D.
"""

# <defaults>

from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lanes import prefetch, widen, word
from femops_kernels.simd.lines import dot_row, fill_entry, fill_line, load_line, store_line
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

LINES_ASK = 6  # with more points, memory is prefetched line by line
OVER_VECTORS = False  # a slot of a lane is an element
MAPPED = NJACOBIAN + NPOSITION > 0
G2 = G1D * G1D
MODE_LANES = DIM * G1D**DIM  # lanes of an element's modes
PLANE_MODE_LANES = 2 * DIM * G2 if MAPPED and DIM > 2 else 0
LINE_MODE_LANES = DIM * DIM * G1D if MAPPED else 0
# How far ahead quadrature data is prefetched to the first-level cache: two lines of points.
NEAR = 2 * Q1D * NQDATA * STORED_BYTES
DATA_LINES = -(-POINTS * NQDATA * STORED_BYTES // CACHE_LINE)  # cache lines of a batch's numbers


@traced
def modes_of_plane(modes, plane, k3):
    """Contract the modes along z, for the position and then for its z-derivative.

    The results are modes in x and y at plane k3 of points.
    """
    for i in range(DIM):
        for m in range(G2):
            line = load_line(LANE, modes, i * G2 * G1D + m, G2, G1D)
            store_line(LANE, plane, i * G2 + m, 1, (dot_row(MODE, k3, line, 0),))
            store_line(LANE, plane, (DIM + i) * G2 + m, 1, (dot_row(SLOPE, k3, line, 0),))


@inner
def modes_of_line(modes, plane, k2):
    """Modes (DIM, DIM, G1D) in x at a line of points.

    They are those of the position, and of its y- and z-derivatives.
    """
    if DIM == 1:
        return load_line(LANE, modes, 0, 1, G1D)
    flat = plane if DIM > 2 else modes
    for i in range(DIM):
        for m in range(G1D):
            line = load_line(LANE, flat, i * G2 + m, G1D, G1D)
            at = i * G1D + m
            store_line(LANE, plane, PLANE_MODE_LANES + at, 1, (dot_row(MODE, k2, line, 0),))
            at += DIM * G1D
            store_line(LANE, plane, PLANE_MODE_LANES + at, 1, (dot_row(SLOPE, k2, line, 0),))
            if DIM > 2:
                line = load_line(LANE, plane, (DIM + i) * G2 + m, G1D, G1D)
                at += DIM * G1D
                store_line(LANE, plane, PLANE_MODE_LANES + at, 1, (dot_row(MODE, k2, line, 0),))
    return load_line(LANE, plane, PLANE_MODE_LANES, 1, LINE_MODE_LANES)


@inner
def jacobian(modes, k1):
    """Jacobian of the position at a point, by rows: first the DIM derivatives of x."""
    if DIM == 1:
        return (dot_row(SLOPE, k1, modes, 0),)
    if DIM == 2:
        return (
            dot_row(SLOPE, k1, modes, 0),
            dot_row(MODE, k1, modes, 2),
            dot_row(SLOPE, k1, modes, 1),
            dot_row(MODE, k1, modes, 3),
        )
    return (
        dot_row(SLOPE, k1, modes, 0),
        dot_row(MODE, k1, modes, 3),
        dot_row(MODE, k1, modes, 6),
        dot_row(SLOPE, k1, modes, 1),
        dot_row(MODE, k1, modes, 4),
        dot_row(MODE, k1, modes, 7),
        dot_row(SLOPE, k1, modes, 2),
        dot_row(MODE, k1, modes, 5),
        dot_row(MODE, k1, modes, 8),
    )


@inner
def position(modes, k1):
    """Position of a point."""
    if DIM == 1:
        return (dot_row(MODE, k1, modes, 0),)
    if DIM == 2:
        return dot_row(MODE, k1, modes, 0), dot_row(MODE, k1, modes, 1)
    return (
        dot_row(MODE, k1, modes, 0),
        dot_row(MODE, k1, modes, 1),
        dot_row(MODE, k1, modes, 2),
    )


@inner
def nothing():
    """Return an empty line of numbers."""
    return load_line(LANE, 0, 0, 1, 0)


@inner
def sources(table, b):
    """Addresses of the numbers of batch b: by element, constants, by point."""
    element = word(table, ELEMENT) + b * NELEMENT * LANE_BYTES
    points = word(table, QDATA) + b * POINTS * NQDATA * STORED_BYTES
    return element, word(table, CONSTANTS), points


@inner
def modes_of(table, b):
    """Address of the modes of batch b."""
    return word(table, MODES) + b * MODE_LANES * LANE_BYTES


@inner
def numbers(source, modes, across, k, k1):
    """Inputs of the q-function at point k, the k1-th of its line."""
    q = load_line(LANE, source[0], 0, 1, NELEMENT)
    q = q + (jacobian(modes, k1) if NJACOBIAN else nothing())
    q = q + (position(modes, k1) if NPOSITION else nothing())
    q = q + ((across * fill_entry(LANE, WEIGHTS, k1),) if NWEIGHT else nothing())
    q = q + fill_line(LANE, source[1], 0, NCONSTANT)
    if PREFETCH:
        for i in range(NQDATA):
            at = (k * NQDATA + i) * STORED_BYTES
            prefetch(source[2], at + NEAR, 1)
    return q + widen(LANE, load_line(STORED, source[2], k * NQDATA, 1, NQDATA))


def asked(x_lines, steps_in, point_steps, steps_out):
    """Return when and where a batch prefetches the stored numbers of later batches.

    Memory brings them to the second-level cache during all of a batch's work, not only while
    numbers are read. Where a batch has less than FAR bytes of numbers, it asks at the points alone.
    """
    others = steps_in + steps_out
    if not others or DATA_LINES * CACHE_LINE <= FAR:
        return -(-DATA_LINES // x_lines), 0, FAR, FAR, FAR
    at_line = round(DATA_LINES * point_steps / (point_steps + others) / x_lines)
    at_step = -(-max(DATA_LINES - at_line * x_lines, 0) // others)
    before = FAR + steps_out * at_step * CACHE_LINE
    at_points = before + steps_in * at_step * CACHE_LINE
    return at_line, at_step, before, at_points, at_points + x_lines * at_line * CACHE_LINE


@inner
def ask_numbers(begin, k, lines):
    """Prefetch the k-th share of ``lines`` cache lines of the stored numbers from an address on."""
    for i in range(lines if PREFETCH else 0):
        prefetch(begin, (k * lines + i) * CACHE_LINE, 2)


@inner
def ask_modes(modes):
    """Prefetch the modes that begin FAR after a batch's own modes."""
    for i in range(MODE_LANES * LANE_BYTES // CACHE_LINE if PREFETCH else 0):
        prefetch(modes, FAR + i * CACHE_LINE, 2)
