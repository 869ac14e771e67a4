"""The life of a worker: it waits for a loop, takes part in it, and waits for the next.

Waiting begins by looking again and again, as the next loop often follows at once.  Then the thread
sleeps: the processor is for others.  It looks for long, some 100 microseconds, while that pays.
After it has looked in vain it looks but for a few microseconds in the next loops.  After it has
missed a loop, as one does who shares its core with another thread, it does so in twice as many as
the last time.  See `femops_kernels.simd.threads` for who begins a loop, and for a team's memory.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import word
from femops_kernels.simd.threads import *

# </defaults>

FEWEST, MOST = 32, 8192  # loops before it looks for long again
STEADY = 512  # loops in time, after which the core counts as free


@inner
def sleep(team, seen):
    """Wait for another loop than those seen, asleep."""
    call_system(word(team, LOCK), team + MUTEX * 8, 0)
    atomic_add(team, SLEEPERS, 1)
    while atomic_get(team, JOBS) == seen:
        call_system(word(team, WAIT), team + NEWS * 8, team + MUTEX * 8)
    atomic_add(team, SLEEPERS, -1)
    call_system(word(team, UNLOCK), team + MUTEX * 8, 0)


@inner
def leave(team):
    """Be in a loop no more; wake the caller if it waits asleep for the last one."""
    if atomic_add(team, ACTIVE, -1) == 1 and atomic_get(team, CALLER_SLEEPS) == 1:
        call_system(word(team, LOCK), team + MUTEX * 8, 0)
        call_system(word(team, WAKE), team + DONE * 8, 0)
        call_system(word(team, UNLOCK), team + MUTEX * 8, 0)


@entry("intp(intp)", thorough=False)
def worker(line):
    """Work as one thread of a team, given its line of the team's memory; never returns."""
    team, number, seen = word(line, TEAM), word(line, NUMBER), 0
    pause, penalty, steady = 0, FEWEST, 0
    if word(team, WHO) != 0:
        atomic_put(line, SYSTEM_NUMBER, call_system(word(team, WHO), 0, 0))
    while seen >= 0:
        spins, before = atomic_get(team, SPINS if pause > 0 else LONG_SPINS), seen
        while atomic_get(team, JOBS) == seen and spins > 0:
            relax()
            spins -= 1
        if atomic_get(team, JOBS) == seen:
            sleep(team, seen)
        seen = atomic_get(team, JOBS)
        atomic_add(team, ACTIVE, 1)
        is_open, width = atomic_get(team, OPEN) == 1, atomic_get(team, WIDTH)
        if pause > 0:
            pause -= 1
        elif spins == 0 or number >= width:
            pause = FEWEST
        elif seen == before + 1:  # also if the others have been quick
            steady += 1
            penalty = FEWEST if steady >= STEADY else penalty
        else:
            pause, penalty, steady = penalty, min(2 * penalty, MOST), 0
        if is_open and number < width:
            take(team, word(team, BODY), word(team, ARGUMENTS), number, width)
        leave(team)
    return 0
