"""Where what moves in a graph meets what does not."""

from __future__ import annotations

from collections.abc import Sequence

from femops.pointwise.graph import COMPARE, LIBRARY, Node, ancestors


def frontier(outputs: Sequence[Node], moving: set[int], *, deep: bool = False) -> list[Node]:
    """Nodes at which what moves meets what does not.

    Parameters
    ----------
    outputs : sequence of Node
    moving : set of int
        Numbers of the inputs that vary from application to application.
    deep : bool
        Whether to go on, through arithmetic, to the inputs and to functions of the C library.

    Returns
    -------
    list of Node
        Those that do not depend on the moving inputs but are used by one that does, or are outputs,
        or with ``deep`` what those are made of; no constants and no conditions.
    """
    order = ancestors(outputs)
    moves = set(moving)
    for node in order:
        if any(a.number in moves for a in node.args):
            moves.add(node.number)
    met = [n for n in outputs if n.number not in moves]
    met += [a for n in order if n.number in moves for a in n.args if a.number not in moves]
    found: dict[int, Node] = {}
    while met:
        node = met.pop()
        # a condition is no number that could be stored: its sides are
        opened = node.op in COMPARE or (deep and bool(node.args) and node.op not in LIBRARY)
        if opened:
            met += node.args
        elif node.op != "const":
            found[node.number] = node
    return [found[number] for number in sorted(found)]
