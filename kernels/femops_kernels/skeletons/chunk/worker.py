"""The life of a worker: it waits for a loop, takes part in it, and waits for the next.

Waiting begins by looking again and again, for some 100 microseconds, as the next loop of a program
often follows at once.  Then the thread sleeps: the processor is for others.  See
`femops_kernels.simd.threads` for who begins a loop, and for a team's memory.
"""

# <defaults>
from femops_kernels.simd.compiling import entry
from femops_kernels.simd.lanes import word
from femops_kernels.simd.threads import *

# </defaults>


@entry("intp(intp)", thorough=False)
def worker(line):
    """Work as one thread of a team, given its line of the team's memory; never returns."""
    team, number, seen = word(line, TEAM), word(line, NUMBER), 0
    if word(team, WHO) != 0:
        atomic_put(line, SYSTEM_NUMBER, call_system(word(team, WHO), 0, 0))
    while seen >= 0:
        spins = atomic_get(team, SPINS)
        while atomic_get(team, JOBS) == seen and spins > 0:
            relax()
            spins -= 1
        if atomic_get(team, JOBS) == seen:
            call_system(word(team, LOCK), team + MUTEX * 8, 0)
            atomic_add(team, SLEEPERS, 1)
            while atomic_get(team, JOBS) == seen:
                call_system(word(team, WAIT), team + NEWS * 8, team + MUTEX * 8)
            atomic_add(team, SLEEPERS, -1)
            call_system(word(team, UNLOCK), team + MUTEX * 8, 0)
        seen = atomic_get(team, JOBS)
        atomic_add(team, ACTIVE, 1)
        if atomic_get(team, OPEN) == 1:
            width = word(team, WIDTH)
            if number < width:
                take(team, word(team, BODY), word(team, ARGUMENTS), number, width)
        if atomic_add(team, ACTIVE, -1) == 1 and atomic_get(team, CALLER_SLEEPS) == 1:
            call_system(word(team, LOCK), team + MUTEX * 8, 0)
            call_system(word(team, WAKE), team + DONE * 8, 0)
            call_system(word(team, UNLOCK), team + MUTEX * 8, 0)
    return 0
