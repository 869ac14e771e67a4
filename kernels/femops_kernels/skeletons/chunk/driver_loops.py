"""Loops over the chunks of a term, shared by a team of threads.

Kernels come as addresses, so this is compiled once for all of them.  A team is an address too, see
`femops_kernels.simd.threads`; 0 is the calling thread alone.
"""

# <defaults>
from femops_kernels.simd.compiling import shared
from femops_kernels.simd.lanes import word
from femops_kernels.simd.lines import call_chunk

# </defaults>


@shared
def sweep_chunks(c, thread, row, source, target, work, work_bytes, alpha, beta):
    """Apply a term to each chunk. Every thread has its own work space."""
    own = work + thread * work_bytes
    call_chunk(word(row, 0), word(row, 2), source, target, c, own, alpha, beta)


@shared
def sweep_ordered(k, thread, row, source, target, work, work_bytes, order, alpha, beta):
    """Apply a term to the chunks in the list ``order``."""
    own = work + thread * work_bytes
    call_chunk(word(row, 0), word(row, 2), source, target, word(order, k), own, alpha, beta)


@shared
def combine_chunks(c, thread, row, source, target, work, alpha, beta):
    """Add the contributions to other chunks' dofs, which the chunks have left in the buffer."""
    call_chunk(word(row, 1), word(row, 2), source, target, c, work, alpha, beta)
