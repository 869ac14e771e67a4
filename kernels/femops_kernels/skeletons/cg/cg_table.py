"""The int64 table of conjugate gradients: the meaning of each entry."""

# The operator: arguments of its driver, see ``driver.py``, and the driver's address.
ROWS, ALPHAS, COUNT, WORK, WORK_BYTES, TEAM, DRIVER = 0, 1, 2, 3, 4, 5, 6
X, R, P, AP = 7, 8, 9, 10  # addresses of the vectors
B, INVERSE = 11, 12  # addresses of the right-hand side and of the diagonal preconditioner
USE_INVERSE = 13  # whether there is one
EDGES, SEGMENTS = 14, 15  # address: where segments of vectors begin, and the end; how many
PARTIAL, SECOND = 16, 17  # addresses, per segment: float64 sums of two kinds
STATE = 18  # address: float64 ITERATIONS, RHO, RESIDUAL, STATUS, see ``decisions.py``
TODO, SUMS, PASSES = 19, 20, 21  # of merged passes: addresses, and rows of SUMS but for the first
NATURAL = 22  # whether the residual is measured by r.M r, not by r.r
GUESSED = 23  # whether there is a first guess; x is zero if not
HELD = 24  # of several solves at once: FREE, TAKEN by a thread, or ENDED
SIZE = 25

FREE, TAKEN, ENDED = 0, 1, 2
