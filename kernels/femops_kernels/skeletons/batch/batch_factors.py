"""One batch of elements whose functions, and points, are products of those of two factors.

The factors are a *base*, as the triangle of a prism, with tables, and a *line* with 1-D matrices.
A field is contracted along the line first: each point of the line then has a layer of the base's
functions, with values and with derivatives along the line. Tables of the base multiply layer by
layer. In ``batch_table.py``, to which this is added, the base is the whole element.

Products of functions stand in ``lines`` with those of the line fastest, and points with those of
the base fastest. A table leaves out its last rows of zeros.

Work arrays, in lane vectors: ``nodes`` of all components, as they are gathered, then ``lines`` of
one component; ``layers`` (LAYERS, functions of the base) of values, then of derivatives along the
line; ``into`` and ``out`` as in ``batch_table.py``, which are one array where they are alike.
"""

# <defaults>

from femops_kernels.simd.addresses import gather_nodes, scatter_nodes
from femops_kernels.simd.compiling import inner, traced
from femops_kernels.simd.lane_math import add_lines
from femops_kernels.simd.lanes import fill, load, store, word
from femops_kernels.simd.lines import contract, load_line, store_line
from femops_kernels.simd.matrix import Tiles
from femops_kernels.skeletons.batch.batch_table import *
from femops_kernels.skeletons.batch.geometry import *
from femops_kernels.skeletons.batch.map_table import *
from femops_kernels.skeletons.batch.pieces import *
from femops_kernels.skeletons.chunk.copies import places_of
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

LAYERS = 2  # points of the line
# for each field the node of each product; values and derivatives (points, functions) of the line;
# for values and for each derivative that is read a table of the base, (points, functions), and
# whether it multiplies derivatives along the line. For each test function the transposes.
NODES_IN = NODES_OUT = ((0, 1, 2, 3, 4, 5, 6, 7),)
LINES_IN = LINES_OUT = ((B, D),)
FACTORS_IN = FACTORS_OUT = (((Tiles(((1.0,) * 4,) * 4, 4), False),),)

# </defaults>

BASE = POINTS // LAYERS
IN_PLACE = (NCOMP_IN, VALUE_IN, GRAD_IN) == (NCOMP_OUT, VALUE_OUT, GRAD_OUT)
MOST_ROWS = max([0] + [t.count * t.size for kinds in FACTORS_IN for t, _ in kinds])
SPAN_IN = KINDS_IN * POINTS + max(MOST_ROWS - BASE, 0)
SPAN_OUT = SPAN_IN if IN_PLACE else KINDS_OUT * POINTS
MOST_GATHERED = max([side.ncomp * side.num_nodes for side in (*SOURCES, *TARGETS)])
MOST_NODES_OF_SIDE = MOST_GATHERED + max([len(order) for order in (*NODES_IN, *NODES_OUT)])
LAYER_LANES = LAYERS * max(
    [t.columns for kinds in FACTORS_IN for t, _ in kinds]
    + [t.count * t.size for kinds in FACTORS_OUT for t, _ in kinds],
    default=0,
)
MOST_MODES = 2 * LAYER_LANES
OUT_LANES = 0 if IN_PLACE else NCOMP_OUT * SPAN_OUT
WORK_LANES = MOST_NODES_OF_SIDE + MOST_MODES + NCOMP_IN * SPAN_IN + OUT_LANES


@inner
def to_layers(matrix, count, lines, layers):
    """Contract the lines of all functions of the base."""
    for j in range(count):
        line = load_line(LANE, lines, j * matrix.shape[1], 1, matrix.shape[1])
        store_line(LANE, layers, j, count, contract(matrix, line))


@traced
def layers_to_points(tiles, matrix, layers, target):
    """Multiply all layers by a table of the base. Other points are zero."""
    for k in range(matrix.shape[0]):
        at = target + k * BASE * LANE_BYTES
        multiply(tiles, layers + k * tiles.columns * LANE_BYTES, at, False)
        for i in range(tiles.count * tiles.size, BASE):
            store(LANE, at, i, fill(LANE, 0.0))
    for i in range(matrix.shape[0] * BASE, POINTS):
        store(LANE, target, i, fill(LANE, 0.0))


@inner
def to_points(along, slopes, kinds, count, lines, layers, into):
    """Compute values and derivatives of one component at the points."""
    sloped = layers + LAYER_LANES * LANE_BYTES
    to_layers(along, count, lines, layers)
    if GRAD_IN:
        to_layers(slopes, count, lines, sloped)
    for kind, (tiles, turned) in enumerate(kinds):
        matrix, source = (slopes, sloped) if turned else (along, layers)
        layers_to_points(tiles, matrix, source, into + kind * POINTS * LANE_BYTES)


@inner
def gathered(places, side, order, nodes, lines, c):
    """Put the nodes of a component into the order of products of functions."""
    if by_pieces(side):
        for place, node in enumerate(order):
            store(LANE, lines, place, load(LANE, nodes, c * side.num_nodes + node))
    else:
        line = gather_nodes(LANE, side.runs, side.ncomp, places, 0, 0, c)
        store_line(LANE, lines, 0, 1, tuple([line[node] for node in order]))


@inner
def fields_at_points(x, nodes, into):
    """Compute values and derivatives of all fields at the points."""
    lines, layers = nodes + MOST_GATHERED * LANE_BYTES, nodes + MOST_NODES_OF_SIDE * LANE_BYTES
    given = zip(SOURCES, NODES_IN, LINES_IN, FACTORS_IN, strict=True)
    for side, order, (along, slopes), kinds in given:
        places, size = places_of(x, side), side.num_nodes
        if by_pieces(side):
            gather_runs(places, side, nodes, size, size)
        for c in range(side.ncomp * bool(KINDS_IN)):
            gathered(places, side, order, nodes, lines, c)
            own = into + (side.first + c) * SPAN_IN * LANE_BYTES
            to_points(along, slopes, kinds, size // along.shape[1], lines, layers, own)


@traced
def points_to_layers(tiles, matrix, count, source, layers, added):
    """Multiply the points of all layers by a transposed table of the base."""
    for k in range(matrix.shape[1]):
        at = layers + k * count * LANE_BYTES
        multiply(tiles, source + k * BASE * LANE_BYTES, at, added)


@inner
def from_layers(along, slopes, count, layers, lines):
    """Contract layers of values, and of derivatives along the line, to all functions."""
    for j in range(count):
        line = contract(along, load_line(LANE, layers, j, count, along.shape[1]))
        if GRAD_OUT:
            other = load_line(LANE, layers, LAYER_LANES + j, count, slopes.shape[1])
            line = add_lines(line, contract(slopes, other))
        store_line(LANE, lines, j * along.shape[0], 1, line)


@inner
def from_points(along, slopes, kinds, count, out, layers, lines):
    """Integrate one component of a test function: transpose of `to_points`."""
    sloped = layers + LAYER_LANES * LANE_BYTES
    for kind, (tiles, turned) in enumerate(kinds):
        matrix, target = (slopes, sloped) if turned else (along, layers)
        begin, added = out + kind * POINTS * LANE_BYTES, kind > 0 and not turned
        points_to_layers(tiles, matrix, count, begin, target, added)
    from_layers(along, slopes, count, layers, lines)


@inner
def scattered(places, side, order, nodes, lines, c):
    """Put results into the order of nodes: add them to y, or leave them for `scatter_runs`."""
    if added_by_pieces(side):
        for place, node in enumerate(order):
            store(LANE, nodes, c * side.num_nodes + node, load(LANE, lines, place))
    else:
        line = tuple([load(LANE, lines, order.index(node)) for node in range(side.num_nodes)])
        scatter_nodes(LANE, side.runs, side.ncomp, places, 0, 0, c, line)


@inner
def add_to_tests(y, nodes, out):
    """Integrate all test functions, and add the results to y: transpose of `fields_at_points`."""
    lines, layers = nodes + MOST_GATHERED * LANE_BYTES, nodes + MOST_NODES_OF_SIDE * LANE_BYTES
    given = zip(TARGETS, NODES_OUT, LINES_OUT, FACTORS_OUT, strict=True)
    for side, order, (along, slopes), kinds in given:
        places, size = target_of(y, side), side.num_nodes
        for c in range(side.ncomp * bool(KINDS_OUT)):
            own = out + (side.first + c) * SPAN_OUT * LANE_BYTES
            from_points(along, slopes, kinds, size // along.shape[0], own, layers, lines)
            scattered(places, side, order, nodes, lines, c)
        if added_by_pieces(side):
            scatter_runs(places, side, nodes, size, size)


@traced
def batch(table, b, x, y, work, ahead):
    """Add A x to y for batch b of elements; arguments as in ``batch.py``."""
    into = work + (MOST_NODES_OF_SIDE + MOST_MODES) * LANE_BYTES
    out = into + (0 if IN_PLACE else NCOMP_IN * SPAN_IN) * LANE_BYTES
    if MAPPED:
        ask_modes(modes_of(table, b))
    fields_at_points(x, work, into)
    points_of_element(sources(table, b), modes_of(table, b), into, out)
    add_to_tests(y, work, out)
    if MINIMA or SUMS:
        functionals = word(table, FUNCTIONALS) + b * (len(MINIMA) + len(SUMS)) * LANE_BYTES
        functionals_at_points(functionals, out)
