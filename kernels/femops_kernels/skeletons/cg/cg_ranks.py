"""The vector updates of conjugate gradients, separately: ranks add up their sums in between.

What a function sums it leaves in ``partial``, segment by segment; ``vectors`` are x, r, p and A p.
The loops, which threads share, are in what is called.
"""

# <defaults>
from numba import njit

from femops_kernels.skeletons.cg.cg_vectors import direction, dot, settle, start, step

REAL = "float64"
# </defaults>

COMMON = f"{REAL}[:, ::1], {REAL}[::1], boolean, int64[::1]"


@njit(f"void(intp, {REAL}[::1], {COMMON}, float64[:, ::1])", cache=True, nogil=True)
def begin(team, b, vectors, inverse, use_inverse, edges, partial):
    """Set r = b - r (r holds A x) and p = M r; sums r.M r and r.r."""
    start(team, b, vectors, inverse, use_inverse, edges, partial)


@njit(f"void(intp, {REAL}[::1], {REAL}[::1], int64[::1], float64[:, ::1])", cache=True, nogil=True)
def product(team, a, b, edges, partial):
    """Sums of the inner product of two vectors."""
    dot(team, a, b, edges, partial)


@njit(f"void(intp, float64, {COMMON}, float64[:, ::1])", cache=True, nogil=True)
def move(team, alpha, vectors, inverse, use_inverse, edges, partial):
    """Update x += alpha p and r -= alpha A p; sums r.M r and r.r."""
    step(team, alpha, vectors, inverse, use_inverse, edges, partial)


@njit(f"void(intp, float64, {COMMON})", cache=True, nogil=True)
def turn(team, beta, vectors, inverse, use_inverse, edges):
    """Set p = M r + beta p."""
    direction(team, beta, vectors, inverse, use_inverse, edges)


@njit(f"void(intp, float64[::1], {COMMON}, float64[:, ::1])", cache=True, nogil=True)
def catch_up(team, todo, vectors, inverse, use_inverse, edges, partial):
    """Do the updates of x and r that are due; sums r.M r and r.r."""
    settle(team, todo, vectors, inverse, use_inverse, edges, partial)
