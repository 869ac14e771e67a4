"""Cuts of a traced form: what is computed once and stored, and what every application does.

For a form that is linear in its field, the derivative D of outputs by inputs does not depend on the
field: storing its distinct entries is partial assembly.  Storing what the pointwise step needs of
the geometry and coefficients (the frontier) instead is often less for forms that couple components;
the smaller is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.pointwise.derivative import derivatives
from femops.pointwise.errors import TraceError
from femops.pointwise.graph import COMPARE, LIBRARY, Node, ancestors, substitute
from femops.pointwise.printer import assignments, evaluate
from femops.pointwise.program import SLOTS, Program
from femops.pointwise.trace import INVERSE, WEIGHT, Objects, Trace

_SAMPLES = 5
SAME = 1e-12
_RATIONAL = ("add", "sub", "mul", "div", "neg", "const", "input")


@final
@dataclass(frozen=True)
class Cut:
    """A kernel's pointwise program and what has to be stored for it.

    Attributes
    ----------
    program : Program
    stored : list of Node
        In the order of the program's ``q``; functions of the trace's static inputs.
    """

    program: Program
    stored: list[Node]


@final
class LinearStep:
    """D of a form that is linear in one field, with its zeros and its equal entries found.

    Parameters
    ----------
    trace : Trace
    field, test : str

    Raises
    ------
    TraceError
        If the form is not linear in the field.
    """

    def __init__(self, trace: Trace, field: str, test: str) -> None:
        self.trace = trace
        self.field, self.test = trace.fields[field], trace.tests[test]
        self._moving = {
            node.number for argument in trace.fields.values() for node in argument.flat()
        }
        self._entries = entries_of(trace, field, test)
        needed = {node.number for node in ancestors(self._entries.flat)}
        if self._moving & needed or compares(self.test.flat(), self._moving):
            raise TraceError(f"the form is not linear in {field}")
        self._check_homogeneous()
        self.structure, self.distinct = self._distinct()

    def _check_homogeneous(self) -> None:
        zero = self.trace.graph.constant(0.0)
        rest = substitute(self.test.flat(), dict.fromkeys(self._moving, zero))
        if any(np.any(value) for value in sample(self.trace, rest)):
            raise TraceError(
                "the form has a part that does not depend on the field: give that to femops.load"
            )

    def _distinct(self) -> tuple[NDArray[np.int64], list[Node]]:
        """Which entries are zero, equal or opposite, found by evaluating them at random points.

        Returns
        -------
        structure : (outputs, inputs) int64
            0 for a zero entry, else plus or minus the number of the distinct entry, counted from
            one.
        distinct : list of Node
        """
        flat = list(self._entries.flat)
        samples = sample(self.trace, flat)
        structure = np.zeros(len(flat), dtype=np.int64)
        distinct: list[int] = []
        for k, values in enumerate(samples):
            if not np.any(values):
                continue
            size = SAME * np.abs(values).max()
            for number, other in enumerate(distinct, start=1):
                for sign in (1, -1):
                    if np.all(np.abs(values - sign * samples[other]) <= size):
                        structure[k] = sign * number
            if structure[k] == 0:
                distinct.append(k)
                structure[k] = len(distinct)
        if not distinct:
            raise TraceError("the form is zero whatever the field: it makes no operator")
        return structure.reshape(self._entries.shape), [flat[k] for k in distinct]

    def used(self) -> list[str]:
        """Names of the static inputs that the form needs."""
        needed = {node.number for node in ancestors(self.test.flat())}
        static = self.trace.static.items()
        return [name for name, nodes in static if any(n.number in needed for n in nodes.flat)]

    @property
    def symmetric(self) -> bool:
        """Whether D is symmetric."""
        return self.structure.shape[0] == self.structure.shape[1] and np.array_equal(
            self.structure, self.structure.T
        )

    def partial(self, transpose: bool = False) -> Cut:
        """Choose the cut that stores least.

        Parameters
        ----------
        transpose : bool
            Whether field and test function are exchanged.
        """
        by_entries = self._by_entries(transpose)
        if transpose:
            return by_entries
        outputs, moving = self.test.flat(), self._moving
        candidates = [by_entries]
        # what is recomputed at every application must be worth it: arithmetic yes, functions no
        for stored in (frontier(outputs, moving), frontier(outputs, moving, deep=True)):
            candidate = self._by_nodes(stored)
            candidates += [] if candidate is None else [candidate]
        return min(candidates, key=lambda cut: len(cut.stored))

    def _by_entries(self, transpose: bool) -> Cut:
        """Store the distinct entries of D."""
        structure = self.structure.T if transpose else self.structure
        graph = self.trace.graph
        stored = [graph.input(f"q[{k}]") for k in range(len(self.distinct))]
        inputs = [graph.input(f"in[{k}]") for k in range(structure.shape[1])]
        outputs = []
        for row in structure:
            total: Any = graph.constant(0.0)
            for number, node in zip(row, inputs, strict=True):
                if number:
                    product = stored[abs(number) - 1] * node
                    total = total + product if number > 0 else total - product
            outputs.append(total)
        every = tuple(range(len(stored)))
        return Cut(
            self._program(inputs, outputs, stored, every, transpose=transpose), self.distinct
        )

    def _by_nodes(self, stored: list[Node]) -> Cut | None:
        """Store what the outputs use of geometry and coefficients.

        None if the quadrature weight does not stand by itself: the form could not be scaled then.
        """
        weight: Any = self.trace.static[WEIGHT][()]
        carriers = [k for k, n in enumerate(stored) if weight in ancestors([n])]
        if len(carriers) != 1 or stored[carriers[0]] is not weight:
            return None
        outputs = self.test.flat()
        return Cut(self._program(self.field.flat(), outputs, stored, tuple(carriers)), stored)

    def _program(
        self,
        inputs: list[Node],
        outputs: list[Node],
        stored: list[Node],
        scaled: tuple[int, ...],
        *,
        transpose: bool = False,
    ) -> Program:
        components = (len(self.field.values), len(self.test.values))
        return make_program(
            self.trace.dim,
            inputs,
            outputs,
            components[::-1] if transpose else components,
            {node.number: f"q[{k}]" for k, node in enumerate(stored)},
            symmetric=self.symmetric,
            scaled=scaled,
        )


def compares(outputs: Sequence[Node], moving: set[int]) -> bool:
    """Whether a choice depends on inputs: its jumps don't show in derivatives.

    Parameters
    ----------
    outputs : sequence of Node
    moving : set of int
        Numbers of the inputs.
    """
    conditions = [node for node in ancestors(outputs) if node.op in COMPARE]
    return any(node.number in moving for node in ancestors(conditions))


def entries_of(trace: Trace, field: str, test: str) -> Objects:
    """Derivatives of what multiplies a test function by a field, the other fields held.

    Parameters
    ----------
    trace : Trace
    field, test : str

    Returns
    -------
    (outputs, inputs) array of Node
        In the order of `Argument.flat`.
    """
    graph, outputs = trace.graph, trace.tests[test].flat()
    zero, one = graph.constant(0.0), graph.constant(1.0)
    still = {node.number: zero for argument in trace.fields.values() for node in argument.flat()}
    columns = [
        derivatives(outputs, still | {node.number: one}) for node in trace.fields[field].flat()
    ]
    return np.array(columns, dtype=object).T.reshape(len(outputs), len(columns))


def nonlinear_cut(trace: Trace, field: str, test: str) -> Cut:
    """Cut of a form that is not linear: what its pointwise step uses of geometry and coefficients.

    Parameters
    ----------
    trace : Trace
    field, test : str
    """
    inputs, outputs = trace.fields[field].flat(), trace.tests[test].flat()
    moving = {node.number for node in inputs}
    choices = (frontier(outputs, moving), frontier(outputs, moving, deep=True))
    stored = min(choices, key=len)
    components = (len(trace.fields[field].values), len(trace.tests[test].values))
    names = {node.number: f"q[{k}]" for k, node in enumerate(stored)}
    program = make_program(
        trace.dim, inputs, outputs, components, names, symmetric=False, scaled=()
    )
    return Cut(program, stored)


def sample(trace: Trace, nodes: Sequence[Node]) -> list[NDArray[np.float64]]:
    """Values of static nodes at random points, to see which are zero or equal.

    Only sums, products and quotients are evaluated: every other function is a random number of its
    own, so that two nodes agree only if they are the same rational function of those, whichever
    branch a condition takes and wherever a function is defined.
    """
    rng = np.random.default_rng(20)
    given: dict[int, Any] = {}
    for name, inputs in trace.static.items():
        for index, node in np.ndenumerate(inputs):
            eye = float(name == INVERSE and index[0] == index[1])
            given[node.number] = eye + rng.uniform(0.1, 0.5, _SAMPLES)
    for node in ancestors(nodes):
        if node.op not in _RATIONAL and node.number not in given:
            given[node.number] = rng.uniform(0.5, 1.5, _SAMPLES)
    return [np.broadcast_to(value, (_SAMPLES,)) for value in evaluate(nodes, given)]


def frontier(outputs: Sequence[Node], moving: set[int], *, deep: bool = False) -> list[Node]:
    """Nodes at which what moves meets what does not.

    Parameters
    ----------
    outputs : sequence of Node
    moving : set of int
        Numbers of the inputs that vary from application to application.
    deep : bool
        Whether to go on, through arithmetic, to the inputs and to functions of the C library.

    Returns
    -------
    list of Node
        Those that do not depend on the moving inputs but are used by one that does, or are outputs,
        or with ``deep`` what those are made of; no constants and no conditions.
    """
    order = ancestors(outputs)
    moves = set(moving)
    for node in order:
        if any(a.number in moves for a in node.args):
            moves.add(node.number)
    met = [n for n in outputs if n.number not in moves]
    met += [a for n in order if n.number in moves for a in n.args if a.number not in moves]
    found: dict[int, Node] = {}
    while met:
        node = met.pop()
        # a condition is no number that could be stored: its sides are
        opened = node.op in COMPARE or (deep and bool(node.args) and node.op not in LIBRARY)
        if opened:
            met += node.args
        elif node.op != "const":
            found[node.number] = node
    return [found[number] for number in sorted(found)]


def make_program(
    dim: int,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    components: tuple[int, int],
    names: dict[int, str],
    *,
    symmetric: bool,
    scaled: tuple[int, ...],
) -> Program:
    """Text of a pointwise step from nodes.

    Parameters
    ----------
    dim : int
    inputs, outputs : sequences of Node
        By slot (value, then x-, y-, z-derivative), then by component.
    components : (int, int)
        Of the field and of the test function.
    names : dict
        What the stored numbers are called, by node number.
    symmetric, scaled
        See `Program`.
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
    return Program(
        text=text,
        dim=dim,
        ncomp_in=n_in,
        ncomp_out=n_out,
        nqdata=len(names),
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
