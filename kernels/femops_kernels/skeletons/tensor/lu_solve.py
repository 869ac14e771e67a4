"""Factor the matrices of a group with exchanges of rows, and solve."""

# <defaults>
from femops_kernels.skeletons.tensor.lu import *
from femops_kernels.skeletons.tensor.triangular import *

# </defaults>


@inner
def change_right_sides(a, x, j, columns, moved):
    """Exchange rows of the right sides as in a panel, and subtract its multiples of rows."""
    for k in range(0, RIGHT - TILE + 1, TILE):
        change_columns(x + k * BYTES, RIGHT_STEP, (columns, TILE), a, j, moved, True)
    if RIGHT % TILE:
        rest = RIGHT % TILE
        at = x + (RIGHT - rest) * BYTES
        change_columns(at, RIGHT_STEP, (columns, rest), a, j, moved, True)


@inner
def solve_group(a, x, status):
    """Solve a group; its status is the first column, from 1, without a finite pivot."""
    scales = status + LANE_BYTES
    moved = scales + N * BYTES
    for j in range(0, FULL, TILE):
        factor_panel(a, j, TILE, moved, status, scales)
        change_right(a, j, moved)
        change_right_sides(a, x, j, TILE, moved)
    if REST:
        factor_panel(a, FULL, REST, moved, status, scales)
        change_right_sides(a, x, FULL, REST, moved)
    substitute(a, x, scales, (False, False, False, False))


work_on = solve_group
