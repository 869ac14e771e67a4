"""Numbers of dofs: those of the nodes of elements, and those that a chunk uses.

``cpu/numbering.py`` makes the tables. They are arrays of int64, but for bytes ``seen`` and
``turned``. Arguments are their addresses.
"""

# <defaults>
from femops_kernels.simd.compiling import function, inner, shared
from femops_kernels.simd.lanes import byte, put_word, word

TOGETHER = 512
# </defaults>

CODE, OFFSET, NODE, SIZE, TURNS, ORDER, ROW = range(7)  # in a row of ``rows``, and its length


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


@shared
def fill_block(block, thread, rows, count, of, sizes, turned, firsts, seen, nodes, orders, out):
    """Dofs of the nodes of some elements."""
    elements, width, columns = word(sizes, 0), word(sizes, 1), word(sizes, 2)
    for element in range(block * TOGETHER, min((block + 1) * TOGETHER, elements)):
        dofs = out + element * width * 8
        for k in range(count):
            row = rows + k * ROW * 8
            at = element * columns + word(row, CODE)
            entity, order = word(of, at) + word(row, OFFSET), word(row, ORDER)
            size, node, turns = word(row, SIZE), word(row, NODE), word(row, TURNS)
            if turns != 0:
                order += (byte(seen, entity) * turns + byte(turned, at)) * size
            first = word(firsts, entity)
            for j in range(size):
                put_word(dofs, word(nodes, node + j), first + word(orders, order + j))


@function
def fill_nodes(team, rows, count, of, sizes, turned, firsts, seen, nodes, orders, out):
    """Set ``out`` (ne, width) to the dofs of the nodes of all elements.

    ``of`` (ne, columns) has the entities of elements, and ``turned`` how elements see them.
    ``firsts`` and ``seen`` have the first dof of each entity, and how the element sees it that
    orders its dofs. ``sizes`` are ne, the width and the columns. ``rows`` has a row for each of the
    ``count`` entities of an element: its column of ``of``, what is added to the entries there, its
    first place in ``nodes``, its number of nodes, the number of orientations, or 0 if there is only
    one, and its first place in ``orders``.
    """
    blocks = -(-word(sizes, 0) // TOGETHER)
    fill_block(team, blocks, rows, count, of, sizes, turned, firsts, seen, nodes, orders, out)
