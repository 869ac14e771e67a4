"""Q-functions written from nodes of an expression graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.printer import assignments
from femops.pointwise.qfunction import QFunction
from femops_kernels.pointwise.qfunction import QFunctionCode, QFunctionInputs
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
    written: Sequence[int] = (),
) -> QFunction:
    """Write a q-function from nodes."""
    n_in, n_out = components
    called = {node.number: f"{SLOTS[k // n_in]}[{k % n_in}]" for k, node in enumerate(inputs)}
    statements, results = assignments(outputs, {**called, **names})
    needed = {n.number for n in ancestors(outputs, names)} - set(names)
    reads = [[n.number in needed for n in _slot(inputs, s, n_in)] for s in range(1 + dim)]
    writes = [[not n.is_constant(0.0) for n in _slot(outputs, s, n_out)] for s in range(1 + dim)]
    values_in, slopes_in, values_out, slopes_out = (
        _components(slots) for used in (reads, writes) for slots in (used[:1], used[1:])
    )
    values_out = tuple(sorted({*values_out, *written}))
    parts = []
    for s, slot in enumerate(SLOTS):
        used = s <= dim and bool(slopes_out if s else values_out)
        # constants become lanes; results of operations are lanes already
        entries = [_lane(r) for r in _slot(results, s, n_out)]
        parts.append(f"({', '.join(entries)},)" if used else slot)
    lines = ["@inner", f"def pointwise({', '.join(SLOTS)}, q):", *(f"    {s}" for s in statements)]
    text = "\n".join([*lines, f"    return {', '.join(parts)}", ""])
    return QFunction(
        code=QFunctionCode(text, numbers, values_in, slopes_in, values_out, slopes_out),
        dim=dim,
        ncomp_in=n_in,
        ncomp_out=n_out,
        symmetric=symmetric,
        scaled=scaled,
    )


def _slot(entries: Sequence[Any], slot: int, ncomp: int) -> Sequence[Any]:
    return entries[slot * ncomp : (slot + 1) * ncomp]


def _components(slots: Sequence[Sequence[bool]]) -> tuple[int, ...]:
    """Components that at least one slot uses."""
    return tuple(c for c, used in enumerate(zip(*slots, strict=True)) if any(used))


def _lane(text: str) -> str:
    try:
        float(text)
    except ValueError:
        return text
    return f"as_lane(LANE, {text})"
