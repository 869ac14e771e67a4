"""One chunk of elements: fetch non-owned dofs, sweep over the batches, then sum shared dofs.

A chunk is a run of batches in element order.  Because dofs are numbered by first touch, the dofs
that a chunk meets first (its *owned* ones) are a contiguous piece of the vector; the others it
meets are *non-owned*, owned by an earlier chunk, or stand in another order than the element has
them.  Owned dofs are read and added to where they are; non-owned ones are copied from x, and their
results go to the chunk's piece of a buffer.  When all chunks are done, ``combine`` adds the buffer
to the owned dofs in ascending chunk number.  No atomics, and the same bits for any number of
threads.

The batches are another kernel's, called by its address (``batches.py``): what is here is compiled
once for all orders, levels and q-functions.

Arguments of both entry points: addresses of the table, of x and of y; the chunk's number; the
address of the thread's work space; ``y = alpha A x + beta y``, where beta is zero, and y not read,
or one.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import get, put, word
from femops_kernels.simd.lines import call_chunk
from femops_kernels.skeletons.batch.copies import copies, count
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def copy_nonowned(table, x, chunk, local, alpha):
    """Copy non-owned entries of x behind the place of the owned ones, then zeros for padding."""
    at, dofs = word(word(table, IN_NONOWNED_START), chunk), word(table, IN_NONOWNED_DOFS)
    nonowned = count(table, IN_NONOWNED_START, chunk)
    others = word(word(table, IN_NONOWNED_END), chunk) - at
    local += count(table, IN_OWNED_START, chunk) * NCOMP_IN * REAL_BYTES
    for i in range(others):
        dof = word(dofs, at + i)
        for c in range(NCOMP_IN):
            put(LANE, local, i * NCOMP_IN + c, alpha * get(LANE, x, dof * NCOMP_IN + c))
    ghosts = word(table, IN_GHOSTS) - word(table, IN_GHOSTS_FROM) * NCOMP_IN * REAL_BYTES
    for i in range(others, nonowned):
        dof = word(dofs, at + i)
        for c in range(NCOMP_IN):
            put(LANE, local, i * NCOMP_IN + c, alpha * get(LANE, ghosts, dof * NCOMP_IN + c))
    if chunk + 1 == word(table, NCHUNKS):
        for k in range(nonowned * NCOMP_IN, (nonowned + word(table, IN_PAD)) * NCOMP_IN):
            put(LANE, local, k, 0.0)


@inner
def owned_copy(table, x, chunk, local, alpha):
    """A copy of the owned piece, with zeros where entries are cleared; where x would begin."""
    first = word(word(table, IN_OWNED_START), chunk) * NCOMP_IN
    for k in range(count(table, IN_OWNED_START, chunk) * NCOMP_IN):
        put(LANE, local, k, alpha * get(LANE, x, first + k))
    positions, starts = word(table, CLEARED), word(table, CLEARED_START)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        put(LANE, local, word(positions, k), 0.0)
    return local - first * REAL_BYTES


@inner
def target(table, y, chunk, position):
    """Address of an entry of a chunk's OUT."""
    owned = count(table, OUT_OWNED_START, chunk) * NCOMP_OUT
    if position < owned:
        return y + (word(word(table, OUT_OWNED_START), chunk) * NCOMP_OUT + position) * REAL_BYTES
    begin = word(word(table, OUT_NONOWNED_START), chunk) * NCOMP_OUT
    return word(table, BUFFER) + (begin + position - owned) * REAL_BYTES


@inner
def keep_constrained(table, y, chunk, kept, beta):
    """Save the constrained entries as they are; zero if that does not count."""
    positions, starts = word(table, CONSTRAINED), word(table, CONSTRAINED_START)
    first = word(starts, chunk)
    for k in range(first, word(starts, chunk + 1)):
        at = target(table, y, chunk, word(positions, k))
        put(LANE, kept, k - first, 0.0 if beta == 0.0 else get(LANE, at, 0))


@inner
def constrain(table, x, y, chunk, kept, alpha):
    """Set the constrained entries; to owned ones add those of x, times alpha KEEP."""
    positions, starts = word(table, CONSTRAINED), word(table, CONSTRAINED_START)
    owned = count(table, OUT_OWNED_START, chunk) * NCOMP_OUT
    origin = word(word(table, OUT_OWNED_START), chunk) * NCOMP_OUT
    first, keep = word(starts, chunk), get(LANE, word(table, KEEP), 0)
    for k in range(first, word(starts, chunk + 1)):
        position, value = word(positions, k), get(LANE, kept, k - first)
        if keep != 0.0 and position < owned:
            value += alpha * keep * get(LANE, x, origin + position)
        put(LANE, target(table, y, chunk, position), 0, value)


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def sweep(table, x, y, chunk, work, alpha, beta):
    """One chunk."""
    x_local, kept, _ = copies(table, work)
    copy_nonowned(table, x, chunk, x_local, alpha)
    source = x
    if alpha != 1.0 or count(table, CLEARED_START, chunk) > 0:
        source = owned_copy(table, x, chunk, x_local, alpha)
    begin, buffer = word(table, OUT_NONOWNED_START), word(table, BUFFER)
    for k in range(word(begin, chunk) * NCOMP_OUT, word(begin, chunk + 1) * NCOMP_OUT):
        put(LANE, buffer, k, 0.0)
    keep_constrained(table, y, chunk, kept, beta)
    call_chunk(word(table, BATCHES), table, source, y, chunk, work, alpha, beta)
    constrain(table, x, y, chunk, kept, alpha)


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def combine(table, x, y, chunk, work, alpha, beta):
    """Add the contributions of later chunks to the dofs that ``chunk`` owns."""
    starts, buffer = word(table, COMBINE_START), word(table, BUFFER)
    dofs, slots = word(table, COMBINE_DOF), word(table, COMBINE_SLOT)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        dof, slot = word(dofs, k), word(slots, k)
        for c in range(NCOMP_OUT):
            at = dof * NCOMP_OUT + c
            put(LANE, y, at, get(LANE, y, at) + get(LANE, buffer, slot * NCOMP_OUT + c))
