"""Applier: an operator for compiled code of other libraries. Its callers take turns."""

# <defaults>
from femops_kernels.simd.compiling import function, inner
from femops_kernels.simd.lanes import word
from femops_kernels.simd.threads import WIDTH, atomic_claim, atomic_put, call_system
from femops_kernels.skeletons.chunk.applier_table import *
from femops_kernels.skeletons.chunk.driver import apply

# </defaults>


@inner
def apply_with(state, x, y, team):
    """Apply the operator with a team, or on this thread alone if it is 0."""
    rows, alphas, count = word(state, ROWS), word(state, ALPHAS), word(state, COUNT)
    apply(rows, alphas, count, x, y, word(state, WORK), word(state, WORK_BYTES), team)


@function
def apply_alone(state, x, y) -> int:
    """Set y to the operator's product with x. Return 1, or 0 if another thread is here.

    It waits for the other thread where the system has locks. Where another operator has the team,
    this thread works alone.
    """
    done, lock = 0, word(state, LOCK)
    if lock != 0:
        call_system(lock, state + MUTEX * 8, 0)
    if atomic_claim(state, BUSY, 0, 1):
        team, claim = word(state, TEAM), word(state, CLAIM)
        if team == 0:
            apply_with(state, x, y, 0)
        elif atomic_claim(claim, 0, 0, 1):
            atomic_put(team, WIDTH, word(state, THREADS))
            apply_with(state, x, y, team)
            atomic_put(claim, 0, 0)
        else:
            apply_with(state, x, y, 0)
        atomic_put(state, BUSY, 0)
        done = 1
    if lock != 0:
        call_system(word(state, UNLOCK), state + MUTEX * 8, 0)
    return done
