"""Triangular solves with the matrices in lanes: X in place of the right sides B, (N, RIGHT)."""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

# </defaults>


@inner
def entry_of(t, k, conjugated):
    """Entry of the matrix, or its conjugate."""
    if conjugated:
        return conjugate(fetch(NUMBER, t, k))
    return fetch(NUMBER, t, k)


@inner
def divide(t, x, i, status, conjugated):
    """Divide a row of X by the diagonal."""
    pivot, failed = entry_of(t, i * N + i, conjugated), load(LANE, status, 0)
    good = lane_gt(size_of(pivot), ZERO)
    first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + i), failed)
    store(LANE, status, 0, lane_where(good, failed, first))
    scale = inverse(choose(good, pivot, number(NUMBER, as_lane(LANE, 1.0))))
    for r in range(RIGHT):
        keep(NUMBER, x, i * RIGHT + r, fetch(NUMBER, x, i * RIGHT + r) * scale)


@inner
def subtract(t, x, step, triangle):
    """Subtract from the next row of X the earlier rows, times entries of the matrix.

    Return the number of the row.
    """
    lower, transposed, _, conjugated = triangle
    first, way = (0, 1) if lower != transposed else (N - 1, -1)
    i = first + way * step
    row, column = (1, N) if transposed else (N, 1)
    for r in range(RIGHT):
        total = fetch(NUMBER, x, i * RIGHT + r)
        for before in range(step):
            k = first + way * before
            factor = entry_of(t, i * row + k * column, conjugated)
            total = total - factor * fetch(NUMBER, x, k * RIGHT + r)
        keep(NUMBER, x, i * RIGHT + r, total)
    return i


@inner
def substitute(t, x, status, triangle):
    """Solve with one triangle, from the first row on or from the last.

    ``triangle`` has four flags: lower, transposed, ones on the diagonal, conjugated.
    """
    unit, conjugated = triangle[2:]
    for step in range(N):
        i = subtract(t, x, step, triangle)
        if not unit:
            divide(t, x, i, status, conjugated)
