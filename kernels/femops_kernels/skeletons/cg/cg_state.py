"""The float64 state of a solve by conjugate gradients, and sums: the meaning of each entry.

``cg_state.cuh`` has the same for a device.
"""

ITERATIONS, RHO, RESIDUAL, STATUS = 0, 1, 2, 3  # RHO is r.M r; -1 iterations before the beginning
# Updates that are due: r -= DROP v; p = M r + BETA p.  Before these x += NEAR p + FAR (p - M r), by
# a merged sweep only if TOUCH.  Here v is A p over SCALE.
DROP, NEAR, FAR, BETA, TOUCH = 4, 5, 6, 7, 8
GOAL, LIMIT = 9, 10  # norm of the residual to reach, and most iterations
PAUSE, SHOWN = 11, 12  # iterations at which to pause, and from which x is to be up to date
NATURAL = 13  # whether the residual is sqrt(r.M r), not sqrt(r.r)
MERGED = 14  # whether sweeps do the updates that are due
SCALE = 15
# If RELATIVE > 0, the start sets GOAL to RELATIVE times its residual, but at least to LEAST.
RELATIVE, LEAST = 16, 17
FIRST, NORM = 18, 19  # norm of the residual at the start, and sqrt(r.r) there
STATE_SIZE = 20

LEAST_NORM = 2.0**-485  # norms below it, sqrt(tiny / eps), lose digits when they are squared

RUNNING, CONVERGED, BREAKDOWN = 0, 1, 2  # STATUS

STOP, START, SWEEP, MOVE, TURN = 0, 1, 2, 3, 4  # actions, see ``decisions.py``

# Sums: r.M r, r.r, p.v, r.v, v.v, r.M v, v.M v
S_RHO, S_RR, S_PV, S_RV, S_VV, S_RMV, S_VMV = 0, 1, 2, 3, 4, 5, 6
NSUMS = 7
