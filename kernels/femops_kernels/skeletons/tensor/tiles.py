"""Tiles of matrices in lanes: entries of a few rows and columns, which registers hold.

A tile is a tuple of numbers. ``places`` are the row and the column of each in the tile. Functions
without a decorator run in Python, so their loops are unrolled. Steps count numbers.
"""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

TILE = 4  # rows and columns of a whole tile
STEP, RIGHT_STEP = 4, 1  # numbers from a row to the next, of both operands
# </defaults>

FULL, REST = N // TILE * TILE, N % TILE


def places_of(rows, columns):
    """Rows and columns of a tile's entries."""
    return tuple((r, c) for r in range(rows) for c in range(columns))


def lower_places(rows):
    """Rows and columns of the entries of a tile on the diagonal that are not above it."""
    return tuple((r, c) for r in range(rows) for c in range(r + 1))


def load_tile(at, places, step):
    """Load a tile, whose rows are ``step`` numbers apart."""
    return tuple(fetch(NUMBER, at, r * step + c) for r, c in places)


def store_tile(at, places, step, tile):
    """Store a tile, whose rows are ``step`` numbers apart."""
    for (r, c), value in zip(places, tile, strict=True):
        keep(NUMBER, at, r * step + c, value)


def conjugate_if(flag, value):
    """Conjugate of a number if the flag is set."""
    return conjugate(value) if flag else value


def minus_product(tile, places, a, a_step, b, b_step, flags):
    """Subtract from each entry one product of a number in its row and one in its column."""
    rows, columns = (dict.fromkeys(place[k] for place in places) for k in range(2))
    left = {r: conjugate_if(flags[0], fetch(NUMBER, a, r * a_step)) for r in rows}
    right = {c: conjugate_if(flags[1], fetch(NUMBER, b, c * b_step)) for c in columns}
    pairs = zip(tile, places, strict=True)
    return tuple(value - left[r] * right[c] for value, (r, c) in pairs)


@inner
def minus_products(tile, places, a, a_steps, b, b_steps, flags, count):
    """Subtract from a tile the product of ``count`` columns of a and rows of b.

    ``a_steps`` are from a row to the next, and from a column to the next; ``b_steps`` from a column
    to the next, and from a row to the next. ``flags`` tell which of both is conjugated.
    """
    for k in range(count):
        here, there = a + k * (a_steps[1] * BYTES), b + k * (b_steps[1] * BYTES)
        tile = minus_product(tile, places, here, a_steps[0], there, b_steps[0], flags)
    return tile
