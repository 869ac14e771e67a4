"""All batches of one chunk, on its copies: what is compiled for each kernel (see ``chunk.py``)."""

# <defaults>
from femops_kernels.compiling import entry, inner
from femops_kernels.lanes import word
from femops_kernels.skeletons.batch import batch
from femops_kernels.skeletons.copies import copies, count
from femops_kernels.skeletons.defaults import *
from femops_kernels.skeletons.table import *

# </defaults>


@inner
def piece_ahead(table, starts, chunk, vector, ncomp):
    """The piece of a vector that the next chunk owns: address, and cache lines for each batch."""
    if word(table, AHEAD) == 0 or chunk + 1 == word(table, NCHUNKS):
        return vector, 0
    begin = vector + word(word(table, starts), chunk + 1) * ncomp * REAL_BYTES
    lines = count(table, starts, chunk + 1) * ncomp * REAL_BYTES // CACHE_LINE + 1
    return begin, lines // count(table, FIRST_BATCH, chunk) + 1


@inner
def share(piece, k):
    """What the k-th batch asks for of such a piece."""
    return piece[0] + k * piece[1] * CACHE_LINE, piece[1]


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def batches(table, x, y, chunk, work, alpha, beta):
    """All batches of one chunk; x and y are the whole vectors, of which nothing is read here."""
    x_bytes = word(table, IN_LOCAL_SIZE) * REAL_BYTES
    y_bytes = word(table, OUT_LOCAL_SIZE) * REAL_BYTES
    x_local, y_local, lanes = copies(table, work)
    inputs, outputs = word(table, IN_INDICES), word(table, OUT_INDICES)
    first = word(word(table, FIRST_BATCH), chunk)
    x_ahead = piece_ahead(table, IN_OWNED_START, chunk, x, NCOMP_IN)
    y_ahead = piece_ahead(table, OUT_OWNED_START, chunk, y, NCOMP_OUT)
    for k in range(count(table, FIRST_BATCH, chunk)):
        batch(
            table,
            first + k,
            x_local,
            x_bytes,
            inputs + (first + k) * NODES_IN * LANE_WIDTH * INDEX_IN,
            y_local,
            y_bytes,
            outputs + (first + k) * NODES_OUT * LANE_WIDTH * INDEX_OUT,
            lanes,
            (share(x_ahead, k), share(y_ahead, k)),
        )
