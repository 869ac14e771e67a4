"""Several solves at once, each worked on by one thread at a time.

A thread takes the solve of which least is done, advances it by a number of iterations, and looks
again.  So three solves keep two threads busy to the end, as in McNaughton's schedule (Management
Science 6, 1959), and change threads seldom.  Who works does not matter to the bits.
"""

# <defaults>
from math import inf

from femops_kernels.simd.compiling import entry, inner
from femops_kernels.simd.lanes import get, numbers, word
from femops_kernels.simd.threads import atomic_claim, atomic_get, atomic_put, shared
from femops_kernels.skeletons.cg.cg import iterations
from femops_kernels.skeletons.cg.cg_state import ITERATIONS
from femops_kernels.skeletons.cg.cg_table import *
from femops_kernels.skeletons.cg.cg_vectors import FLOAT64
from femops_kernels.skeletons.cg.decisions import ended

# </defaults>


@inner
def least_done(tables, count, own):
    """The free solve with the least iterations, ``own`` among equals; -1 if none."""
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
    """A solve for this thread to work on; -1 if all have ended or are taken by others."""
    k = least_done(tables, count, own)
    while k >= 0 and not atomic_claim(word(tables, k), CLAIM, FREE, TAKEN):
        k = least_done(tables, count, own)
    return k


@shared
def share(own, thread, tables, count, burst, work, work_bytes):
    """Work until nothing is left for this thread; it begins with the solve ``own``."""
    k = claimed(tables, count, own)
    while k >= 0:
        table = word(tables, k)
        atomic_put(table, WORK, work + thread * work_bytes)
        iterations(table, burst, False)
        over = ended(numbers(FLOAT64, word(table, STATE)))
        atomic_put(table, CLAIM, ENDED if over else FREE)
        k = claimed(tables, count, k)


@entry("void(intp, intp, intp, intp, intp, intp, intp)", thorough=False)
def together(tables, count, burst, work, work_bytes, threads, team):
    """Bring several solves to their ends.

    Tables say that no thread helps with a solve; threads have work space ``work_bytes`` apart.
    """
    share(team, threads, tables, count, burst, work, work_bytes)
