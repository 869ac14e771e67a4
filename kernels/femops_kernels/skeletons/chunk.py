"""One chunk of elements: copy in, sweep over its batches, copy out; then sum what chunks share.

A chunk is a run of batches in element order.  Because dofs are numbered by first touch, the dofs
that a chunk meets first (its *owned* ones) are a contiguous piece of the vector; the others it
meets are *foreign*, owned by an earlier chunk.  A chunk works on private copies of both, small
enough for the cache: owned results overwrite y (nothing is zeroed or read beforehand), foreign
ones go to the chunk's piece of a buffer.  When all chunks are done, ``combine`` adds the buffer
to the owned dofs in ascending chunk number.  No atomics, and the same bits for any number of
threads.

The batches are another kernel's, called by its address (``batches.py``): what is here is compiled
once for all orders, levels and pointwise steps.

Arguments of both entry points: addresses of the table, of x and of y; the chunk's number; the
address of the thread's work space; ``y = alpha A x + beta y``, where y is not read if beta is
zero.
"""

# <defaults>
from femops_kernels.compiling import entry, inner
from femops_kernels.lanes import get, put, word
from femops_kernels.lines import call_chunk
from femops_kernels.skeletons.copies import copies, count
from femops_kernels.skeletons.defaults import *
from femops_kernels.skeletons.table import *

# </defaults>


@inner
def copy_in(table, x, chunk, local, size, owned, foreign):
    """Owned piece and foreign entries of x, component after component."""
    first = word(word(table, IN_OWNED_START), chunk)
    for c in range(NCOMP_IN):
        for i in range(owned):
            put(LANE, local, c * size + i, get(LANE, x, (first + i) * NCOMP_IN + c))
    at, dofs = word(word(table, IN_FOREIGN_START), chunk), word(table, IN_FOREIGN_DOFS)
    for i in range(foreign):
        dof = word(dofs, at + i)
        for c in range(NCOMP_IN):
            put(LANE, local, c * size + owned + i, get(LANE, x, dof * NCOMP_IN + c))
    for c in range(NCOMP_IN):  # the slot that padding elements read
        put(LANE, local, c * size + owned + foreign, 0.0)
    positions, starts = word(table, CLEARED), word(table, CLEARED_START)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        put(LANE, local, word(positions, k), 0.0)


@inner
def copy_out(table, y, chunk, local, size, owned, foreign, alpha, beta):
    """Owned results to y, foreign ones to the buffer."""
    first = word(word(table, OUT_OWNED_START), chunk)
    for c in range(NCOMP_OUT):
        if beta == 0.0:
            for i in range(owned):
                put(LANE, y, (first + i) * NCOMP_OUT + c, alpha * get(LANE, local, c * size + i))
        else:
            for i in range(owned):
                k = (first + i) * NCOMP_OUT + c
                put(LANE, y, k, alpha * get(LANE, local, c * size + i) + beta * get(LANE, y, k))
    at, buffer = word(word(table, OUT_FOREIGN_START), chunk), word(table, BUFFER)
    for c in range(NCOMP_OUT):
        for i in range(foreign):
            value = alpha * get(LANE, local, c * size + owned + i)
            put(LANE, buffer, (at + i) * NCOMP_OUT + c, value)


@inner
def constrain(table, x, chunk, local, size, owned):
    """Set the constrained entries of a local vector.

    To what x holds, times KEEP, where the chunk owns them, else to zero.
    """
    first, positions = word(word(table, OUT_OWNED_START), chunk), word(table, CONSTRAINED)
    starts, keep = word(table, CONSTRAINED_START), get(LANE, word(table, KEEP), 0)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        at = word(positions, k)
        c = at // size
        i = at - c * size
        if keep != 0.0 and i < owned:
            put(LANE, local, at, keep * get(LANE, x, (first + i) * NCOMP_OUT + c))
        else:
            put(LANE, local, at, 0.0)


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def sweep(table, x, y, chunk, work, alpha, beta):
    """One chunk."""
    size_in, size_out = word(table, IN_LOCAL_SIZE), word(table, OUT_LOCAL_SIZE)
    x_local, y_local, _ = copies(table, work)
    owned, foreign = count(table, IN_OWNED_START, chunk), count(table, IN_FOREIGN_START, chunk)
    copy_in(table, x, chunk, x_local, size_in, owned, foreign)
    for k in range(NCOMP_OUT * size_out):
        put(LANE, y_local, k, 0.0)
    call_chunk(word(table, BATCHES), table, x, y, chunk, work, alpha, beta)
    owned, foreign = count(table, OUT_OWNED_START, chunk), count(table, OUT_FOREIGN_START, chunk)
    constrain(table, x, chunk, y_local, size_out, owned)
    copy_out(table, y, chunk, y_local, size_out, owned, foreign, alpha, beta)


@entry("void(intp, intp, intp, intp, intp, float64, float64)")
def combine(table, x, y, chunk, work, alpha, beta):
    """Add to the dofs that ``chunk`` owns what later chunks contributed."""
    starts, buffer = word(table, COMBINE_START), word(table, BUFFER)
    dofs, slots = word(table, COMBINE_DOF), word(table, COMBINE_SLOT)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        dof, slot = word(dofs, k), word(slots, k)
        for c in range(NCOMP_OUT):
            at = dof * NCOMP_OUT + c
            put(LANE, y, at, get(LANE, y, at) + get(LANE, buffer, slot * NCOMP_OUT + c))
