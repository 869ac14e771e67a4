"""Programs written from nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.printer import assignments
from femops.pointwise.qfunction import QFunction
from femops_kernels.pointwise.qfunction import QFunctionInputs
from femops_kernels.pointwise.recording import SLOTS


def make_program(
    dim: int,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    components: tuple[int, int],
    names: dict[int, str],
    numbers: QFunctionInputs,
    *,
    symmetric: bool,
    scaled: tuple[int, ...],
) -> QFunction:
    """Text of a q-function from nodes.

    Parameters
    ----------
    dim : int
    inputs, outputs : sequences of Node
        By slot (value, then x-, y-, z-derivative), then by component.
    components : (int, int)
        Components of the field and of the test function.
    names : dict
        Names of the numbers that the step is given, by node number.
    numbers, symmetric, scaled
        See `QFunction`.
    """
    n_in, n_out = components
    called = {node.number: f"{SLOTS[k // n_in]}[{k % n_in}]" for k, node in enumerate(inputs)}
    statements, results = assignments(outputs, {**called, **names})
    needed = {n.number for n in ancestors(outputs, names)} - set(names)
    reads = [any(n.number in needed for n in _slot(inputs, s, n_in)) for s in range(1 + dim)]
    writes = [not all(n.is_constant(0.0) for n in _slot(outputs, s, n_out)) for s in range(1 + dim)]
    value_out, gradient_out = writes[0], any(writes[1:])
    parts = []
    for s, slot in enumerate(SLOTS):
        used = s <= dim and (gradient_out if s else value_out)
        # constants become lanes; what comes from operations is one
        entries = [_lane(r) for r in _slot(results, s, n_out)]
        parts.append(f"({', '.join(entries)},)" if used else slot)
    lines = ["@inner", f"def pointwise({', '.join(SLOTS)}, q):", *(f"    {s}" for s in statements)]
    text = "\n".join([*lines, f"    return {', '.join(parts)}", ""])
    return QFunction(
        text=text,
        dim=dim,
        ncomp_in=n_in,
        ncomp_out=n_out,
        numbers=numbers,
        value_in=reads[0],
        gradient_in=any(reads[1:]),
        value_out=value_out,
        gradient_out=gradient_out,
        symmetric=symmetric,
        scaled=scaled,
    )


def _slot(entries: Sequence[Any], slot: int, ncomp: int) -> Sequence[Any]:
    return entries[slot * ncomp : (slot + 1) * ncomp]


def _lane(text: str) -> str:
    try:
        float(text)
    except ValueError:
        return text
    return f"as_lane(LANE, {text})"
