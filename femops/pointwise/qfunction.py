"""Q-functions: programs that a kernel runs at each quadrature point.

A program uses only operations that lane vectors, NumPy arrays and recording numbers support. So the
kernels, the diagonal, the assembled matrix and the operation count all run the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.pointwise.printer import NUMPY_FUNCTIONS
from femops_kernels.pointwise.qfunction import QFunctionCode, QFunctionInputs, used_slots
from femops_kernels.pointwise.recording import RESULTS, SLOTS, Recording


@final
@dataclass(frozen=True)
class QFunction:
    """Q-function: program, sizes and symmetry."""

    code: QFunctionCode  # program, in the form of the kernel package
    dim: int
    # ncomp_in and ncomp_out: number of components of the field, and of the test function
    ncomp_in: int
    ncomp_out: int
    symmetric: bool  # True if the form does not change when field and test function are exchanged
    # positions in ``q`` of the numbers that a factor of the form multiplies
    scaled: tuple[int, ...]

    @property
    def text(self) -> str:
        """Definition of ``pointwise(u, ux, uy, uz, q)``, see `QFunctionCode`."""
        return self.code.text

    @property
    def numbers(self) -> QFunctionInputs:
        """Counts of the kinds of numbers in ``q``, in order."""
        return self.code.numbers

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
        """Return the state for a copy or another process, which runs the text again."""
        return {k: v for k, v in self.__dict__.items() if k != "_function"}

    @property
    def slots_in(self) -> list[int]:
        """Numbers of the slots read: 0 for the value, 1 to dim for derivatives."""
        return used_slots(self.dim, self.code.value_in, self.code.gradient_in)

    @property
    def slots_out(self) -> list[int]:
        """Numbers of the slots that the q-function writes, as in `slots_in`."""
        return used_slots(self.dim, self.code.value_out, self.code.gradient_out)

    def evaluate(self, inputs: dict[int, Sequence[Any]], q: Sequence[Any]) -> list[Any]:
        """Run the program on NumPy arrays, numbers, or other objects with arithmetic."""
        zero = (0.0,) * self.ncomp_in
        results = self._function(*(inputs.get(slot, zero) for slot in range(4)), q)
        return [results[slot] for slot in self.slots_out]

    def matrix(self, q: NDArray[Any]) -> NDArray[Any]:
        """Derivative D of the outputs by the inputs at each point.

        Shapes: `q` (..., n), returned (slots_out, ncomp_out, slots_in, ncomp_in, ...).
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
        """Floating-point operations at one point, counted in a run of the text.

        A repeated operation counts once, because the compiler does it once.
        """
        recording = Recording(self.text, self.slots_in, self.ncomp_in, self.numbers.total)
        return recording.count


def _tuple(entries: Sequence[str]) -> str:
    return "(" + ", ".join(entries) + ",)"


def fuse(programs: Sequence[QFunction]) -> QFunction:
    """Fuse q-functions into one q-function whose results are the sums of their results.

    The new ``q`` has the numbers of all programs, grouped by kind. All programs share the numbers
    of the geometry, which occur once.
    """
    if len(programs) == 1:
        return programs[0]
    first = programs[0]
    numbers, places = _together([qfunction.numbers for qfunction in programs])
    parts, calls = [], []
    sums: list[list[str]] = [[], [], [], []]
    for k, (qfunction, place) in enumerate(zip(programs, places, strict=True)):
        parts.append(qfunction.text.replace("def pointwise(", f"def part{k}("))
        results = [f"{name}_{k}" for name in RESULTS]
        calls.append(f"    {', '.join(results)} = part{k}(u, ux, uy, uz, {_pick(place)})")
        for slot in qfunction.slots_out:
            sums[slot].append(results[slot])
    lines = []
    for name, unused, summands in zip(RESULTS, SLOTS, sums, strict=True):
        entries = [" + ".join(f"{s}[{c}]" for s in summands) for c in range(first.ncomp_out)]
        lines.append(f"    {name} = {_tuple(entries) if summands else unused}")
    head = ["@inner", "def pointwise(u, ux, uy, uz, q):"]
    text = "\n".join([*parts, *head, *calls, *lines, "    return v, vx, vy, vz", ""])
    used = (
        tuple(sorted({c for qfunction in programs for c in getattr(qfunction.code, name)}))
        for name in ("values_in", "slopes_in", "values_out", "slopes_out")
    )
    return QFunction(
        code=QFunctionCode(text, numbers, *used),
        dim=first.dim,
        ncomp_in=first.ncomp_in,
        ncomp_out=first.ncomp_out,
        symmetric=all(p.symmetric for p in programs),
        scaled=tuple(w[k] for p, w in zip(programs, places, strict=True) for k in p.scaled),
    )


def _together(parts: Sequence[QFunctionInputs]) -> tuple[QFunctionInputs, list[list[int]]]:
    """Counts of the numbers in ``q`` of a sum, and the positions of each part's numbers."""
    own = (True, False, False, False, True, True)  # the other kinds come from the geometry
    columns = zip(own, zip(*(part.counts() for part in parts), strict=True), strict=True)
    numbers = QFunctionInputs(*(sum(counts) if mine else max(counts) for mine, counts in columns))
    places: list[list[int]] = []
    used = [0] * len(own)
    for part in parts:
        place: list[int] = []
        for kind, (count, whole) in enumerate(zip(part.counts(), numbers.slices(), strict=True)):
            start = whole.start + used[kind]
            place += range(start, start + count)
            used[kind] += count * own[kind]
        places.append(place)
    return numbers, places


def _pick(places: Sequence[int]) -> str:
    """Python expression that selects entries of ``q``, by slices."""
    runs: list[list[int]] = []
    for k in places:
        if runs and runs[-1][1] == k:
            runs[-1][1] = k + 1
        else:
            runs.append([k, k + 1])
    return " + ".join(f"q[{start}:{end}]" for start, end in runs)
