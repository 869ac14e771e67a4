"""Prefetching of the rows that the next block of vectors, or the next element, reads and writes."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import prefetch, word
from femops_kernels.skeletons.chunk.defaults import *

# </defaults>

ROWS_IN, ROWS_OUT = NODES_IN * NCOMP_IN, NODES_OUT * NCOMP_OUT  # of an element


@inner
def ask_ahead(ahead, k, asks):
    """Prefetch the k-th of ``asks`` shares of the rows ahead.

    ``ahead`` are lists of the rows read and written, and the byte of a row whose line is asked for.
    """
    for i in range(k * ROWS_IN // asks, (k + 1) * ROWS_IN // asks):
        prefetch(word(ahead[0], i), ahead[2], 2)
    for i in range(k * ROWS_OUT // asks, (k + 1) * ROWS_OUT // asks):
        prefetch(word(ahead[1], i), ahead[2], 2)
