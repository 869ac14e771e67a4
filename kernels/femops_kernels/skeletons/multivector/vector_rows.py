"""Rows of many vectors: lists of the rows that an element reads and writes.

Chunks own dofs as in ``chunk.py``. Results for dofs that other chunks own go to the chunk's piece
of a buffer, which ``vector_sums.py`` adds up. The result of a vector depends neither on the groups
of vectors nor on the threads.

Entry points are those of ``chunk.py``, with a task in place of a chunk. The number of a task is
``chunk * NGROUPS + group``.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import half_word, put, word
from femops_kernels.simd.rows import ROW_WORD, byte, set_word
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_groups import *
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>

ROWS_IN = sum([side.ncomp * side.num_nodes for side in SOURCES])  # rows of an element
ROWS_OUT = sum([side.ncomp * side.num_nodes for side in TARGETS])
LISTS = (ROWS_IN + 2 * ROWS_OUT) * ROW_WORD  # bytes of an element's lists of rows


@inner
def rows_in(table, side, x, chunk, e, rows):
    """List the addresses of the rows of x that an element reads of a field, (component, node)."""
    nodes, ncomp = side.num_nodes, side.ncomp
    starts, size = word(table, IN_STARTS) + e * nodes * 4, word(table, ROW_BYTES)
    begin = word(word(table, IN_OWNED_START), chunk)
    owned = word(word(table, IN_OWNED_START), chunk + 1) - begin
    nonowned = word(table, IN_NONOWNED_DOFS)
    nonowned += (word(word(table, IN_NONOWNED_START), chunk) - owned) * 8
    ghosts, first = word(table, IN_GHOSTS_FROM), word(table, IN_GHOSTS)
    cleared, zeros = word(table, CLEARED), word(table, ZEROS)
    x += word(table, IN_ORIGIN)
    for j in range(nodes):
        k = half_word(starts, j)
        dof = begin + k if k < owned else word(nonowned, k)
        ghost = dof >= ghosts
        base, row = (first, (dof - ghosts) * ncomp) if ghost else (x, dof * ncomp)
        for c in range(ncomp):
            at = base + (row + c) * size
            if cleared != 0 and not ghost and byte(cleared, row + c) != 0:
                at = zeros
            set_word(rows, c * nodes + j, at)


@inner
def rows_out(table, side, y, group, chunk, e, beta, rows, spare):
    """List the rows of y or of the buffer to which an element adds: rows to read, then to write.

    A row that no earlier element has touched is not read, but begins with zeros. The result of a
    constrained row goes to a spare row.
    """
    nodes, ncomp, buffer = side.num_nodes, side.ncomp, buffer_of(table, group)
    starts, size = word(table, OUT_STARTS) + e * nodes * 4, word(table, ROW_BYTES)
    begin = word(word(table, OUT_OWNED_START), chunk)
    owned = word(word(table, OUT_OWNED_START), chunk + 1) - begin
    slot = word(word(table, OUT_NONOWNED_START), chunk) - owned
    nonowned, ghosts = word(table, OUT_NONOWNED_DOFS), word(table, OUT_GHOSTS_FROM)
    new = word(word(table, OUT_ELEMENT_START), e)
    constrained, zeros = word(table, CONSTRAINED), word(table, ZEROS)
    y += word(table, OUT_ORIGIN)
    for j in range(nodes):
        k = half_word(starts, j)
        mine = k < owned
        dof = begin + k if mine else word(nonowned, slot + k)
        for c in range(ncomp):
            at = y + (dof * ncomp + c) * size
            if not mine:
                at = buffer + ((slot + k) * ncomp + c) * size
            there = at
            if mine and beta == 0.0 and dof >= new:
                there = zeros
            if constrained != 0 and dof < ghosts and byte(constrained, dof * ncomp + c) != 0:
                there, at = zeros, spare
            set_word(rows, c * nodes + j, there)
            set_word(rows, ROWS_OUT + c * nodes + j, at)


@inner
def list_rows(table, x, y, group, chunk, e, beta, start, spare):
    """Make the lists of an element's rows: rows of x, then the two lists of `rows_out`.

    In each list the fields, or the test functions, follow each other.
    """
    for side in SOURCES:
        rows_in(table + side.block * BLOCK_BYTES, side, x, chunk, e, start)
        start += side.ncomp * side.num_nodes * ROW_WORD
    for side in TARGETS:
        rows_out(table + side.block * BLOCK_BYTES, side, y, group, chunk, e, beta, start, spare)
        start += side.ncomp * side.num_nodes * ROW_WORD


@inner
def clear_buffers(table, group, chunk, first, end):
    """Set columns ``first`` up to ``end`` of the chunk's pieces of all buffers to zero."""
    for side in TARGETS:
        own = table + side.block * BLOCK_BYTES
        start, size, buffer = (
            word(own, OUT_NONOWNED_START),
            word(own, ROW_BYTES),
            buffer_of(own, group),
        )
        for k in range(word(start, chunk) * side.ncomp, word(start, chunk + 1) * side.ncomp):
            row = buffer + k * size
            for i in range(first, end):
                put(LANE, row, i, 0.0)
