"""A law at many points, whose numbers are in arrays."""

# <defaults>
from femops_kernels.simd.compiling import function, inner
from femops_kernels.simd.lanes import *

LANE = Lane(8)
INPUTS = 2


def LAW(*given):
    return given


# </defaults>


@inner
def run_on_lane(k, table):
    """Run the law on a lane of points."""
    given = tuple(load(LANE, word(table, one), k) for one in range(INPUTS))
    for one, result in enumerate(LAW(*given)):
        store(LANE, word(table, INPUTS + one), k, result)


@function
def run(lanes, table):
    """Run the law on lanes of points; ``table`` has the addresses of inputs, then of results."""
    for k in range(lanes):
        run_on_lane(k, table)
