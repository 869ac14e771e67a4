"""Inner product of two vectors of different types, REAL and OTHER."""

# <defaults>
from femops_kernels.simd.compiling import function, shared
from femops_kernels.simd.lanes import fill, fma, load, numbers, store
from femops_kernels.skeletons.multigrid.segments import *

# </defaults>


@shared
def inner_segments(k, thread, a, b, edges, sums):
    """Store segment k's sums of the products a b, one sum per slot."""
    begin, lanes, rest = extent(edges, k)
    a, b = a + begin * REAL_BYTES, b + begin * OTHER_BYTES
    s = fill(LANE, 0.0)
    for i in range(lanes):
        s = fma(load(LANE, a, i), given(b, i), s)
    store(LANE, sums, k, s)
    last = numbers(LANE, sums)
    left, right = numbers(LANE, a), numbers(GIVEN, b)
    for i in range(lanes * LANE_WIDTH, lanes * LANE_WIDTH + rest):
        last[k * LANE_WIDTH] += left[i] * right[i]


@function
def product(team, a, b, edges, segments, sums):
    """Store the sums (segments, LANE_WIDTH) of the inner product of a, REAL, and b, OTHER."""
    inner_segments(team, segments, a, b, edges, sums)
