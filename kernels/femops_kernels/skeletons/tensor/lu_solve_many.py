"""Factor the matrices of a group with exchanges of rows, and solve for several right-hand sides.

These are read when the rows of A are in order: each matrix reads its rows of B in the order of its
pivots.
"""

# <defaults>
from femops_kernels.skeletons.tensor.lu import *
from femops_kernels.skeletons.tensor.triangular import *

SECOND_RUN, ENTRY_ROWS, ENTRY_COLUMNS = 16, (32, 8), (8, 8)
# </defaults>


@inner
def read_rows(sources, order, places, x):
    """Copy the right-hand sides to lanes, row order[i] of each slot as row i."""
    count = SECOND_RUN // N
    for i in range(N):
        row, at = real_part(fetch(NUMBER, order, i)), x + i * (RIGHT_STEP * BYTES)
        locate_rows(LANE, sources, row, ENTRY_ROWS[1], places)
        if SECOND_RUN > 0:
            gather_run(LANE, places, count, 0, (count, count), at)
        else:
            copy_in(places, 1, RIGHT, 0, ENTRY_COLUMNS[1], RIGHT_STEP, at)


@inner
def solve_group(a, x, status):
    """Solve a group; its status is the first column, from 1, without a finite pivot."""
    scales = status + LANE_BYTES
    order = scales + N * BYTES
    moved = order + N * BYTES
    sources = moved + N * BYTES
    factor(a, order, status, scales, moved)
    read_rows(sources, order, sources + 8 * WIDTH, x)
    substitute(a, x, scales, (True, False, True, False))
    substitute(a, x, scales, (False, False, False, False))


work_on = solve_group
