"""Hanging entities of a batch's elements: interpolated before the batch, and added back after it.

An element beside a larger one has the larger entity's dofs in the places of its own (see
`femops_meshes.topology.topology.Carriers`). Before a batch, such dofs are interpolated to the nodes
on the element's part of the entity. The nodes are stored in room of the element's own, to which the
places of their runs are then set. So the batch knows nothing of it. Results go to such room too,
and their transpose is added to the dofs. A side that is *masked* reads zeros there, and its results
are dropped.
"""

# <defaults>
from femops_kernels.simd.addresses import PLACE_BYTES
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lanes import fill, fma, get, load, put, put_word, store, word
from femops_kernels.simd.lines import fill_entry
from femops_kernels.skeletons.batch.entities import *
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>


def row_lanes(side):
    """Lane vectors of a row of nodes of an entity."""
    return -(-side.shape[0] // LANE_WIDTH)


def rows_lanes(side):
    """Lane vectors of the two arrays in which an entity is interpolated."""
    return 2 * side.shape[0] * row_lanes(side)


def place_lanes(side):
    """Lane vectors of the places of a side's runs."""
    return side.num_runs * PLACE_BYTES // REAL_BYTES


def room_lanes(side):
    """Lane vectors of a side's room: two lists of places, then the nodes of each slot."""
    return 2 * place_lanes(side) + side.ncomp * side.all_nodes


ROW_LANES = max([rows_lanes(side) for side in (*SOURCES, *TARGETS)])
HANGING_LANES = ROW_LANES + sum([room_lanes(side) for side in (*SOURCES, *TARGETS)])


@inner
def multiply_rows(halves, first, p, lanes, rows, result, back):
    """Multiply rows by the matrix whose entries begin at ``first``; ``back`` for its transpose."""
    for v in range(lanes):
        for i in range(p):
            total = fill(LANE, 0.0)
            for j in range(p):
                factor = fill_entry(LANE, halves, first + (j * p + i if back else i * p + j))
                total = fma(factor, load(LANE, rows, j * lanes + v), total)
            store(LANE, result, i * lanes + v, total)


@traced
def interpolate_entity(side, halves, at, rows, back):
    """Multiply the nodes of an entity, (second, first direction) in ``rows``, along both.

    The result, (first, second direction), stands behind the rows. ``at`` is from `nodes_of`;
    ``back`` is for the transpose.
    """
    _, _, count, first, second = at
    p, lanes = side.shape[0], row_lanes(side)
    numbers, result = lanes * LANE_WIDTH, rows + p * lanes * LANE_BYTES
    if count > 1:
        multiply_rows(halves, second, p, lanes, rows, result, back)
        for b in range(p):
            for a in range(p):
                put(LANE, rows, a * numbers + b, get(LANE, result, b * numbers + a))
    multiply_rows(halves, first, p, lanes, rows, result, back)


@traced
def read_entity(side, at, kept, rows, c):
    """Read the dofs of a larger entity to rows."""
    slot, nodes, count, _, _ = at
    p, numbers = side.shape[0], row_lanes(side) * LANE_WIDTH
    if count > 1:
        for b in range(p):
            for a in range(p):
                node = nodes + (b * p + a) * NODE_BYTES
                start = word(kept, word(node, 0) + slot)
                put(LANE, rows, b * numbers + a, get(LANE, start, word(node, 1) * side.ncomp + c))
    else:
        for a in range(p):
            node = nodes + a * NODE_BYTES
            start = word(kept, word(node, 0) + slot)
            put(LANE, rows, a * numbers, get(LANE, start, word(node, 1) * side.ncomp + c))


@inner
def room_of(side, slot):
    """First number of a slot's nodes in the room."""
    return slot * (side.all_nodes * side.ncomp)


@traced
def set_aside(side, at, room, rows, c):
    """Store what `interpolate_entity` leaves in the room."""
    slot, nodes, count, _, _ = at
    p, numbers, own = side.shape[0], row_lanes(side) * LANE_WIDTH, room_of(side, slot)
    result = rows + p * row_lanes(side) * LANE_BYTES
    for b in range(count):
        for a in range(p):
            position = word(nodes + (b * p + a) * NODE_BYTES, 2)
            put(LANE, room, own + position * side.ncomp + c, get(LANE, result, a * numbers + b))


@traced
def clear_room(side, at, room):
    """Store zeros in the room at the nodes of an entity."""
    slot, nodes, count, _, _ = at
    own = room_of(side, slot)
    for k in range(count * side.shape[0]):
        position = word(nodes + k * NODE_BYTES, 2)
        for c in range(side.ncomp):
            put(LANE, room, own + position * side.ncomp + c, 0.0)


@traced
def take_results(side, at, room, rows, c):
    """Move the results of an entity from the room to rows."""
    slot, nodes, count, _, _ = at
    p, numbers, own = side.shape[0], row_lanes(side) * LANE_WIDTH, room_of(side, slot)
    for b in range(count):
        for a in range(p):
            place = own + word(nodes + (b * p + a) * NODE_BYTES, 2) * side.ncomp + c
            row = b * numbers + a
            if count == 1:
                row = a * numbers
            put(LANE, rows, row, get(LANE, room, place))
            put(LANE, room, place, 0.0)  # an edge of two entities belongs to the later one


@traced
def add_to_entity(side, at, kept, rows, c):
    """Add what `interpolate_entity` leaves to the dofs of a larger entity."""
    slot, nodes, count, _, _ = at
    p, numbers = side.shape[0], row_lanes(side) * LANE_WIDTH
    result = rows + p * row_lanes(side) * LANE_BYTES
    for b in range(count):
        for a in range(p):
            node = nodes + (b * p + a) * NODE_BYTES
            start, place = word(kept, word(node, 0) + slot), word(node, 1) * side.ncomp + c
            total = get(LANE, start, place) + get(LANE, result, a * numbers + b)
            put(LANE, start, place, total)


@inner
def keep_places(side, places, kept):
    """Copy the places of a side's runs, as lane vectors."""
    for k in range(place_lanes(side)):
        store(LANE, kept, k, load(LANE, places, k))


@traced
def move_runs(side, info, entity, places, room):
    """Set the places of an entity's runs to the room."""
    slot, code = entity & 255, code_of(info, entity)
    own, runs = room_of(side, slot), word(info, 6) + word(code, 4) * RUN_BYTES
    for k in range(word(code, 5)):
        run = runs + k * RUN_BYTES
        start = (own + word(run, 1) * side.ncomp) * REAL_BYTES
        put_word(places, word(run, 0) + slot, room + start)


@traced
def fetch(side, halves, info, entity, kept, room, rows, read):
    """Interpolate the dofs of a larger entity to the room if they are ``read``, else clear it."""
    at = nodes_of(info, entity, side.shape[0])
    if read:
        for c in range(side.ncomp):
            read_entity(side, at, kept, rows, c)
            interpolate_entity(side, halves, at, rows, False)
            set_aside(side, at, room, rows, c)
    else:
        clear_room(side, at, room)


@traced
def begin_side(side, halves, info, b, places, kept, rows, read):
    """Set aside the hanging entities of a batch: interpolated if they are ``read``, else zero.

    Then do so with elements that have but a part of their faces.
    """
    first, end = entities_of(info, b)
    room = kept + 2 * place_lanes(side) * LANE_BYTES
    if first < end:
        keep_places(side, places, kept)
        for k in range(first, end):
            entity = word(word(info, 1), k)
            fetch(side, halves, info, entity, kept, room, rows, read)
            move_runs(side, info, entity, places, room)
    first, end = parts_of(info, b)
    if first < end:
        before = kept + place_lanes(side) * LANE_BYTES
        keep_places(side, places, before)
        for k in range(first, end):
            entity = word(word(info, 5), k)
            for layer in range(side.shape[0]):
                each = entity + layer * NEXT_LAYER
                fetch(side, halves, info, each, before, room, rows, read)
            move_runs(side, info, entity, places, room)


@traced
def add_back(side, halves, info, entity, kept, room, rows):
    """Add the results at an entity to the dofs, and clear the room."""
    at = nodes_of(info, entity, side.shape[0])
    for c in range(side.ncomp):
        take_results(side, at, room, rows, c)
        interpolate_entity(side, halves, at, rows, True)
        add_to_entity(side, at, kept, rows, c)


@traced
def end_side(side, halves, info, b, kept, rows):
    """Add the results at the parts and hanging entities of a batch to the dofs, in reverse order.

    What hangs of an element with a part is added to the room first.
    """
    room = kept + 2 * place_lanes(side) * LANE_BYTES
    first, end = parts_of(info, b)
    for k in range(first, end):
        for layer in range(side.shape[0]):
            entity = word(word(info, 5), k) + layer * NEXT_LAYER
            before = kept + place_lanes(side) * LANE_BYTES
            add_back(side, halves, info, entity, before, room, rows)
    first, end = entities_of(info, b)
    for k in range(end - first):
        add_back(side, halves, info, word(word(info, 1), end - 1 - k), kept, room, rows)


@inner
def begin_hanging(table, b, x_places, y_places, room):
    """Interpolate what hangs of a batch's fields, and make room for results."""
    kept = room + ROW_LANES * LANE_BYTES
    for side, halves, masked in zip(SOURCES, HALVES_IN, MASKED_IN, strict=True):
        if halves is not None:
            info = word(table + side.block * BLOCK_BYTES, IN_HANGING)
            places = x_places + side.first_run * LANE_WIDTH * PLACE_BYTES
            begin_side(side, halves, info, b, places, kept, room, not masked)
        kept += room_lanes(side) * LANE_BYTES
    for side, halves in zip(TARGETS, HALVES_OUT, strict=True):
        if halves is not None:
            info = word(table + side.block * BLOCK_BYTES, OUT_HANGING)
            places = y_places + side.first_run * LANE_WIDTH * PLACE_BYTES
            begin_side(side, halves, info, b, places, kept, room, False)
        kept += room_lanes(side) * LANE_BYTES


@inner
def end_hanging(table, b, room):
    """Add the results of what hangs of a batch's test functions."""
    kept = room + (ROW_LANES + sum([room_lanes(side) for side in SOURCES])) * LANE_BYTES
    for side, halves, masked in zip(TARGETS, HALVES_OUT, MASKED_OUT, strict=True):
        if halves is not None and not masked:
            info = word(table + side.block * BLOCK_BYTES, OUT_HANGING)
            end_side(side, halves, info, b, kept, room)
        kept += room_lanes(side) * LANE_BYTES
