"""Cholesky factors of the matrices in lanes: A = L L^H, L in place of the lower triangle.

Each tile is loaded, reduced by the tiles on its left, and stored once.
"""

# <defaults>
from femops_kernels.skeletons.tensor.tiles import *

WRITTEN = (True, False)
FIRST_REALS, FIRST_ROW = 16, (4, 4)
# </defaults>


def factor_tile(tile, rows, step, status, scales):
    """Factors of a tile on the diagonal; each column is subtracted from the later ones at once.

    ``scales`` get the inverse roots of the pivots; ``step`` is the first column, from 1.
    """
    x = dict(zip(lower_places(rows), tile, strict=True))
    for k in range(rows):
        pivot, failed = real_part(x[k, k]), load(LANE, status, 0)
        good = lane_gt(pivot + pivot * ZERO, ZERO)  # NaN if the pivot is not finite
        first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, step + k), failed)
        store(LANE, status, 0, lane_where(good, failed, first))
        root = lane_sqrt(lane_where(good, pivot, as_lane(LANE, 1.0)))
        scale = 1.0 / root
        keep(NUMBER, scales, k, number(NUMBER, scale))
        x[k, k] = number(NUMBER, root)
        for i in range(k + 1, rows):
            x[i, k] = x[i, k] * scale
        for i in range(k + 1, rows):
            for j in range(k + 1, i + 1):
                x[i, j] = x[i, j] - x[i, k] * conjugate(x[j, k])
    return tuple(x.values())


def divided_tile(tile, rows, diagonal, scales):
    """Solution X of X L^H = tile, with the tile L on the diagonal."""
    x = dict(zip(places_of(rows, TILE), tile, strict=True))
    for k in range(TILE):
        scale = real_part(fetch(NUMBER, scales, k))
        factors = {j: conjugate(fetch(NUMBER, diagonal, j * STEP + k)) for j in range(k + 1, TILE)}
        for i in range(rows):
            x[i, k] = x[i, k] * scale
            for j in range(k + 1, TILE):
                x[i, j] = x[i, j] - x[i, k] * factors[j]
    return tuple(x.values())


@inner
def factor_on(a, j, rows, status, scales):
    """Factor the tile on the diagonal from row j on."""
    places, at, row = lower_places(rows), a + j * ((STEP + 1) * BYTES), a + j * (STEP * BYTES)
    tile = load_tile(at, places, STEP)
    tile = minus_products(tile, places, row, (STEP, 1), row, (STEP, 1), (False, True), j)
    tile = factor_tile(tile, rows, 1.0 + j, status, scales + j * BYTES)
    store_tile(at, places, STEP, tile)


@inner
def factor_below(a, i, j, rows, scales):
    """Compute the tile of L from row i and column j on."""
    row, other = a + i * (STEP * BYTES), a + j * (STEP * BYTES)
    places, at, diagonal = places_of(rows, TILE), row + j * BYTES, other + j * BYTES
    tile = load_tile(at, places, STEP)
    tile = minus_products(tile, places, row, (STEP, 1), other, (STEP, 1), (False, True), j)
    store_tile(at, places, STEP, divided_tile(tile, rows, diagonal, scales + j * BYTES))


@inner
def work_on(a, unused, status):
    """Factor a group; its status is the first column, from 1, without a finite positive pivot.

    An entry that is not finite makes the pivot of its row not finite.
    """
    scales = status + LANE_BYTES
    for j in range(0, FULL, TILE):
        factor_on(a, j, TILE, status, scales)
        for i in range(j + TILE, FULL, TILE):
            factor_below(a, i, j, TILE, scales)
        if REST:
            factor_below(a, FULL, j, REST, scales)
    if REST:
        factor_on(a, FULL, REST, status, scales)
    if WRITTEN[0]:
        clear_above(LANE, FIRST_REALS, N, FIRST_ROW, a)
