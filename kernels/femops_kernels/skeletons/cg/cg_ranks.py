"""The vector updates of conjugate gradients, separately: ranks add up their sums in between.

What a function sums it leaves in ``partial``, block by block; ``vectors`` are x, r, p and A p. The
loops, which threads share, are in what is called.
"""

# <defaults>
from numba import njit

from femops_kernels.skeletons.cg.cg_merged import settle
from femops_kernels.skeletons.cg.cg_vectors import direction, dot, start, step

REAL = "float64"
# </defaults>

COMMON = f"{REAL}[:, ::1], {REAL}[::1], boolean, int64[::1]"


@njit(f"void({REAL}[::1], {COMMON}, float64[:, ::1])", cache=True, nogil=True)
def begin(b, vectors, inverse, use_inverse, edges, partial):
    """Set r = b - r (r holds A x) and p = M r; sums r.M r and r.r."""
    start(b, vectors[0], vectors[1], vectors[2], inverse, use_inverse, edges, partial)


@njit(f"void({REAL}[::1], {REAL}[::1], int64[::1], float64[:, ::1])", cache=True, nogil=True)
def product(a, b, edges, partial):
    """Sums of the inner product of two vectors."""
    dot(a, b, edges, partial)


@njit(f"void(float64, {COMMON}, float64[:, ::1])", cache=True, nogil=True)
def move(alpha, vectors, inverse, use_inverse, edges, partial):
    """Update x += alpha p and r -= alpha A p; sums r.M r and r.r."""
    x, r, p, ap = vectors[0], vectors[1], vectors[2], vectors[3]
    step(alpha, x, r, p, ap, inverse, use_inverse, edges, partial)


@njit(f"void(float64, {COMMON})", cache=True, nogil=True)
def turn(beta, vectors, inverse, use_inverse, edges):
    """Set p = M r + beta p."""
    direction(beta, vectors[1], vectors[2], inverse, use_inverse, edges)


@njit(f"void(float64[::1], {COMMON}, float64[:, ::1])", cache=True, nogil=True)
def catch_up(todo, vectors, inverse, use_inverse, edges, partial):
    """Do the updates of x and r that are due; sums r.M r and r.r."""
    settle(todo, vectors, inverse, use_inverse, edges, partial)
