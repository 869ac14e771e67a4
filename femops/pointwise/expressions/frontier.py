"""Frontier in an expression graph: the nodes between fixed parts and parts that vary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import LIBRARY


def frontier(outputs: Sequence[Node], moving: set[int], *, deep: bool = False) -> list[Node]:
    """Nodes that can be computed once and that each application needs."""
    order = ancestors(outputs)
    moves = dependent(outputs, moving)
    met = [n for n in outputs if n.number not in moves]
    met += [a for n in order if n.number in moves for a in n.args if a.number not in moves]
    # a condition is no number and can't be stored, but the two numbers that it compares can
    return opened(met, lambda n: n.is_condition or (deep and bool(n.args) and n.op not in LIBRARY))


def opened(nodes: Iterable[Node], through: Callable[[Node], bool]) -> list[Node]:
    """Replace nodes by their arguments, recursively, while ``through`` is true."""
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
    """Numbers of ``nodes`` and ancestors of ``nodes`` that depend on the nodes ``on``."""
    moves = set(on)
    for node in ancestors(nodes):
        if any(a.number in moves for a in node.args):
            moves.add(node.number)
    return moves
