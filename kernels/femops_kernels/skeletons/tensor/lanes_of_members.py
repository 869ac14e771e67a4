"""Groups of matrices in lanes: copied to work space, worked on, and copied back.

An operand is (address, bytes between groups, bytes between slots). A last group that is not full
has its last matrix in the slots left over, so that the same numbers are written twice.

A kernel has a function ``work_on(work, status)`` for one group. ``work`` has the matrices in lanes,
by rows, one operand after the other; ``status`` is a lane vector, zero at first. A slot that is not
zero tells that its matrix failed.
"""

# <defaults>
from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lane_math import *
from femops_kernels.simd.lanes import *
from femops_kernels.simd.tensor.members import *
from femops_kernels.simd.tensor.numbers import *

LANE = NUMBER = Lane(8)  # NUMBER is a ComplexLane for complex matrices
WIDTH, BYTES = 8, 64  # slots of a lane vector, and its bytes
ROWS, COLUMNS, ENTRY_ROWS, ENTRY_COLUMNS = (4, 4), (4, 1), (32, 8), (8, 8)
N, RIGHT = 4, 1
# </defaults>

ZERO = 0.0


@inner
def finite_or_nan(real):
    """Replace numbers that are not finite by NaN, for which no comparison is true."""
    return real + real * ZERO


@inner
def locate_members(operand, group, last, places):
    """Store the addresses of a group's matrices in ``places``."""
    first = operand[0] + group * operand[1]
    for slot in range(WIDTH):
        put_word(places, slot, first + min(slot, last) * operand[2])


@inner
def copy_in(places, rows, columns, row_bytes, column_bytes, step, work):
    """Copy the matrices of a group to lanes, rows a step of numbers apart."""
    for i in range(rows):
        for j in range(columns):
            value = gather_members(NUMBER, places, i * row_bytes + j * column_bytes)
            keep(NUMBER, work, i * step + j, value)
