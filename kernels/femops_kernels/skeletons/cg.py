"""Preconditioned conjugate gradients, the whole iteration compiled.

Vectors are cut into blocks of fixed size; inner products are summed block by block, in order, so
that the result has the same bits for any number of threads.
"""

# <defaults>
from math import sqrt

from numba import njit, prange

from femops_kernels.skeletons.driver import LOOPS, apply

REAL = "float64"
# </defaults>

BLOCK = 4096  # numbers of a block: 32 kB of float64, three vectors of it stay in cache
ITERATIONS, RHO, RESIDUAL, STATUS = 0, 1, 2, 3  # entries of `state`
RUNNING, CONVERGED, BREAKDOWN = 0, 1, 2
UNDERFLOW = 1e-18  # the square root of the smallest float32, and more


@njit
def total(partial):
    """Sum of the blocks' sums, in order."""
    s = 0.0
    for i in range(len(partial)):
        s += partial[i]
    return s


@njit(nogil=True, parallel=LOOPS)
def start(b, x, r, p, inverse, use_inverse, partial, partial_rr):
    """Set r = b - r (r holds A x) and p = M r; returns r.M r and r.r."""
    n = len(b)
    for k in prange(len(partial)):
        s, t = 0.0, 0.0
        for i in range(k * BLOCK, min(n, (k + 1) * BLOCK)):
            ri = b[i] - r[i]
            z = ri * inverse[i] if use_inverse else ri
            r[i] = ri
            p[i] = z
            s += ri * z
            t += ri * ri
        partial[k] = s
        partial_rr[k] = t
    return total(partial), total(partial_rr)


@njit(nogil=True, parallel=LOOPS)
def dot(a, b, partial):
    """Inner product."""
    n = len(a)
    for k in prange(len(partial)):
        s = 0.0
        for i in range(k * BLOCK, min(n, (k + 1) * BLOCK)):
            s += a[i] * b[i]
        partial[k] = s
    return total(partial)


@njit(nogil=True, parallel=LOOPS)
def step(alpha, x, r, p, ap, inverse, use_inverse, partial, partial_rr):
    """Update x += alpha p and r -= alpha A p; returns r.M r and r.r."""
    n = len(x)
    for k in prange(len(partial)):
        s, t = 0.0, 0.0
        for i in range(k * BLOCK, min(n, (k + 1) * BLOCK)):
            x[i] += alpha * p[i]
            ri = r[i] - alpha * ap[i]
            r[i] = ri
            s += ri * ri * inverse[i] if use_inverse else ri * ri
            t += ri * ri
        partial[k] = s
        partial_rr[k] = t
    return total(partial), total(partial_rr)


@njit(nogil=True, parallel=LOOPS)
def direction(beta, r, p, inverse, use_inverse, partial):
    """Set p = M r + beta p."""
    n = len(r)
    for k in prange(len(partial)):
        for i in range(k * BLOCK, min(n, (k + 1) * BLOCK)):
            z = r[i] * inverse[i] if use_inverse else r[i]
            p[i] = z + beta * p[i]


@njit(
    f"void(intp, intp, intp, intp, intp, {REAL}[:, ::1], {REAL}[::1], {REAL}[::1], "
    "boolean, float64[:, ::1], float64[::1], float64, int64, int64)",
    cache=True,
    nogil=True,
)
def iterate(
    rows,
    alphas,
    count,
    work,
    work_bytes,
    vectors,
    b,
    inverse,
    use_inverse,
    partial,
    state,
    tolerance,
    limit,
    steps,
):
    """Up to ``steps`` iterations, until |r| <= tolerance or ``limit`` iterations in all.

    ``vectors`` holds x, r, p and A p; ``state`` the iteration count, r.M r, |r| and a status, so
    that the iteration can be continued: it is begun when the count is negative.
    """
    x, r, p, ap = vectors[0], vectors[1], vectors[2], vectors[3]
    if state[ITERATIONS] < 0:
        apply(rows, alphas, count, x.ctypes.data, r.ctypes.data, work, work_bytes)
        rho, rr = start(b, x, r, p, inverse, use_inverse, partial[0], partial[1])
        state[ITERATIONS], state[RHO], state[RESIDUAL] = 0.0, rho, sqrt(rr)
        if state[RESIDUAL] <= tolerance:
            state[STATUS] = CONVERGED
            return
    for _ in range(steps):
        if state[ITERATIONS] >= limit:
            return
        if not state[RHO] > 0.0:
            # The squares of a residual may underflow while it is not yet zero: nothing is left
            # to reduce. An indefinite preconditioner gives the same at a residual that is not.
            state[STATUS] = CONVERGED if state[RESIDUAL] < UNDERFLOW else BREAKDOWN
            return
        apply(rows, alphas, count, p.ctypes.data, ap.ctypes.data, work, work_bytes)
        curvature = dot(p, ap, partial[0])
        if not curvature > 0.0:
            state[STATUS] = BREAKDOWN
            return
        alpha = state[RHO] / curvature
        rho, rr = step(alpha, x, r, p, ap, inverse, use_inverse, partial[0], partial[1])
        beta = rho / state[RHO]
        state[ITERATIONS] += 1.0
        state[RHO], state[RESIDUAL] = rho, sqrt(rr)
        if state[RESIDUAL] <= tolerance:
            state[STATUS] = CONVERGED
            return
        direction(beta, r, p, inverse, use_inverse, partial[0])
