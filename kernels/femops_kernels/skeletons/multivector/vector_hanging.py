"""Hanging entities of an element, for a block of many vectors; see ``batch/hanging.py``.

The lists of rows of such an element are kept. In them, rows of hanging nodes are set to room of the
block's own.
"""

# <defaults>
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lanes import fill, fma, load, store, word
from femops_kernels.simd.lines import fill_entry
from femops_kernels.simd.rows import ROW_WORD, load_row, set_word, store_row
from femops_kernels.skeletons.batch.entities import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.multivector.vector_rows import LISTS, ROWS_IN, ROWS_OUT
from femops_kernels.skeletons.multivector.vector_table import *

# </defaults>

MOST_ALONG = max([side.shape[0] for side in (*SOURCES, *TARGETS)])
PLANE_LANES = MOST_ALONG * MOST_ALONG  # of an entity
# lists of an element's rows; the same before parts; rows of a block that are read to be added to
KEPT_LANES = -(-(2 * LISTS + ROWS_OUT * ROW_WORD) // LANE_BYTES)
HANGING_LANES = KEPT_LANES + 2 * PLANE_LANES + ROWS_IN + ROWS_OUT


@traced
def along_entity(side, halves, values, half, count, across, back):
    """Multiply the nodes (second, first direction) of an entity along one direction, in place."""
    p, other = side.shape[0], values + PLANE_LANES * LANE_BYTES
    step, apart = (p, 1) if across else (1, p)
    for line in range(count):
        for i in range(p):
            total = fill(LANE, 0.0)
            for j in range(p):
                factor = fill_entry(LANE, halves, half + (j * p + i if back else i * p + j))
                total = fma(factor, load(LANE, values, line * apart + j * step), total)
            store(LANE, other, i, total)
        for i in range(p):
            store(LANE, values, line * apart + i * step, load(LANE, other, i))


@traced
def interpolate_nodes(side, halves, at, values, back):
    """Multiply the nodes of an entity along its directions, in place."""
    _, _, count, first, second = at
    if count > 1:
        along_entity(side, halves, values, second, side.shape[0], True, back)
    along_entity(side, halves, values, first, count, False, back)


@inner
def row_number(side, nodes, k, c):
    """Number in the list of rows of the k-th node of an entity."""
    return c * side.num_nodes + word(nodes + k * NODE_BYTES, 2)


@traced
def read_entity(side, halves, info, entity, kept, rows, offset, room, values, read):
    """Interpolate nodes of an entity to the room, and set rows to it; zeros if not ``read``.

    ``kept`` and ``rows`` are the lists of the field's rows, as they were and to be set.
    """
    at = nodes_of(info, entity, side.shape[0])
    _, nodes, count, _, _ = at
    for c in range(side.ncomp):
        if read:
            for k in range(count * side.shape[0]):
                row = word(kept, row_number(side, nodes, k, c))
                store(LANE, values, k, load_row(LANE, row, offset))
            interpolate_nodes(side, halves, at, values, False)
        for k in range(count * side.shape[0]):
            number = row_number(side, nodes, k, c)
            store(LANE, room, number, load(LANE, values, k) if read else fill(LANE, 0.0))
            set_word(rows, number, room + number * LANE_BYTES - offset)


@traced
def read_side(side, halves, info, e, kept, rows, offset, room, values, read):
    """Set aside the hanging entities of an element; see `read_entity`."""
    first, end = entities_of(info, e)
    for k in range(first, end):
        entity = word(word(info, 1), k)
        read_entity(side, halves, info, entity, kept, rows, offset, room, values, read)


@traced
def read_parts(side, halves, info, e, rows, offset, room, values, read):
    """Set aside the nodes of an element that has a part of its face, layer by layer."""
    first, end = parts_of(info, e)
    for k in range(first, end):
        for layer in range(side.shape[0]):
            entity = word(word(info, 5), k) + layer * NEXT_LAYER
            read_entity(side, halves, info, entity, rows, rows, offset, room, values, read)


@traced
def add_entity(side, halves, info, entity, reads, writes, offset, mask, room, values, masked):
    """Add a test function's results at an entity to rows, and clear the room."""
    at = nodes_of(info, entity, side.shape[0])
    _, nodes, count, _, _ = at
    for c in range(side.ncomp):
        for k in range(count * side.shape[0]):
            number = row_number(side, nodes, k, c)
            store(LANE, values, k, load(LANE, room, number))
            store(LANE, room, number, fill(LANE, 0.0))
        if not masked:
            interpolate_nodes(side, halves, at, values, True)
        for k in range(count * side.shape[0]):
            number = row_number(side, nodes, k, c)
            total = load_row(LANE, word(reads, number), offset)
            if not masked:
                total = total + load(LANE, values, k)
            store_row(LANE, word(writes, number), offset, mask, total)
            set_word(reads, number, word(writes, number))  # two entities may have an edge


@traced
def add_side(side, halves, info, e, reads, writes, offset, mask, room, values, masked):
    """Add a test function's results at hanging entities to rows, in reverse order."""
    first, end = entities_of(info, e)
    for k in range(end - first):
        entity = word(word(info, 1), end - 1 - k)
        add_entity(side, halves, info, entity, reads, writes, offset, mask, room, values, masked)


@traced
def add_parts(side, halves, info, e, reads, writes, offset, mask, room, values, masked):
    """Add a test function's results of an element that has a part of its face, layer by layer."""
    first, end = parts_of(info, e)
    for k in range(first, end):
        for layer in range(side.shape[0]):
            each = word(word(info, 5), k) + layer * NEXT_LAYER
            add_entity(side, halves, info, each, reads, writes, offset, mask, room, values, masked)


@inner
def number_hanging(table, e):
    """Number of hanging entities of an element, for all fields and test functions."""
    number = 0
    for side, halves in zip(SOURCES, HALVES_IN, strict=True):
        if halves is not None:
            info = word(table + side.block * BLOCK_BYTES, IN_HANGING)
            number = number + entities_of(info, e)[1] - entities_of(info, e)[0]
            number = number + parts_of(info, e)[1] - parts_of(info, e)[0]
    for side, halves in zip(TARGETS, HALVES_OUT, strict=True):
        if halves is not None:
            info = word(table + side.block * BLOCK_BYTES, OUT_HANGING)
            number = number + entities_of(info, e)[1] - entities_of(info, e)[0]
            number = number + parts_of(info, e)[1] - parts_of(info, e)[0]
    return number


@traced
def copy_lists(lists, copy):
    """Copy the lists of an element's rows."""
    for k in range(ROWS_IN + 2 * ROWS_OUT):
        set_word(copy, k, word(lists, k))


@inner
def begin_block_of(table, e, here, offset, room):
    """Interpolate what hangs of an element's fields, and make room for results."""
    copy_lists(room, here)  # the block before has changed them
    values = room + KEPT_LANES * LANE_BYTES
    nodes, before = values + 2 * PLANE_LANES * LANE_BYTES, 0
    for side, halves, masked in zip(SOURCES, HALVES_IN, MASKED_IN, strict=True):
        if halves is not None:
            info = word(table + side.block * BLOCK_BYTES, IN_HANGING)
            kept, rows = room + before * ROW_WORD, here + before * ROW_WORD
            own = nodes + before * LANE_BYTES
            read_side(side, halves, info, e, kept, rows, offset, own, values, not masked)
            read_parts(side, halves, info, e, rows, offset, own, values, not masked)
        before += side.ncomp * side.num_nodes
    for side, halves in zip(TARGETS, HALVES_OUT, strict=True):
        if halves is not None:
            info = word(table + side.block * BLOCK_BYTES, OUT_HANGING)
            rows, own = here + before * ROW_WORD, nodes + before * LANE_BYTES
            read_side(side, halves, info, e, 0, rows, offset, own, values, False)
            writes = rows + ROWS_OUT * ROW_WORD
            read_side(side, halves, info, e, 0, writes, offset, own, values, False)
            for k in range(side.ncomp * side.num_nodes):  # the lists before parts
                set_word(room + LISTS, before + k, word(rows, k))
                set_word(room + LISTS, before + ROWS_OUT + k, word(writes, k))
            read_parts(side, halves, info, e, rows, offset, own, values, False)
            read_parts(side, halves, info, e, writes, offset, own, values, False)
        before += side.ncomp * side.num_nodes


@inner
def end_block_of(table, e, offset, mask, room):
    """Add the results of what hangs of an element's test functions, for a block of vectors."""
    values, before = room + KEPT_LANES * LANE_BYTES, ROWS_IN
    nodes = values + 2 * PLANE_LANES * LANE_BYTES
    added = room + 2 * LISTS
    for k in range(ROWS_OUT):
        set_word(added, k, word(room, ROWS_IN + k))
    for side, halves, masked in zip(TARGETS, HALVES_OUT, MASKED_OUT, strict=True):
        if halves is not None:
            info = word(table + side.block * BLOCK_BYTES, OUT_HANGING)
            reads, writes = (
                added + (before - ROWS_IN) * ROW_WORD,
                room + (before + ROWS_OUT) * ROW_WORD,
            )
            own = nodes + before * LANE_BYTES
            first = room + LISTS + before * ROW_WORD
            then = first + ROWS_OUT * ROW_WORD
            add_parts(side, halves, info, e, first, then, offset, mask, own, values, masked)
            add_side(side, halves, info, e, reads, writes, offset, mask, own, values, masked)
        before += side.ncomp * side.num_nodes
