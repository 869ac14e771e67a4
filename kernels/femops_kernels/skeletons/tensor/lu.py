"""LU factors of the matrices in lanes, rows exchanged: A[p] = L U, in place of A.

The second operand gets the row that came to each place, p, as a number.
"""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

# </defaults>


@inner
def find_pivot(a, j):
    """The row with the largest entry of a column, in each slot."""
    most, row = lane_fabs(load(LANE, a, j * N + j)), as_lane(LANE, 1.0 * j)
    for i in range(j + 1, N):
        size = lane_fabs(load(LANE, a, i * N + j))
        larger = lane_gt(size, most)
        most = lane_where(larger, size, most)
        row = lane_where(larger, as_lane(LANE, 1.0 * i), row)
    return row


@inner
def exchange_rows(table, columns, j, row):
    """Exchange row j with the pivot's, which differs from slot to slot."""
    for k in range(columns):
        here = load(LANE, table, j * columns + k)
        chosen = here
        for i in range(j + 1, N):
            there, same = load(LANE, table, i * columns + k), lane_eq(row, 1.0 * i)
            chosen = lane_where(same, there, chosen)
            store(LANE, table, i * columns + k, lane_where(same, here, there))
        store(LANE, table, j * columns + k, chosen)


@inner
def work_on(a, order, status):
    """Factor a group; its status is the first column, from 1, without a pivot."""
    for i in range(N):
        store(LANE, order, i, as_lane(LANE, 1.0 * i))
    for j in range(N):
        row = find_pivot(a, j)
        exchange_rows(a, N, j, row)
        exchange_rows(order, 1, j, row)
        pivot, failed = load(LANE, a, j * N + j), load(LANE, status, 0)
        good = lane_gt(lane_fabs(pivot), ZERO)
        first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + j), failed)
        store(LANE, status, 0, lane_where(good, failed, first))
        scale = 1.0 / lane_where(good, pivot, as_lane(LANE, 1.0))
        for i in range(j + 1, N):
            factor = load(LANE, a, i * N + j) * scale
            store(LANE, a, i * N + j, factor)
            for k in range(j + 1, N):
                value = load(LANE, a, i * N + k) - factor * load(LANE, a, j * N + k)
                store(LANE, a, i * N + k, value)
