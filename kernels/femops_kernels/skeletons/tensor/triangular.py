"""Triangular solves with the matrices in lanes: X in place of the right sides B, (N, RIGHT)."""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

# </defaults>


@inner
def divide(t, x, i, status):
    """Divide a row of X by the diagonal."""
    pivot, failed = load(LANE, t, i * N + i), load(LANE, status, 0)
    good = lane_gt(lane_fabs(pivot), ZERO)
    first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + i), failed)
    store(LANE, status, 0, lane_where(good, failed, first))
    scale = 1.0 / lane_where(good, pivot, as_lane(LANE, 1.0))
    for r in range(RIGHT):
        store(LANE, x, i * RIGHT + r, load(LANE, x, i * RIGHT + r) * scale)


@inner
def subtract(t, x, i, k, transposed):
    """Subtract an entry of the matrix times row k from row i."""
    factor = load(LANE, t, k * N + i) if transposed else load(LANE, t, i * N + k)
    for r in range(RIGHT):
        value = load(LANE, x, i * RIGHT + r) - factor * load(LANE, x, k * RIGHT + r)
        store(LANE, x, i * RIGHT + r, value)


@inner
def substitute(t, x, status, lower, transposed, unit):
    """Solve with one triangle: from the first row on, or from the last."""
    forward = lower != transposed
    for step in range(N):
        i = step if forward else N - 1 - step
        for before in range(step):
            k = before if forward else N - 1 - before
            subtract(t, x, i, k, transposed)
        if not unit:
            divide(t, x, i, status)
