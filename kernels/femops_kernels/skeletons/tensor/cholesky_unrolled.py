"""Cholesky factors of the matrices in lanes, of few rows: A = L L^H, see ``cholesky.py``."""

# <defaults>
from femops_kernels.simd.tensor.factors import *
from femops_kernels.skeletons.tensor.lanes_of_members import *

WRITTEN = (True, False)
# </defaults>


@inner
def work_on(a, unused, status):
    """Factor a group; its status is the first column, from 1, without a positive pivot."""
    factor_lower(NUMBER, N, a, status)
    if WRITTEN[0]:
        for j in range(N):
            for i in range(j + 1, N):
                keep(NUMBER, a, j * N + i, number(NUMBER, fill(LANE, ZERO)))
