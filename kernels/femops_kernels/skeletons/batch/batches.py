"""All batches of one chunk, compiled for each kernel (see ``chunk.py``).

Other work on the vectors can be merged into the sweep (``merged.py``). Its entry point is called
before every few batches. In place of x and y it gets two numbers: the first of these batches, and
the batch after the last. No earlier batch of the chunk has read the entries of x that these batches
touch first, or written those of y.
"""

# <defaults>
from math import prod

from femops_kernels.simd.addresses import PLACE_BYTES, locate
from femops_kernels.simd.compiling import entry, inner, traced
from femops_kernels.simd.lanes import put, word
from femops_kernels.simd.lines import call_chunk
from femops_kernels.skeletons.batch.batch import WORK_LANES, batch
from femops_kernels.skeletons.batch.by_element import ELEMENT_LANES, add_elements
from femops_kernels.skeletons.batch.hanging import *
from femops_kernels.skeletons.chunk.copies import copies, count, read_from
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

EACH_BLOCK = tuple(range(1 + max(side.block for side in (*SOURCES, *TARGETS))))
PLACES = PLACE_BYTES * LANE_WIDTH  # bytes of a run's
SOURCE_PLACES = PLACES * sum(side.num_runs for side in SOURCES)
TARGET_PLACES = PLACES * sum(side.num_runs for side in TARGETS)
# Batches between one that meets dofs first and that which asks for them, so that memory has time.
BATCH_DOFS = LANE_WIDTH * max(prod([max(n - 1, 1) for n in side.runs.shape]) for side in SOURCES)
DISTANCE = max(1, 2048 // BATCH_DOFS)
# Batches between calls of BEFORE, unless one is enough for the chunk: some hundreds of dofs.
GROUP = max(1, 512 // BATCH_DOFS)
OWN_WORK = WORK_LANES * LANE_BYTES  # bytes of a batch; results that are added by element follow
if BY_ELEMENT:
    WORK_LANES += ELEMENT_LANES
ROOM = WORK_LANES * LANE_BYTES  # bytes before the room of hanging entities
if HANGING:
    WORK_LANES += HANGING_LANES


@inner
def piece(table, starts, vector, dof_bytes, b):
    """Address and number of cache lines of the piece of a vector that batch b touches first.

    The number is zero if b is past the last batch.
    """
    dofs, end = word(table, starts), word(word(table, FIRST_BATCH), word(table, NCHUNKS))
    begin, after = word(dofs, min(b, end)), word(dofs, min(b + 1, end))
    return vector + begin * dof_bytes, -(-(after - begin) * dof_bytes // CACHE_LINE)


@traced
def clear(table, y, ncomp, b):
    """Set to zero the entries of a test function that batch b is the first to touch."""
    starts = word(table, OUT_BATCH_START)
    for k in range(word(starts, b) * ncomp, word(starts, b + 1) * ncomp):
        put(LANE, y, k, 0.0)


@inner
def side_in(table, x, chunk, local, places, dof_bytes):
    """Side of x for ``locate``; dofs that the chunk does not own are in ``local``."""
    begin = word(word(table, IN_OWNED_START), chunk)
    return count(table, IN_OWNED_START, chunk), x + begin * dof_bytes, local, places


@inner
def side_out(table, y, chunk, places, dof_bytes):
    """Side of y for ``locate``; dofs that the chunk does not own are in its piece of the buffer."""
    owned, begin = count(table, OUT_OWNED_START, chunk), word(word(table, OUT_OWNED_START), chunk)
    nonowned = word(word(table, OUT_NONOWNED_START), chunk) - owned
    return owned, y + begin * dof_bytes, word(table, BUFFER) + nonowned * dof_bytes, places


@traced
def locate_side(starts, b, side, sides):
    """Compute the addresses of batch b's runs in a field, a test function, or both.

    Both must belong to one space.
    """
    begin = starts + b * (side.num_runs * LANE_WIDTH * side.index_bytes)
    dof_bytes = (side.ncomp * REAL_BYTES,) * len(sides)
    for k in range(side.num_runs):
        locate(LANE, begin, side.index_bytes, k, sides, dof_bytes)


@inner
def locate_runs(table, b, x_sides, y_sides):
    """Compute the addresses of batch b's runs in all fields and test functions."""
    tested = [target.block for target in TARGETS] if ALIKE else []
    for source, x_side in zip(SOURCES, x_sides, strict=True):
        sides = (x_side,)
        if source.block in tested:
            sides = x_side, y_sides[tested.index(source.block)]
        locate_side(word(table, source.block * WORDS + IN_STARTS), b, source, sides)
    for target, y_side in zip(TARGETS, y_sides, strict=True):
        if not ALIKE:
            locate_side(word(table, target.block * WORDS + OUT_STARTS), b, target, (y_side,))


@inner
def sides_of_chunk(table, x, y, chunk, work, alpha):
    """Return the places of dofs of all fields and test functions, and the work space after them."""
    copied, addresses, at = [], [], work
    for k in EACH_BLOCK:
        own = table + k * BLOCK_BYTES
        ncomp_in = sum([side.ncomp for side in SOURCES if side.block == k])
        ncomp_out = sum([side.ncomp for side in TARGETS if side.block == k])
        local, _, at = copies(own, at, ncomp_in, ncomp_out)
        here = x + word(own, IN_ORIGIN)
        addresses.append(read_from(own, here, chunk, local, ncomp_in, alpha))
        copied.append(local)
    x_sides, y_sides = [], []
    for side in SOURCES:
        own, places = table + side.block * BLOCK_BYTES, at + side.first_run * PLACES
        here, local = addresses[side.block], copied[side.block]
        x_sides.append(side_in(own, here, chunk, local, places, side.ncomp * REAL_BYTES))
    for side in TARGETS:
        own, places = table + side.block * BLOCK_BYTES, at + SOURCE_PLACES + side.first_run * PLACES
        here = y + word(own, OUT_ORIGIN)
        y_sides.append(side_out(own, here, chunk, places, side.ncomp * REAL_BYTES))
    return addresses, x_sides, y_sides, at


@inner
def pieces_ahead(table, addresses, y, b):
    """Return the pieces of all vectors that batch b is the first to touch; see ``ask_ahead``."""
    found = []
    for side in SOURCES:
        own, dof_bytes = table + side.block * BLOCK_BYTES, side.ncomp * REAL_BYTES
        found.append(piece(own, IN_BATCH_START, addresses[side.block], dof_bytes, b))
    for side in TARGETS:
        own, dof_bytes = table + side.block * BLOCK_BYTES, side.ncomp * REAL_BYTES
        found.append(piece(own, OUT_BATCH_START, y + word(own, OUT_ORIGIN), dof_bytes, b))
    return tuple(found)


@traced
def each_batch(table, x, y, chunk, work, alpha, beta):
    """Go through the batches of one chunk; see `batches`."""
    addresses, x_sides, y_sides, x_places = sides_of_chunk(table, x, y, chunk, work, alpha)
    y_places = x_places + SOURCE_PLACES
    lanes = y_places + TARGET_PLACES
    results = lanes + OWN_WORK if BY_ELEMENT else y_places
    before, own, also = word(table, BEFORE), word(table, BEFORE_TABLE), word(table, BEFORE_READS)
    first, end = word(word(table, FIRST_BATCH), chunk), word(word(table, FIRST_BATCH), chunk + 1)
    if BY_CHUNK and before != 0:
        call_chunk(before, own, first, end, chunk, lanes, alpha, beta)
    for b in range(first, end):
        if not BY_CHUNK and before != 0 and (b - first) % GROUP == 0:
            call_chunk(before, own, b, min(b + GROUP, end), chunk, lanes, alpha, beta)
        for side in TARGETS:
            block = table + side.block * BLOCK_BYTES
            if beta == 0.0:
                clear(block, y + word(block, OUT_ORIGIN), side.ncomp, b)
        ahead = pieces_ahead(table, addresses, y, b + DISTANCE)
        locate_runs(table, b, x_sides, y_sides)
        if not BY_CHUNK:
            block = table + SOURCES[0].block * BLOCK_BYTES
            dof_bytes = SOURCES[0].ncomp * REAL_BYTES
            start, lines = piece(block, IN_BATCH_START, also, dof_bytes, b + DISTANCE)
            ahead = (*ahead, (start, lines * min(also, 1)))  # no lines if there is no such vector
        if HANGING:
            begin_hanging(table, b, x_places, y_places, lanes + ROOM)
        batch(table, b, x_places, results, lanes, ahead)
        if BY_ELEMENT:
            add_elements(y_places, results)
        if HANGING:
            end_hanging(table, b, lanes + ROOM)


@entry
def batches(table, x, y, chunk, work, alpha: float, beta: float):
    """Add A x to y for all batches of one chunk; y begins with zeros if beta is zero."""
    each_batch(table, x, y, chunk, work, alpha, beta)
