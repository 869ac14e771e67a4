"""Triangular solves with the matrices in lanes: X in place of the right sides B, (N, RIGHT)."""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

# </defaults>


@inner
def entry_of(t, i, k, conjugated):
    """Entry of the matrix, or its conjugate."""
    if conjugated:
        return conjugate(fetch(NUMBER, t, i * N + k))
    return fetch(NUMBER, t, i * N + k)


@inner
def divide(t, x, i, status, conjugated):
    """Divide a row of X by the diagonal."""
    pivot, failed = entry_of(t, i, i, conjugated), load(LANE, status, 0)
    good = lane_gt(size_of(pivot), ZERO)
    first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + i), failed)
    store(LANE, status, 0, lane_where(good, failed, first))
    scale = inverse(choose(good, pivot, number(NUMBER, as_lane(LANE, 1.0))))
    for r in range(RIGHT):
        keep(NUMBER, x, i * RIGHT + r, fetch(NUMBER, x, i * RIGHT + r) * scale)


@inner
def subtract(t, x, i, k, transposed, conjugated):
    """Subtract an entry of the matrix times row k from row i."""
    row, column = (k, i) if transposed else (i, k)
    factor = entry_of(t, row, column, conjugated)
    for r in range(RIGHT):
        value = fetch(NUMBER, x, i * RIGHT + r) - factor * fetch(NUMBER, x, k * RIGHT + r)
        keep(NUMBER, x, i * RIGHT + r, value)


@inner
def substitute(t, x, status, triangle):
    """Solve with one triangle: from the first row on, or from the last.

    Lower or upper, transposed, with ones on the diagonal, conjugated: four truth values.
    """
    lower, transposed, unit, conjugated = triangle
    forward = lower != transposed
    for step in range(N):
        i = step if forward else N - 1 - step
        for before in range(step):
            k = before if forward else N - 1 - before
            subtract(t, x, i, k, transposed, conjugated)
        if not unit:
            divide(t, x, i, status, conjugated)
