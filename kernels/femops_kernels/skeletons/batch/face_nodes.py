"""Nodes of the elements behind a batch of faces, read at once in the order of the elements.

The nodes of an element are read in long pieces (``pieces.py``), in the order of the element. In
this order the lines of nodes that lead inwards from the face have strides. The batch's entry of the
table of turns has four numbers: the first node, and the strides along the face's two directions and
inwards. They stand there once for all slots, and then for each slot. Before them stands a
flag: it is 1 if the elements in the slots lie differently. Then the nodes are turned to the faces.

Where the basis allows it, only some layers of nodes next to the face are read
(``side.runs.layers``). For these the entry has the element's direction inwards, and for each slot
the distance of its blocks of nodes. Elements that the chunk does not own have been copied, without
the nodes between the blocks.

The work arrays, in lane vectors, are ``nodes`` and ``spare`` (components, nodes). They have room
for the largest side. Results that ``by_element.py`` keeps are elsewhere, and are reordered by way
of the same ``spare``.
"""

# <defaults>
from femops_kernels.simd.blocks import gather_block, moved, scatter_block, slot_words
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lanes import get, load, put, store, word
from femops_kernels.simd.lines import load_line, store_line
from femops_kernels.skeletons.batch.pieces import gather_runs, scatter_runs, target_of
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

MOST_NODES_OF_SIDE = max([side.ncomp * side.num_nodes for side in (*SOURCES, *TARGETS)])
NODE_LANES = 2 * MOST_NODES_OF_SIDE
STRIDES = 4
INWARDS, APART, FIRST_SLOT = 1 + STRIDES, 2 + STRIDES, 3 + STRIDES
STEPS = FIRST_SLOT + STRIDES * LANE_WIDTH
TURN_BYTES = 8 * (STEPS + LANE_WIDTH)
DIRECTIONS = (0, 1, 2)[:DIM]


@inner
def spare_of(nodes):
    """Address of the room in which nodes are turned."""
    return nodes + MOST_NODES_OF_SIDE * LANE_BYTES


@inner
def move_slots(nodes, turned, side, turns, back):
    """Copy nodes in the order of each slot's element to ``turned``, turned to the face, or back.

    Layer after layer, as the nodes of all slots are often too many for the first-level cache.
    """
    p1, p2 = side.p1d if DIM > 1 else 1, side.p1d if DIM > 2 else 1
    for c in range(side.ncomp):
        first = c * side.p1d**DIM
        for j3 in range(side.p1d):
            for slot in range(LANE_WIDTH):
                at = FIRST_SLOT + STRIDES * slot
                layer = first + word(turns, at) + j3 * word(turns, at + 3)
                along_1, along_2 = word(turns, at + 1), word(turns, at + 2)
                for j2 in range(p2):
                    for j1 in range(p1):
                        there = (layer + j2 * along_2 + j1 * along_1) * LANE_WIDTH + slot
                        here = (first + (j3 * p2 + j2) * p1 + j1) * LANE_WIDTH + slot
                        if back:
                            put(LANE, nodes, there, get(LANE, turned, here))
                        else:
                            put(LANE, turned, here, get(LANE, nodes, there))


@traced
def turn_to_faces(nodes, side, turns):
    """Copy the nodes of each slot to the spare room, turned from the element to its face."""
    move_slots(nodes, spare_of(nodes), side, turns, False)


@traced
def turn_back(kept, spare, side, turns):
    """Turn the nodes of each slot from its face to the element's order, by way of ``spare``."""
    for k in range(side.ncomp * side.p1d**DIM):
        store(LANE, spare, k, load(LANE, kept, k))
    move_slots(kept, spare, side, turns, True)


@inner
def turns_in(table, side, b):
    """Address of a batch's entry in the table of turns of a field."""
    return word(table + side.block * BLOCK_BYTES, IN_TURNS) + b * TURN_BYTES


@inner
def turns_out(table, side, b):
    """Address of a batch's entry in the table of turns of a test function."""
    return word(table + side.block * BLOCK_BYTES, OUT_TURNS) + b * TURN_BYTES


@inner
def move_blocks(vector, side, nodes, turns, blocks, move):
    """Read blocks of nodes of all slots, or add to them: ``move``.

    Their distance is that of ``blocks`` if all slots have it, else the slot's own.
    """
    starts, number = slot_words(LANE, vector, 0), side.ncomp * REAL_BYTES
    given = LANE, blocks.size, side.ncomp, side.num_nodes
    if blocks.dense or word(turns, APART) == 0:
        for k in range(blocks.count):
            at = (blocks.first + k * blocks.stride) * number
            move(*given, starts, at, nodes + (blocks.first + k * blocks.size) * LANE_BYTES)
    else:
        steps = slot_words(LANE, turns, STEPS)
        for k in range(blocks.count):
            move(*given, starts, 0, nodes + k * blocks.size * LANE_BYTES)
            starts = moved(starts, steps, number)


@traced
def move_layers(vector, side, nodes, turns, move):
    """Read the layers of nodes of a side, in the order of the element, or add to them: ``move``."""
    for inwards in DIRECTIONS:
        if word(turns, INWARDS) == inwards:
            for blocks in side.runs.layer_blocks(inwards):
                move_blocks(vector, side, nodes, turns, blocks, move)


@traced
def move_turned_layers(vector, side, nodes, turns, move):
    """As `move_layers`, of elements that lie differently: their nodes are turned to the faces."""
    p1, p2 = side.p1d if DIM > 1 else 1, side.p1d if DIM > 2 else 1
    for slot in range(LANE_WIDTH):
        at, start = FIRST_SLOT + STRIDES * slot, word(vector, slot)
        for c in range(side.ncomp):
            for j3 in range(side.layers):
                for j2 in range(p2):
                    for j1 in range(p1):
                        node = word(turns, at) + j1 * word(turns, at + 1)
                        node += j2 * word(turns, at + 2) + j3 * word(turns, at + 3)
                        there = node * side.ncomp + c
                        here = (c * side.num_nodes + (j3 * p2 + j2) * p1 + j1) * LANE_WIDTH + slot
                        if move is scatter_block:
                            total = get(LANE, start, there) + get(LANE, nodes, here)
                            put(LANE, start, there, total)
                        else:
                            put(LANE, nodes, here, get(LANE, start, there))


@inner
def move_near_nodes(vector, side, nodes, turns, move):
    """Read the layers of nodes of a side, or add to them: ``move``."""
    if word(turns, 0) != 0:
        move_turned_layers(vector, side, nodes, turns, move)
    else:
        move_layers(vector, side, nodes, turns, move)


@inner
def read_nodes(x, side, nodes, turns):
    """Read the nodes of a field. If elements lie differently, turn them.

    All nodes of an element are turned into the spare room.
    """
    if side.runs.layers:
        move_near_nodes(x, side, nodes, turns, gather_block)
    else:
        gather_runs(x, side, nodes, side.p1d**2, side.p1d**DIM)
        if word(turns, 0) != 0:
            turn_to_faces(nodes, side, turns)


@inner
def first_of_line(side, turns, c, j1, j2):
    """Position of the first node of the line that leads inwards from node (j1, j2)."""
    return c * side.num_nodes + word(turns, 1) + j1 * word(turns, 2) + j2 * word(turns, 3)


@inner
def line_inwards(x, side, nodes, turns, c, j1, j2):
    """Load the line of a field's nodes that leads inwards from node (j1, j2) of the face."""
    first = first_of_line(side, turns, c, j1, j2)
    if not side.runs.layers:
        first += word(turns, 0) * MOST_NODES_OF_SIDE
    return load_line(LANE, nodes, first, word(turns, 4), side.layers)


@inner
def results_of(y, side, nodes):
    """Address where the results of a test function are collected before they are added to y."""
    return target_of(y, side) if BY_ELEMENT else nodes


@inner
def keep_inwards(y, side, nodes, turns, c, j1, j2, line):
    """Store the results of the line that leads inwards from node (j1, j2) of the face."""
    store_line(LANE, nodes, first_of_line(side, turns, c, j1, j2), word(turns, 4), line)


@inner
def add_nodes(y, side, kept, nodes, turns):
    """Add the results of a test function, which are ``kept``, unless ``by_element.py`` does it."""
    if side.runs.layers:
        move_near_nodes(target_of(y, side), side, kept, turns, scatter_block)
    else:
        if word(turns, 0) != 0:
            turn_back(kept, spare_of(nodes), side, turns)
        if not BY_ELEMENT:
            scatter_runs(target_of(y, side), side, kept, side.p1d**2, side.p1d**DIM)
