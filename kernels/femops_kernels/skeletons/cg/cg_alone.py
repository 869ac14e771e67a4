"""Conjugate gradients of one process, the whole iteration compiled."""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.skeletons.cg.cg import iterations

# </defaults>


@entry("void(intp, intp, intp)", thorough=False)
def iterate(table, steps, show):
    """Do up to ``steps`` iterations; if ``show``, x is up to date at the end."""
    iterations(table, steps, show != 0)
