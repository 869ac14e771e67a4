"""Frontier in an expression graph: the nodes between fixed parts and parts that vary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import LIBRARY


def frontier(outputs: Sequence[Node], moving: set[int], *, deep: bool = False) -> list[Node]:
    """Nodes that can be computed once and that each application needs.

    Parameters
    ----------
    outputs : sequence of Node
    moving : set of int
        Numbers of the inputs that vary between applications.
    deep : bool
        True to replace nodes of arithmetic by their arguments, down to inputs and to functions of
        the C library.

    Returns
    -------
    list of Node
        Nodes that do not depend on moving inputs, but are outputs or arguments of a node that does.
        Conditions are replaced by their arguments. With ``deep`` nodes of arithmetic are replaced
        too. Constants are left out.
    """
    order = ancestors(outputs)
    moves = dependent(outputs, moving)
    met = [n for n in outputs if n.number not in moves]
    met += [a for n in order if n.number in moves for a in n.args if a.number not in moves]
    # a condition is no number and can't be stored, but the two numbers that it compares can
    return opened(met, lambda n: n.is_condition or (deep and bool(n.args) and n.op not in LIBRARY))


def opened(nodes: Iterable[Node], through: Callable[[Node], bool]) -> list[Node]:
    """Replace nodes by their arguments, recursively, while ``through`` is true.

    Parameters
    ----------
    nodes : iterable of Node
    through : callable
        Returns True for a node to replace by its arguments.

    Returns
    -------
    list of Node
        The nodes that remain, ordered by number, without constants.
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
    """Numbers of ``nodes`` and ancestors of ``nodes`` that depend on the nodes ``on``.

    Parameters
    ----------
    nodes : iterable of Node
    on : set of int
        Numbers of nodes. The result contains them.
    """
    moves = set(on)
    for node in ancestors(nodes):
        if any(a.number in moves for a in node.args):
            moves.add(node.number)
    return moves
