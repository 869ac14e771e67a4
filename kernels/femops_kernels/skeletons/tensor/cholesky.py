"""Cholesky factors of the matrices in lanes: A = L L^H, L in place of the lower triangle."""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

WRITTEN = (True, False)
# </defaults>


@inner
def four_below(a, i, j, scale):
    """Compute four entries of column j, from row i on. Four independent sums hide latency."""
    w, x = fetch(NUMBER, a, i * N + j), fetch(NUMBER, a, (i + 1) * N + j)
    y, z = fetch(NUMBER, a, (i + 2) * N + j), fetch(NUMBER, a, (i + 3) * N + j)
    for k in range(j):
        factor = conjugate(fetch(NUMBER, a, j * N + k))
        w = w - fetch(NUMBER, a, i * N + k) * factor
        x = x - fetch(NUMBER, a, (i + 1) * N + k) * factor
        y = y - fetch(NUMBER, a, (i + 2) * N + k) * factor
        z = z - fetch(NUMBER, a, (i + 3) * N + k) * factor
    keep(NUMBER, a, i * N + j, w * scale)
    keep(NUMBER, a, (i + 1) * N + j, x * scale)
    keep(NUMBER, a, (i + 2) * N + j, y * scale)
    keep(NUMBER, a, (i + 3) * N + j, z * scale)


@inner
def work_on(a, unused, status):
    """Factor a group; its status is the first column, from 1, without a finite positive pivot.

    An entry that is not finite makes the pivot of its row not finite.
    """
    for j in range(N):
        pivot = real_part(fetch(NUMBER, a, j * N + j))
        for k in range(j):
            pivot = pivot - square(fetch(NUMBER, a, j * N + k))
        good, failed = lane_gt(finite_or_nan(pivot), ZERO), load(LANE, status, 0)
        first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + j), failed)
        store(LANE, status, 0, lane_where(good, failed, first))
        root = lane_sqrt(lane_where(good, pivot, as_lane(LANE, 1.0)))
        keep(NUMBER, a, j * N + j, number(NUMBER, root))
        scale = 1.0 / root
        for i in range(j + 1, N - 3, 4):
            four_below(a, i, j, scale)
        for i in range(max(j + 1, N - (N - j - 1) % 4), N):
            total = fetch(NUMBER, a, i * N + j)
            for k in range(j):
                factor = conjugate(fetch(NUMBER, a, j * N + k))
                total = total - fetch(NUMBER, a, i * N + k) * factor
            keep(NUMBER, a, i * N + j, total * scale)
        if WRITTEN[0]:
            for i in range(j + 1, N):
                keep(NUMBER, a, j * N + i, number(NUMBER, fill(LANE, ZERO)))
