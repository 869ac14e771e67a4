"""Prefetching of the vectors' pieces that a later batch meets first."""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import prefetch
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def ask_ahead(ahead, k, asks):
    """Prefetch share k of ``asks`` equal shares of each piece of memory in ``ahead``.

    ``ahead`` has the address and the number of cache lines of each piece.
    """
    for begin, lines in ahead:
        for i in range(k * lines // asks, (k + 1) * lines // asks):
            prefetch(begin, i * CACHE_LINE, 2)


ask_reads = ask_ahead


@inner
def ask_writes(ahead, k, asks):
    """Do nothing: ``ask_reads`` prefetches all pieces."""
