"""Prefetching of the rows that a block of vectors writes, and that the next one reads.

``ahead`` are a list of rows read, the byte of these rows at which a block begins, whether it is the
first of its rows, and the same three of rows written.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import prefetch, word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_rows import ROWS_IN, ROWS_OUT

# </defaults>


@inner
def ask_rows(rows, begin, is_first, first, end):
    """Prefetch the last cache line of a block in some rows; with the first block both lines.

    With the other blocks the first line was the last of the block before.
    """
    for i in range(first, end):
        prefetch(word(rows, i), begin + LANE_BYTES - 1, 2)
    if is_first:
        for i in range(first, end):
            prefetch(word(rows, i), begin, 2)


@inner
def ask_reads(ahead, k, asks):
    """Prefetch share k of ``asks`` equal shares of the rows that are read."""
    first, end = k * ROWS_IN // asks, (k + 1) * ROWS_IN // asks
    ask_rows(ahead[0], ahead[1], ahead[2], first, end)


@inner
def ask_writes(ahead, k, asks):
    """Prefetch share k of ``asks`` equal shares of the rows that are written."""
    first, end = k * ROWS_OUT // asks, (k + 1) * ROWS_OUT // asks
    ask_rows(ahead[3], ahead[4], ahead[5], first, end)


@inner
def ask_ahead(ahead, k, asks):
    """Prefetch share k of ``asks`` equal shares of the rows that are read or written."""
    ask_reads(ahead, k, asks)
    ask_writes(ahead, k, asks)
