"""Pointwise programs: the text that a kernel runs at each quadrature point.

A program is linear in the field.  It is text in the few operations that lane vectors, NumPy arrays
and counting numbers share, so the kernel, the diagonal, the assembled matrix and the operation
count can't disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.pointwise.printer import NUMPY_FUNCTIONS
from femops_kernels.kernel import PointStep

SLOTS = ("u", "ux", "uy", "uz")
_RESULTS = ("v", "vx", "vy", "vz")


@final
@dataclass(frozen=True)
class Program:
    """A pointwise program.

    Attributes
    ----------
    text : str
        Definition of ``pointwise(u, ux, uy, uz, q)``; see `femops_kernels.kernel.PointStep`.
        Arguments and results are tuples by component; ``q`` holds the numbers stored at the point.
    dim : int
    ncomp_in, ncomp_out : int
        Components of field and test function.
    nqdata : int
        Numbers stored at a point.
    value_in, gradient_in : bool
        Whether the field's value, and its (reference) derivatives are read.
    value_out, gradient_out : bool
        Whether the test function's value, and its derivatives are multiplied by something.
    symmetric : bool
        Whether field and test function can be exchanged.
    scaled : tuple of int
        The stored numbers that a factor of the whole form multiplies.
    """

    text: str
    dim: int
    ncomp_in: int
    ncomp_out: int
    nqdata: int
    value_in: bool
    gradient_in: bool
    value_out: bool
    gradient_out: bool
    symmetric: bool
    scaled: tuple[int, ...]

    @property
    def step(self) -> PointStep:
        """What the kernel package takes."""
        return PointStep(
            self.text,
            self.nqdata,
            self.value_in,
            self.gradient_in,
            self.value_out,
            self.gradient_out,
        )

    @cached_property
    def _function(self) -> Any:
        names: dict[str, Any] = {
            "inner": lambda function: function,
            "LANE": None,
            "as_lane": lambda _, number: number,
            **NUMPY_FUNCTIONS,
        }
        exec(self.text, names)
        return names["pointwise"]

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or another process needs: the text is run again there."""
        return {k: v for k, v in self.__dict__.items() if k != "_function"}

    @property
    def slots_in(self) -> list[int]:
        """Numbers of the slots read: 0 for the value, 1 to dim for derivatives."""
        return [0] * self.value_in + list(range(1, self.dim + 1)) * self.gradient_in

    @property
    def slots_out(self) -> list[int]:
        """Numbers of the slots written."""
        return [0] * self.value_out + list(range(1, self.dim + 1)) * self.gradient_out

    def evaluate(self, inputs: dict[int, Sequence[Any]], q: Sequence[Any]) -> list[Any]:
        """Run the program on anything that adds and multiplies.

        Parameters
        ----------
        inputs : dict
            By slot: a sequence by component; what is missing is zero.
        q : sequence
            The stored numbers.

        Returns
        -------
        list
            One tuple by component for each of `slots_out`.
        """
        zero = (0.0,) * self.ncomp_in
        results = self._function(*(inputs.get(slot, zero) for slot in range(4)), q)
        return [results[slot] for slot in self.slots_out]

    def matrix(self, q: NDArray[Any]) -> NDArray[Any]:
        """D at each point.

        Parameters
        ----------
        q : (..., nqdata) array

        Returns
        -------
        (slots_out, ncomp_out, slots_in, ncomp_in, ...) array
            Derivative of outputs by inputs, the outputs first.
        """
        shape = (len(self.slots_out), self.ncomp_out, len(self.slots_in), self.ncomp_in)
        stored = tuple(np.moveaxis(q, -1, 0))
        out = np.zeros((*shape, *q.shape[:-1]))
        for k, slot in enumerate(self.slots_in):
            for component in range(self.ncomp_in):
                unit = tuple(float(c == component) for c in range(self.ncomp_in))
                for i, values in enumerate(self.evaluate({slot: unit}, stored)):
                    for c, value in enumerate(values):
                        out[i, c, k, component] = value
        return out

    @cached_property
    def flops(self) -> int:
        """Floating-point operations at one point, counted by running the text."""
        count = [0]
        inputs = {s: tuple(_Counter(count) for _ in range(self.ncomp_in)) for s in self.slots_in}
        names = dict.fromkeys(NUMPY_FUNCTIONS, _Counter(count).operate)
        function = self._function
        counting = {**function.__globals__, **names}
        exec(self.text, counting)
        zero = (0.0,) * self.ncomp_in
        arguments = (inputs.get(slot, zero) for slot in range(4))
        counting["pointwise"](*arguments, tuple(_Counter(count) for _ in range(self.nqdata)))
        return count[0]


@final
class _Counter:
    """A number that counts the operations done with it."""

    def __init__(self, count: list[int]) -> None:
        self._count = count

    def operate(self, *_: object) -> _Counter:
        self._count[0] += 1
        return _Counter(self._count)

    __add__ = __radd__ = __sub__ = __rsub__ = operate
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = operate


def _tuple(entries: Sequence[str]) -> str:
    return "(" + ", ".join(entries) + ",)"


def fuse(programs: Sequence[Program]) -> Program:
    """One program for the sum of several, their stored numbers one after the other."""
    if len(programs) == 1:
        return programs[0]
    first = programs[0]
    parts, calls, scaled, at = [], [], [], 0
    sums: list[list[str]] = [[], [], [], []]
    for k, program in enumerate(programs):
        parts.append(program.text.replace("def pointwise(", f"def part{k}("))
        results = [f"{name}_{k}" for name in _RESULTS]
        q = f"q[{at}:{at + program.nqdata}]"
        calls.append(f"    {', '.join(results)} = part{k}(u, ux, uy, uz, {q})")
        scaled += [at + k for k in program.scaled]
        at += program.nqdata
        for slot in program.slots_out:
            sums[slot].append(results[slot])
    lines = []
    for name, unused, summands in zip(_RESULTS, SLOTS, sums, strict=True):
        entries = [" + ".join(f"{s}[{c}]" for s in summands) for c in range(first.ncomp_out)]
        lines.append(f"    {name} = {_tuple(entries) if summands else unused}")
    head = ["@inner", "def pointwise(u, ux, uy, uz, q):"]
    text = "\n".join([*parts, *head, *calls, *lines, "    return v, vx, vy, vz", ""])
    return Program(
        text=text,
        dim=first.dim,
        ncomp_in=first.ncomp_in,
        ncomp_out=first.ncomp_out,
        nqdata=at,
        value_in=any(p.value_in for p in programs),
        gradient_in=any(p.gradient_in for p in programs),
        value_out=any(p.value_out for p in programs),
        gradient_out=any(p.gradient_out for p in programs),
        symmetric=all(p.symmetric for p in programs),
        scaled=tuple(scaled),
    )
