"""Every form on a device: what they are tried on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any, final

from femops.operators.execution.device import LEVELS
from support.cases import levels as level_cases
from support.cases.levels import FORMS, Case, build
from support.cases.pairwise import Pairwise, Values
from support.oracles.forms import Dense

FACTORS: dict[str, list[Any]] = {
    **level_cases.FACTORS,
    "level": list(LEVELS),
    "p": [1, 2, 3, 4],
    "lanes": [None],
    "data": ["same", "float32"],
    "reproducible": [False, True],
}
LEAST = level_cases.LEAST | {"level": "partial", "data": "same", "reproducible": False}
OWN = ("data", "reproducible")


@final
@dataclass(frozen=True)
class DeviceCase:
    """A case of `level_cases`, what its numbers at points are stored in, how results are added."""

    case: Case
    data: str
    reproducible: bool

    @staticmethod
    def of(values: Values) -> DeviceCase:
        """From the values of all factors."""
        inner = {name: value for name, value in values.items() if name not in OWN}
        return DeviceCase(Case(**inner), values["data"], values["reproducible"])

    def values(self) -> Values:
        """Of all factors."""
        return vars(self.case) | {name: getattr(self, name) for name in OWN}

    def __str__(self) -> str:
        return "-".join(str(value) for value in (self.case, *astuple(self)[1:]))

    @property
    def tolerance(self) -> float:
        """What the error over the norm of |A| |u| must stay below."""
        return max(self.case.tolerance, 2e-7 if self.data == "float32" else 0.0)

    def build(self, device: Any) -> tuple[Any, Dense]:
        """The operator on the device, and the oracle's matrix."""
        data_dtype = None if self.data == "same" else self.data
        return build(self.case, data_dtype, device=device, reproducible=self.reproducible)


def sensible(case: Values) -> bool:
    """Whether a case exists and is small enough for a naive oracle."""
    rounded = case["data"] == "float32"
    if rounded and (case["dtype"] == "float32" or FORMS[case["form"]].nonlinear):
        return False
    return level_cases.sensible(case)


def kernel(case: Values) -> Values:
    """What decides which kernel a case takes."""
    return level_cases.kernel(case) | {name: case[name] for name in OWN}


PAIRWISE = Pairwise(FACTORS, sensible, LEAST, kernel, level_cases.FAVOURED)


@cache
def cover() -> tuple[DeviceCase, ...]:
    """Cases such that every two values of two factors meet in one of them (where they can)."""
    return tuple(DeviceCase.of(values) for values in PAIRWISE.cover)


def product(form: str, level: str, dim: int, p: int) -> Iterator[DeviceCase]:
    """All meshes and sizes, each added both ways; see `level_cases.product`."""
    for case, reproducible in itertools.product(
        level_cases.product(form, level, dim, p), (False, True)
    ):
        values = vars(case) | {"data": "float32", "reproducible": reproducible}
        yield DeviceCase.of(values if sensible(values) else values | {"data": "same"})
