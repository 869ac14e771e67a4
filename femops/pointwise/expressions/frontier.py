"""Frontier in a graph between nodes that depend on the moving inputs and the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import LIBRARY


def frontier(outputs: Sequence[Node], moving: set[int], *, deep: bool = False) -> list[Node]:
    """Nodes that do not depend on the moving inputs, and that dependent nodes use.

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
        Nodes that do not depend on the moving inputs but are used by one that does, or are outputs,
        or with ``deep`` what those are made of; no constants and no conditions.
    """
    order = ancestors(outputs)
    moves = dependent(outputs, moving)
    met = [n for n in outputs if n.number not in moves]
    met += [a for n in order if n.number in moves for a in n.args if a.number not in moves]
    # a condition is no number that could be stored: its sides are
    return opened(met, lambda n: n.is_condition or (deep and bool(n.args) and n.op not in LIBRARY))


def opened(nodes: Iterable[Node], through: Callable[[Node], bool]) -> list[Node]:
    """Nodes that the given ones are made of, down to those not to be opened.

    Parameters
    ----------
    nodes : iterable of Node
    through : callable
        Whether a node is to be replaced by its arguments.

    Returns
    -------
    list of Node
        By number, without constants.
    """
    left = list(nodes)
    seen: set[int] = set()
    found = []
    while left:
        node = left.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if through(node):
            left += node.args
        elif node.op != "const":
            found.append(node)
    return sorted(found, key=lambda node: node.number)


def dependent(nodes: Iterable[Node], on: set[int]) -> set[int]:
    """Numbers of the nodes, and of those that they are made of, that depend on some.

    Parameters
    ----------
    nodes : iterable of Node
    on : set of int
        Numbers of nodes, which depend on themselves.
    """
    moves = set(on)
    for node in ancestors(nodes):
        if any(a.number in moves for a in node.args):
            moves.add(node.number)
    return moves
