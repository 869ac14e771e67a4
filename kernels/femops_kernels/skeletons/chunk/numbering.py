"""Chunk-local numbers of dofs, for the plan of a sweep; see ``cpu/plan.py``.

Arguments are numbers, and addresses of int64 arrays.
"""

# <defaults>
from femops_kernels.simd.compiling import function, inner, shared
from femops_kernels.simd.lanes import put_word, word

# </defaults>


@inner
def differ(dofs, nodes, begin, end):
    """Zero if the dofs of the nodes ``begin`` to ``end`` of a list follow each other."""
    first, wrong = word(dofs, word(nodes, begin)) - begin, 0
    for k in range(begin + 1, end):
        wrong = wrong | ((word(dofs, word(nodes, k)) - first) ^ k)
    return wrong


@shared
def number_chunk(c, thread, indices, width, runs, checked, chunks, owned, starts, nodes, local):
    """Local numbers of one chunk."""
    first, last = word(owned, c), word(owned, c + 1)
    for element in range(word(chunks, c), word(chunks, c + 1)):
        dofs, out = indices + element * width * 8, local + element * runs * 8
        for run in range(runs):
            begin, end = word(starts, run), word(starts, run + 1)
            head = word(dofs, word(nodes, begin))
            number = head - first
            if head >= last:
                number = -1
            if number >= 0 and checked != 0 and differ(dofs, nodes, begin, end) != 0:
                number = -1
            put_word(out, run, number)


@function
def local_numbers(team, count, indices, width, runs, checked, chunks, owned, starts, nodes, local):
    """Set ``local`` (ne, runs) to the number of each run's first dof among those its chunk owns.

    It is negative if another chunk owns the dof. If ``checked`` is not zero, it is also negative if
    the dofs of the run do not follow each other. A run has the nodes of the list ``nodes`` from its
    entry of ``starts`` to the next. ``width`` is the number of entries from an element of
    ``indices`` to the next.
    """
    number_chunk(team, count, indices, width, runs, checked, chunks, owned, starts, nodes, local)
