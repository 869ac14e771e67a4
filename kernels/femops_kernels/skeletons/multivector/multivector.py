"""A chunk of elements for a group of vectors.

Chunks own dofs as in ``chunk.py``: results for dofs that other chunks own go to the chunk's piece
of a buffer, which ``combine`` adds up by ascending chunk.  An element is done for all vectors of
the group before the next: its numbers are read once, and rows of many vectors are whole pieces of
memory.  A vector's result depends neither on the groups nor on who works on them.

Entry points as in ``chunk.py``, with a task in place of a chunk: ``chunk * NGROUPS + group``.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import fill, fma, get, half_word, load, put, store, word
from femops_kernels.simd.rows import ROW_WORD, bits_of, byte, set_word
from femops_kernels.skeletons.batch.batch import batch
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.broadcast import *
from femops_kernels.skeletons.multivector.rows_ahead import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>

ALL_SLOTS = 2**LANE_WIDTH - 1
LISTS = (ROWS_IN + 2 * ROWS_OUT) * ROW_WORD  # bytes of an element's lists of rows


@inner
def rows_in(table, x, chunk, e, rows):
    """List the addresses of the rows of x that an element reads, (component, node)."""
    starts, size = word(table, IN_STARTS) + e * NODES_IN * 4, word(table, ROW_BYTES)
    begin = word(word(table, IN_OWNED_START), chunk)
    owned = word(word(table, IN_OWNED_START), chunk + 1) - begin
    nonowned = word(table, IN_NONOWNED_DOFS)
    nonowned += (word(word(table, IN_NONOWNED_START), chunk) - owned) * 8
    ghosts, first = word(table, IN_GHOSTS_FROM), word(table, IN_GHOSTS)
    cleared, zeros = word(table, CLEARED), word(table, ZEROS)
    for j in range(NODES_IN):
        k = half_word(starts, j)
        dof = begin + k if k < owned else word(nonowned, k)
        ghost = dof >= ghosts
        base, row = (first, (dof - ghosts) * NCOMP_IN) if ghost else (x, dof * NCOMP_IN)
        for c in range(NCOMP_IN):
            at = base + (row + c) * size
            if cleared != 0 and not ghost and byte(cleared, row + c) != 0:
                at = zeros
            set_word(rows, c * NODES_IN + j, at)


@inner
def rows_out(table, y, chunk, e, beta, reads, writes, spare):
    """List the rows of y or of the buffer that an element adds to: where from, and where to.

    A row that is met first is not read, but begins with zeros; the result of a constrained one goes
    to a spare row.
    """
    starts, size = word(table, OUT_STARTS) + e * NODES_OUT * 4, word(table, ROW_BYTES)
    begin = word(word(table, OUT_OWNED_START), chunk)
    owned = word(word(table, OUT_OWNED_START), chunk + 1) - begin
    slot = word(word(table, OUT_NONOWNED_START), chunk) - owned
    nonowned, buffer = word(table, OUT_NONOWNED_DOFS), word(table, BUFFER)
    new = word(word(table, OUT_ELEMENT_START), e)
    constrained, zeros = word(table, CONSTRAINED), word(table, ZEROS)
    ghosts = word(table, OUT_GHOSTS_FROM)
    for j in range(NODES_OUT):
        k = half_word(starts, j)
        mine = k < owned
        dof = begin + k if mine else word(nonowned, slot + k)
        for c in range(NCOMP_OUT):
            at = y + (dof * NCOMP_OUT + c) * size
            if not mine:
                at = buffer + ((slot + k) * NCOMP_OUT + c) * size
            there = at
            if mine and beta == 0.0 and dof >= new:
                there = zeros
            if constrained != 0 and dof < ghosts and byte(constrained, dof * NCOMP_OUT + c) != 0:
                there, at = zeros, spare
            set_word(reads, c * NODES_OUT + j, there)
            set_word(writes, c * NODES_OUT + j, at)


@inner
def group_range(table, group):
    """First and last block of vectors of a group; the last of all begins at its end less a lane."""
    blocks = -(-word(table, NVEC) // LANE_WIDTH)
    groups = word(table, NGROUPS)
    return blocks * group // groups, blocks * (group + 1) // groups


@inner
def block(table, k):
    """Byte of a row at which a block of vectors begins, and which of its slots are in use."""
    end, nvec = (k + 1) * LANE_WIDTH, word(table, NVEC)
    if end <= nvec:
        return k * LANE_BYTES, ALL_SLOTS
    # some slots were done with the block before
    return (nvec - LANE_WIDTH) * REAL_BYTES, (ALL_SLOTS << (end - nvec)) & ALL_SLOTS


@inner
def lists_of(start):
    """The lists of an element's rows: read, read before they are added to, written."""
    reads = start + ROWS_IN * ROW_WORD
    return start, reads, reads + ROWS_OUT * ROW_WORD


@inner
def list_rows(table, x, y, chunk, e, beta, start, spare):
    """Make the lists of an element's rows."""
    ins, reads, writes = lists_of(start)
    rows_in(table, x, chunk, e, ins)
    rows_out(table, y, chunk, e, beta, reads, writes, spare)


@inner
def columns(table, group):
    """First number of a row that belongs to a group, and the end."""
    first, end = group_range(table, group)
    return first * LANE_WIDTH, min(end * LANE_WIDTH, word(table, NVEC))


@inner
def clear_buffer(table, chunk, group):
    """Set the group's part of the chunk's piece of the buffer to zero."""
    start, size = word(table, OUT_NONOWNED_START), word(table, ROW_BYTES)
    first, end = columns(table, group)
    for k in range(word(start, chunk) * NCOMP_OUT, word(start, chunk + 1) * NCOMP_OUT):
        row = word(table, BUFFER) + k * size
        for i in range(first, end):
            put(LANE, row, i, 0.0)


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def sweep(table, x, y, task, work, alpha, beta):
    """One chunk for one group."""
    chunk, group = task // word(table, NGROUPS), task % word(table, NGROUPS)
    clear_buffer(table, chunk, group)
    given = work + word(table, ROW_BYTES)
    here = given + NUMBER_LANES * LANE_BYTES
    then = here + LISTS
    lanes = -(-(then + LISTS) // 64) * 64
    factor, (first, end) = bits_of(alpha), group_range(table, group)
    elements = word(table, FIRST_ELEMENT)
    begin, stop = word(elements, chunk), word(elements, chunk + 1)
    list_rows(table, x, y, chunk, begin, beta, here, work)
    for e in range(begin, stop):
        if e + 1 < stop:
            list_rows(table, x, y, chunk, e + 1, beta, then, work)
        element_numbers(table, e, given)
        for k in range(first, end):
            offset, mask = block(table, k)
            ins, reads, writes = lists_of(here)
            next_ins, (ahead, _) = ins, block(table, k + 1)
            if k + 1 == end:
                next_ins, (ahead, _) = then, block(table, first)
            rows = next_ins, ahead + LANE_BYTES - 1, writes, offset + LANE_BYTES - 1
            if not (ASK_BY_LINE or ASK_BY_PLANE):
                ask_ahead(rows, 0, 1)
            batch(table, given, (ins, offset, mask), (reads, writes, offset, factor), lanes, rows)
        here, then = then, here


@inner
def add_row(source, target, first, end):
    """Add numbers of a row to those of another."""
    whole = first + (end - first) // LANE_WIDTH * LANE_WIDTH
    for i in range(first // LANE_WIDTH, whole // LANE_WIDTH):
        store(LANE, target, i, load(LANE, target, i) + load(LANE, source, i))
    for i in range(whole, end):
        put(LANE, target, i, get(LANE, target, i) + get(LANE, source, i))


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def combine(table, x, y, task, work, alpha, beta):
    """Add what other chunks have for the chunk's dofs; then the constrained rows."""
    chunk, group = task // word(table, NGROUPS), task % word(table, NGROUPS)
    size, (first, end) = word(table, ROW_BYTES), columns(table, group)
    starts, buffer = word(table, COMBINE_START), word(table, BUFFER)
    dofs, slots = word(table, COMBINE_DOF), word(table, COMBINE_SLOT)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        for c in range(NCOMP_OUT):
            row = buffer + (word(slots, k) * NCOMP_OUT + c) * size
            add_row(row, y + (word(dofs, k) * NCOMP_OUT + c) * size, first, end)
    kept, rows = word(table, KEPT_START), word(table, KEPT)
    keep = alpha * get(LANE, word(table, KEEP), 0)
    for k in range(word(kept, chunk), word(kept, chunk + 1)):
        source, target = x + word(rows, k) * size, y + word(rows, k) * size
        for i in range(first, end):
            value = keep * get(LANE, source, i) if keep != 0.0 else 0.0
            put(LANE, target, i, value if beta == 0.0 else get(LANE, target, i) + value)
