"""Programs of random forms, run on operands that are lanes or plain numbers and nothing else.

Compiled kernels tell the two apart: an operation needs a lane among its operands, and every result
is one.  So no compiler is needed to see whether it would refuse a program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

import femops
from femops.errors import TraceError
from femops.pointwise import qdata_split
from femops.pointwise.field_symbol import Argument
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.qdata_split import Known, linear_split, nonlinear_split
from femops.pointwise.qfunction import QFunction
from femops.pointwise.trace import CoefficientShape, linearised, trace
from femops_kernels.pointwise.recording import COMPARISONS, FUNCTIONS, Recording
from support.cases.random_forms.examples import Example


class Lane:
    """What arithmetic gives of a lane and a lane or a number."""

    def _with(self, other: Any) -> Lane:
        assert type(other) in (Lane, float), f"a lane meets a {type(other).__name__}"
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _with
    __truediv__ = __rtruediv__ = _with

    def __neg__(self) -> Lane:
        return self


class Mask:
    """What a comparison gives."""


def _function(name: str) -> Any:
    def function(*operands: Any) -> Any:
        if name == "lane_where":
            assert type(operands[0]) is Mask, f"{name} chooses by a {type(operands[0]).__name__}"
            operands = operands[1:]
        kinds = {type(operand) for operand in operands}
        assert Lane in kinds <= {Lane, float}, f"{name} is given {kinds}"
        return Mask() if name in COMPARISONS else Lane()

    return function


def check_lanes(program: QFunction) -> None:
    """Fail unless all operations have a lane among their operands, and all results are lanes."""
    names: dict[str, Any] = {
        "inner": lambda function: function,
        "LANE": None,
        "as_lane": lambda _, number: Lane(),
        **{name: _function(name) for name in FUNCTIONS},
    }
    exec(program.text, names)
    field = (Lane(),) * program.ncomp_in
    results = names["pointwise"](field, field, field, field, (Lane(),) * program.numbers.total)
    for slot in program.slots_out:
        assert all(type(entry) is Lane for entry in results[slot]), f"{results[slot]} in {slot}"
    Recording(program.text, program.slots_in, program.ncomp_in, program.numbers.total)


def programs(case: Example) -> list[QFunction]:
    """All programs that are written for a form, those too that another takes fewer bytes than."""
    found: list[QFunction] = []

    def noted(*given: Any, **options: Any) -> QFunction:
        found.append(write(*given, **options))
        return found[-1]

    write = qdata_split.make_program
    with mock.patch.object(qdata_split, "make_program", noted):
        _cut(case)
    return found


def _cut(case: Example) -> None:
    """All cuts of a form: levels, geometries and directions."""
    fields = {name: side.ncomp for name, side in case.sides.items()}
    tests = fields if case.test_side is None else {"v": case.test_side.ncomp}
    traced = trace(
        case.function({"np": np, "femops": femops}),
        case.points.dim,
        fields,
        tests,
        {name: CoefficientShape(np.shape(c.value)) for name, c in case.coefficients.items()},
        boundary=case.points.boundary,
    )
    every = [
        Known(affine, frozenset(constants), points=9, mapped=mapped)
        for affine, constants, mapped in itertools.product(
            (False, True), ((), case.coefficients), (False, True)
        )
    ]
    if case.state is not None:
        point, test = (
            Argument.joined([*arguments.values()]) for arguments in (traced.fields, traced.tests)
        )
        for known in every:
            nonlinear_split(traced, point, test.flat(), len(test.values), known)
        traced = linearised(traced, {name: f"state({name})" for name in fields})
    try:
        steps = [*_steps(traced)]
    except TraceError as error:
        if "zero whatever the field" not in str(error):
            raise
        return
    levels = ("partial", "at points") if case.points.boundary else ("partial", "matrix-free")
    for step, level, known, transpose in itertools.product(steps, levels, every, (False, True)):
        linear_split(step, level, known, transpose=transpose)


def _steps(traced: Any) -> Iterator[LinearQFunction]:
    if len(traced.fields) > 1:
        step = LinearQFunction(traced)
        yield step
        yield from (step.block(*pair) for pair in step.pairs)
    else:
        yield LinearQFunction(traced)
