"""The int64 table of conjugate gradients: the meaning of each entry."""

# <defaults>
from femops_kernels.simd.compiling import inner

# </defaults>

# The operator: arguments of its driver, see ``driver.py``, and the driver's address.
ROWS, ALPHAS, COUNT, WORK, WORK_BYTES, TEAM, DRIVER = 0, 1, 2, 3, 4, 5, 6
X, R, P, V = 7, 8, 9, 10  # addresses of the vectors; see ``cg_state.py``
B, INVERSE = 11, 12  # addresses of the right-hand side and of the diagonal preconditioner
USE_INVERSE = 13  # whether there is one
EDGES, SEGMENTS = 14, 15  # address: begins of vectors' segments, and the end; their number
PARTIAL, SECOND = 16, 17  # addresses, per segment: float64 sums of two kinds
STATE, SUMS = 18, 19  # addresses
MORE_ROWS = 20  # rows of SUMS that a merged sweep leaves after the first; else 0
CLAIM = 21  # state of one of several solves: FREE, TAKEN by a thread, or ENDED
TABLE_SIZE = 22

FREE, TAKEN, ENDED = 0, 1, 2

# The int64 table of several solves: their number, and addresses of their tables' addresses, of all
# states, of what these are at the start (0 if solves have begun) and of the right-hand sides'
# addresses; the most iterations; address of the float64 that iterations are added to.
SOLVES, TABLES, STATES, FRESH_STATES, RIGHTS, MOST, DONE = range(7)

decision = inner  # functions of ``decisions.py`` are compiled here
