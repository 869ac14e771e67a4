"""Factor the matrices of a group with exchanges of rows, and solve."""

# <defaults>
from femops_kernels.skeletons.tensor.lu import *
from femops_kernels.skeletons.tensor.triangular import *

# </defaults>


@inner
def eliminate(a, x, j, status):
    """Subtract multiples of row j from those below, of the matrix and of the right sides."""
    pivot, failed = load(LANE, a, j * N + j), load(LANE, status, 0)
    good = lane_gt(lane_fabs(pivot), ZERO)
    first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + j), failed)
    store(LANE, status, 0, lane_where(good, failed, first))
    pivot = lane_where(good, pivot, as_lane(LANE, 1.0))
    store(LANE, a, j * N + j, pivot)
    scale = 1.0 / pivot
    for i in range(j + 1, N):
        factor = load(LANE, a, i * N + j) * scale
        for k in range(j + 1, N):
            value = load(LANE, a, i * N + k) - factor * load(LANE, a, j * N + k)
            store(LANE, a, i * N + k, value)
        for r in range(RIGHT):
            value = load(LANE, x, i * RIGHT + r) - factor * load(LANE, x, j * RIGHT + r)
            store(LANE, x, i * RIGHT + r, value)


@inner
def solve_group(a, x, status):
    """Solve a group; its status is the first column, from 1, without a pivot."""
    for j in range(N):
        row = find_pivot(a, j)
        exchange_rows(a, N, j, row)
        exchange_rows(x, RIGHT, j, row)
        eliminate(a, x, j, status)
    substitute(a, x, status, False, False, False)


work_on = solve_group
