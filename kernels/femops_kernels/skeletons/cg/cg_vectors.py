"""Vector updates and inner products of conjugate gradients.

Vectors are cut into segments at ``edges``; inner products are summed segment by segment, in order,
so that the result has the same bits for any number of threads.  What the segments have summed
stands in the rows of ``partial``.
"""

# <defaults>
from numba import njit

from femops_kernels.simd.threads import shared
from femops_kernels.skeletons.cg.decisions import DROP, FAR, NEAR

# </defaults>


@njit
def total(partial):
    """Sum of the segments' sums, in order."""
    s = 0.0
    for i in range(len(partial)):
        s += partial[i]
    return s


@shared
def start_segments(k, thread, b, r, p, inverse, use_inverse, edges, partial):
    """Set r = b - r and p = M r."""
    s, t = 0.0, 0.0
    for i in range(edges[k], edges[k + 1]):
        ri = b[i] - r[i]
        z = ri * inverse[i] if use_inverse else ri
        r[i] = ri
        p[i] = z
        s += ri * z
        t += ri * ri
    partial[0, k], partial[1, k] = s, t


@shared
def dot_segments(k, thread, a, b, edges, partial):
    """Sum a b."""
    s = 0.0
    for i in range(edges[k], edges[k + 1]):
        s += a[i] * b[i]
    partial[0, k] = s


@shared
def step_segments(k, thread, alpha, x, r, p, ap, inverse, use_inverse, edges, partial):
    """Update x and r."""
    s, t = 0.0, 0.0
    for i in range(edges[k], edges[k + 1]):
        x[i] += alpha * p[i]
        ri = r[i] - alpha * ap[i]
        r[i] = ri
        s += ri * ri * inverse[i] if use_inverse else ri * ri
        t += ri * ri
    partial[0, k], partial[1, k] = s, t


@shared
def turn_segments(k, thread, beta, r, p, inverse, use_inverse, edges):
    """Set p = M r + beta p."""
    for i in range(edges[k], edges[k + 1]):
        z = r[i] * inverse[i] if use_inverse else r[i]
        p[i] = z + beta * p[i]


@shared
def settle_segments(k, thread, drop, near, far, x, r, p, v, inverse, use_inverse, edges, partial):
    """Update x and r by what is due."""
    s, t = 0.0, 0.0
    for i in range(edges[k], edges[k + 1]):
        m = inverse[i] if use_inverse else 1.0
        x[i] += near * p[i] + far * (p[i] - r[i] * m)
        ri = r[i] - drop * v[i]
        r[i] = ri
        s += ri * ri * m
        t += ri * ri
    partial[0, k], partial[1, k] = s, t


@njit(nogil=True)
def start(team, b, vectors, inverse, use_inverse, edges, partial):
    """Set r = b - r (r holds A x) and p = M r; returns r.M r and r.r."""
    r, p = vectors[1], vectors[2]
    start_segments(team, len(edges) - 1, b, r, p, inverse, use_inverse, edges, partial)
    return total(partial[0]), total(partial[1])


@njit(nogil=True)
def dot(team, a, b, edges, partial):
    """Inner product."""
    dot_segments(team, len(edges) - 1, a, b, edges, partial)
    return total(partial[0])


@njit(nogil=True)
def step(team, alpha, vectors, inverse, use_inverse, edges, partial):
    """Update x += alpha p and r -= alpha A p; returns r.M r and r.r."""
    x, r, p, ap = vectors[0], vectors[1], vectors[2], vectors[3]
    n = len(edges) - 1
    step_segments(team, n, alpha, x, r, p, ap, inverse, use_inverse, edges, partial)
    return total(partial[0]), total(partial[1])


@njit(nogil=True)
def direction(team, beta, vectors, inverse, use_inverse, edges):
    """Set p = M r + beta p."""
    turn_segments(team, len(edges) - 1, beta, vectors[1], vectors[2], inverse, use_inverse, edges)


@njit(nogil=True)
def settle(team, todo, vectors, inverse, use_inverse, edges, partial):
    """Do the updates of x and r that merged passes left due; returns r.M r and r.r."""
    x, r, p, v = vectors[0], vectors[1], vectors[2], vectors[3]
    drop, near, far, n = todo[DROP], todo[NEAR], todo[FAR], len(edges) - 1
    settle_segments(team, n, drop, near, far, x, r, p, v, inverse, use_inverse, edges, partial)
    todo[DROP], todo[NEAR], todo[FAR] = 0.0, 0.0, 0.0
    return total(partial[0]), total(partial[1])
