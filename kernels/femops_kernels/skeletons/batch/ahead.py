"""Prefetching of the vectors' pieces that a later batch meets first."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import prefetch
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def ask_ahead(ahead, k, asks):
    """Prefetch the k-th of ``asks`` shares of the pieces ahead.

    ``ahead`` has pieces of memory: address and cache lines of each.
    """
    for begin, lines in ahead:
        for i in range(k * lines // asks, (k + 1) * lines // asks):
            prefetch(begin, i * CACHE_LINE, 2)


ask_reads = ask_ahead


@inner
def ask_writes(ahead, k, asks):
    """Do nothing: ``ask_reads`` prefetches all pieces."""
