"""Vector updates and inner products of conjugate gradients.

Vectors are cut into blocks at ``edges``; inner products are summed block by block, in order, so
that the result has the same bits for any number of threads.  What the blocks have summed stands in
the rows of ``partial``.
"""

# <defaults>
from numba import njit, prange

from femops_kernels.skeletons.cg.decisions import DROP, FAR, NEAR
from femops_kernels.skeletons.chunk.driver import LOOPS

# </defaults>


@njit
def total(partial):
    """Sum of the blocks' sums, in order."""
    s = 0.0
    for i in range(len(partial)):
        s += partial[i]
    return s


@njit(nogil=True, parallel=LOOPS)
def start(b, x, r, p, inverse, use_inverse, edges, partial):
    """Set r = b - r (r holds A x) and p = M r; returns r.M r and r.r."""
    for k in prange(len(edges) - 1):
        s, t = 0.0, 0.0
        for i in range(edges[k], edges[k + 1]):
            ri = b[i] - r[i]
            z = ri * inverse[i] if use_inverse else ri
            r[i] = ri
            p[i] = z
            s += ri * z
            t += ri * ri
        partial[0, k], partial[1, k] = s, t
    return total(partial[0]), total(partial[1])


@njit(nogil=True, parallel=LOOPS)
def dot(a, b, edges, partial):
    """Inner product."""
    for k in prange(len(edges) - 1):
        s = 0.0
        for i in range(edges[k], edges[k + 1]):
            s += a[i] * b[i]
        partial[0, k] = s
    return total(partial[0])


@njit(nogil=True, parallel=LOOPS)
def step(alpha, x, r, p, ap, inverse, use_inverse, edges, partial):
    """Update x += alpha p and r -= alpha A p; returns r.M r and r.r."""
    for k in prange(len(edges) - 1):
        s, t = 0.0, 0.0
        for i in range(edges[k], edges[k + 1]):
            x[i] += alpha * p[i]
            ri = r[i] - alpha * ap[i]
            r[i] = ri
            s += ri * ri * inverse[i] if use_inverse else ri * ri
            t += ri * ri
        partial[0, k], partial[1, k] = s, t
    return total(partial[0]), total(partial[1])


@njit(nogil=True, parallel=LOOPS)
def direction(beta, r, p, inverse, use_inverse, edges):
    """Set p = M r + beta p."""
    for k in prange(len(edges) - 1):
        for i in range(edges[k], edges[k + 1]):
            z = r[i] * inverse[i] if use_inverse else r[i]
            p[i] = z + beta * p[i]


@njit(nogil=True, parallel=LOOPS)
def settle(todo, vectors, inverse, use_inverse, edges, partial):
    """Do the updates of x and r that merged passes left due; returns r.M r and r.r."""
    x, r, p, v = vectors[0], vectors[1], vectors[2], vectors[3]
    drop, near, far = todo[DROP], todo[NEAR], todo[FAR]
    for k in prange(len(edges) - 1):
        s, t = 0.0, 0.0
        for i in range(edges[k], edges[k + 1]):
            m = inverse[i] if use_inverse else 1.0
            x[i] += near * p[i] + far * (p[i] - r[i] * m)
            ri = r[i] - drop * v[i]
            r[i] = ri
            s += ri * ri * m
            t += ri * ri
        partial[0, k], partial[1, k] = s, t
    todo[DROP], todo[NEAR], todo[FAR] = 0.0, 0.0, 0.0
    return total(partial[0]), total(partial[1])
