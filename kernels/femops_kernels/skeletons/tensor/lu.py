"""LU factors of the matrices in lanes, rows exchanged: A[p] = L U, in place of A.

The second operand gets the permutation p as numbers: row p[i] of A has become row i.
"""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

# </defaults>


@inner
def find_pivot(a, j):
    """Row with the largest entry of column j, from row j on, as a number in each slot."""
    most, row = size_of(fetch(NUMBER, a, j * N + j)), as_lane(LANE, 1.0 * j)
    at = row + 1.0
    for i in range(j + 1, N):
        size = size_of(fetch(NUMBER, a, i * N + j))
        larger = lane_gt(size, most)
        most = lane_where(larger, size, most)
        row = lane_where(larger, at, row)
        at = at + 1.0
    return row


@inner
def exchange_rows(table, columns, first, last, j, row):
    """Exchange row j with the pivot's row in columns ``first`` up to ``last``.

    The pivot's row differs from slot to slot.
    """
    for k in range(first, last):
        here = fetch(NUMBER, table, j * columns + k)
        chosen, at = here, as_lane(LANE, 1.0 + j)
        for i in range(j + 1, N):
            there, same = fetch(NUMBER, table, i * columns + k), lane_eq(row, at)
            chosen = choose(same, there, chosen)
            keep(NUMBER, table, i * columns + k, choose(same, here, there))
            at = at + 1.0
        keep(NUMBER, table, j * columns + k, chosen)


@inner
def make_factors(a, j, row, status):
    """Exchange rows in column j, and divide its entries below the diagonal by the pivot.

    These entries of L are the factors of row j in the rows below.
    """
    exchange_rows(a, N, j, j + 1, j, row)
    pivot, failed = fetch(NUMBER, a, j * N + j), load(LANE, status, 0)
    good = lane_gt(finite_or_nan(size_of(pivot)), ZERO)
    first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + j), failed)
    store(LANE, status, 0, lane_where(good, failed, first))
    scale = inverse(choose(good, pivot, number(NUMBER, as_lane(LANE, 1.0))))
    for i in range(j + 1, N):
        keep(NUMBER, a, i * N + j, fetch(NUMBER, a, i * N + j) * scale)


@inner
def four_columns(table, columns, k, a, j, row):
    """Exchange rows and subtract multiples of row j in four columns, with one store per entry."""
    at, first = j * columns + k, as_lane(LANE, 1.0 + j)
    here = fetch(NUMBER, table, at), fetch(NUMBER, table, at + 1)
    more = fetch(NUMBER, table, at + 2), fetch(NUMBER, table, at + 3)
    w, x, y, z = here[0], here[1], more[0], more[1]
    place = first
    for i in range(j + 1, N):
        below, same = i * columns + k, lane_eq(row, place)
        w = choose(same, fetch(NUMBER, table, below), w)
        x = choose(same, fetch(NUMBER, table, below + 1), x)
        y = choose(same, fetch(NUMBER, table, below + 2), y)
        z = choose(same, fetch(NUMBER, table, below + 3), z)
        place = place + 1.0
    keep(NUMBER, table, at, w)
    keep(NUMBER, table, at + 1, x)
    keep(NUMBER, table, at + 2, y)
    keep(NUMBER, table, at + 3, z)
    place = first
    for i in range(j + 1, N):
        below, same, factor = i * columns + k, lane_eq(row, place), fetch(NUMBER, a, i * N + j)
        p = choose(same, here[0], fetch(NUMBER, table, below)) - factor * w
        q = choose(same, here[1], fetch(NUMBER, table, below + 1)) - factor * x
        r = choose(same, more[0], fetch(NUMBER, table, below + 2)) - factor * y
        s = choose(same, more[1], fetch(NUMBER, table, below + 3)) - factor * z
        keep(NUMBER, table, below, p)
        keep(NUMBER, table, below + 1, q)
        keep(NUMBER, table, below + 2, r)
        keep(NUMBER, table, below + 3, s)
        place = place + 1.0


@inner
def one_column(table, columns, k, a, j, row):
    """Exchange rows and subtract multiples of row j in one column."""
    here = fetch(NUMBER, table, j * columns + k)
    chosen, place = here, as_lane(LANE, 1.0 + j)
    for i in range(j + 1, N):
        chosen = choose(lane_eq(row, place), fetch(NUMBER, table, i * columns + k), chosen)
        place = place + 1.0
    keep(NUMBER, table, j * columns + k, chosen)
    place = as_lane(LANE, 1.0 + j)
    for i in range(j + 1, N):
        value = choose(lane_eq(row, place), here, fetch(NUMBER, table, i * columns + k))
        keep(NUMBER, table, i * columns + k, value - fetch(NUMBER, a, i * N + j) * chosen)
        place = place + 1.0


@inner
def eliminate(table, columns, first, a, j, row):
    """Exchange rows in all columns from ``first`` on, and subtract multiples of row j."""
    for k in range(first, columns - 3, 4):
        four_columns(table, columns, k, a, j, row)
    for k in range(columns - (columns - first) % 4, columns):
        one_column(table, columns, k, a, j, row)


@inner
def work_on(a, order, status):
    """Factor a group; its status is the first column, from 1, without a finite pivot.

    An entry that is not finite makes the pivot of its column, or the last pivot, not finite.
    """
    for i in range(N):
        keep(NUMBER, order, i, number(NUMBER, as_lane(LANE, 1.0 * i)))
    for j in range(N):
        row = find_pivot(a, j)
        exchange_rows(a, N, 0, j, j, row)
        exchange_rows(order, 1, 0, 1, j, row)
        make_factors(a, j, row, status)
        eliminate(a, N, j + 1, a, j, row)
