"""Factor the matrices of a group with exchanges of rows, and solve."""

# <defaults>
from femops_kernels.skeletons.tensor.lu import *
from femops_kernels.skeletons.tensor.triangular import *

# </defaults>


@inner
def eliminate(a, x, j, status):
    """Subtract multiples of row j from those below, of the matrix and of the right sides."""
    pivot, failed = fetch(NUMBER, a, j * N + j), load(LANE, status, 0)
    good = lane_gt(size_of(pivot), ZERO)
    first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + j), failed)
    store(LANE, status, 0, lane_where(good, failed, first))
    pivot = choose(good, pivot, number(NUMBER, as_lane(LANE, 1.0)))
    keep(NUMBER, a, j * N + j, pivot)
    scale = inverse(pivot)
    for i in range(j + 1, N):
        factor = fetch(NUMBER, a, i * N + j) * scale
        for k in range(j + 1, N):
            value = fetch(NUMBER, a, i * N + k) - factor * fetch(NUMBER, a, j * N + k)
            keep(NUMBER, a, i * N + k, value)
        for r in range(RIGHT):
            value = fetch(NUMBER, x, i * RIGHT + r) - factor * fetch(NUMBER, x, j * RIGHT + r)
            keep(NUMBER, x, i * RIGHT + r, value)


@inner
def solve_group(a, x, status):
    """Solve a group; its status is the first column, from 1, without a pivot."""
    for j in range(N):
        row = find_pivot(a, j)
        exchange_rows(a, N, j, row)
        exchange_rows(x, RIGHT, j, row)
        eliminate(a, x, j, status)
    substitute(a, x, status, (False, False, False, False))


work_on = solve_group
