"""Segments into which vectors are cut, and loads from vectors of the preconditioner's type.

Each segment has one sum per slot of a lane. So the sums do not depend on the number of threads.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import Lane, load, widen, word

LANE_WIDTH = 8
REAL = "float64"
OTHER = "float32"
# </defaults>

LANE = Lane(LANE_WIDTH, REAL)
GIVEN = Lane(LANE_WIDTH, OTHER)
REAL_BYTES, OTHER_BYTES = 8 if REAL == "float64" else 4, 8 if OTHER == "float64" else 4


@inner
def extent(edges, k):
    """First entry of segment k, number of its full lanes, and number of entries after them."""
    begin, end = word(edges, k), word(edges, k + 1)
    return begin, (end - begin) // LANE_WIDTH, (end - begin) % LANE_WIDTH


@inner
def given(z, i):
    """Load lane i of a vector of the preconditioner's type, and convert it to REAL."""
    return widen(LANE, (load(GIVEN, z, i),))[0]
