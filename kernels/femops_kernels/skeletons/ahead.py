"""Asking for the pieces of the vectors that the next chunk copies, while one is worked on."""

# <defaults>
from femops_kernels.lanes import inner, prefetch
from femops_kernels.skeletons.table import *

# </defaults>


@inner
def ask_ahead(ahead, k, asks):
    """Ask for the k-th of so many shares of what the next chunk copies.

    ``ahead`` has two pieces of memory one after the other: address and cache lines.
    """
    for piece in range(0, 4, 2):
        lines = ahead[piece + 1]
        for i in range(k * lines // asks, (k + 1) * lines // asks):
            prefetch(ahead[piece], i * CACHE_LINE, 2)
