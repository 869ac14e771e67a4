"""Actions of conjugate gradients one by one: ranks add up their sums in between."""

# <defaults>
from femops_kernels.simd.compiling import function
from femops_kernels.skeletons.cg.cg_vectors import updated_vectors

# </defaults>


@function
def update(table, action):
    """Do an action without the product of a sweep, and store the sums of segments."""
    updated_vectors(table, action)
