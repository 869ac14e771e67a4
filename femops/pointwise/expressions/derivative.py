"""Differentiation on the expression graph, forward and in reverse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from femops.errors import TraceError
from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import LAW, RESULT


def derivatives(outputs: Sequence[Node], direction: dict[int, Node]) -> list[Node]:
    """Directional derivatives of the output nodes."""
    if not outputs:
        return []
    graph = outputs[0].graph
    zero = graph.constant(0.0)
    known: dict[int, Node] = dict(direction)
    for node in ancestors(outputs):
        if node.number in known or node.op == LAW:
            continue
        if node.op == RESULT:
            known[node.number] = _of_law(node, [known[a.number] for a in node.args[0].args])
            continue
        parts = [known[a.number] for a in node.args]
        if node.is_condition or all(p.is_constant(0.0) for p in parts):
            known[node.number] = zero
        else:
            known[node.number] = _RULES[node.op](node, parts)
    return [known[node.number] for node in outputs]


def gradients(output: Node, inputs: Sequence[Node]) -> list[Node]:
    """Derivatives of one node by several inputs, in one reverse pass.

    For any number of inputs, the pass takes at most about four times the operations of the output
    (Griewank and Walther, Evaluating Derivatives, section 4.6).
    """
    graph = output.graph
    zero = graph.constant(0.0)
    leaves = {node.number for node in inputs}
    order, active = ancestors([output]), set(leaves)
    for node in order:
        if not active.isdisjoint(a.number for a in node.args):
            active.add(node.number)
    totals: dict[int, _Total] = {output.number: (None, graph.constant(1.0))}
    for node in reversed(order):
        if node.number in leaves or node.number not in totals:
            continue
        args = node.args[0].args if node.op == RESULT else node.args
        for argument, total in zip(args, _shares(node, totals[node.number]), strict=True):
            if argument.number in active and not argument.is_condition:
                before = totals.get(argument.number)
                totals[argument.number] = total if before is None else _sum(before, total)
    return [_masked(totals.get(node.number, (None, zero))) for node in inputs]


_Total = tuple[Node | None, Node]
"""Condition (None: everywhere), and the derivative where it holds. It is zero elsewhere."""


def _shares(node: Node, total: _Total) -> list[_Total]:
    """Pass the derivative by a node to the node's arguments."""
    guard, factor = total
    zero, args = node.graph.constant(0.0), node.args
    if node.op == RESULT:
        return [(guard, factor * slope) for slope in _slopes(node, range(len(args[0].args)))]
    if node.op not in ("where", "minimum", "maximum"):
        # a rule is linear in its directions, so the factor goes through it
        units = [[factor if j == k else zero for j in range(len(args))] for k in range(len(args))]
        return [(guard, _RULES[node.op](node, parts)) for parts in units]
    chosen = args[0]
    if node.op != "where":
        chosen = args[0] <= args[1] if node.op == "minimum" else args[0] >= args[1]
    sides = [chosen, node.graph.unary("not", chosen)]
    if guard is not None:
        sides = [node.graph.binary("and", guard, side) for side in sides]
    return [(None, zero)] * (len(args) - 2) + [(side, factor) for side in sides]


def _sum(one: _Total, other: _Total) -> _Total:
    first, second = one[0], other[0]
    if first is second:
        return first, one[1] + other[1]
    both = None
    if first is not None and second is not None:
        both = first.graph.binary("or", first, second)
    return both, _masked(one) + _masked(other)


def _masked(total: _Total) -> Node:
    """Derivative, or zero if its condition does not hold."""
    guard, factor = total
    return factor if guard is None else _where(guard, factor, factor.graph.constant(0.0))


def _slopes(result: Node, by: Iterable[int]) -> list[Any]:
    """Derivatives of a result of a law by some of the law's arguments."""
    from femops_kernels.errors import KernelError  # few programs have laws
    from femops_kernels.laws.derivative import derivative

    (called,), k, wanted = result.args, result.data, tuple(by)
    try:
        law = derivative(called.data, wanted)
    except KernelError as error:
        raise TraceError(str(error)) from error
    graph, found = result.graph, result.graph.results(law, called.args)
    # constants, and numbers that are the same, let forms store less
    return [
        graph.constant(x) if constant else found[x]
        for constant, x in law.known[k * len(wanted) : (k + 1) * len(wanted)]
    ]


def _of_law(result: Node, parts: list[Node]) -> Any:
    by = [j for j, part in enumerate(parts) if not part.is_constant(0.0)]
    total: Any = result.graph.constant(0.0)
    for j, slope in zip(by, _slopes(result, by) if by else (), strict=True):
        total = total + parts[j] * slope
    return total


def _quotient(node: Node, d: list[Node]) -> Any:
    return (d[0] - node * d[1]) / node.args[1]


def _power(node: Node, d: list[Node]) -> Any:
    base, exponent = node.args
    total: Any = d[0] * (exponent * base ** (exponent - 1.0))
    if not d[1].is_constant(0.0):
        zero = node.graph.constant(0.0)
        total = total + d[1] * (node * _where(base == 0.0, zero, np.log(base)))  # the limit at zero
    return total


def _arctan2(node: Node, d: list[Node]) -> Any:
    y, x = node.args
    return (d[0] * x - d[1] * y) / (x * x + y * y)


def _cosine(sine: Node) -> Any:
    return np.sqrt((1.0 - sine) * (1.0 + sine))  # 1 - sine^2 would cancel


def _where(condition: Node, a: Node, b: Node) -> Node:
    return condition.graph.where(condition, a, b)


def _sign(a: Node) -> Node:
    return _where(a < 0.0, a.graph.constant(-1.0), a.graph.constant(1.0))


_RULES: dict[str, Any] = {
    "add": lambda _, d: d[0] + d[1],
    "sub": lambda _, d: d[0] - d[1],
    "mul": lambda node, d: d[0] * node.args[1] + node.args[0] * d[1],
    "div": _quotient,
    "pow": _power,
    "arctan2": _arctan2,
    "minimum": lambda node, d: _where(node.args[0] <= node.args[1], d[0], d[1]),
    "maximum": lambda node, d: _where(node.args[0] >= node.args[1], d[0], d[1]),
    "where": lambda node, d: _where(node.args[0], d[1], d[2]),
    "neg": lambda _, d: -d[0],
    "sqrt": lambda node, d: d[0] / (2.0 * node),
    "exp": lambda node, d: d[0] * node,
    "exp2": lambda node, d: d[0] * (math.log(2.0) * node),
    "expm1": lambda node, d: d[0] * np.exp(node.args[0]),
    "log": lambda node, d: d[0] / node.args[0],
    "log2": lambda node, d: d[0] / (math.log(2.0) * node.args[0]),
    "log10": lambda node, d: d[0] / (math.log(10.0) * node.args[0]),
    "log1p": lambda node, d: d[0] / (1.0 + node.args[0]),
    "sin": lambda node, d: d[0] * np.cos(node.args[0]),
    "cos": lambda node, d: -(d[0] * np.sin(node.args[0])),
    "tan": lambda node, d: d[0] * (1.0 + node * node),
    "tanh": lambda node, d: d[0] / np.square(np.cosh(node.args[0])),  # 1 - tanh^2 would cancel
    "sinh": lambda node, d: d[0] * np.cosh(node.args[0]),
    "cosh": lambda node, d: d[0] * np.sinh(node.args[0]),
    "arcsin": lambda node, d: d[0] / _cosine(node.args[0]),
    "arccos": lambda node, d: -(d[0] / _cosine(node.args[0])),
    "hypot": lambda node, d: d[0] * (node.args[0] / node) + d[1] * (node.args[1] / node),
    "arctan": lambda node, d: d[0] / (1.0 + node.args[0] * node.args[0]),
    "fabs": lambda node, d: d[0] * _sign(node.args[0]),
}
