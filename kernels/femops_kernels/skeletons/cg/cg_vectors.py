"""Vector updates and inner products of conjugate gradients.

Vectors are cut into blocks at ``edges``; inner products are summed block by block, in order, so
that the result has the same bits for any number of threads.  What the blocks have summed stands in
the rows of ``partial``.
"""

# <defaults>
from numba import njit

from femops_kernels.simd.threads import shared

# </defaults>


@njit
def total(partial):
    """Sum of the blocks' sums, in order."""
    s = 0.0
    for i in range(len(partial)):
        s += partial[i]
    return s


@shared
def start_blocks(k, thread, b, r, p, inverse, use_inverse, edges, partial):
    """Set r = b - r (r holds A x) and p = M r; sums r.M r and r.r."""
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
def dot_blocks(k, thread, a, b, edges, partial):
    """Sums of the inner product of two vectors."""
    s = 0.0
    for i in range(edges[k], edges[k + 1]):
        s += a[i] * b[i]
    partial[0, k] = s


@shared
def step_blocks(k, thread, alpha, x, r, p, ap, inverse, use_inverse, edges, partial):
    """Update x += alpha p and r -= alpha A p; sums r.M r and r.r."""
    s, t = 0.0, 0.0
    for i in range(edges[k], edges[k + 1]):
        x[i] += alpha * p[i]
        ri = r[i] - alpha * ap[i]
        r[i] = ri
        s += ri * ri * inverse[i] if use_inverse else ri * ri
        t += ri * ri
    partial[0, k], partial[1, k] = s, t


@shared
def turn_blocks(k, thread, beta, r, p, inverse, use_inverse, edges):
    """Set p = M r + beta p."""
    for i in range(edges[k], edges[k + 1]):
        z = r[i] * inverse[i] if use_inverse else r[i]
        p[i] = z + beta * p[i]
