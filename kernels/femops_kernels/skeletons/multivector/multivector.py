"""A chunk of elements for a group of vectors, lane by lane of vectors.

An element is done for all vectors of the group before the next: its numbers are read once, and rows
of many vectors are whole pieces of memory.  See ``vector_rows.py`` for the entry points.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import word
from femops_kernels.simd.rows import ROW_WORD, bits_of
from femops_kernels.skeletons.batch.batch import batch
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.broadcast import *
from femops_kernels.skeletons.multivector.rows_ahead import *
from femops_kernels.skeletons.multivector.vector_groups import *
from femops_kernels.skeletons.multivector.vector_rows import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>

# Blocks between one whose rows are asked for and one that is worked on: ROWS_AHEAD rows take
# as long as memory does. Of large elements, what is written is asked for when they begin: else it
# would be pushed out of the cache.
BLOCKS_AHEAD = min(16, max(1, ROWS_AHEAD // ROWS_IN))
ALL_SLOTS = 2**LANE_WIDTH - 1


@inner
def block(table, k):
    """Byte of a row at which block k of vectors begins, and a mask of the slots that are in use."""
    end, nvec = (k + 1) * LANE_WIDTH, word(table, NVEC)
    if end <= nvec:
        return k * LANE_BYTES, ALL_SLOTS
    # some slots were done with the block before
    return (nvec - LANE_WIDTH) * REAL_BYTES, (ALL_SLOTS << (end - nvec)) & ALL_SLOTS


@inner
def block_ahead(table, here, then, k, first, end):
    """Return the lists of rows to prefetch after block k, and the byte in these rows."""
    k += min(BLOCKS_AHEAD, end - first)
    if k < end:
        return here, block(table, k)[0]
    return then, block(table, first + k - end)[0]


@entry
def sweep(table, x, y, task, work, alpha: float, beta: float):
    """Apply the operator to one chunk, for one group of vectors."""
    chunk, group = task // word(table, NGROUPS), task % word(table, NGROUPS)
    x, y, buffer = panel_of(table, group, x, y)
    clear_buffer(table, buffer, chunk, group)
    given = work + word(table, ROW_BYTES)
    here = given + NUMBER_LANES * LANE_BYTES
    then = here + LISTS
    lanes = -(-(then + LISTS) // 64) * 64
    factor, (first, end) = bits_of(alpha), group_blocks(table, group)
    elements = word(table, FIRST_ELEMENT)
    begin, stop = word(elements, chunk), word(elements, chunk + 1)
    list_rows(table, x, y, buffer, chunk, begin, beta, here, work)
    for e in range(begin, stop):
        if e + 1 < stop:
            list_rows(table, x, y, buffer, chunk, e + 1, beta, then, work)
        element_numbers(table, e, given)
        for k in range(first, end):
            offset, mask = block(table, k)
            reads = here + ROWS_IN * ROW_WORD
            writes = reads + ROWS_OUT * ROW_WORD
            asked, last = block_ahead(table, here, then, k, first, end), LANE_BYTES - 1
            rows = asked[0], asked[1] + last, writes, offset + last
            if BLOCKS_AHEAD > 1:
                to_write = asked[0] + (ROWS_IN + ROWS_OUT) * ROW_WORD
                rows = asked[0], asked[1] + last, to_write, asked[1] + last
            if not (ASK_BY_LINE or ASK_BY_PLANE):
                ask_ahead(rows, 0, 1)
            source, target = (here, offset, mask), (reads, writes, offset, mask, factor)
            batch(table, given, source, target, lanes, rows)
        here, then = then, here
