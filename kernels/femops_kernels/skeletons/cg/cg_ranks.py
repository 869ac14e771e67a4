"""The vector updates of conjugate gradients, separately: ranks add up their sums in between.

The loops, which threads share, are in what is called.
"""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.skeletons.cg.cg_vectors import direction, dot, settle, start, step

# </defaults>


@entry("void(intp)", thorough=False)
def begin(table):
    """Set r = b - r (r holds A x) and p = M r; sums r.M r and r.r."""
    start(table)


@entry("void(intp)", thorough=False)
def curvature(table):
    """Sums of the inner product of p and A p."""
    dot(table)


@entry("void(intp, float64)", thorough=False)
def move(table, alpha):
    """Update x += alpha p and r -= alpha A p; sums r.M r and r.r."""
    step(table, alpha)


@entry("void(intp, float64)", thorough=False)
def turn(table, beta):
    """Set p = M r + beta p."""
    direction(table, beta)


@entry("void(intp)", thorough=False)
def catch_up(table):
    """Do the updates of x and r that are due; sums r.M r and r.r."""
    settle(table)
