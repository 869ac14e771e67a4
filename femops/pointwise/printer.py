"""Expression graphs as statements of lane Python, and their values for NumPy arrays."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import BY_DETERMINANT, FUNCTIONS, LAW, RESULT
from femops_kernels.laws.law import Law

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}

Names = dict[int, str]


def _operand(node: Node, names: Names) -> str:
    return repr(node.value) if node.op == "const" else names[node.number]


def _operation(node: Node, a: list[str]) -> str:
    if node.op == RESULT:
        return f"{a[0]}[{node.data}]"
    first = 1 if node.op == "where" else 0
    if all(side.op == "const" for side in node.args[first:]):  # one must be a lane
        a[first] = f"as_lane(LANE, {a[first]})"
    if node.op in _INFIX:
        return f"{a[0]} {_INFIX[node.op]} {a[1]}"
    if node.op == "neg":
        return f"-{a[0]}"
    if node.op == LAW:
        return f"{node.data.name}({', '.join(a)})"
    return f"lane_{node.op}({', '.join(a)})"


def assignments(outputs: Sequence[Node], inputs: Names) -> tuple[list[str], list[str]]:
    """Statements of lane Python that compute nodes, with operators and functions ``lane_*``."""
    names: Names = dict(inputs)
    statements: list[str] = []
    for node in ancestors(outputs, inputs):
        if node.op == "const" or node.number in names:
            continue
        if node.op == "input":
            raise KeyError(f"the program has no name for the input {node.data}")
        name = f"t{len(statements)}"
        operands = [_operand(a, names) for a in node.args]
        statements.append(f"{name} = {_operation(node, operands)}")
        names[node.number] = name
    return statements, [_operand(node, names) for node in outputs]


_NUMPY: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "pow": np.power,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "arctan2": np.arctan2,
    BY_DETERMINANT: np.true_divide,
    "neg": np.negative,
    "fabs": np.abs,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "where": np.where,
    RESULT: operator.getitem,
    **{name: getattr(np, name) for name in ("sqrt", "hypot", *FUNCTIONS)},
}


def _evaluated(law: Law, *numbers: Any) -> Any:
    """Results of a law for arrays."""
    from femops_kernels.cpu.laws import evaluated  # imports the compiler

    return evaluated(law, *numbers)


def evaluate(
    outputs: Sequence[Node], inputs: dict[int, Any], order: Sequence[Node] | None = None
) -> list[Any]:
    """Values of nodes for NumPy arrays."""
    order = ancestors(outputs, inputs) if order is None else order
    uses = Counter(a.number for node in order for a in node.args)
    wanted = {node.number for node in outputs}
    values: dict[int, Any] = {}
    for node in order:
        if node.number in inputs:
            values[node.number] = inputs[node.number]
        elif node.op == "const":
            values[node.number] = node.value
        elif node.op == "input":
            raise KeyError(f"the input {node.data} has no value")
        else:
            function = partial(_evaluated, node.data) if node.op == LAW else _NUMPY[node.op]
            data = (node.data,) if node.op == RESULT else ()
            values[node.number] = function(*(values[a.number] for a in node.args), *data)
            for a in node.args:  # free arrays that no later node needs
                uses[a.number] -= 1
                if uses[a.number] == 0 and a.number not in wanted:
                    values.pop(a.number, None)
    return [values[node.number] for node in outputs]


NUMPY_FUNCTIONS: dict[str, Any] = {
    f"lane_{name}": function
    for name, function in _NUMPY.items()
    if name not in (*_INFIX, "neg", RESULT)
} | {"law": lambda text: partial(_evaluated, Law.of_text(text))}
"""NumPy's counterparts of the functions of lane Python."""
