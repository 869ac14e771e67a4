"""Eigenvalues and eigenvectors of the symmetric matrices in lanes, by Jacobi's rotations.

A becomes diagonal; the second operand has the vectors as columns, and behind them the eigenvalues,
as one more row. Both are in ascending order.
"""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

TINY, LEAST = 1e-31, 1e-17  # of a matrix's norm: squared, what is left; what is not turned
SWEEPS = 30
SMALL, LARGE = 1e-300, 1e300  # of a matrix's largest entry: it is divided by what is between
# </defaults>


@inner
def scale_down(a):
    """Divide by the largest entry, so that squares neither overflow nor vanish; return it."""
    most, one = fill(LANE, ZERO), as_lane(LANE, 1.0)
    for k in range(N * N):
        size = lane_fabs(load(LANE, a, k))
        most = lane_where(lane_gt(size, most), size, most)
    most = lane_where(lane_gt(most, SMALL), most, one)
    most = lane_where(lane_lt(most, LARGE), most, one)
    scale = one / most
    for k in range(N * N):
        store(LANE, a, k, load(LANE, a, k) * scale)
    return most


@inner
def rotation(a, p, q, least):
    """Cosine and sine that make an entry zero; 1 and 0 where it is, to round-off."""
    off = load(LANE, a, p * N + q)
    there = lane_gt(lane_fabs(off), least)
    one = as_lane(LANE, 1.0)
    difference = load(LANE, a, q * N + q) - load(LANE, a, p * N + p)
    theta = difference / lane_where(there, off + off, one)
    root = lane_fabs(theta) + lane_sqrt(theta * theta + one)
    tangent = lane_where(lane_lt(theta, ZERO), -one, one) / root
    tangent = lane_where(there, tangent, fill(LANE, ZERO))
    cosine = one / lane_sqrt(tangent * tangent + one)
    return cosine, tangent * cosine


@inner
def turn(table, first, second, stride, cosine, sine):
    """Turn two rows, or two columns, against each other."""
    for k in range(N):
        x, y = load(LANE, table, first + k * stride), load(LANE, table, second + k * stride)
        store(LANE, table, first + k * stride, cosine * x - sine * y)
        store(LANE, table, second + k * stride, sine * x + cosine * y)


@inner
def far(a, sums):
    """Return 1 if a matrix of the group is not diagonal to round-off; its norm times LEAST."""
    off, whole = fill(LANE, ZERO), fill(LANE, ZERO)
    for i in range(N):
        for j in range(N):
            square = load(LANE, a, i * N + j) * load(LANE, a, i * N + j)
            whole = whole + square
            if i != j:
                off = off + square
    store(LANE, sums, 0, off - whole * TINY)
    found = 0
    for slot in range(WIDTH):
        if get(LANE, sums, slot) > 0.0:
            found = 1
    store(LANE, sums, 0, lane_sqrt(whole) * LEAST)
    return found


@inner
def order(values, vectors, status):
    """Sort eigenvalues, and the vectors with them."""
    for end in range(N - 1, 0, -1):
        for j in range(end):
            low, high = load(LANE, values, j), load(LANE, values, j + 1)
            swap = lane_gt(low, high)
            store(LANE, values, j, lane_where(swap, high, low))
            store(LANE, values, j + 1, lane_where(swap, low, high))
            for i in range(N):
                x, y = load(LANE, vectors, i * N + j), load(LANE, vectors, i * N + j + 1)
                store(LANE, vectors, i * N + j, lane_where(swap, y, x))
                store(LANE, vectors, i * N + j + 1, lane_where(swap, x, y))


@inner
def work_on(a, vectors, status):
    """Work on a group; its status is 1 where numbers are not finite."""
    for i in range(N):
        for j in range(N):
            store(LANE, vectors, i * N + j, as_lane(LANE, 1.0 if i == j else 0.0))
        for j in range(i + 1, N):  # the lower triangle counts, as for NumPy
            store(LANE, a, i * N + j, load(LANE, a, j * N + i))
    norm, sweeps = scale_down(a), 0
    while sweeps < SWEEPS and far(a, status) == 1:
        least = load(LANE, status, 0)
        for p in range(N - 1):
            for q in range(p + 1, N):
                cosine, sine = rotation(a, p, q, least)
                turn(a, p * N, q * N, 1, cosine, sine)
                turn(a, p, q, N, cosine, sine)
                turn(vectors, p, q, N, cosine, sine)
                store(LANE, a, p * N + q, fill(LANE, ZERO))
                store(LANE, a, q * N + p, fill(LANE, ZERO))
        sweeps += 1
    values, total = vectors + N * N * LANE_BYTES, fill(LANE, ZERO)
    for i in range(N):
        value = load(LANE, a, i * N + i) * norm
        store(LANE, values, i, value)
        total = total + value * ZERO
    store(LANE, status, 0, lane_where(lane_eq(total, ZERO), fill(LANE, ZERO), as_lane(LANE, 1.0)))
    order(values, vectors, status)
