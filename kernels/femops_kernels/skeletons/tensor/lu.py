"""LU factors of the matrices in lanes, rows exchanged: A[p] = L U, in place of A.

A few columns are factored at once, a panel. The other columns are changed once for each panel: they
take the exchanges of its rows, and its multiples of rows.
"""

# <defaults>
from femops_kernels.skeletons.tensor.tiles import *

READ = (True, False)  # the second operand is read by solves, which take inverse pivots
# </defaults>


@inner
def find_pivot(a, j):
    """Row with the largest entry of column j, from row j on, as a number in each slot."""
    most, row = size_of(fetch(NUMBER, a, j * STEP + j)), as_lane(LANE, 1.0 * j)
    at = row + 1.0
    for i in range(j + 1, N):
        size = size_of(fetch(NUMBER, a, i * STEP + j))
        larger = lane_gt(size, most)
        most = lane_where(larger, size, most)
        row = lane_where(larger, at, row)
        at = at + 1.0
    return row


def row_of_panel(at, columns, moved, i, c, place):
    """Load a row of a panel, and the number of the matrix's row, which stands after its entries.

    No row has moved before column 0. ``place`` is the row's number i.
    """
    was = place if c == 0 else load(LANE, moved, i)
    return *(fetch(NUMBER, at, c) for c in range(columns)), was


def chosen_row(mask, first, second):
    """In each slot one of two rows."""
    pairs = [*zip(first, second, strict=True)]
    return *(choose(mask, *pair) for pair in pairs[:-1]), lane_where(mask, *pairs[-1])


def reduced_row(row, pivots, c, scale):
    """Subtract from a row of a panel its multiple of the pivot's row."""
    factor = row[c] * scale
    later = (row[k] - factor * pivots[k] for k in range(c + 1, len(row) - 1))
    return *row[:c], factor, *later, row[-1]


def keep_row(at, moved, i, row):
    """Store a row of a panel."""
    for c, value in enumerate(row[:-1]):
        keep(NUMBER, at, c, value)
    store(LANE, moved, i, row[-1])


@inner
def inverse_pivot(pivot, step, status):
    """One divided by a pivot; the status is the first step with one that is zero or not finite."""
    failed = load(LANE, status, 0)
    good = lane_gt(finite_or_nan(size_of(pivot)), ZERO)
    first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, step), failed)
    store(LANE, status, 0, lane_where(good, failed, first))
    return inverse(choose(good, pivot, number(NUMBER, as_lane(LANE, 1.0))))


@inner
def exchange_pivot(a, j, c, columns, moved):
    """Put the pivot's row of column c in place. Return its number, and both exchanged rows."""
    k, at = j + c, a + j * BYTES
    row, place = find_pivot(a, k), as_lane(LANE, 1.0 + k)
    here = row_of_panel(at + k * (STEP * BYTES), columns, moved, k, c, as_lane(LANE, 1.0 * k))
    pivots = here
    for i in range(k + 1, N):
        there = row_of_panel(at + i * (STEP * BYTES), columns, moved, i, c, place)
        pivots = chosen_row(lane_eq(row, place), there, pivots)
        place = place + 1.0
    keep_row(at + k * (STEP * BYTES), moved, k, pivots)
    return row, pivots, here


@inner
def keep_inverse(pivot, k, status, scales):
    """Keep the inverse of pivot k for solves, and return it."""
    scale = inverse_pivot(pivot, 1.0 + k, status)
    if READ[1]:
        keep(NUMBER, scales, k, scale)
    return scale


@inner
def factor_column(a, j, c, columns, moved, status, scales):
    """Exchange the rows of a panel for its column c, and subtract it from the later ones."""
    k, at = j + c, a + j * BYTES
    row, pivots, here = exchange_pivot(a, j, c, columns, moved)
    scale, place = keep_inverse(pivots[c], k, status, scales), as_lane(LANE, 1.0 + k)
    for i in range(k + 1, N):
        below = at + i * (STEP * BYTES)
        there = row_of_panel(below, columns, moved, i, c, place)
        there = chosen_row(lane_eq(row, place), here, there)
        keep_row(below, moved, i, reduced_row(there, pivots, c, scale))
        place = place + 1.0


@inner
def factor_last(a, moved, status, scales):
    """Factor the last column, which has no rows to exchange."""
    k = N - 1
    keep_inverse(fetch(NUMBER, a, k * STEP + k), k, status, scales)
    if N == 1:
        store(LANE, moved, 0, fill(LANE, ZERO))


def masks_of(sources, place, count):
    """For each of several rows, the mask of the slots in which it is the row at a place."""
    return [lane_eq(sources[t], place) for t in range(count)]


def with_row(tile, places, masks, at):
    """Take a row into a tile, where masks of the tile's rows say so."""
    values = {c: fetch(NUMBER, at, c) for c in dict.fromkeys(c for _, c in places)}
    pairs = zip(tile, places, strict=True)
    return tuple(choose(masks[r], values[c], value) for value, (r, c) in pairs)


def permuted(tile, shape, sources, starts):
    """Exchange rows of a tile that stay among its rows."""
    rows = [tile[t * shape[1] : (t + 1) * shape[1]] for t in range(shape[0])]
    made = []
    for t in range(shape[0]):
        row = rows[t]
        for other in range(shape[0]):
            if other != t:
                mask = lane_eq(sources[t], starts[other])
                row = [choose(mask, *pair) for pair in zip(rows[other], row, strict=True)]
        made += row
    return tuple(made)


def solved_rows(tile, places, a, j):
    """Solve for rows of U, with the triangle of ones and L on the diagonal."""
    x = dict(zip(places, tile, strict=True))
    corner = a + j * ((STEP + 1) * BYTES)
    for i, c in places:
        for k in range(i):
            x[i, c] = x[i, c] - fetch(NUMBER, corner, i * STEP + k) * x[k, c]
    return tuple(x.values())


def replaced_row(at, shape, masks, before):
    """A row of the matrix, or where masks say so a row that has left the pivots' rows."""
    row = [fetch(NUMBER, at, c) for c in range(shape[1])]
    for t in range(shape[0]):
        for c in range(shape[1]):
            row[c] = choose(masks[t], before[t * shape[1] + c], row[c])
    return row


def minus_multiples(row, shape, factors, upper):
    """Subtract from a row its multiples of rows of U."""
    for t in range(shape[0]):
        factor = fetch(NUMBER, factors, t)
        for c in range(shape[1]):
            row[c] = row[c] - factor * upper[t * shape[1] + c]
    return row


@inner
def change_columns(table, step, shape, a, j, moved, reduced):
    """Exchange rows in columns of a table as in the panel from row j on.

    ``shape``: columns of the panel, and columns that are changed. ``reduced`` tells whether the
    panel's multiples of rows are subtracted.
    """
    places, top = places_of(shape[0], shape[1]), table + j * (step * BYTES)
    before = load_tile(top, places, step)
    sources = tuple(load(LANE, moved, j + t) for t in range(shape[0]))
    starts = tuple(as_lane(LANE, 1.0 * t + j) for t in range(shape[0]))
    tile, place = permuted(before, shape, sources, starts), as_lane(LANE, 1.0 * j + shape[0])
    for i in range(j + shape[0], N):
        masks = masks_of(sources, place, shape[0])
        tile = with_row(tile, places, masks, table + i * (step * BYTES))
        place = place + 1.0
    if reduced:
        tile = solved_rows(tile, places, a, j)
    store_tile(top, places, step, tile)
    for i in range(j + shape[0], N):
        at = table + i * (step * BYTES)
        row = replaced_row(at, shape, masks_of(starts, load(LANE, moved, i), shape[0]), before)
        if reduced:
            row = minus_multiples(row, shape, a + (i * STEP + j) * BYTES, tile)
        store_tile(at, places_of(1, shape[1]), 0, row)


def factor_panel(a, j, columns, moved, status, scales):
    """Factor a panel. ``moved`` gets the rows that stood in each row before, from row j on.

    A panel of fewer columns than a tile is the last one.
    """
    for c in range(columns):
        if columns < TILE and c == columns - 1:
            factor_last(a, moved, status, scales)
        else:
            factor_column(a, j, c, columns, moved, status, scales)


@inner
def change_left(a, j, columns, order, moved):
    """Exchange rows on the left of a panel, and in the permutation."""
    for k in range(0, j, TILE):
        change_columns(a + k * BYTES, STEP, (columns, TILE), a, j, moved, False)
    change_columns(order, 1, (columns, 1), a, j, moved, False)


@inner
def change_right(a, j, moved):
    """Change the columns on the right of a panel of whole tiles."""
    for k in range(j + TILE, FULL, TILE):
        change_columns(a + k * BYTES, STEP, (TILE, TILE), a, j, moved, True)
    if REST:
        change_columns(a + FULL * BYTES, STEP, (TILE, REST), a, j, moved, True)


@inner
def factor_panels(a, order, status, scales, moved):
    """Factor a group panel by panel."""
    for i in range(N):
        keep(NUMBER, order, i, number(NUMBER, as_lane(LANE, 1.0 * i)))
    for j in range(0, FULL, TILE):
        factor_panel(a, j, TILE, moved, status, scales)
        change_left(a, j, TILE, order, moved)
        change_right(a, j, moved)
    if REST:
        factor_panel(a, FULL, REST, moved, status, scales)
        change_left(a, FULL, REST, order, moved)


@inner
def factor(a, order, status, scales, moved):
    """Factor a group; its status is the first column, from 1, without a finite pivot.

    An entry that is not finite makes the pivot of its column, or the last pivot, not finite.
    """
    if N <= TILE:
        factor_panel(a, 0, N, moved, status, scales)
        for i in range(N):
            keep(NUMBER, order, i, number(NUMBER, load(LANE, moved, i)))
    else:
        factor_panels(a, order, status, scales, moved)


@inner
def work_on(a, order, status):
    """Factor a group; ``order`` gets the permutation: row order[i] of A has become row i."""
    scales = status + LANE_BYTES
    factor(a, order, status, scales, scales + N * BYTES)
