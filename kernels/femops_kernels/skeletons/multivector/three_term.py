"""A step of a three-term recurrence on a panel of many vectors, in one pass over memory.

Rows are whole cache lines; threads share pieces of the panel.
"""

# <defaults>
from femops_kernels.simd.compiling import function, inner, shared
from femops_kernels.simd.lanes import Lane, fill, fma, get, load, store

LANE_WIDTH = 8
REAL = "float64"
PIECE = 128
# </defaults>

LANE = Lane(LANE_WIDTH, REAL)


@inner
def step_row(arrays, scale, first, lanes, a, b, c):
    """One row: its first lane, and its lanes."""
    product, extra, factors, current, old = arrays
    there = fill(LANE, scale)
    for j in range(lanes):
        i = first + j
        total = fill(LANE, a) * load(LANE, product, i)
        if extra != 0:
            total = fma(load(LANE, factors, j), load(LANE, extra, i), total)
        total = total * there
        if current != 0:
            total = fma(fill(LANE, b), load(LANE, current, i), total)
        if c != 0.0:
            total = fma(fill(LANE, c), load(LANE, old, i), total)
        store(LANE, old, i, total)


@shared
def step_piece(k, thread, arrays, scales, rows, lanes, a, b, c):
    """Update the rows of piece k."""
    for r in range(k * PIECE, min((k + 1) * PIECE, rows)):
        scale = get(LANE, scales, r) if scales != 0 else 1.0
        step_row(arrays, scale, r * lanes, lanes, a, b, c)


@function
def step(
    team,
    product,
    extra,
    factors,
    current,
    old,
    scales,
    rows,
    lanes,
    a: float,
    b: float,
    c: float,
):
    """Set old = scale (a product + factor extra) + b current + c old.

    The arrays product, extra, current and old are panels of ``rows`` rows of ``lanes`` lanes, and
    factors is one row. Extra and current may be left out, as 0, and so may ``scales``, which has a
    number for each row. Old is not read where c is zero.
    """
    arrays = product, extra, factors, current, old
    step_piece(team, -(-rows // PIECE), arrays, scales, rows, lanes, a, b, c)
