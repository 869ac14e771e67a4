"""Cholesky factors of the matrices in lanes: A = L L^T, L in place of the lower triangle."""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

# </defaults>


@inner
def four_below(a, i, j, scale):
    """Four entries of column j, from row i on: four sums at once wait less for each other."""
    w, x = load(LANE, a, i * N + j), load(LANE, a, (i + 1) * N + j)
    y, z = load(LANE, a, (i + 2) * N + j), load(LANE, a, (i + 3) * N + j)
    for k in range(j):
        factor = load(LANE, a, j * N + k)
        w = w - load(LANE, a, i * N + k) * factor
        x = x - load(LANE, a, (i + 1) * N + k) * factor
        y = y - load(LANE, a, (i + 2) * N + k) * factor
        z = z - load(LANE, a, (i + 3) * N + k) * factor
    store(LANE, a, i * N + j, w * scale)
    store(LANE, a, (i + 1) * N + j, x * scale)
    store(LANE, a, (i + 2) * N + j, y * scale)
    store(LANE, a, (i + 3) * N + j, z * scale)


@inner
def work_on(a, unused, status):
    """Factor a group; its status is the first column, from 1, without a positive pivot."""
    for j in range(N):
        pivot = load(LANE, a, j * N + j)
        for k in range(j):
            left = load(LANE, a, j * N + k)
            pivot = pivot - left * left
        good, failed = lane_gt(pivot, ZERO), load(LANE, status, 0)
        first = lane_where(lane_eq(failed, ZERO), as_lane(LANE, 1.0 + j), failed)
        store(LANE, status, 0, lane_where(good, failed, first))
        root = lane_sqrt(lane_where(good, pivot, as_lane(LANE, 1.0)))
        store(LANE, a, j * N + j, root)
        scale = 1.0 / root
        for i in range(j + 1, N - 3, 4):
            four_below(a, i, j, scale)
        for i in range(max(j + 1, N - (N - j - 1) % 4), N):
            total = load(LANE, a, i * N + j)
            for k in range(j):
                total = total - load(LANE, a, i * N + k) * load(LANE, a, j * N + k)
            store(LANE, a, i * N + j, total * scale)
        for i in range(j + 1, N):
            store(LANE, a, j * N + i, fill(LANE, ZERO))
