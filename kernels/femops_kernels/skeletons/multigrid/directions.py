"""Vector updates and inner products of conjugate gradients around a preconditioner.

The preconditioner's vectors may have another type, and are scaled.
"""

# <defaults>
from femops_kernels.simd.compiling import function, shared
from femops_kernels.simd.lanes import fill, fma, load, narrow, numbers, store
from femops_kernels.skeletons.multigrid.segments import *

# </defaults>


@shared
def both_segments(k, thread, a, c, b, edges, segments, sums):
    """Store segment k's sums of the products a b and c b, one sum per slot."""
    begin, lanes, rest = extent(edges, k)
    a, c = a + begin * REAL_BYTES, c + begin * REAL_BYTES
    b += begin * OTHER_BYTES
    s, t = fill(LANE, 0.0), fill(LANE, 0.0)
    for i in range(lanes):
        bi = given(b, i)
        s, t = fma(load(LANE, a, i), bi, s), fma(load(LANE, c, i), bi, t)
    store(LANE, sums, k, s)
    store(LANE, sums, segments + k, t)
    last = numbers(LANE, sums)
    first, second, right = numbers(LANE, a), numbers(LANE, c), numbers(GIVEN, b)
    for i in range(lanes * LANE_WIDTH, lanes * LANE_WIDTH + rest):
        last[k * LANE_WIDTH] += first[i] * right[i]
        last[(segments + k) * LANE_WIDTH] += second[i] * right[i]


@shared
def move_segments(k, thread, vectors, edges, sums, alpha, scale):
    """Update x += alpha p and r -= alpha product, set right = scale r, and sum r r."""
    begin, lanes, rest = extent(edges, k)
    x, r, p, product, right = vectors
    offset = begin * REAL_BYTES
    x, r, p, product = x + offset, r + offset, p + offset, product + offset
    right += begin * OTHER_BYTES
    s, scaled = fill(LANE, 0.0), fill(LANE, scale)
    step, back = fill(LANE, alpha), fill(LANE, -alpha)
    for i in range(lanes):
        store(LANE, x, i, fma(step, load(LANE, p, i), load(LANE, x, i)))
        ri = fma(back, load(LANE, product, i), load(LANE, r, i))
        store(LANE, r, i, ri)
        (out,) = narrow(GIVEN, (scaled * ri,))
        store(GIVEN, right, i, out)
        s = fma(ri, ri, s)
    store(LANE, sums, k, s)
    last, rights = numbers(LANE, sums), numbers(GIVEN, right)
    xs, rs, ps, products = (
        numbers(LANE, x),
        numbers(LANE, r),
        numbers(LANE, p),
        numbers(LANE, product),
    )
    for i in range(lanes * LANE_WIDTH, lanes * LANE_WIDTH + rest):
        xs[i] += alpha * ps[i]
        rs[i] -= alpha * products[i]
        last[k * LANE_WIDTH] += rs[i] * rs[i]
        rights[i] = scale * rs[i]


@shared
def turn_segments(k, thread, p, z, edges, beta, scale):
    """Set p = scale z + beta p."""
    begin, lanes, rest = extent(edges, k)
    p, z = p + begin * REAL_BYTES, z + begin * OTHER_BYTES
    again, there = fill(LANE, beta), fill(LANE, scale)
    for i in range(lanes):
        store(LANE, p, i, fma(again, load(LANE, p, i), there * given(z, i)))
    ps, zs = numbers(LANE, p), numbers(GIVEN, z)
    for i in range(lanes * LANE_WIDTH, lanes * LANE_WIDTH + rest):
        ps[i] = scale * zs[i] + beta * ps[i]


@function
def products(team, a, c, b, edges, segments, sums):
    """Store the sums (2, segments, LANE_WIDTH) of the inner products of a and c with b.

    The vectors a and c are REAL, and b is OTHER.
    """
    both_segments(team, segments, a, c, b, edges, segments, sums)


@function
def move(team, x, r, p, product, right, edges, segments, sums, alpha: float, scale: float):
    """Update x += alpha p and r -= alpha product, set right = scale r, and sum r r.

    The type of right is OTHER, that of the other vectors REAL.
    """
    vectors = x, r, p, product, right
    move_segments(team, segments, vectors, edges, sums, alpha, scale)


@function
def turn(team, p, z, edges, segments, beta: float, scale: float):
    """Set p = scale z + beta p. The type of z is OTHER, that of p REAL."""
    turn_segments(team, segments, p, z, edges, beta, scale)
