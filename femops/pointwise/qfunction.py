"""Q-functions: programs that a kernel runs at each quadrature point, printed from graphs.

A program uses only operations that lane vectors, NumPy arrays and recording numbers support. So the
kernels, the diagonal, the assembled matrix and the operation count all run the same text.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.expressions.operations import BY_DETERMINANT, FUNCTIONS, LAW, RESULT
from femops_kernels.laws.law import Law
from femops_kernels.pointwise.recording import RESULTS, SLOTS, Recording
from femops_kernels.spec import QFunctionCode, QFunctionInputs, used_slots

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
