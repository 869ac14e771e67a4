"""A team of threads: the work of a worker, and of the caller that runs a loop on the team.

A worker waits for a loop, takes part in it, and waits for the next.

A waiting thread first spins, because the next loop often follows at once. Then it sleeps, so that
other threads can use the core. A long spin is some 100 microseconds. A thread that spins in vain
spins only for a few microseconds in the next loops. The caller that waits for the end of a loop
does the same. A worker that has missed a loop, as happens if it shares its core with another
thread, spins briefly in twice as many loops as the last time. `femops_kernels.simd.threads` has the
begin of a loop, and the memory of a team.
"""

# <defaults>
from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import word
from femops_kernels.simd.threads import *

# </defaults>

FEWEST, MOST = 32, 8192  # a late worker spins briefly in this number of loops
STEADY = 512  # a worker that comes in time to this number of loops has a free core


@inner
def take(team, body, arguments, thread, width):
    """Work on items until all are taken: first the thread's own items, then those of others.

    A thread has the same items in every loop of the same length, so they stay in its caches.
    """
    for k in range(1 if atomic_get(team, STRICT) == 1 else width):
        owner = thread + k if thread + k < width else thread + k - width
        line = team + (FIRST + owner * LINE_WORDS) * 8
        end = atomic_get(line, END)
        while atomic_get(line, NEXT) < end:
            item = atomic_add(line, NEXT, 1)
            if item < end:
                call_body(body, arguments, item, thread)


@inner
def sleep(team, seen):
    """Sleep until a loop begins that the worker has not seen."""
    call_system(word(team, LOCK), team + MUTEX * 8, 0)
    atomic_add(team, SLEEPERS, 1)
    while atomic_get(team, JOBS) == seen:
        call_wait(word(team, WAIT), team + NEWS * 8, team + MUTEX * 8)
    atomic_add(team, SLEEPERS, -1)
    call_system(word(team, UNLOCK), team + MUTEX * 8, 0)


@inner
def leave(team):
    """Leave a loop. If this is the last active worker and the caller sleeps, wake the caller."""
    if atomic_add(team, ACTIVE, -1) == 1 and atomic_get(team, CALLER_SLEEPS) == 1:
        call_system(word(team, LOCK), team + MUTEX * 8, 0)
        call_system(word(team, WAKE), team + DONE * 8, 0)
        call_system(word(team, UNLOCK), team + MUTEX * 8, 0)


@entry
def worker(line) -> int:
    """Work as one thread of a team until the team ends.

    ``line`` is the address of the thread's line in the team's memory.
    """
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


# --- the caller, which begins a loop -------------------------------------------------------------


@inner
def unfinished(team, width):
    """Return 1 if a worker may be active, or a thread's items are not all taken, else 0."""
    waiting = 1 if atomic_get(team, ACTIVE) != 0 else 0
    for k in range(width if waiting == 0 else 0):
        line = team + (FIRST + k * LINE_WORDS) * 8
        if atomic_get(line, NEXT) < atomic_get(line, END):
            waiting = 1
    return waiting


@inner
def await_workers(team, width):
    """Wait until all workers have finished: spin, then sleep."""
    pause = atomic_get(team, CALLER_PAUSE)
    spins = atomic_get(team, SPINS if pause > 0 else LONG_SPINS)
    while unfinished(team, width) == 1 and spins > 0:
        relax()
        spins -= 1
    late = unfinished(team, width)
    atomic_put(team, CALLER_PAUSE, STEADY if late == 1 else max(pause - 1, 0))
    if late == 1:
        call_system(atomic_get(team, LOCK), team + MUTEX * 8, 0)
        atomic_put(team, CALLER_SLEEPS, 1)
        while unfinished(team, width) == 1:
            call_wait(atomic_get(team, WAIT), team + DONE * 8, team + MUTEX * 8)
        atomic_put(team, CALLER_SLEEPS, 0)
        call_system(atomic_get(team, UNLOCK), team + MUTEX * 8, 0)


@inner
def open_loop(team, body, arguments, items, width):
    """Begin a loop: divide the items among the threads, and wake the workers."""
    for k in range(width):
        line = team + (FIRST + k * LINE_WORDS) * 8
        atomic_put(line, NEXT, k * items // width)
        atomic_put(line, END, (k + 1) * items // width)
    atomic_put(team, BODY, body)
    atomic_put(team, ARGUMENTS, arguments)
    atomic_put(team, OPEN, 1)
    atomic_add(team, JOBS, 1)
    if atomic_get(team, SLEEPERS) > 0:
        call_system(atomic_get(team, LOCK), team + MUTEX * 8, 0)
        call_system(atomic_get(team, WAKE), team + NEWS * 8, 0)
        call_system(atomic_get(team, UNLOCK), team + MUTEX * 8, 0)


@entry
def run(team, body, arguments, items):
    """Run a loop on a team, and return when all items are done.

    The loop does not wait for a worker that comes late: the worker finds the loop closed. So if
    another program uses a core, the threads on the other cores do the work.
    """
    width = atomic_get(team, WIDTH) if items > 1 else 1
    if width == 1:
        for item in range(items):
            call_body(body, arguments, item, 0)
        return
    open_loop(team, body, arguments, items, width)
    take(team, body, arguments, 0, width)
    if atomic_get(team, STRICT) == 1:
        await_workers(team, width)
    # whoever is counted as active from now on finds the loop closed
    atomic_put(team, OPEN, 0)
    await_workers(team, 0)
