"""A chunk's copies of its pieces of the vectors: where they stand in the work space, how long.

Both the kernel that copies (``chunk.py``) and the one that works on the copies (``batches.py``)
have this.
"""

# <defaults>
from femops_kernels.compiling import inner
from femops_kernels.lanes import word
from femops_kernels.skeletons.defaults import *
from femops_kernels.skeletons.table import *

# </defaults>


@inner
def count(table, starts, chunk):
    """Entries of a chunk in a list given by prefix sums."""
    return word(word(table, starts), chunk + 1) - word(word(table, starts), chunk)


@inner
def copies(table, work):
    """Addresses of the copies of IN and of OUT, and of the work space behind them."""
    x_local = work
    y_local = x_local + NCOMP_IN * word(table, IN_LOCAL_SIZE) * REAL_BYTES
    return x_local, y_local, y_local + NCOMP_OUT * word(table, OUT_LOCAL_SIZE) * REAL_BYTES
