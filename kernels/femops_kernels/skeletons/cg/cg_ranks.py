"""Actions of conjugate gradients one by one: ranks add up their sums in between."""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.skeletons.cg.cg_vectors import updated_vectors

# </defaults>


@entry("void(intp, intp)", thorough=False)
def update(table, action):
    """Do an action but for the product of a sweep, and leave sums of segments."""
    updated_vectors(table, action)
