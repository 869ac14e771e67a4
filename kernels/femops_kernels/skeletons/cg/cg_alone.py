"""Conjugate gradients of one process, the whole iteration compiled."""

# <defaults>
from femops_kernels.simd.compiling import function
from femops_kernels.skeletons.cg.cg import iterations

# </defaults>


@function
def iterate(table, steps, show):
    """Do up to ``steps`` iterations; if ``show``, x is up to date at the end."""
    iterations(table, steps, show != 0)
