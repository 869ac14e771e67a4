"""Factor the matrices of a group with exchanges of rows, and solve."""

# <defaults>
from femops_kernels.skeletons.tensor.lu import *
from femops_kernels.skeletons.tensor.triangular import *

# </defaults>


@inner
def solve_group(a, x, status):
    """Solve a group; its status is the first column, from 1, without a finite pivot."""
    for j in range(N):
        row = find_pivot(a, j)
        make_factors(a, j, row, status)
        eliminate(a, N, j + 1, a, j, row)
        eliminate(x, RIGHT, 0, a, j, row)
    substitute(a, x, status, (False, False, False, False))


work_on = solve_group
