"""Factor the matrices of a group by Cholesky's method, and solve."""

# <defaults>
from femops_kernels.skeletons.tensor.cholesky import work_on
from femops_kernels.skeletons.tensor.triangular import *

# </defaults>

factor = work_on


@inner
def solve_group(a, x, status):
    """Solve a group; see `work_on` of the factors for its status."""
    scales = status + LANE_BYTES
    factor(a, x, status)
    substitute(a, x, scales, (True, False, False, False))
    substitute(a, x, scales, (True, True, False, True))


work_on = solve_group
