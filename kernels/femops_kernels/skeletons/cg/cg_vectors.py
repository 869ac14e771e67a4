"""Vector updates and inner products of conjugate gradients.

Vectors are cut into segments; inner products are summed segment by segment, in order, so that the
result has the same bits for any number of threads.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import Lane, numbers, word
from femops_kernels.simd.threads import shared
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.cg.decisions import DROP, FAR, NEAR
from femops_kernels.skeletons.chunk.defaults import LANE

# </defaults>

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
    """Note the sums of a segment."""
    first, second = numbers(FLOAT64, word(table, PARTIAL)), numbers(FLOAT64, word(table, SECOND))
    first[k], second[k] = s, t


@inner
def vector(table, which):
    """One of the vectors."""
    return numbers(LANE, word(table, which))


@shared
def start_segments(k, thread, table):
    """Set r = b - r, without a first guess r = b, and p = M r."""
    b, r, p, inverse = vector(table, B), vector(table, R), vector(table, P), vector(table, INVERSE)
    use_inverse, edges = word(table, USE_INVERSE) != 0, word(table, EDGES)
    guessed = word(table, GUESSED) != 0
    s, t = 0.0, 0.0
    for i in range(word(edges, k), word(edges, k + 1)):
        ri = b[i] - r[i] if guessed else b[i]
        z = ri * inverse[i] if use_inverse else ri
        r[i] = ri
        p[i] = z
        s += ri * z
        t += ri * ri
    keep_sums(table, k, s, t)


@shared
def dot_segments(k, thread, table):
    """Sum p A p."""
    p, ap, edges = vector(table, P), vector(table, AP), word(table, EDGES)
    s = 0.0
    for i in range(word(edges, k), word(edges, k + 1)):
        s += p[i] * ap[i]
    numbers(FLOAT64, word(table, PARTIAL))[k] = s


@shared
def step_segments(k, thread, table, alpha):
    """Update x and r."""
    x, r, p, ap = vector(table, X), vector(table, R), vector(table, P), vector(table, AP)
    inverse, use_inverse = vector(table, INVERSE), word(table, USE_INVERSE) != 0
    edges = word(table, EDGES)
    s, t = 0.0, 0.0
    for i in range(word(edges, k), word(edges, k + 1)):
        x[i] += alpha * p[i]
        ri = r[i] - alpha * ap[i]
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


@shared
def settle_segments(k, thread, table, drop, near, far):
    """Update x and r by what is due."""
    x, r, p, v = vector(table, X), vector(table, R), vector(table, P), vector(table, AP)
    inverse, use_inverse = vector(table, INVERSE), word(table, USE_INVERSE) != 0
    edges = word(table, EDGES)
    s, t = 0.0, 0.0
    for i in range(word(edges, k), word(edges, k + 1)):
        m = inverse[i] if use_inverse else 1.0
        x[i] += near * p[i] + far * (p[i] - r[i] * m)
        ri = r[i] - drop * v[i]
        r[i] = ri
        s += ri * ri * m
        t += ri * ri
    keep_sums(table, k, s, t)


@inner
def start(table):
    """Set r = b - r (r holds A x) and p = M r; sums r.M r and r.r."""
    start_segments(word(table, TEAM), word(table, SEGMENTS), table)


@inner
def dot(table):
    """Sums the inner product of p and A p."""
    dot_segments(word(table, TEAM), word(table, SEGMENTS), table)


@inner
def step(table, alpha):
    """Update x += alpha p and r -= alpha A p; sums r.M r and r.r."""
    step_segments(word(table, TEAM), word(table, SEGMENTS), table, alpha)


@inner
def direction(table, beta):
    """Set p = M r + beta p."""
    turn_segments(word(table, TEAM), word(table, SEGMENTS), table, beta)


@inner
def settle(table):
    """Do the updates of x and r that merged passes left due; sums r.M r and r.r."""
    todo = numbers(FLOAT64, word(table, TODO))
    drop, near, far = todo[DROP], todo[NEAR], todo[FAR]
    settle_segments(word(table, TEAM), word(table, SEGMENTS), table, drop, near, far)
    todo[DROP], todo[NEAR], todo[FAR] = 0.0, 0.0, 0.0
