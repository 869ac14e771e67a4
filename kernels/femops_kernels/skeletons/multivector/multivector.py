"""A chunk of elements for a group of vectors, lane by lane of vectors.

An element is done for all vectors of the group before the next: its numbers are read once, and rows
of many vectors are whole pieces of memory.  See ``vector_rows.py`` for the entry points.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import word
from femops_kernels.simd.rows import ROW_WORD, bits_of
from femops_kernels.skeletons.batch.batch import WORK_LANES, batch
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.broadcast import *
from femops_kernels.skeletons.multivector.rows_ahead import *
from femops_kernels.skeletons.multivector.vector_groups import *
from femops_kernels.skeletons.multivector.vector_hanging import *
from femops_kernels.skeletons.multivector.vector_rows import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>

# Blocks between the block whose rows are prefetched and the block that is worked on: ROWS_AHEAD
# rows take as long as memory does. The rows that a large element writes are prefetched when it
# begins, because earlier they would be pushed out of the cache.
BLOCKS_AHEAD = min(16, max(1, ROWS_AHEAD // ROWS_IN))
AHEAD = BLOCKS_AHEAD > 1  # with the rows that are written
ALL_SLOTS = 2**LANE_WIDTH - 1
ROOM = WORK_LANES * LANE_BYTES  # bytes before the room of hanging entities
if HANGING:
    WORK_LANES += HANGING_LANES
ENOUGH_BLOCKS = 8  # blocks of a row from which one more costs less than split cache lines


@inner
def skipped_numbers(table, y):
    """Numbers by which the first block begins before the row, so that lanes are aligned.

    Zero if that would add a block to few, or if rows begin at different places of a lane.
    """
    skipped, nvec = y % LANE_BYTES // REAL_BYTES, word(table, NVEC)
    added = (nvec + skipped + LANE_WIDTH - 1) // LANE_WIDTH > (nvec + LANE_WIDTH - 1) // LANE_WIDTH
    apart = word(table, ROW_BYTES) % LANE_BYTES != 0
    if added and (apart or nvec < ENOUGH_BLOCKS * LANE_WIDTH):
        skipped = 0
    return skipped


@inner
def block(table, k, skipped):
    """Byte of a row at which block k of vectors begins, and a mask of the slots that are in use."""
    end, nvec = (k + 1) * LANE_WIDTH - skipped, word(table, NVEC)
    if end < LANE_WIDTH:  # the next block does the other slots
        return 0, ALL_SLOTS >> skipped
    if end <= nvec:
        return (end - LANE_WIDTH) * REAL_BYTES, ALL_SLOTS
    # some slots were done with the block before
    return (nvec - LANE_WIDTH) * REAL_BYTES, (ALL_SLOTS << (end - nvec)) & ALL_SLOTS


@inner
def block_ahead(table, here, then, k, blocks):
    """Return the lists of rows to prefetch after block k, the byte in these rows, and the block.

    ``blocks`` are the first block, the end and the numbers skipped.
    """
    first, end, skipped = blocks
    k += min(BLOCKS_AHEAD, end - first)
    if k < end:
        return here, block(table, k, skipped)[0], k
    return then, block(table, first + k - end, skipped)[0], first + k - end


@inner
def each_block(table, e, given, here, then, blocks, factor, lanes):
    """Apply the operator to one element, block by block of vectors."""
    first, end, skipped = blocks
    hanging = number_hanging(table, e) if HANGING else 0
    if HANGING and hanging > 0:
        copy_lists(here, lanes + ROOM)
    reads = here + ROWS_IN * ROW_WORD
    writes = reads + ROWS_OUT * ROW_WORD
    for k in range(first, end):
        offset, mask = block(table, k, skipped)
        asked, begin, number = block_ahead(table, here, then, k, blocks)
        rows = asked, begin, number == first, writes, offset, k == first
        if AHEAD:
            to_write = asked + (ROWS_IN + ROWS_OUT) * ROW_WORD
            rows = asked, begin, number == first, to_write, begin, number == first
        if not (ASK_BY_LINE or ASK_BY_PLANE):
            ask_ahead(rows, 0, 1)
        source, target = (here, offset, mask), (reads, writes, offset, mask, factor)
        if HANGING and hanging > 0:
            begin_block_of(table, e, here, offset, lanes + ROOM)
        batch(table, given, source, target, lanes, rows)
        if HANGING and hanging > 0:
            end_block_of(table, e, offset, mask, lanes + ROOM)


@entry
def sweep(table, x, y, task, work, alpha: float, beta: float):
    """Apply the operator to one chunk, for one group of vectors."""
    chunk, group = task // word(table, NGROUPS), task % word(table, NGROUPS)
    x, y = panel_of(table, group, x, y)
    skipped = skipped_numbers(table, y)
    columns = group_columns(table, group, skipped)
    clear_buffers(table, group, chunk, columns[0], columns[1])
    blocks = (*group_blocks(table, group, skipped), skipped)
    given = work + word(table, ROW_BYTES)
    here = given + NUMBER_LANES * LANE_BYTES
    then = here + LISTS
    lanes = -(-(then + LISTS) // 64) * 64
    elements = word(table, FIRST_ELEMENT)
    begin, stop = word(elements, chunk), word(elements, chunk + 1)
    list_rows(table, x, y, group, chunk, begin, beta, here, work)
    for e in range(begin, stop):
        if e + 1 < stop:
            list_rows(table, x, y, group, chunk, e + 1, beta, then, work)
        element_numbers(table, e, given)
        each_block(table, e, given, here, then, blocks, bits_of(alpha), lanes)
        here, then = then, here
