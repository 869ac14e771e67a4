"""Solve with one triangle."""

# <defaults>
from femops_kernels.skeletons.tensor.triangular import *

TRIANGLE = (True, False, False, False)  # see `substitute`
# </defaults>


@inner
def check_rows(t, status):
    """Set the status where an entry of the triangle that is read is not finite."""
    lower, _, unit, _ = TRIANGLE
    for i in range(N):
        total, failed = fill(LANE, ZERO), load(LANE, status, 0)
        for j in range(0 if lower else i + unit, i + 1 - unit if lower else N):
            total = total + size_of(fetch(NUMBER, t, i * STEP + j)) * ZERO
        finite = lane_eq(total, ZERO)
        store(LANE, status, 0, lane_where(finite, failed, as_lane(LANE, 1.0 + i)))


@inner
def work_on(t, x, status):
    """Solve a group; its status is 0, or a row, from 1, that is singular or not finite."""
    scales = status + LANE_BYTES
    if not TRIANGLE[2]:
        invert_diagonal(t, status, TRIANGLE[3], scales)
    substitute(t, x, scales, TRIANGLE)
    check_rows(t, status)
