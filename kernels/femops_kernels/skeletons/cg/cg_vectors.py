"""Vector updates and inner products of conjugate gradients.

Vectors are cut into segments; inner products are summed segment by segment, in order, so that the
result has the same bits for any number of threads.
"""

# <defaults>
from femops_kernels.simd.compiling import inner, shared
from femops_kernels.simd.lanes import Lane, fill, get, load, numbers, put, slot_sum, store, word
from femops_kernels.skeletons.cg.cg_state import *
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.chunk.defaults import LANE, LANE_WIDTH, REAL_BYTES

# </defaults>

FLOAT64 = Lane(2, "float64")  # how sums and factors are read
STRIP = 32  # lanes summed before a sum is carried on in float64


@inner
def total(table, partial):
    """Sum of the segments' sums, in order."""
    sums, s = numbers(FLOAT64, word(table, partial)), 0.0
    for i in range(word(table, SEGMENTS)):
        s += sums[i]
    return s


@inner
def keep_sums(table, k, s, t):
    """Store the two sums of segment k."""
    first, second = numbers(FLOAT64, word(table, PARTIAL)), numbers(FLOAT64, word(table, SECOND))
    first[k], second[k] = s, t


@inner
def segment(table, k):
    """Addresses of segment k in x, r, p, v, b and the inverse diagonal; number of its entries."""
    begin, end = word(word(table, EDGES), k), word(word(table, EDGES), k + 1)
    return [word(table, one) + begin * REAL_BYTES for one in (X, R, P, V, B, INVERSE)], end - begin


@inner
def each_entry(entry, vectors, length, use_inverse, factors):
    """Call ``entry`` for whole lanes, then for the other entries. Return the sums of its results.

    It takes the functions by which it reads and writes, the vectors, an index, ``use_inverse`` and
    the factors, and returns two terms. Sums of strips of lanes are carried on in float64.
    """
    lanes, s, t = length // LANE_WIDTH, 0.0, 0.0
    for first in range(0, lanes, STRIP):
        one, other = fill(LANE, 0.0), fill(LANE, 0.0)
        for i in range(first, min(first + STRIP, lanes)):
            a, b = entry(load, store, vectors, i, use_inverse, factors)
            one, other = one + a, other + b
        s, t = s + slot_sum(one), t + slot_sum(other)
    for i in range(lanes * LANE_WIDTH, length):
        a, b = entry(get, put, vectors, i, use_inverse, factors)
        s, t = s + a, t + b
    return s, t


@inner
def start_entry(read, write, vectors, i, use_inverse, drop):
    x, r, p, _, b, inverse = vectors
    ri = read(LANE, b, i)
    if drop != 0.0:
        ri = ri - read(LANE, r, i)
    else:
        write(LANE, x, i, 0.0)
    z = ri * read(LANE, inverse, i) if use_inverse else ri
    write(LANE, r, i, ri)
    write(LANE, p, i, z)
    return ri * z, ri * ri


@inner
def dot_entry(read, write, vectors, i, use_inverse, factors):
    _, _, p, v, _, _ = vectors
    return read(LANE, p, i) * read(LANE, v, i), 0.0


@inner
def move_entry(read, write, vectors, i, use_inverse, factors):
    x, r, p, v, _, inverse = vectors
    drop, near, far = factors
    ri, pi = read(LANE, r, i), read(LANE, p, i)
    xi = read(LANE, x, i) + near * pi
    if far != 0.0:
        xi = xi + far * (pi - (ri * read(LANE, inverse, i) if use_inverse else ri))
    write(LANE, x, i, xi)
    ri = ri - drop * read(LANE, v, i)
    write(LANE, r, i, ri)
    return ri * (ri * read(LANE, inverse, i) if use_inverse else ri), ri * ri


@inner
def turn_entry(read, write, vectors, i, use_inverse, beta):
    _, r, p, _, _, inverse = vectors
    ri = read(LANE, r, i)
    z = ri * read(LANE, inverse, i) if use_inverse else ri
    write(LANE, p, i, z + beta * read(LANE, p, i))


@shared
def start_segments(k, thread, table, drop):
    """Set r = b - drop r, where r holds A x, and p = M r. Sum r.M r and r.r.

    If drop is 0, set x = 0.
    """
    vectors, length = segment(table, k)
    use_inverse = word(table, USE_INVERSE) != 0
    s, t = each_entry(start_entry, vectors, length, use_inverse, drop)
    keep_sums(table, k, s, t)


@shared
def dot_segments(k, thread, table):
    """Sum p.v."""
    vectors, length = segment(table, k)
    s, _ = each_entry(dot_entry, vectors, length, False, ())
    numbers(FLOAT64, word(table, PARTIAL))[k] = s


@shared
def move_segments(k, thread, table, drop, near, far):
    """Update x += near p + far (p - M r), then r -= drop v; sums r.M r and r.r."""
    vectors, length = segment(table, k)
    use_inverse = word(table, USE_INVERSE) != 0
    s, t = each_entry(move_entry, vectors, length, use_inverse, (drop, near, far))
    keep_sums(table, k, s, t)


@shared
def turn_segments(k, thread, table, beta):
    """Set p = M r + beta p."""
    vectors, length = segment(table, k)
    use_inverse, lanes = word(table, USE_INVERSE) != 0, length // LANE_WIDTH
    for i in range(lanes):
        turn_entry(load, store, vectors, i, use_inverse, beta)
    for i in range(lanes * LANE_WIDTH, length):
        turn_entry(get, put, vectors, i, use_inverse, beta)


@inner
def updated_vectors(table, action):
    """Do an action without the product of a sweep, and store the sums of segments."""
    state = numbers(FLOAT64, word(table, STATE))
    team, segments = word(table, TEAM), word(table, SEGMENTS)
    if action == START:
        start_segments(team, segments, table, state[DROP])
    elif action == SWEEP:
        dot_segments(team, segments, table)
    elif action == MOVE:
        move_segments(team, segments, table, state[DROP], state[NEAR], state[FAR])
    else:
        turn_segments(team, segments, table, state[BETA])
