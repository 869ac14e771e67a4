"""LU factors of the matrices in lanes, rows exchanged: A[p] = L U, in place of A.

The second operand gets the row that came to each place, p, as a number.
"""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

# </defaults>


@inner
def find_pivot(a, j):
    """The row with the largest entry of a column, in each slot."""
    most, row = size_of(fetch(NUMBER, a, j * N + j)), as_lane(LANE, 1.0 * j)
    for i in range(j + 1, N):
        size = size_of(fetch(NUMBER, a, i * N + j))
        larger = lane_gt(size, most)
        most = lane_where(larger, size, most)
        row = lane_where(larger, as_lane(LANE, 1.0 * i), row)
    return row


@inner
def exchange_rows(table, columns, j, row):
    """Exchange row j with the pivot's, which differs from slot to slot."""
    for k in range(columns):
        here = fetch(NUMBER, table, j * columns + k)
        chosen = here
        for i in range(j + 1, N):
            there, same = fetch(NUMBER, table, i * columns + k), lane_eq(row, 1.0 * i)
            chosen = choose(same, there, chosen)
            keep(NUMBER, table, i * columns + k, choose(same, here, there))
        keep(NUMBER, table, j * columns + k, chosen)


@inner
def work_on(a, order, status):
    """Factor a group; its status is the first column, from 1, without a pivot."""
    for i in range(N):
        keep(NUMBER, order, i, number(NUMBER, as_lane(LANE, 1.0 * i)))
    for j in range(N):
        row = find_pivot(a, j)
        exchange_rows(a, N, j, row)
        exchange_rows(order, 1, j, row)
        pivot, failed = fetch(NUMBER, a, j * N + j), load(LANE, status, 0)
        good = lane_gt(size_of(pivot), ZERO)
        first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + j), failed)
        store(LANE, status, 0, lane_where(good, failed, first))
        scale = inverse(choose(good, pivot, number(NUMBER, as_lane(LANE, 1.0))))
        for i in range(j + 1, N):
            factor = fetch(NUMBER, a, i * N + j) * scale
            keep(NUMBER, a, i * N + j, factor)
            for k in range(j + 1, N):
                value = fetch(NUMBER, a, i * N + k) - factor * fetch(NUMBER, a, j * N + k)
                keep(NUMBER, a, i * N + k, value)
