"""Segments that vectors are cut into, and numbers of a preconditioner of another type.

Of each segment sums are kept by slot of a lane, so that they do not depend on threads.
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
    """Begin of a segment, its whole lanes, and what is left."""
    begin, end = word(edges, k), word(edges, k + 1)
    return begin, (end - begin) // LANE_WIDTH, (end - begin) % LANE_WIDTH


@inner
def given(z, i):
    """A lane of the preconditioner's."""
    return widen(LANE, (load(GIVEN, z, i),))[0]
