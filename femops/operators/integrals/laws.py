"""Laws that fail at points: where, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from femops.errors import LawError
from femops.geometry.domain import DomainBlock
from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import LAW
from femops.pointwise.law_function import raised
from femops_kernels.cpu.laws import evaluated

if TYPE_CHECKING:
    from femops.operators.integrals.integral import Integral


def failing(outputs: Iterable[Node]) -> list[Node]:
    """Calls of laws that may fail, on which outputs depend."""
    return [node for node in ancestors(outputs) if node.op == LAW and node.data.failing]


def check_laws(form: Integral, calls: Iterable[Node], blocks: Iterable[DomainBlock]) -> None:
    """Raise a `LawError` if a law fails at a point of some blocks of elements."""
    wanted = list(calls)
    for block in blocks:
        for call in wanted:
            numbers = np.moveaxis(form.values([*call.args], block, check=False), -1, 0)
            found = np.isnan(np.array(evaluated(call.data, *numbers))).any(axis=0)
            for place in np.argwhere(found):
                given = [float(number[tuple(place)]) for number in numbers]
                error = raised(call.data, given)
                if error is not None:
                    where = ", ".join(f"{c:.6g}" for c in block.points[tuple(place)])
                    shown = ", ".join(f"{number:.6g}" for number in given)
                    element = _element(form, block.start + int(place[0]))
                    raise LawError(
                        f"{form.name}: {call.data.title}({shown}) fails{element} at ({where}): "
                        f"{type(error).__name__}: {error}"
                    ) from error


def _element(form: Integral, k: int) -> str:
    """Words for an element, by its number in the mesh; none for a face."""
    if not form.domain.covers:
        return ""
    whole = form.fields.whole.distributed
    return f" in element {k if whole is None else whole.part.elements[k]}"
