"""Cholesky factors of the matrices in lanes, of few rows: A = L L^H, see ``cholesky.py``."""

# <defaults>
from femops_kernels.simd.tensor.factors import *
from femops_kernels.skeletons.tensor.lanes_of_members import *

WRITTEN = (True, False)
# </defaults>


@inner
def work_on(a, unused, status):
    """Factor a group; its status is a column, from 1, without a finite positive pivot, or 0."""
    factor_lower(NUMBER, N, a, status)
    for j in range(N):
        root, failed = real_part(fetch(NUMBER, a, j * N + j)), load(LANE, status, 0)
        finite = lane_gt(finite_or_nan(root), ZERO)
        store(LANE, status, 0, lane_where(finite, failed, as_lane(LANE, 1.0 + j)))
    if WRITTEN[0]:
        for j in range(N):
            for i in range(j + 1, N):
                keep(NUMBER, a, j * N + i, number(NUMBER, fill(LANE, ZERO)))
