"""Eigenvalues and vectors of the symmetric or Hermitian matrices in lanes, by Jacobi's rotations.

A becomes diagonal. The second operand gets the vectors as columns, and after them a row with the
eigenvalues. Both are in ascending order of the eigenvalues.
"""

# <defaults>
from femops_kernels.skeletons.tensor.lanes_of_members import *

TINY, LEAST = 1e-31, 1e-17  # relative limits: off-diagonal squares of a result, entries to turn
SWEEPS = 30
# </defaults>


@inner
def scale_down(a):
    """Divide by the size of the largest entry, and return this size.

    So squares neither overflow nor underflow.
    """
    most, one = fill(LANE, ZERO), as_lane(LANE, 1.0)
    for k in range(N * N):
        size = size_of(fetch(NUMBER, a, k))
        most = lane_where(lane_gt(size, most), size, most)
    most = lane_where(lane_gt(most, ZERO), most, one)
    for k in range(N * N):
        keep(NUMBER, a, k, fetch(NUMBER, a, k) / most)
    return most


@inner
def rotation(a, p, q, least):
    """Cosine and sine of the rotation that makes entry (p, q) zero.

    They are 1 and 0 in slots where the size of the entry is at most ``least``.
    """
    off, one = fetch(NUMBER, a, p * N + q), as_lane(LANE, 1.0)
    length = length_of(off)
    there = lane_gt(length, least)
    length = lane_where(there, length, one)
    difference = real_part(fetch(NUMBER, a, q * N + q)) - real_part(fetch(NUMBER, a, p * N + p))
    theta = difference / (length + length)
    root = lane_fabs(theta) + lane_sqrt(theta * theta + one)
    tangent = lane_where(lane_lt(theta, ZERO), -one, one) / root
    tangent = lane_where(there, tangent, fill(LANE, ZERO))
    cosine = one / lane_sqrt(tangent * tangent + one)
    return cosine, off * (tangent * cosine / length)


@inner
def turn(table, first, second, stride, cosine, sine):
    """Apply a Givens rotation to two columns. For rows pass the conjugate of the sine."""
    back = conjugate(sine)
    for k in range(N):
        x, y = fetch(NUMBER, table, first + k * stride), fetch(NUMBER, table, second + k * stride)
        keep(NUMBER, table, first + k * stride, x * cosine - y * back)
        keep(NUMBER, table, second + k * stride, x * sine + y * cosine)


@inner
def far(a, sums):
    """Return 1 if a matrix of the group is not diagonal to round-off, else 0.

    ``sums`` gets the norm of each matrix times LEAST, or infinity for a diagonal matrix. Then the
    matrix is not rotated any more. So its results do not depend on the group's other matrices.
    """
    off, whole = fill(LANE, ZERO), fill(LANE, ZERO)
    for i in range(N):
        for j in range(N):
            part = square(fetch(NUMBER, a, i * N + j))
            whole = whole + part
            if i != j:
                off = off + part
    store(LANE, sums, 0, off - whole * TINY)
    found = 0
    for slot in range(WIDTH):
        if get(LANE, sums, slot) > 0.0:
            found = 1
    least = lane_sqrt(whole) * LEAST
    turned = lane_gt(off - whole * TINY, ZERO)
    store(LANE, sums, 0, lane_where(turned, least, as_lane(LANE, inf)))
    return found


@inner
def order(values, vectors):
    """Sort eigenvalues, and the vectors with them."""
    for done in range(N - 1):
        for j in range(N - 1 - done):
            low, high = fetch(NUMBER, values, j), fetch(NUMBER, values, j + 1)
            swap = lane_gt(real_part(low), real_part(high))
            keep(NUMBER, values, j, choose(swap, high, low))
            keep(NUMBER, values, j + 1, choose(swap, low, high))
            for i in range(N):
                x, y = fetch(NUMBER, vectors, i * N + j), fetch(NUMBER, vectors, i * N + j + 1)
                keep(NUMBER, vectors, i * N + j, choose(swap, y, x))
                keep(NUMBER, vectors, i * N + j + 1, choose(swap, x, y))


@inner
def begin(a, vectors):
    """Set the vectors to the identity. Copy the lower triangle, and make the diagonal real."""
    for i in range(N):
        for j in range(N):
            one = as_lane(LANE, 1.0 if i == j else 0.0)
            keep(NUMBER, vectors, i * N + j, number(NUMBER, one))
        for j in range(i + 1, N):
            keep(NUMBER, a, i * N + j, conjugate(fetch(NUMBER, a, j * N + i)))
        keep(NUMBER, a, i * N + i, number(NUMBER, real_part(fetch(NUMBER, a, i * N + i))))


@inner
def clear(a, p, q):
    """Set entries (p, q) and (q, p) to zero after a rotation, which leaves round-off there."""
    nothing = number(NUMBER, fill(LANE, ZERO))
    keep(NUMBER, a, p * N + q, nothing)
    keep(NUMBER, a, q * N + p, nothing)
    for i in (p, q):
        keep(NUMBER, a, i * N + i, number(NUMBER, real_part(fetch(NUMBER, a, i * N + i))))


@inner
def work_on(a, vectors, status):
    """Diagonalize the matrices of a group. The status is 1 where numbers are not finite."""
    begin(a, vectors)
    norm, sweeps = scale_down(a), 0
    while sweeps < SWEEPS and far(a, status) == 1:
        least = load(LANE, status, 0)
        for p in range(N - 1):
            for q in range(p + 1, N):
                cosine, sine = rotation(a, p, q, least)
                turn(a, p, q, N, cosine, sine)
                turn(a, p * N, q * N, 1, cosine, conjugate(sine))
                turn(vectors, p, q, N, cosine, sine)
                clear(a, p, q)
        sweeps += 1
    values, total = vectors + N * N * BYTES, fill(LANE, ZERO)
    for i in range(N):
        for j in range(N):
            total = total + size_of(fetch(NUMBER, a, i * N + j)) * ZERO
        value = real_part(fetch(NUMBER, a, i * N + i)) * norm
        keep(NUMBER, values, i, number(NUMBER, value))
    store(LANE, status, 0, lane_where(lane_eq(total, ZERO), fill(LANE, ZERO), as_lane(LANE, 1.0)))
    order(values, vectors)
