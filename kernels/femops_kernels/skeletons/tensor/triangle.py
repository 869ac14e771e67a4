"""Solve with one triangle."""

# <defaults>
from femops_kernels.skeletons.tensor.triangular import *

TRIANGLE = (True, False, False, False)  # see `substitute`
# </defaults>


@inner
def work_on(t, x, status):
    """Solve a group; its status is the first row, from 1, whose diagonal is zero."""
    substitute(t, x, status, TRIANGLE)
