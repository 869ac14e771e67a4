"""Vector updates and inner products of conjugate gradients.

Vectors are cut into segments; inner products are summed segment by segment, in order, so that the
result has the same bits for any number of threads.
"""

# <defaults>
from femops_kernels.simd.compiling import inner, shared
from femops_kernels.simd.lanes import Lane, numbers, word
from femops_kernels.skeletons.cg.cg_state import *
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.chunk.defaults import LANE

# </defaults>

ALL_PASSES = True  # LLVM turns loops over numbers into vectors
FLOAT64 = Lane(2, "float64")  # how sums and factors are read


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
def vector(table, which):
    """One of the vectors."""
    return numbers(LANE, word(table, which))


@shared
def start_segments(k, thread, table, drop):
    """Set r = b - drop r, where r holds A x, and p = M r. Sum r.M r and r.r.

    If drop is 0, set x = 0.
    """
    b, r, p, inverse = vector(table, B), vector(table, R), vector(table, P), vector(table, INVERSE)
    x = vector(table, X)
    use_inverse, edges = word(table, USE_INVERSE) != 0, word(table, EDGES)
    s, t = 0.0, 0.0
    for i in range(word(edges, k), word(edges, k + 1)):
        ri = b[i] - r[i] if drop != 0.0 else b[i]
        if drop == 0.0:
            x[i] = 0.0
        z = ri * inverse[i] if use_inverse else ri
        r[i] = ri
        p[i] = z
        s += ri * z
        t += ri * ri
    keep_sums(table, k, s, t)


@shared
def dot_segments(k, thread, table):
    """Sum p.v."""
    p, v, edges = vector(table, P), vector(table, V), word(table, EDGES)
    s = 0.0
    for i in range(word(edges, k), word(edges, k + 1)):
        s += p[i] * v[i]
    numbers(FLOAT64, word(table, PARTIAL))[k] = s


@shared
def move_segments(k, thread, table, drop, near, far):
    """Update x += near p + far (p - M r), then r -= drop v; sums r.M r and r.r."""
    x, r, p, v = vector(table, X), vector(table, R), vector(table, P), vector(table, V)
    inverse, use_inverse = vector(table, INVERSE), word(table, USE_INVERSE) != 0
    edges = word(table, EDGES)
    s, t = 0.0, 0.0
    for i in range(word(edges, k), word(edges, k + 1)):
        change = near * p[i]
        if far != 0.0:
            change += far * (p[i] - (r[i] * inverse[i] if use_inverse else r[i]))
        x[i] += change
        ri = r[i] - drop * v[i]
        r[i] = ri
        s += ri * ri * inverse[i] if use_inverse else ri * ri
        t += ri * ri
    keep_sums(table, k, s, t)


@shared
def turn_segments(k, thread, table, beta):
    """Set p = M r + beta p."""
    r, p, inverse = vector(table, R), vector(table, P), vector(table, INVERSE)
    use_inverse, edges = word(table, USE_INVERSE) != 0, word(table, EDGES)
    for i in range(word(edges, k), word(edges, k + 1)):
        z = r[i] * inverse[i] if use_inverse else r[i]
        p[i] = z + beta * p[i]


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
