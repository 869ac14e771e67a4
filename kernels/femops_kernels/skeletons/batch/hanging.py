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
def node_of(info, entity, a, b):
    """Address of a node's numbers, and the place of its run among all slots' places."""
    entry = word(info, 2) + node_at(info, entity, a, b) * 24
    return entry, word(entry, 0) * LANE_WIDTH + entity % 256


@traced
def interpolate_entity(side, halves, info, entity, rows, back):
    """Multiply the nodes of an entity, (second, first direction) in ``rows``, along both.

    The result, (first, second direction), stands behind the rows. ``back`` is for the transpose.
    """
    p, lanes = side.shape[0], row_lanes(side)
    numbers, result = lanes * LANE_WIDTH, rows + p * lanes * LANE_BYTES
    count = across(info, entity)
    first = half_along(info, entity, 4) * (p * p)
    second = half_along(info, entity, 5) * (p * p)
    for v in range(lanes):
        if count == 1:
            store(LANE, result, v, load(LANE, rows, v))
        else:
            for i in range(p):
                total = fill(LANE, 0.0)
                for j in range(p):
                    k = j * p + i if back else i * p + j
                    factor = fill_entry(LANE, halves, second + k)
                    total = fma(factor, load(LANE, rows, j * lanes + v), total)
                store(LANE, result, i * lanes + v, total)
    for b in range(count):
        for a in range(p):
            put(LANE, rows, a * numbers + b, get(LANE, result, b * numbers + a))
    for v in range(lanes):
        for i in range(p):
            total = fill(LANE, 0.0)
            for j in range(p):
                k = j * p + i if back else i * p + j
                factor = fill_entry(LANE, halves, first + k)
                total = fma(factor, load(LANE, rows, j * lanes + v), total)
            store(LANE, result, i * lanes + v, total)


@traced
def read_entity(side, info, entity, kept, rows, c):
    """Read the dofs of a larger entity to rows."""
    p, numbers = side.shape[0], row_lanes(side) * LANE_WIDTH
    for b in range(across(info, entity)):
        for a in range(p):
            entry, place = node_of(info, entity, a, b)
            at = word(entry, 1) * side.ncomp + c
            put(LANE, rows, b * numbers + a, get(LANE, word(kept, place), at))


@traced
def set_aside(side, info, entity, places, nodes, rows, c, zero, moved):
    """Store what `interpolate_entity` leaves, or zeros, in the room, to which places may move."""
    p, lanes = side.shape[0], row_lanes(side)
    numbers, result = lanes * LANE_WIDTH, rows + p * lanes * LANE_BYTES
    own = entity % 256 * (side.all_nodes * side.ncomp)
    for b in range(across(info, entity)):
        for a in range(p):
            entry, place = node_of(info, entity, a, b)
            at = own + word(entry, 2) * side.ncomp + c
            put(LANE, nodes, at, 0.0 if zero else get(LANE, result, a * numbers + b))
            if moved and c == 0:
                start = own + (word(entry, 2) - word(entry, 1)) * side.ncomp
                put_word(places, place, nodes + start * REAL_BYTES)


@traced
def take_results(side, info, entity, nodes, rows, c):
    """Move the results of an entity from the room to rows."""
    p, numbers = side.shape[0], row_lanes(side) * LANE_WIDTH
    own = entity % 256 * (side.all_nodes * side.ncomp)
    for b in range(across(info, entity)):
        for a in range(p):
            entry, _ = node_of(info, entity, a, b)
            at = own + word(entry, 2) * side.ncomp + c
            put(LANE, rows, b * numbers + a, get(LANE, nodes, at))
            put(LANE, nodes, at, 0.0)  # an edge of two entities belongs to the later one


@traced
def add_to_entity(side, info, entity, kept, rows, c):
    """Add what `interpolate_entity` leaves to the dofs of a larger entity."""
    p, lanes = side.shape[0], row_lanes(side)
    numbers, result = lanes * LANE_WIDTH, rows + p * lanes * LANE_BYTES
    for b in range(across(info, entity)):
        for a in range(p):
            entry, place = node_of(info, entity, a, b)
            start, at = word(kept, place), word(entry, 1) * side.ncomp + c
            put(LANE, start, at, get(LANE, start, at) + get(LANE, result, a * numbers + b))


@traced
def keep_places(places, kept, count):
    """Copy places."""
    for k in range(count):
        put_word(kept, k, word(places, k))


@traced
def move_runs(side, info, entity, places, nodes):
    """Set the places of all runs of a slot to its room."""
    slot = entity % 256
    own = nodes + slot * (side.all_nodes * side.ncomp * REAL_BYTES)
    for node in range(side.all_nodes):
        entry = word(info, 2) + node * 24
        start = (word(entry, 2) - word(entry, 1)) * (side.ncomp * REAL_BYTES)
        put_word(places, word(entry, 0) * LANE_WIDTH + slot, own + start)


@traced
def begin_side(side, halves, info, b, places, kept, rows, read):
    """Set aside the hanging entities of a batch: interpolated if they are ``read``, else zero.

    Then do so with elements that have but a part of their faces.
    """
    first, end = entities_of(info, b)
    count = side.num_runs * LANE_WIDTH
    nodes = kept + 2 * place_lanes(side) * LANE_BYTES
    if first < end:
        keep_places(places, kept, count)
        for k in range(first, end):
            entity = word(word(info, 1), k)
            for c in range(side.ncomp):
                if read:
                    read_entity(side, info, entity, kept, rows, c)
                    interpolate_entity(side, halves, info, entity, rows, False)
                set_aside(side, info, entity, places, nodes, rows, c, not read, True)
    first, end = parts_of(info, b)
    if first < end:
        before = kept + place_lanes(side) * LANE_BYTES
        keep_places(places, before, count)
        for k in range(first, end):
            for layer in range(side.shape[0]):
                entity = word(word(info, 5), k) + layer * 256
                for c in range(side.ncomp):
                    if read:
                        read_entity(side, info, entity, before, rows, c)
                        interpolate_entity(side, halves, info, entity, rows, False)
                    set_aside(side, info, entity, places, nodes, rows, c, not read, False)
            move_runs(side, info, word(word(info, 5), k), places, nodes)


@traced
def add_back(side, halves, info, entity, kept, nodes, rows):
    """Add the results at an entity to the dofs, and clear the room."""
    for c in range(side.ncomp):
        take_results(side, info, entity, nodes, rows, c)
        interpolate_entity(side, halves, info, entity, rows, True)
        add_to_entity(side, info, entity, kept, rows, c)


@traced
def end_side(side, halves, info, b, kept, rows):
    """Add the results at the parts and hanging entities of a batch to the dofs, in reverse order.

    What hangs of an element with a part is added to the room first.
    """
    nodes = kept + 2 * place_lanes(side) * LANE_BYTES
    first, end = parts_of(info, b)
    for k in range(first, end):
        for layer in range(side.shape[0]):
            entity = word(word(info, 5), k) + layer * 256
            before = kept + place_lanes(side) * LANE_BYTES
            add_back(side, halves, info, entity, before, nodes, rows)
    first, end = entities_of(info, b)
    for k in range(end - first):
        add_back(side, halves, info, word(word(info, 1), end - 1 - k), kept, nodes, rows)


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
