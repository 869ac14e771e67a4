"""Splits of a traced form into stored numbers and work of every application.

Numbers that do not depend on the field can be stored: at each quadrature point, or once per element
if its map is affine. For a linear form these numbers can be the distinct entries of D. They can
also be the q-function's inputs from geometry and coefficients (the frontier). These inputs are
often fewer if a form couples components or has a varying coefficient. The split with the fewest
bytes wins. If maps are not affine, the level "matrix-free" stores no geometry. Then the kernel
computes Jacobian and position from the element's geometry and passes them to the q-function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np

from femops.pointwise.expressions.graph import (
    Graph,
    Node,
    ancestors,
    dependent,
    frontier,
    guarded,
    opened,
    same,
    substitute,
)
from femops.pointwise.expressions.operations import BY_DETERMINANT, FAILING, LAW
from femops.pointwise.expressions.tensors import adjugate
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.qfunction import QFunction, assignments
from femops.pointwise.sides import Argument, Objects
from femops.pointwise.trace import INVERSE, NORMAL, OTHER, POSITION, WEIGHT, Trace, symbols
from femops_kernels.pointwise.recording import SLOTS
from femops_kernels.spec import QFunctionCode, QFunctionInputs


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
    laws = dict.fromkeys(node.data for node in ancestors(outputs, names) if node.op == LAW)
    lines = [*(law.definition for law in laws), "@inner"]
    lines += [f"def pointwise({', '.join(SLOTS)}, q):", *(f"    {s}" for s in statements)]
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


@final
@dataclass(frozen=True)
class Known:
    """Facts about mesh and coefficients that a split may use."""

    # True if the map of every element is affine. Then Jacobians are constant in an element.
    affine: bool = False
    # constants and elementwise: coefficients that are constant in space, and coefficients that
    # are constant in each element
    constants: frozenset[str] = frozenset()
    points: int = 1  # number of quadrature points of an element, to count bytes
    mapped: bool = False  # True if kernels can compute positions from the elements' geometry
    elementwise: frozenset[str] = frozenset()
    # True if all stored numbers are stored at points, even constant numbers
    at_points: bool = False
    closed: bool = False


@final
@dataclass(frozen=True)
class QDataSplit:
    """A kernel's q-function, and the nodes of the numbers stored for it."""

    qfunction: QFunction
    # element, constant and point: numbers stored per element, once, and per point: functions of
    # the static inputs, in the order of ``q``. Numbers per element are evaluated at any point of
    # the element, with weight 1.
    element: list[Node]
    constant: list[Node]
    point: list[Node]
    # nodes whose values must be checked to be finite, because the program divides or calls
    # functions
    computed: list[Node] = field(default_factory=list)
    # stored numbers whose values must be checked to be finite. They are zero where no output uses
    # them.
    finite: list[Node] = field(default_factory=list)

    @property
    def kept(self) -> list[Node]:
        """Nodes of all numbers that are stored."""
        return [*self.element, *self.constant, *self.point]


class _Variability(IntEnum):
    CONSTANT = 0
    ELEMENT = 1
    POINT = 2


@final
@dataclass
class _Given:
    """Nodes of the entries of a program's ``q``, by kind, in the order of `QFunctionInputs`."""

    element: list[Node] = field(default_factory=list)
    jacobian: list[Node] = field(default_factory=list)
    position: list[Node] = field(default_factory=list)
    weight: list[Node] = field(default_factory=list)
    constant: list[Node] = field(default_factory=list)
    point: list[Node] = field(default_factory=list)

    def all(self) -> list[Node]:
        return [
            *self.element,
            *self.jacobian,
            *self.position,
            *self.weight,
            *self.constant,
            *self.point,
        ]

    def numbers(self) -> QFunctionInputs:
        return QFunctionInputs(
            len(self.element),
            len(self.jacobian),
            len(self.position),
            len(self.weight),
            len(self.constant),
            len(self.point),
        )


@final
@dataclass(frozen=True)
class _Step:
    """Inputs and outputs of a q-function, forward or transposed."""

    trace: Trace
    inputs: list[Node]
    outputs: list[Node]
    components: tuple[int, int]
    symmetric: bool
    finite: list[Node]  # nodes that do not depend on the inputs, and should be finite
    written: tuple[int, ...] = ()  # see `make_program`

    @staticmethod
    def of(step: LinearQFunction, transpose: bool) -> _Step:
        components = (len(step.field.values), len(step.test.values))
        inputs, outputs = step.field.flat(), step.outputs
        if transpose:
            (inputs, outputs), components = step.transposed(), components[::-1]
        zeros = step.zeros(transpose=transpose)
        return _Step(step.trace, inputs, outputs, components, step.symmetric, step.distinct, zeros)

    @property
    def graph(self) -> Graph:
        return self.trace.graph

    @property
    def weight(self) -> Node:
        return self.trace.static[WEIGHT].item()  # type: ignore[no-any-return]  # of objects

    def finish(
        self,
        outputs: Iterable[Node],
        given: _Given,
        carriers: set[int],
        inputs: list[Node] | None = None,
        constant: list[Node] | None = None,
    ) -> QDataSplit:
        """Write the q-function and return the split.

        ``carriers`` has the numbers of the nodes in ``given`` that contain the quadrature weight. A
        factor of the form multiplies these nodes. If such a node is constant in an element, the
        program multiplies it by the reference weight.
        """
        graph, nodes = self.graph, given.all()
        if carriers & {n.number for n in given.element} and not given.weight:
            given = replace(given, weight=[graph.input("@reference")])
            nodes = given.all()
        symbol: list[Any] = [graph.input(f"q[{k}]") for k in range(len(nodes))]
        position = {node.number: k for k, node in enumerate(nodes)}
        new: dict[int, Node] = {node.number: symbol[k] for k, node in enumerate(nodes)}
        for node in given.element:
            if node.number in carriers:
                new[node.number] = new[node.number] * symbol[position[given.weight[0].number]]
        qfunction = make_program(
            self.trace.dim,
            self.inputs if inputs is None else inputs,
            substitute(outputs, new),
            self.components,
            {node.number: str(node.data) for node in symbol},
            given.numbers(),
            symmetric=self.symmetric,
            scaled=tuple(sorted(position[number] for number in carriers)),
            written=self.written,
        )
        constant = given.constant if constant is None else constant
        computed = self.finite if self._may_fail(given) else []
        kept = [*given.element, *constant, *given.point]
        finite = guarded(self.outputs, kept, {node.number for node in self.inputs})
        return QDataSplit(qfunction, given.element, constant, given.point, computed, finite)

    def _may_fail(self, given: _Given) -> bool:
        """True if the program's operations may turn finite inputs into infinity or NaN."""
        known = {node.number for node in given.all()}
        own = [node for node in ancestors(self.finite, known) if node.number not in known]
        return any(
            node.op in FAILING and not (node.op == "div" and node.args[1].op == "const")
            for node in own
        )


@final
@dataclass(frozen=True, eq=False)
class NonlinearQFunction:
    """Q-function of a form that may be nonlinear in its fields."""

    trace: Trace  # functionals may follow the test functions


_made: WeakKeyDictionary[LinearQFunction | NonlinearQFunction, dict[Any, QDataSplit]] = (
    WeakKeyDictionary()
)
"""Splits of q-functions, by level, facts and direction."""


def split(
    step: LinearQFunction | NonlinearQFunction, level: str, known: Known, *, transpose: bool
) -> QDataSplit:
    """Split of a form at a level; see `linear_split` and `nonlinear_split`.

    The split is made once and kept as long as the q-function: new coefficients do not change it.
    """
    made, key = _made.setdefault(step, {}), (level, known, transpose)
    if key not in made:
        made[key] = _split(step, level, known, transpose=transpose)
    return made[key]


def _split(
    step: LinearQFunction | NonlinearQFunction, level: str, known: Known, *, transpose: bool
) -> QDataSplit:
    if isinstance(step, LinearQFunction):
        return linear_split(step, level, known, transpose=transpose)
    traced = step.trace
    point, test = (Argument.joined([*sides.values()]) for sides in (traced.fields, traced.tests))
    tested = sum(len(traced.tests[n].values) for n in traced.tests if n in traced.fields)
    functionals = tuple(range(tested, len(test.values)))
    given = traced, point, test.flat(), len(test.values), known, functionals
    return nonlinear_split(*given, computes=level == "matrix-free")


def linear_split(
    step: LinearQFunction, level: str, known: Known | None = None, *, transpose: bool = False
) -> QDataSplit:
    """Split of a linear form."""
    known = Known() if known is None else known
    if level not in ("matrix-free", "partial"):
        known = Known(at_points=True, closed=known.closed)
    work = _Step.of(step, transpose)
    if level == "matrix-free":
        if not known.affine:
            return _mapped(work, step.degree, known)
        candidates = [_by_nodes(work, _opened(work, known), known)]
    elif known.closed:
        candidates = []
    else:
        moving = {node.number for node in work.inputs}
        # an application may repeat arithmetic to save memory traffic, but not library functions
        depths = (frontier(work.outputs, moving), frontier(work.outputs, moving, deep=True))
        candidates = [_by_nodes(work, nodes, known) for nodes in depths]
    entries = _by_entries(work, step, known, transpose)
    if level != "matrix-free" or not entries.point:
        candidates.insert(0, entries)
    found = [qdata_split for qdata_split in candidates if qdata_split is not None]
    return min(
        found,
        key=lambda qdata_split: len(qdata_split.point) * known.points + len(qdata_split.element),
    )


def nonlinear_split(
    trace: Trace,
    point: Argument,
    outputs: list[Node],
    ncomp: int,
    known: Known | None = None,
    functionals: tuple[int, ...] = (),
    *,
    computes: bool = False,
) -> QDataSplit:
    """Split of a nonlinear q-function. Geometry and coefficients are stored."""
    known = Known() if known is None else known
    outputs = substitute(outputs, {})
    inputs, components = point.flat(), (len(point.values), ncomp)
    moving = {node.number for node in inputs}
    choices = (frontier(outputs, moving), frontier(outputs, moving, deep=True))
    met = guarded(outputs, choices[0], moving)
    work = _Step(trace, inputs, outputs, components, False, met, functionals)
    if computes and known.mapped and not known.affine:
        return _mapped(work, None, known)
    depths = choices[:1] if known.closed else choices
    splits = [_by_nodes(work, stored, known, scalable=False) for stored in depths]
    found = [qdata_split for qdata_split in splits if qdata_split is not None]
    return min(
        found,
        key=lambda qdata_split: len(qdata_split.point) * known.points + len(qdata_split.element),
    )


def _places(trace: Trace, nodes: Iterable[Node], known: Known) -> dict[int, _Variability]:
    """Variability of nodes by number: constant, or varying by element or by point."""
    found: dict[int, _Variability] = {}
    for name, static in trace.static.items():
        place = _Variability.CONSTANT if name in known.constants else _Variability.POINT
        if name in known.elementwise or (name in (INVERSE, NORMAL, OTHER, WEIGHT) and known.affine):
            place = _Variability.ELEMENT
        found |= {node.number: place for node in static.flat}
    for node in ancestors(nodes):
        if node.args:
            found[node.number] = max(found[a.number] for a in node.args)
        else:
            same = node.op == "const" and not known.at_points
            found.setdefault(node.number, _Variability.CONSTANT if same else _Variability.POINT)
    return found


def _by_entries(work: _Step, step: LinearQFunction, known: Known, transpose: bool) -> QDataSplit:
    """Split that stores the distinct entries of D."""
    structure = step.structure.T if transpose else step.structure
    graph, distinct = work.graph, step.distinct
    inputs = [graph.input(f"in[{k}]") for k in range(structure.shape[1])]
    names = [graph.input(f"entry[{k}]") for k in range(len(distinct))]
    outputs = []
    for row in structure:
        total: Any = graph.constant(0.0)
        for number, node in zip(row, inputs, strict=True):
            if number:
                product = names[abs(number) - 1] * node
                total = total + product if number > 0 else total - product
        outputs.append(total)
    # in the program, names stand for the entries; all entries contain the weight
    places = _places(work.trace, distinct, known)
    given, kept = _Given(), _Given()
    for name, node in zip(names, distinct, strict=True):
        part = "point" if places[node.number] is _Variability.POINT else "element"
        getattr(given, part).append(name)
        getattr(kept, part).append(node)
    qdata_split = work.finish(outputs, given, {name.number for name in names}, inputs)
    return replace(
        qdata_split, element=kept.element, point=kept.point, computed=[], finite=distinct
    )


def _by_nodes(
    work: _Step, stored: list[Node], known: Known, *, scalable: bool = True
) -> QDataSplit | None:
    """Split that stores the nodes ``stored``: geometry and coefficients that the outputs use.

    None if another stored node depends on the quadrature weight. Then the form could not be scaled.
    """
    weight = work.weight
    weighted = dependent(stored, {weight.number})
    heavy = [n for n in stored if n.number in weighted]
    if scalable and not same(heavy, [weight]):
        return None
    places = _places(work.trace, stored, known)
    position = {n.number for n in work.trace.static[POSITION].flat}
    given = _Given()
    for node in stored:
        place = places[node.number]
        if known.mapped and node.number in position:
            given.position = list(work.trace.static[POSITION].flat)
        elif place is _Variability.CONSTANT:
            given.constant.append(node)
        elif place is _Variability.ELEMENT and (node is weight or node.number not in weighted):
            given.element.append(node)
        else:
            given.point.append(node)
    return work.finish(work.outputs, given, {weight.number} & {n.number for n in stored})


def _opened(work: _Step, known: Known) -> list[Node]:
    """Frontier of the outputs, expanded to inputs and nodes that are constant in an element.

    If ``known.closed``, it is not expanded through numbers of coefficients and positions alone.
    """
    places = _places(work.trace, work.outputs, known)
    moving = {node.number for node in work.inputs}
    weighted = dependent(work.outputs, {work.weight.number})
    shaped = _shaped(work.trace, work.outputs) if known.closed else None
    return opened(
        frontier(work.outputs, moving),
        lambda node: (
            bool(node.args)
            and (
                node.is_condition
                or (
                    places[node.number] is _Variability.POINT
                    and (shaped is None or node.number in shaped)
                )
                or node.number in weighted
            )
        ),
    )


def _shaped(trace: Trace, nodes: Iterable[Node]) -> set[int]:
    """Numbers of the ancestors of nodes that depend on more than coefficients and positions."""
    names = [name for name in trace.static if name in (POSITION, NORMAL) or "@" not in name]
    own = {node.number for name in names for node in trace.static[name].flat}
    order = ancestors(nodes)
    return dependent(order, {n.number for n in order if n.op == "input" and n.number not in own})


def expressions(trace: Trace, outputs: list[Node], moving: set[int]) -> list[Node]:
    """Largest expressions in the outputs that depend on coefficients and positions alone.

    Kernels that are ``closed``, see `Known`, read these. ``moving`` has the numbers of the fields.
    """
    shaped = _shaped(trace, outputs)
    found = frontier(outputs, moving)
    found = opened(found, lambda node: node.is_condition or node.number in shaped)
    return [node for node in found if node.number not in shaped]


def stored_split(
    trace: Trace, point: Argument, outputs: list[Node], ncomp: int, known: Known
) -> QDataSplit:
    """Split of a q-function that computes the stored data of another one."""
    outputs = substitute(outputs, {})
    inputs, components = point.flat(), (len(point.values), ncomp)
    moving = {node.number for node in inputs}
    met: list[Node] = []  # outputs that depend on no field are checked themselves
    if any(node.number in moving for node in ancestors(outputs)):
        met = guarded(outputs, frontier(outputs, moving), moving)
    return _mapped(_Step(trace, inputs, outputs, components, False, met), None, known)


def _mapped(work: _Step, degree: int | None, known: Known) -> QDataSplit:
    """Split that stores no geometry. The q-function takes Jacobian and position.

    If D has one degree in the inverse Jacobian, the adjugate replaces the inverse, and powers of
    the determinant multiply the weight. Then degree one needs no division, and degree two needs one
    division.
    """
    graph, dim, static = work.graph, work.trace.dim, work.trace.static
    jacobian = symbols(graph, "@jacobian", (dim, dim))
    reference, scale = graph.input("@reference"), graph.input("@scale")
    cofactors: Objects = np.asarray(adjugate(jacobian), dtype=object)
    det: Any = jacobian[0] @ cofactors[:, 0]
    weight: Any = scale * reference
    inverse = cofactors
    if degree is None:
        inverse = cofactors * graph.binary(BY_DETERMINANT, graph.constant(1.0), det)
        weight = weight * det
    elif degree != 1:
        weight = weight * det if degree == 0 else graph.binary(BY_DETERMINANT, weight, det)
    new = {
        node.number: graph.node(by)
        for node, by in zip(static[INVERSE].flat, inverse.flat, strict=True)
    }
    outputs = substitute(work.outputs, {**new, work.weight.number: weight})
    used = {node.number for node in ancestors(outputs)}
    given = _Given(weight=[reference], constant=[scale])
    if used & {node.number for node in jacobian.flat}:
        given.jacobian = list(jacobian.flat)
    parts = {
        _Variability.CONSTANT: given.constant,
        _Variability.ELEMENT: given.element,
        _Variability.POINT: given.point,
    }
    open_nodes = _opened(replace(work, outputs=outputs), known)
    if {node.number for node in open_nodes} & {node.number for node in static[POSITION].flat}:
        given.position = list(static[POSITION].flat)
    mine = {node.number for node in given.all()}
    places = _places(work.trace, open_nodes, known)
    for node in open_nodes:
        if node.number not in mine:
            parts[places[node.number]].append(node)
    values = [graph.constant(1.0), *given.constant[1:]]
    return work.finish(outputs, given, {scale.number}, constant=values)
