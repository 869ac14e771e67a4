"""Triangular solves with the matrices in lanes: X in place of the right sides B, (N, RIGHT).

Each tile of X is loaded, reduced by the rows that are solved, and stored once.
"""

# <defaults>
from femops_kernels.skeletons.tensor.tiles import *

# </defaults>


@inner
def invert_diagonal(t, status, conjugated, scales):
    """Compute one divided by each entry of the diagonal.

    The status is the first row, from 1, whose entry is zero or NaN.
    """
    for i in range(N):
        pivot, failed = fetch(NUMBER, t, i * STEP + i), load(LANE, status, 0)
        pivot = conjugate_if(conjugated, pivot)
        good = lane_gt(size_of(pivot), ZERO)
        first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + i), failed)
        store(LANE, status, 0, lane_where(good, failed, first))
        scale = inverse(choose(good, pivot, number(NUMBER, as_lane(LANE, 1.0))))
        keep(NUMBER, scales, i, scale)


def solved_tile(tile, shape, diagonal, scales, triangle):
    """Solution of T X = tile, with the tile T on the diagonal."""
    lower, transposed, unit, conjugated = triangle
    x = dict(zip(places_of(*shape), tile, strict=True))
    order = [*range(shape[0])] if lower != transposed else [*range(shape[0])][::-1]
    row, column = (1, STEP) if transposed else (STEP, 1)
    for step, k in enumerate(order):
        if not unit:
            scale = fetch(NUMBER, scales, k)
            x |= {(k, c): x[k, c] * scale for c in range(shape[1])}
        for i in order[step + 1 :]:
            factor = conjugate_if(conjugated, fetch(NUMBER, diagonal, i * row + k * column))
            x |= {(i, c): x[i, c] - factor * x[k, c] for c in range(shape[1])}
    return tuple(x.values())


@inner
def solve_tile(t, x, place, shape, solved, scales, triangle):
    """Solve for the tile of X whose first entry is at ``place``, (row, column).

    ``solved`` is the first row of X that is solved already, and the number of solved rows.
    """
    i, r, first, count = place[0], place[1], solved[0], solved[1]
    steps = (1, STEP) if triangle[1] else (STEP, 1)
    places, at = places_of(shape[0], shape[1]), x + (i * RIGHT_STEP + r) * BYTES
    factors = t + (i * steps[0] + first * steps[1]) * BYTES
    above = x + (first * RIGHT_STEP + r) * BYTES
    tile = load_tile(at, places, RIGHT_STEP)
    flags = triangle[3], False
    tile = minus_products(tile, places, factors, steps, above, (1, RIGHT_STEP), flags, count)
    here = t + i * ((STEP + 1) * BYTES), scales + i * BYTES
    store_tile(at, places, RIGHT_STEP, solved_tile(tile, shape, here[0], here[1], triangle))


@inner
def solve_columns(t, x, r, columns, scales, triangle):
    """Solve for columns of X, from column r on."""
    if triangle[0] != triangle[1]:
        for i in range(0, FULL, TILE):
            solve_tile(t, x, (i, r), (TILE, columns), (0, i), scales, triangle)
        if REST:
            solve_tile(t, x, (FULL, r), (REST, columns), (0, FULL), scales, triangle)
    else:
        if REST:
            solve_tile(t, x, (FULL, r), (REST, columns), (N, 0), scales, triangle)
        for done in range(REST, N, TILE):
            i = N - TILE - done
            solve_tile(t, x, (i, r), (TILE, columns), (i + TILE, done), scales, triangle)


@inner
def substitute(t, x, scales, triangle):
    """Solve with one triangle, from the first row on or from the last.

    ``triangle`` has four flags: lower, transposed, ones on the diagonal, conjugated. ``scales``
    are the inverse entries of the diagonal if they are not one.
    """
    for r in range(0, RIGHT - TILE + 1, TILE):
        solve_columns(t, x, r, TILE, scales, triangle)
    if RIGHT % TILE:
        solve_columns(t, x, RIGHT // TILE * TILE, RIGHT % TILE, scales, triangle)
