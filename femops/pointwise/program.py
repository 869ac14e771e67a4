"""Pointwise programs: the text that a kernel runs at each quadrature point.

A program is linear in the field.  It is written once, in the few operations that lane vectors,
NumPy arrays and counting numbers share, so the kernel, the diagonal, the assembled matrix and the
operation count can't disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.kernel import PointStep

DIRECTIONS = "xyz"


@final
@dataclass(frozen=True)
class Program:
    """A pointwise program.

    Attributes
    ----------
    text : str
        Definition of ``pointwise(u, ux, uy, uz, q)``; see `femops_kernels.kernel.PointStep`.
        Arguments and results are tuples by component; ``q`` holds the numbers stored at the
        point.
    dim, ncomp : int
    nqdata : int
        Numbers stored at a point.
    value : bool
        Whether values of field and test function occur.
    gradient : bool
        Whether their (reference) derivatives occur.
    symmetric : bool
        Whether field and test function can be exchanged.
    """

    text: str
    dim: int
    ncomp: int
    nqdata: int
    value: bool
    gradient: bool
    symmetric: bool

    @property
    def step(self) -> PointStep:
        """What the kernel package takes."""
        return PointStep(self.text, self.nqdata, self.value, self.gradient)

    @cached_property
    def _function(self) -> Any:
        names: dict[str, Any] = {"njit": lambda function: function}
        exec(self.text, names)  # the text is our own: see the functions below
        return names["pointwise"]

    @property
    def slots(self) -> int:
        """Inputs (and outputs) a component has: value first, then derivatives."""
        return int(self.value) + self.dim * int(self.gradient)

    def evaluate(self, inputs: Sequence[Sequence[Any]], q: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run the program on anything that adds and multiplies.

        Parameters
        ----------
        inputs : sequence of tuples
            By slot (value, then x-, y-, z-derivative, those that occur), then by component.
        q : sequence
            The stored numbers.

        Returns
        -------
        list of tuples
            By slot, then by component.
        """
        zero = (0.0,) * self.ncomp
        given = list(inputs)
        u = given.pop(0) if self.value else zero
        derivatives = given + [zero] * (3 - len(given))
        v, *results = self._function(u, *derivatives, q)
        outputs: list[tuple[Any, ...]] = [v] if self.value else []
        outputs += results[: self.dim if self.gradient else 0]
        return outputs

    def matrix(self, q: NDArray[Any]) -> NDArray[Any]:
        """D at each point.

        Parameters
        ----------
        q : (..., nqdata) array

        Returns
        -------
        (slots, ncomp, slots, ncomp, ...) array
            Derivative of outputs by inputs, the outputs first.
        """
        shape = (self.slots, self.ncomp)
        stored = np.moveaxis(q, -1, 0)
        out = np.zeros((*shape, *shape, *q.shape[:-1]))
        for slot, component in np.ndindex(*shape):
            unit = np.zeros(shape)
            unit[slot, component] = 1.0
            for i, values in enumerate(self.evaluate([tuple(row) for row in unit], tuple(stored))):
                for c, value in enumerate(values):
                    out[i, c, slot, component] = value
        return out

    @cached_property
    def flops(self) -> int:
        """Floating-point operations at one point, counted by running the text."""
        count = [0]
        inputs = [tuple(_Counter(count) for _ in range(self.ncomp)) for _ in range(self.slots)]
        self.evaluate(inputs, tuple(_Counter(count) for _ in range(self.nqdata)))
        return count[0]


@final
class _Counter:
    """A number that counts the operations done with it."""

    def __init__(self, count: list[int]) -> None:
        self._count = count

    def _operate(self, _other: object) -> _Counter:
        self._count[0] += 1
        return _Counter(self._count)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _operate
    )

    def __neg__(self) -> _Counter:
        return self._operate(None)


def _tuple(entries: Sequence[str]) -> str:
    return "(" + ", ".join(entries) + ",)"


def mass_program(dim: int, ncomp: int) -> Program:
    """``v = q u``, component by component: one stored number, w det(J) rho."""
    body = _tuple([f"q[0] * u[{c}]" for c in range(ncomp)])
    text = f"@njit\ndef pointwise(u, ux, uy, uz, q):\n    return {body}, ux, uy, uz\n"
    return Program(text, dim, ncomp, 1, value=True, gradient=False, symmetric=True)


def diffusion_program(dim: int, ncomp: int) -> Program:
    """``v_a = sum_b q_ab u_b`` in reference directions, component by component.

    Stored is the upper triangle of w det(J) J^-1 kappa J^-T by rows: 1, 3 or 6 numbers.
    """
    position = {pair: k for k, pair in enumerate(upper_triangle(dim))}
    names = DIRECTIONS[:dim]
    lines = []
    for a, out in enumerate(names):
        entries = []
        for c in range(ncomp):
            products = [
                f"q[{position[min(a, b), max(a, b)]}] * u{name}[{c}]"
                for b, name in enumerate(names)
            ]
            entries.append(" + ".join(products))
        lines.append(f"    v{out} = {_tuple(entries)}")
    lines += [f"    v{unused} = u{unused}" for unused in DIRECTIONS[dim:]]
    text = "\n".join(
        ["@njit", "def pointwise(u, ux, uy, uz, q):", *lines, "    return u, vx, vy, vz", ""]
    )
    return Program(text, dim, ncomp, len(position), value=False, gradient=True, symmetric=True)


def upper_triangle(dim: int) -> list[tuple[int, int]]:
    """Index pairs of the upper triangle by rows.

    In 3-D: (0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2).
    """
    return [(a, b) for a in range(dim) for b in range(a, dim)]


def fuse(programs: Sequence[Program]) -> Program:
    """One program for the sum of several on one field.

    Their stored numbers stand one after the other.
    """
    if len(programs) == 1:
        return programs[0]
    first = programs[0]
    parts, calls, at = [], [], 0
    sums: dict[str, list[str]] = {"v": [], "vx": [], "vy": [], "vz": []}
    for k, program in enumerate(programs):
        parts.append(program.text.replace("def pointwise(", f"def part{k}("))
        results = [f"{name}_{k}" for name in sums]
        calls.append(
            f"    {', '.join(results)} = part{k}(u, ux, uy, uz, q[{at}:{at + program.nqdata}])"
        )
        at += program.nqdata
        used = ["v"] * program.value
        used += [f"v{d}" for d in DIRECTIONS[: first.dim]] * program.gradient
        for name in used:
            sums[name].append(f"{name}_{k}")
    lines = []
    for name, summands in sums.items():
        entries = [" + ".join(f"{s}[{c}]" for s in summands) for c in range(first.ncomp)]
        lines.append(f"    {name} = {_tuple(entries) if summands else 'u' + name[1:]}")
    head = ["@njit", "def pointwise(u, ux, uy, uz, q):"]
    text = "\n".join([*parts, *head, *calls, *lines, "    return v, vx, vy, vz", ""])
    return Program(
        text,
        first.dim,
        first.ncomp,
        at,
        value=any(p.value for p in programs),
        gradient=any(p.gradient for p in programs),
        symmetric=all(p.symmetric for p in programs),
    )
