"""Conditions under which outputs use a node. A NaN that no choice takes is harmless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from femops.pointwise.expressions.frontier import dependent
from femops.pointwise.expressions.graph import Node, ancestors


def guarded(outputs: Sequence[Node], nodes: Iterable[Node], moving: set[int]) -> list[Node]:
    """Make nodes that equal ``nodes`` where an output uses them, and are zero elsewhere."""
    order, wanted = ancestors(outputs), list(nodes)
    if not any(node.op == "where" for node in order):
        return wanted
    graph, moves = order[0].graph, dependent(outputs, moving)
    always, never = graph.constant(1.0), graph.constant(0.0)
    taken = {node.number: always for node in outputs}
    for node in reversed(order):  # each node before its arguments
        here = taken[node.number]
        sides = [here] * len(node.args)
        if node.op == "where":
            condition = node.args[0]
            known = condition.number not in moves
            other = graph.unary("not", condition)
            sides[1:] = [
                graph.binary("and", here, c) if known else never for c in (condition, other)
            ]
        for argument, side in zip(node.args, sides, strict=True):
            before = taken.setdefault(argument.number, never)
            if before is never:
                taken[argument.number] = side
            elif before is not always and side is not never:
                taken[argument.number] = graph.binary("or", before, side)
    return [graph.where(taken.get(n.number, always), n, never) for n in wanted]
