"""Inputs of the q-function besides the field, which are the same for all vectors.

``element_numbers`` reads them once for each element, and stores them one after the other. From
there they are broadcast to the lanes. Numbers that depend on the geometry were computed beforehand,
and are stored at the points.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import get, put, word
from femops_kernels.simd.lines import fill_entry, fill_line
from femops_kernels.simd.rows import ROW_WORD, gather_rows, scatter_rows
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>

gather_nodes, scatter_nodes = gather_rows, scatter_rows
CACHE_LINE = 64  # bytes
LINES_ASK = 1
OVER_VECTORS = True  # a slot of a lane is a vector
MAPPED, MODE_LANES, PLANE_MODE_LANES, LINE_MODE_LANES = False, 0, 0, 0
NUMBERS = NELEMENT + POINTS * NQDATA  # numbers of an element
NUMBER_LANES = -(-NUMBERS // LANE_WIDTH)


def by_pieces(side):
    """False: a node's numbers of all vectors stand side by side."""
    return False


added_by_pieces = by_pieces


@inner
def rows_before(sides, side):
    """Bytes in a list of rows before those of a field, or of a test function."""
    before = sides[: sides.index(side)]
    return sum([each.ncomp * each.num_nodes for each in before]) * ROW_WORD


@inner
def places_of(vector, side):
    """The rows of a field."""
    rows, offset, mask = vector
    return rows + rows_before(SOURCES, side), offset, mask


@inner
def target_of(vector, side):
    """The rows of a test function."""
    reads, writes, offset, mask, factor = vector
    before = rows_before(TARGETS, side)
    return reads + before, writes + before, offset, mask, factor


@inner
def element_numbers(table, e, numbers):
    """Copy an element's numbers to ``numbers``: first its constants, then its numbers by point."""
    b, slot = e // LANE_WIDTH, e % LANE_WIDTH
    source = word(table, ELEMENT) + (b * NELEMENT * LANE_WIDTH + slot) * REAL_BYTES
    for i in range(NELEMENT):
        put(LANE, numbers, i, get(LANE, source, i * LANE_WIDTH))
    source = word(table, QDATA) + b * POINTS * NQDATA * STORED_BYTES
    source += slot * (STORED_BYTES // LANE_WIDTH)
    for i in range(POINTS * NQDATA):
        put(LANE, numbers, NELEMENT + i, get(STORED, source, i * LANE_WIDTH))


@inner
def nothing():
    """Return an empty line of numbers."""
    return fill_line(LANE, 0, 0, 0)


@inner
def sources(table, b):
    """Addresses of an element's numbers, of constants, of the numbers by point.

    ``b`` is the address at which ``element_numbers`` put them.
    """
    return b, word(table, CONSTANTS), b + NELEMENT * REAL_BYTES


@inner
def modes_of(table, b):
    """Return b: the kernel needs no modes, because the numbers at points contain the geometry."""
    return b


@inner
def element_line(table, b, first, count):
    """``count`` numbers of the element, from number ``first`` on."""
    return fill_line(LANE, b, first, count)


@inner
def point_line(table, b, k):
    """All numbers of a point."""
    return fill_line(LANE, b, NELEMENT + k * NQDATA, NQDATA)


def asked(x_lines, steps_in, point_steps, steps_out):
    """Return zeros: nothing is prefetched."""
    return 0, 0, 0, 0, 0


@inner
def ask_numbers(begin, k, lines):
    """Do nothing."""


@inner
def numbers(source, line, across, k, k1):
    """Inputs of the q-function at point k, the k1-th of its line."""
    q = fill_line(LANE, source[0], 0, NELEMENT)
    q = q + ((across * fill_entry(LANE, WEIGHTS, k1),) if NWEIGHT else nothing())
    q = q + fill_line(LANE, source[1], 0, NCONSTANT)
    return q + fill_line(LANE, source[2], k * NQDATA, NQDATA)
