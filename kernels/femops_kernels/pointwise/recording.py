"""Recording of q-functions: Python runs their text on numbers that record each operation.

So the count of operations and the text in CUDA C++ come from the text that the host compiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

from femops_kernels.laws.law import Law

SLOTS = ("u", "ux", "uy", "uz")
RESULTS = ("v", "vx", "vy", "vz")

COMPARISONS = {
    "lane_lt": "{} < {}",
    "lane_le": "{} <= {}",
    "lane_gt": "{} > {}",
    "lane_ge": "{} >= {}",
    "lane_eq": "{} == {}",
    "lane_ne": "{} != {}",
}
FUNCTIONS = COMPARISONS | {
    "lane_sqrt": "sqrt({})",
    "lane_exp": "exp({})",
    "lane_exp2": "exp2({})",
    "lane_expm1": "expm1({})",
    "lane_log": "log({})",
    "lane_log2": "log2({})",
    "lane_log10": "log10({})",
    "lane_log1p": "log1p({})",
    "lane_sin": "sin({})",
    "lane_cos": "cos({})",
    "lane_tan": "tan({})",
    "lane_tanh": "tanh({})",
    "lane_sinh": "sinh({})",
    "lane_cosh": "cosh({})",
    "lane_arcsin": "asin({})",
    "lane_arccos": "acos({})",
    "lane_arctan": "atan({})",
    "lane_arctan2": "atan2({}, {})",
    "lane_hypot": "hypot({}, {})",
    "lane_pow": "pow({}, {})",
    "lane_fabs": "fabs({})",
    # fmin and fmax would drop NaN
    "lane_minimum": "{0} < {1} || {0} != {0} ? {0} : {1}",
    "lane_maximum": "{0} > {1} || {0} != {0} ? {0} : {1}",
    "lane_where": "{} ? {} : {}",
    "lane_by_determinant": "by_determinant({}, {})",
}
"""The functions of lane Python in C++."""
_OPERATIONS = FUNCTIONS | {
    "+": "{} + {}",
    "-": "{} - {}",
    "*": "{} * {}",
    "/": "{} / {}",
    "neg": "-{}",
}


@final
class Recorded:
    """A number whose arithmetic a `Recording` records."""

    __slots__ = ("_note", "name")

    def __init__(self, recording: Recording, name: str) -> None:
        self._note, self.name = recording.note, name

    def __add__(self, other: Any) -> Recorded:
        return self._note("+", self, other)

    def __radd__(self, other: Any) -> Recorded:
        return self._note("+", other, self)

    def __sub__(self, other: Any) -> Recorded:
        return self._note("-", self, other)

    def __rsub__(self, other: Any) -> Recorded:
        return self._note("-", other, self)

    def __mul__(self, other: Any) -> Recorded:
        return self._note("*", self, other)

    def __rmul__(self, other: Any) -> Recorded:
        return self._note("*", other, self)

    def __truediv__(self, other: Any) -> Recorded:
        return self._note("/", self, other)

    def __rtruediv__(self, other: Any) -> Recorded:
        return self._note("/", other, self)

    def __neg__(self) -> Recorded:
        return self._note("neg", self)


@final
class Recording:
    """Record of the operations of a q-function. The same operation on the same operands is one."""

    def __init__(self, text: str, slots: Sequence[int], ncomp: int, numbers: int) -> None:
        self.operations: dict[tuple[str, ...], Recorded] = {}
        self._laws: dict[str, Law] = {}
        names: dict[str, Any] = {
            "inner": lambda function: function,
            "LANE": None,
            "as_lane": lambda _, number: number,
            **{name: partial(self.note, name) for name in FUNCTIONS},
            "law": self._law,
        }
        exec(text, names)
        zero = (0.0,) * ncomp
        given = [
            tuple(Recorded(self, f"{name}[{c}]") for c in range(ncomp)) if slot in slots else zero
            for slot, name in enumerate(SLOTS)
        ]
        q = tuple(Recorded(self, f"q[{k}]") for k in range(numbers))
        self.results: list[Any] = list(names["pointwise"](*given, q))

    def _law(self, text: str) -> Callable[..., tuple[Recorded, ...]]:
        law = Law.of_text(text)
        self._laws[law.name] = law

        def results(*operands: Any) -> tuple[Recorded, ...]:
            called = self.note(law.name, *operands)
            return tuple(self.note(f"result {k}", called) for k in range(law.results))

        return results

    @property
    def count(self) -> int:
        """Number of operations. Those of a law count once, whatever loops it has."""
        laws = (self._laws[name].size for name, *_ in self.operations if name in self._laws)
        return len(self.operations) + sum(laws)

    def note(self, operation: str, *operands: Any) -> Recorded:
        """Return the result of an operation. Record the operation unless it was recorded before."""
        key = (operation, *map(_operand, operands))
        if key not in self.operations:
            self.operations[key] = Recorded(self, f"t{len(self.operations)}")
        return self.operations[key]

    def cuda(self, slots: Sequence[int]) -> str:
        """Write the q-function in CUDA C++."""
        lines = []
        for (operation, *operands), result in self.operations.items():
            if operation in self._laws:
                numbers = ", ".join(f"(double){one}" for one in operands)
                lines.append(f"double {result.name}[{self._laws[operation].results}];")
                lines.append(f"{operation}({numbers}, {result.name});")
                continue
            if operation.startswith("result "):
                place = f"{operands[0]}[{operation.split()[1]}]"
                lines.append(f"const T {result.name} = T({place});")
                continue
            kind = "bool" if operation in COMPARISONS else "T"
            text = _OPERATIONS[operation].format(*operands)
            lines.append(f"const {kind} {result.name} = {text};")
        for slot in slots:
            for c, value in enumerate(self.results[slot]):
                lines.append(f"{RESULTS[slot]}[{c}] = {_operand(value)};")
        given = ", ".join(f"const T (&{name})[NCOMP_IN]" for name in SLOTS)
        wanted = ", ".join(f"T (&{name})[NCOMP_OUT]" for name in RESULTS)
        body = "".join(f"    {line}\n" for line in lines)
        laws = "".join(_definition(law) + "\n" for law in self._laws.values())
        return (
            f"{laws}__device__ __forceinline__ void pointwise(\n    {given},\n    const T* q,\n"
            f"    {wanted})\n{{\n{body}}}\n"
        )


def _definition(law: Law) -> str:
    from femops_kernels.laws.cuda import function  # few programs have laws

    return function(law)


def _operand(value: Any) -> str:
    """C++ text of an operand: the name of a recorded number, or a constant with all its digits."""
    if isinstance(value, Recorded):
        return value.name
    number = float(value)
    if math.isnan(number):
        return "(T(0) / T(0))"
    if math.isinf(number):
        return f"(T({math.copysign(1, number):.0f}) / T(0))"
    return f"T({number!r})"
