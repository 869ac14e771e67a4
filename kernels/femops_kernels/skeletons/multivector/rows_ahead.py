"""Prefetching of the rows that a block of vectors writes, and that the next one reads."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import prefetch, word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_rows import ROWS_IN, ROWS_OUT

# </defaults>


@inner
def ask_ahead(ahead, k, asks):
    """Prefetch the k-th of ``asks`` shares of the rows ahead.

    ``ahead`` are a list of rows read, the byte of these whose cache line is asked for, and the same
    of rows written.
    """
    for i in range(k * ROWS_IN // asks, (k + 1) * ROWS_IN // asks):
        prefetch(word(ahead[0], i), ahead[1], 2)
    for i in range(k * ROWS_OUT // asks, (k + 1) * ROWS_OUT // asks):
        prefetch(word(ahead[2], i), ahead[3], 2)
