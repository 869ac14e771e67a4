"""One iteration of conjugate gradients in an operator's sweep.

Before every few batches, the entries of r and p (and x) that these batches touch first are updated.
So memory brings the entries of later batches while elements are worked on. After a chunk's last
batch, its owned piece of v = A p is multiplied by r and p, which are still in cache, and summed.
The method follows Kronbichler, Sashko and Munch (2022), Enhancing data locality of the conjugate
gradient method for high-order matrix-free finite-element implementations, who update a chunk at a
time. The entry points are those of ``chunk.py``, and `before`, which ``batches.py`` calls.

A thread cannot know whether the owner of a non-owned dof has updated the dof yet. So ``tail``
computes the next p of all shared dofs before the sweep, and stores it after the end of p, in the
*tail* of p. Chunks read non-owned dofs from the tail. No other chunk reads the owned piece of p.
So constrained entries can be zero there and in the tail while the chunk is worked on.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, function, inner
from femops_kernels.simd.lanes import Lane, fill, get, load, prefetch, put, slot_sum, store, word
from femops_kernels.simd.lines import call_chunk
from femops_kernels.skeletons.cg.cg_state import *
from femops_kernels.skeletons.cg.merged_table import *
from femops_kernels.skeletons.chunk.defaults import LANE, LANE_WIDTH, REAL_BYTES

USE_INVERSE = True
ASK = True  # whether shared dofs are prefetched: in caches that takes longer than it saves
# </defaults>

FLOAT64 = Lane(2, "float64")  # how sums and the state are read
STRIP = 32  # lanes summed before a sum is carried on in float64
# Bytes from the entries of x and M that are updated to the entries that are prefetched. Batches do
# that for r, p and v. On an EPYC 4 to 64 kB save the same: 2 to 8 % of an iteration out of cache.
AHEAD = 16384
# Number of shared dofs by which prefetching is ahead of the work. Shared dofs are far apart in the
# vectors, so without prefetching the work waits for memory at each of them.
SOON = 32


@inner
def due(table, k):
    """Factor k of the updates that are due, from the state."""
    return get(FLOAT64, word(table, STATE), k)


@inner
def sums_of(table, row):
    """Address of a row of sums."""
    return word(table, SUMS) + row * NSUMS * 8


@inner
def clear(sums):
    """Set sums to zero."""
    for k in range(NSUMS):
        put(FLOAT64, sums, k, 0.0)


@inner
def add_number(sums, k, value):
    """Add a number to a sum."""
    put(FLOAT64, sums, k, get(FLOAT64, sums, k) + value)


@inner
def add_products(sums, total):
    """Add sums of products."""
    pv, rv, vv, rmv, vmv = total
    add_number(sums, S_PV, pv)
    add_number(sums, S_RV, rv)
    add_number(sums, S_VV, vv)
    add_number(sums, S_RMV, rmv)
    add_number(sums, S_VMV, vmv)


@inner
def corrected(total, table, at, old, new):
    """Return the sums of products after an entry of v has changed from ``old`` to ``new``."""
    pv, rv, vv, rmv, vmv = total
    r, p, c = get(LANE, word(table, R), at), get(LANE, word(table, P), at), new - old
    mc = c * get(LANE, word(table, M), at) if USE_INVERSE else c
    both = new + old
    return pv + p * c, rv + r * c, vv + both * c, rmv + r * mc, vmv + both * mc


@inner
def moved(x, r, p, m, near, far):
    """Return x after a step along the last two directions. The older one is (p - z) / beta."""
    z = r * m if USE_INVERSE else r
    return x + near * p + far * (p - z)


@inner
def updated(r, p, v, m, drop, beta):
    """Return the next r, p and z = M r."""
    r = r - drop * v
    z = r * m if USE_INVERSE else r
    return r, z + beta * p, z


@inner
def update(table, begin, length, sums):
    """Update a piece of x, r and p, and add the piece's part of r.M r and r.r to the sums."""
    drop, beta, near, far = due(table, DROP), due(table, BETA), due(table, NEAR), due(table, FAR)
    touch, at = due(table, TOUCH) != 0.0, begin * REAL_BYTES
    x, r, p = word(table, X) + at, word(table, R) + at, word(table, P) + at
    v, m = word(table, V) + at, word(table, M) + at
    lanes = length // LANE_WIDTH
    for first in range(0, lanes, STRIP):
        rho, rr = fill(LANE, 0.0), fill(LANE, 0.0)
        for k in range(first, min(first + STRIP, lanes)):
            rk, pk, mk = load(LANE, r, k), load(LANE, p, k), load(LANE, m, k)
            soon = k * LANE_WIDTH * REAL_BYTES + AHEAD
            if USE_INVERSE:
                prefetch(m, soon, 2)
            if touch:
                prefetch(x, soon, 2)
                store(LANE, x, k, moved(load(LANE, x, k), rk, pk, mk, near, far))
            rk, pk, zk = updated(rk, pk, load(LANE, v, k), mk, drop, beta)
            store(LANE, r, k, rk)
            store(LANE, p, k, pk)
            rho, rr = rho + rk * zk, rr + rk * rk
        add_number(sums, S_RHO, slot_sum(rho))
        add_number(sums, S_RR, slot_sum(rr))
    for i in range(lanes * LANE_WIDTH, length):
        ri, pi, mi = get(LANE, r, i), get(LANE, p, i), get(LANE, m, i)
        if touch:
            put(LANE, x, i, moved(get(LANE, x, i), ri, pi, mi, near, far))
        ri, pi, zi = updated(ri, pi, get(LANE, v, i), mi, drop, beta)
        put(LANE, r, i, ri)
        put(LANE, p, i, pi)
        add_number(sums, S_RHO, ri * zi)
        add_number(sums, S_RR, ri * ri)


@inner
def after(table, begin, length, sums):
    """Add the products of a piece of v with p, r and v to the sums."""
    at, lanes = begin * REAL_BYTES, length // LANE_WIDTH
    r, p = word(table, R) + at, word(table, P) + at
    v, m = word(table, V) + at, word(table, M) + at
    for first in range(0, lanes, STRIP):
        pv, rv, vv, zero = fill(LANE, 0.0), fill(LANE, 0.0), fill(LANE, 0.0), fill(LANE, 0.0)
        rmv, vmv = zero, zero
        for k in range(first, min(first + STRIP, lanes)):
            rk, pk, vk = load(LANE, r, k), load(LANE, p, k), load(LANE, v, k)
            pv, rv, vv = pv + pk * vk, rv + rk * vk, vv + vk * vk
            if USE_INVERSE:
                mv = vk * load(LANE, m, k)
                rmv, vmv = rmv + rk * mv, vmv + vk * mv
        add_number(sums, S_PV, slot_sum(pv))
        add_number(sums, S_RV, slot_sum(rv))
        add_number(sums, S_VV, slot_sum(vv))
        add_number(sums, S_RMV, slot_sum(rmv if USE_INVERSE else rv))
        add_number(sums, S_VMV, slot_sum(vmv if USE_INVERSE else vv))
    total = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(lanes * LANE_WIDTH, length):
        total = corrected(total, table, begin + i, 0.0, get(LANE, v, i))
    add_products(sums, total)


@inner
def hold(table, first, end):
    """Save the constrained entries of p that some batches touch first, and set them to zero."""
    starts, constrained = word(table, CONSTRAINED_START), word(table, CONSTRAINED)
    for k in range(word(starts, first), word(starts, end)):
        at = word(table, P) + word(constrained, k) * REAL_BYTES
        put(LANE, word(table, KEPT), k, get(LANE, at, 0))
        put(LANE, at, 0, 0.0)


@inner
def release(table, first, end):
    """Restore the constrained entries of p, and set those of v."""
    starts, constrained = word(table, CONSTRAINED_START), word(table, CONSTRAINED)
    keep = get(LANE, word(table, KEEP), 0)
    for k in range(word(starts, first), word(starts, end)):
        at, value = word(constrained, k), get(LANE, word(table, KEPT), k)
        put(LANE, word(table, P), at, value)
        put(LANE, word(table, V), at, keep * value)


@inner
def piece(table, first, end):
    """First entry and number of entries that batches ``first`` up to ``end`` touch first."""
    starts, ncomp = word(table, BATCH_START), word(table, NCOMP)
    begin = word(starts, first) * ncomp
    return begin, word(starts, end) * ncomp - begin


@inner
def ask(table, u, last):
    """Ask memory for the entries of r, p, v and M of a shared dof that comes soon, if ``ASK``."""
    if ASK:
        dof = word(word(table, SHARED_DOF), min(u + SOON, last))
        at = dof * word(table, NCOMP) * REAL_BYTES
        prefetch(word(table, R), at, 1)
        prefetch(word(table, P), at, 1)
        prefetch(word(table, V), at, 1)
        if USE_INVERSE:
            prefetch(word(table, M), at, 1)


@entry
def tail(table, x, y, chunk, work, alpha: float, beta: float):
    """Store the next p of the shared dofs that the chunk owns in the tail of p."""
    drop, factor = due(table, DROP), due(table, BETA)
    r, p, v, m = word(table, R), word(table, P), word(table, V), word(table, M)
    starts, ncomp = word(table, SHARED_START), word(table, NCOMP)
    begin, last = p + word(table, TAIL) * REAL_BYTES, word(starts, chunk + 1) - 1
    for u in range(word(starts, chunk), word(starts, chunk + 1)):
        ask(table, u, last)
        dof = word(word(table, SHARED_DOF), u)
        for c in range(ncomp):
            at = dof * ncomp + c
            ri, pi, mi = get(LANE, r, at), get(LANE, p, at), get(LANE, m, at)
            _, pi, _ = updated(ri, pi, get(LANE, v, at), mi, drop, factor)
            put(LANE, begin, u * ncomp + c, pi)
    starts = word(table, TAIL_CONSTRAINED_START)
    for k in range(word(starts, chunk), word(starts, chunk + 1)):
        put(LANE, begin, word(word(table, TAIL_CONSTRAINED), k), 0.0)


@entry
def nothing(table, x, y, chunk, work, alpha: float, beta: float):
    """Do nothing: tails need not be combined."""


@entry
def before(table, first, end, chunk, work, alpha: float, beta: float):
    """Update the entries that batches ``first`` up to ``end`` touch first."""
    begin, length = piece(table, first, end)
    update(table, begin, length, sums_of(table, chunk))
    hold(table, first, end)


@entry
def sweep(table, x, y, chunk, work, alpha: float, beta: float):
    """Apply the operator to one chunk, with the vector updates, and store the chunk's sums."""
    sums = sums_of(table, chunk)
    clear(sums)
    p, v = word(table, P), word(table, V)
    call_chunk(word(table, KERNEL), word(table, KERNEL_TABLE), p, v, chunk, work, alpha, 0.0)
    first, end = word(word(table, FIRST_BATCH), chunk), word(word(table, FIRST_BATCH), chunk + 1)
    release(table, first, end)
    begin, length = piece(table, first, end)
    after(table, begin, length, sums)


@entry
def combine(table, x, y, chunk, work, alpha: float, beta: float):
    """Add the contributions of later chunks to the dofs that ``chunk`` owns; correct the sums."""
    starts, ncomp, v = word(table, SHARED_START), word(table, NCOMP), word(table, V)
    slots, buffer = word(table, SLOT_START), word(table, BUFFER)
    total, last = (0.0, 0.0, 0.0, 0.0, 0.0), word(starts, chunk + 1) - 1
    for u in range(word(starts, chunk), word(starts, chunk + 1)):
        ask(table, u, last)
        if ASK:
            soon = word(slots, min(u + SOON, last))
            if soon < word(slots, last + 1):
                prefetch(buffer, word(word(table, SLOT), soon) * ncomp * REAL_BYTES, 1)
        dof = word(word(table, SHARED_DOF), u)
        for c in range(ncomp):
            old = get(LANE, v, dof * ncomp + c)
            new = old
            for k in range(word(slots, u), word(slots, u + 1)):
                new += get(LANE, buffer, word(word(table, SLOT), k) * ncomp + c)
            put(LANE, v, dof * ncomp + c, new)
            total = corrected(total, table, dof * ncomp + c, old, new)
    sums = sums_of(table, word(table, CHUNKS) + chunk)
    clear(sums)
    add_products(sums, total)


@function
def receive(table, values, positions, count, work, alpha: float, beta: float):
    """Add values of other ranks to entries of v, and correct the sums.

    Negative positions are skipped.
    """
    total, v = (0.0, 0.0, 0.0, 0.0, 0.0), word(table, V)
    for k in range(count):
        at = word(positions, k)
        if at >= 0:
            old = get(LANE, v, at)
            new = old + get(LANE, values, k)
            put(LANE, v, at, new)
            total = corrected(total, table, at, old, new)
    sums = sums_of(table, 2 * word(table, CHUNKS))
    clear(sums)
    add_products(sums, total)
