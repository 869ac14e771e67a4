"""Several solves at once, each worked on by one thread at a time.

A thread takes the free solve with the fewest iterations, advances it by a number of iterations, and
then chooses again. So three solves keep two threads busy to the end, as in McNaughton's schedule
(Management Science 6, 1959), and change threads seldom. Results do not depend on the threads.
"""

# <defaults>
from math import inf

from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import get, numbers, put, word
from femops_kernels.simd.threads import atomic_claim, atomic_get, atomic_put, shared
from femops_kernels.skeletons.cg.cg import iterations
from femops_kernels.skeletons.cg.cg_state import *
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.cg.cg_vectors import FLOAT64
from femops_kernels.skeletons.cg.decisions import ended
from femops_kernels.skeletons.sequence.sequence_context import *

# </defaults>

FIRST_BURST = 16  # iterations


@inner
def least_done(tables, count, own):
    """Return the free solve with the fewest iterations, or -1. Among equals prefer ``own``."""
    found, least = -1, inf
    for j in range(count):
        k = (own + j) % count
        if atomic_get(word(tables, k), CLAIM) == FREE:
            done = get(FLOAT64, word(word(tables, k), STATE), ITERATIONS)
            if done < least:
                found, least = k, done
    return found


@inner
def claimed(tables, count, own):
    """Claim a solve for this thread. Return -1 if all have ended or are taken."""
    k = least_done(tables, count, own)
    while k >= 0 and not atomic_claim(word(tables, k), CLAIM, FREE, TAKEN):
        k = least_done(tables, count, own)
    return k


@shared
def share(own, thread, tables, count, burst, work, work_bytes):
    """Advance solves until none is free, beginning with ``own``."""
    k = claimed(tables, count, own)
    while k >= 0:
        table = word(tables, k)
        atomic_put(table, WORK, work + thread * work_bytes)
        iterations(table, burst, False)
        over = ended(numbers(FLOAT64, word(table, STATE)))
        atomic_put(table, CLAIM, ENDED if over else FREE)
        k = claimed(tables, count, k)


@inner
def burst(group, threads):
    """Number of iterations until a thread chooses a solve again, from those of earlier solves.

    If the threads have equally many solves, a thread finishes a solve before it chooses again.
    """
    count, states = word(group, SOLVES), word(group, STATES)
    if count % threads == 0:
        return word(group, MOST)
    most, known = 0.0, True
    for k in range(count):
        done = get(FLOAT64, states, k * STATE_SIZE + ITERATIONS)
        most, known = max(most, done), known and done > 0.0
    return int(most) // threads + 1 if known else FIRST_BURST


@inner
def begin_all(group):
    """Begin solves, unless they have begun; each is worked on by one thread."""
    tables, states, fresh = word(group, TABLES), word(group, STATES), word(group, FRESH_STATES)
    for k in range(word(group, SOLVES)):
        table = word(tables, k)
        atomic_put(table, TEAM, 0)
        atomic_put(table, CLAIM, FREE)
        atomic_put(table, B, word(word(group, RIGHTS), k))
        if fresh != 0:
            for i in range(k * STATE_SIZE, (k + 1) * STATE_SIZE):
                put(FLOAT64, states, i, get(FLOAT64, fresh, i))


@inner
def all_well(group):
    """True if no solve has broken down, and each norm at the start is zero or in a safe range.

    The iterations of all solves are added to DONE.
    """
    well, done = True, 0.0
    for k in range(word(group, SOLVES)):
        state = numbers(FLOAT64, word(group, STATES) + 8 * k * STATE_SIZE)
        norm = state[NORM]
        well = well and state[STATUS] != BREAKDOWN
        well = well and (norm == 0.0 or LEAST_NORM <= norm < inf)
        done += max(state[ITERATIONS], 0.0)
    put(FLOAT64, word(group, DONE), 0, get(FLOAT64, word(group, DONE), 0) + done)
    return well


@entry
def solve_together(row, context) -> int:
    """Solve several systems to the end. Return 1 if `all_well` is False for them, else 0.

    Row and context are those of a sequence.
    """
    group, tables = word(row, GROUP), word(word(row, GROUP), TABLES)
    count, threads = word(group, SOLVES), min(word(group, SOLVES), word(context, USABLE))
    looks = burst(group, threads)
    begin_all(group)
    work, work_bytes = word(context, SPACE), word(context, SPACE_BYTES)
    share(word(context, SHARERS), threads, tables, count, looks, work, work_bytes)
    return 0 if all_well(group) else 1
