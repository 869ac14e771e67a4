"""One chunk of elements: fetch non-owned dofs, sweep over the batches, then sum shared dofs.

A chunk is a run of batches in element order. Dofs are numbered by first touch. So the dofs that a
chunk touches first, its *owned* dofs, are a contiguous piece of the vector. The other dofs that it
touches are *non-owned*: an earlier chunk owns them, or an element has them in another order than
that of their numbers. Owned dofs are read, and added to, in the vectors. Non-owned dofs are copied
from x, and their results go to the chunk's piece of a buffer. When all chunks are done, ``combine``
adds the buffer to the owned dofs in ascending chunk number. So no atomics are needed, and results
have the same bits for any number of threads.

The batches have a kernel of their own (``batches.py``), which is called by its address. So this
file is compiled once for all orders, levels and q-functions. With several fields, the steps before
and after the batches are done for each block of the table (``table.py``) in turn.

Both entry points compute ``y = alpha A x + beta y``. Beta is 0 or 1, and y is not read if it is 0.
Their arguments are the addresses of the table, of x and of y, the number of the chunk, the address
of the thread's work space, alpha and beta.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import fill, get, load, put, store, word
from femops_kernels.simd.lines import call_chunk
from femops_kernels.skeletons.chunk.copies import copies, count, is_copied
from femops_kernels.skeletons.chunk.defaults import *
from femops_kernels.skeletons.chunk.table import *

# </defaults>


@inner
def components_in(table):
    """Number of components of a field.

    It is a constant if all fields have the same number, else an entry of the table.
    """
    return NCOMP_IN if NCOMP_IN > 0 else word(table, IN_COMPONENTS)


@inner
def components_out(table):
    """Number of components of a test function; see `components_in`."""
    return NCOMP_OUT if NCOMP_OUT > 0 else word(table, OUT_COMPONENTS)


@inner
def entry_of(vector, number, ncomp, c):
    """Component c of a dof or contribution; see SIGNED."""
    if SIGNED and number < 0:
        return -get(LANE, vector, (-1 - number) * ncomp + c)
    return get(LANE, vector, number * ncomp + c)


@inner
def copy_nonowned(table, x, chunk, local, alpha):
    """Copy non-owned entries of x to ``local``, after the place of owned entries.

    The last chunk has zeros after them, for padding.
    """
    ncomp = components_in(table)
    at, dofs = word(word(table, IN_NONOWNED_START), chunk), word(table, IN_NONOWNED_DOFS)
    nonowned = count(table, IN_NONOWNED_START, chunk)
    others = word(word(table, IN_NONOWNED_END), chunk) - at
    local += count(table, IN_OWNED_START, chunk) * ncomp * REAL_BYTES
    for i in range(others):
        dof = word(dofs, at + i)
        for c in range(ncomp):
            put(LANE, local, i * ncomp + c, alpha * entry_of(x, dof, ncomp, c))
    ghosts = word(table, IN_GHOSTS) - word(table, IN_GHOSTS_FROM) * ncomp * REAL_BYTES
    for i in range(others, nonowned):
        dof = word(dofs, at + i)
        for c in range(ncomp):
            put(LANE, local, i * ncomp + c, alpha * entry_of(ghosts, dof, ncomp, c))
    if chunk + 1 == word(table, NCHUNKS):
        for k in range(nonowned * ncomp, (nonowned + word(table, IN_PAD)) * ncomp):
            put(LANE, local, k, 0.0)


@inner
def copy_owned(table, x, chunk, local, alpha):
    """Copy the owned piece of x times alpha to ``local``, with zeros for cleared entries."""
    ncomp = components_in(table)
    x += word(word(table, IN_OWNED_START), chunk) * ncomp * REAL_BYTES
    length, factor = count(table, IN_OWNED_START, chunk) * ncomp, fill(LANE, alpha)
    lanes = length // LANE_WIDTH
    for k in range(lanes):
        store(LANE, local, k, factor * load(LANE, x, k))
    for k in range(lanes * LANE_WIDTH, length):
        put(LANE, local, k, alpha * get(LANE, x, k))
    positions, starts = word(table, CLEARED), word(table, CLEARED_START)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        put(LANE, local, word(positions, k), 0.0)


@inner
def target(table, y, chunk, position):
    """Address of an entry of OUT: in y if the chunk owns it, else in the buffer."""
    ncomp = components_out(table)
    owned = count(table, OUT_OWNED_START, chunk) * ncomp
    if position < owned:
        return y + (word(word(table, OUT_OWNED_START), chunk) * ncomp + position) * REAL_BYTES
    begin = word(word(table, OUT_NONOWNED_START), chunk) * ncomp
    return word(table, BUFFER) + (begin + position - owned) * REAL_BYTES


@inner
def keep_constrained(table, y, chunk, kept, beta):
    """Save the constrained entries of y. If beta is 0, y counts as zero."""
    positions, starts = word(table, CONSTRAINED), word(table, CONSTRAINED_START)
    first = word(starts, chunk)
    for k in range(first, word(starts, chunk + 1)):
        at = target(table, y, chunk, word(positions, k))
        put(LANE, kept, k - first, 0.0 if beta == 0.0 else get(LANE, at, 0))


@inner
def constrain(table, x, y, chunk, kept, alpha):
    """Restore the saved constrained entries, and add alpha KEEP x to those that the chunk owns."""
    ncomp = components_out(table)
    positions, starts = word(table, CONSTRAINED), word(table, CONSTRAINED_START)
    owned = count(table, OUT_OWNED_START, chunk) * ncomp
    origin = word(word(table, OUT_OWNED_START), chunk) * ncomp
    first, keep = word(starts, chunk), get(LANE, word(table, KEEP), 0)
    for k in range(first, word(starts, chunk + 1)):
        position, value = word(positions, k), get(LANE, kept, k - first)
        if keep != 0.0 and position < owned:
            value += alpha * keep * get(LANE, x, origin + position)
        put(LANE, target(table, y, chunk, position), 0, value)


@inner
def begin_block(table, x, y, chunk, work, alpha, beta):
    """Copy the dofs that the chunk reads, and clear its piece of the buffer.

    Return the address of the work space of the next block.
    """
    x, y = x + word(table, IN_ORIGIN), y + word(table, OUT_ORIGIN)
    local, kept, behind = copies(table, work, components_in(table), components_out(table))
    copy_nonowned(table, x, chunk, local, alpha)
    if is_copied(table, chunk, alpha):
        copy_owned(table, x, chunk, local, alpha)
    begin, buffer = word(table, OUT_NONOWNED_START), word(table, BUFFER)
    ncomp = components_out(table)
    for k in range(word(begin, chunk) * ncomp, word(begin, chunk + 1) * ncomp):
        put(LANE, buffer, k, 0.0)
    keep_constrained(table, y, chunk, kept, beta)
    return behind


@inner
def end_block(table, x, y, chunk, work, alpha):
    """Set the constrained entries; return the work space of the next block."""
    x, y = x + word(table, IN_ORIGIN), y + word(table, OUT_ORIGIN)
    _, kept, behind = copies(table, work, components_in(table), components_out(table))
    constrain(table, x, y, chunk, kept, alpha)
    return behind


@entry
def sweep(table, x, y, chunk, work, alpha: float, beta: float):
    """Apply the operator to one chunk."""
    at = work
    for k in range(word(table, BLOCKS)):
        at = begin_block(table + k * BLOCK_BYTES, x, y, chunk, at, alpha, beta)
    call_chunk(word(table, BATCHES), table, x, y, chunk, work, alpha, beta)
    at = work
    for k in range(word(table, BLOCKS)):
        at = end_block(table + k * BLOCK_BYTES, x, y, chunk, at, alpha)


@entry
def combine(table, x, y, chunk, work, alpha: float, beta: float):
    """Add the contributions of later chunks to the dofs that ``chunk`` owns."""
    for block in range(word(table, BLOCKS)):
        own = table + block * BLOCK_BYTES
        starts, buffer, ncomp = word(own, COMBINE_START), word(own, BUFFER), components_out(own)
        dofs, slots, out = word(own, COMBINE_DOF), word(own, COMBINE_SLOT), word(own, OUT_ORIGIN)
        for k in range(word(starts, chunk), word(starts, chunk + 1)):
            dof, slot = word(dofs, k), word(slots, k)
            for c in range(ncomp):
                at = dof * ncomp + c
                total = get(LANE, y + out, at) + entry_of(buffer, slot, ncomp, c)
                put(LANE, y + out, at, total)
