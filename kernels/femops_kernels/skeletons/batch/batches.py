"""All batches of one chunk, compiled for each kernel (see ``chunk.py``).

Other work on the vectors can be done on the way (``merged.py``): an entry point that is called
before every few batches, with the number of the first and of the one after the last of them instead
of x and y.  These batches are the first in the chunk to read what they meet first of x and to write
it of y.
"""

# <defaults>
from femops_kernels.simd.addresses import PLACE_BYTES, locate
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import put, word
from femops_kernels.simd.lines import call_chunk
from femops_kernels.simd.tracing import traced, when
from femops_kernels.skeletons.batch.batch import WORK_LANES, batch
from femops_kernels.skeletons.batch.by_element import ELEMENT_LANES, add_elements
from femops_kernels.skeletons.batch.copies import copies, count
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>

DOF_IN, DOF_OUT = NCOMP_IN * REAL_BYTES, NCOMP_OUT * REAL_BYTES
PLACES = PLACE_BYTES * LANE_WIDTH  # bytes of a run's
STARTS_IN = NRUNS_IN * LANE_WIDTH * INDEX_IN  # bytes of a batch's
STARTS_OUT = NRUNS_OUT * LANE_WIDTH * INDEX_OUT
# Batches between one that meets dofs first and that which asks for them, so that memory has time.
BATCH_DOFS = LANE_WIDTH * max(P_IN - 1, 1) ** DIM
DISTANCE = max(1, 2048 // BATCH_DOFS)
# Batches between calls of BEFORE, unless one is enough for the chunk: some hundreds of dofs.
GROUP = max(1, 512 // BATCH_DOFS)
OWN_WORK = WORK_LANES * LANE_BYTES  # of a batch, and behind it results that are added by element
if BY_ELEMENT:
    WORK_LANES += ELEMENT_LANES


@inner
def piece(table, starts, vector, dof_bytes, b):
    """Begin and cache lines of a vector's part that batch b meets first; nothing past the last."""
    dofs, end = word(table, starts), word(word(table, FIRST_BATCH), word(table, NCHUNKS))
    begin, after = word(dofs, min(b, end)), word(dofs, min(b + 1, end))
    return vector + begin * dof_bytes, -(-(after - begin) * dof_bytes // CACHE_LINE)


@traced
def clear(table, y, b):
    """Set to zero what batch b meets first of y."""
    starts = word(table, OUT_BATCH_START)
    for k in range(word(starts, b) * NCOMP_OUT, word(starts, b + 1) * NCOMP_OUT):
        put(LANE, y, k, 0.0)


@inner
def side_in(table, x, chunk, local, places):
    """Places of dofs of x, as ``locate`` wants them: those not owned are in ``local``."""
    begin = word(word(table, IN_OWNED_START), chunk)
    return count(table, IN_OWNED_START, chunk), x + begin * DOF_IN, local, places


@inner
def side_out(table, y, chunk, places):
    """The same of y, where dofs that the chunk does not own are in its piece of the buffer."""
    owned, begin = count(table, OUT_OWNED_START, chunk), word(word(table, OUT_OWNED_START), chunk)
    nonowned = word(word(table, OUT_NONOWNED_START), chunk) - owned
    return owned, y + begin * DOF_OUT, word(table, BUFFER) + nonowned * DOF_OUT, places


@traced
def locate_runs(table, b, x_side, y_side):
    """Addresses of the runs of batch b."""
    ins = word(table, IN_STARTS) + b * STARTS_IN
    outs = word(table, OUT_STARTS) + b * STARTS_OUT
    if ALIKE:
        for k in range(NRUNS_IN):
            locate(LANE, ins, INDEX_IN, k, (x_side, y_side), (DOF_IN, DOF_OUT))
    else:
        for k in range(NRUNS_IN):
            locate(LANE, ins, INDEX_IN, k, (x_side,), (DOF_IN,))
        for k in range(NRUNS_OUT):
            locate(LANE, outs, INDEX_OUT, k, (y_side,), (DOF_OUT,))


@traced
def each_batch(table, x, y, chunk, work, alpha, beta):
    """Go through the batches of one chunk: see the entry point."""
    x_local, _, x_places = copies(table, work)
    y_places = x_places + NRUNS_IN * PLACES
    lanes = y_places + NRUNS_OUT * PLACES
    results = lanes + OWN_WORK if BY_ELEMENT else y_places
    x_side = side_in(table, x, chunk, x_local, x_places)
    y_side = side_out(table, y, chunk, y_places)
    before, own, also = word(table, BEFORE), word(table, BEFORE_TABLE), word(table, BEFORE_READS)
    first, end = word(word(table, FIRST_BATCH), chunk), word(word(table, FIRST_BATCH), chunk + 1)
    if BY_CHUNK:
        for _ in when(before != 0):
            call_chunk(before, own, first, end, chunk, lanes, alpha, beta)
    for b in range(first, end):
        if not BY_CHUNK:
            for _ in when(before != 0):
                for _ in when((b - first) % GROUP == 0):
                    call_chunk(before, own, b, min(b + GROUP, end), chunk, lanes, alpha, beta)
        for _ in when(beta == 0.0):
            clear(table, y, b)
        x_ahead = piece(table, IN_BATCH_START, x, DOF_IN, b + DISTANCE)
        y_ahead = piece(table, OUT_BATCH_START, y, DOF_OUT, b + DISTANCE)
        locate_runs(table, b, x_side, y_side)
        if BY_CHUNK:
            batch(table, b, x_places, results, lanes, (x_ahead, y_ahead))
        else:
            start, lines = piece(table, IN_BATCH_START, also, DOF_IN, b + DISTANCE)
            also_ahead = start, lines * min(also, 1)  # no lines if there is no such vector
            batch(table, b, x_places, results, lanes, (x_ahead, y_ahead, also_ahead))
        if BY_ELEMENT:
            add_elements(y_places, results)


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def batches(table, x, y, chunk, work, alpha, beta):
    """Add A x to y for all batches of one chunk; y begins with zeros if beta is zero."""
    each_batch(table, x, y, chunk, work, alpha, beta)
