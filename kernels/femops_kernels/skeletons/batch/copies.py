"""A chunk's copies of dofs that it does not own: their places in the work space, their number.

Both the kernel around the batches (``chunk.py``) and theirs (``batches.py``) have this.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def count(table, starts, chunk):
    """Entries of a chunk in a list given by prefix sums."""
    return word(word(table, starts), chunk + 1) - word(word(table, starts), chunk)


@inner
def copies(table, work):
    """Addresses of the copy of IN, of the former OUT, and of the work space behind them."""
    x_local = work
    kept = x_local + NCOMP_IN * word(table, IN_LOCAL_SIZE) * REAL_BYTES
    return x_local, kept, kept + NCOMP_OUT * word(table, OUT_LOCAL_SIZE) * REAL_BYTES
