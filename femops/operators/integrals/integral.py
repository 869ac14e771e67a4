"""Forms: a user's function, traced, with its spaces and coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D, Rule, gauss, rule_of
from femops.errors import LawError, OperatorError
from femops.geometry.domain import Domain, DomainBlock, DomainGeometry
from femops.geometry.jacobians import LegendreGeometry
from femops.operators.integrals.arguments import Arguments, tabulated
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.state import NO_STATE, State
from femops.parallel.comm import check
from femops.pointwise.expressions.graph import Node, ancestors, substitute
from femops.pointwise.expressions.operations import LAW
from femops.pointwise.linear import LinearQFunction, Pair
from femops.pointwise.qdata_split import Known, NonlinearQFunction, QDataSplit, expressions, split
from femops.pointwise.qfunction import evaluate
from femops.pointwise.sides import Argument, Objects, is_plus
from femops.pointwise.trace import (
    INVERSE,
    NORMAL,
    OTHER,
    POSITION,
    WEIGHT,
    CoefficientShape,
    FormFunction,
    Trace,
    label_of,
    name_of,
    trace,
)

Made = dict[FormCoefficient, FormCoefficient]
STATE = "@state"
_CACHED = ("qfunction", "geometry", "known", "center", "setups", "_parts", "_terms")
# Operations by dimension for a determinant times a weight, an adjugate, and the inverse from them.
_INVERSE_FLOPS = {1: 2, 2: 3 + 1 + 2 + 4, 3: 14 + 1 + 27 + 9}


@final
@dataclass(frozen=True, eq=False)
class Integral:
    """Linear form in fields and test functions, or residual of a nonlinear form."""

    function: FormFunction
    # fields and tests: all on the same mesh, or on the same boundary faces
    fields: Arguments
    tests: Arguments
    quadrature: Rule
    # copies of the user's values, see `FormCoefficient.keep`. So all parts of an operator use the
    # same values. To make a form is collective if a coefficient is a field that ranks share.
    coefficients: Mapping[str, FormCoefficient]
    # the q-function. By default the function is traced, and must be linear.
    traced: LinearQFunction | NonlinearQFunction | None = None
    # fields at which a nonlinear function was differentiated. Empty for other forms.
    state: State = NO_STATE
    # numbers that are rounded to float32 wherever they are computed at points
    rounded: tuple[Node, ...] = ()
    closed: bool = False

    def __post_init__(self) -> None:
        kept = {n: g if g.kept else self._copied(g) for n, g in self.coefficients.items()}
        object.__setattr__(self, "coefficients", kept)
        if self.state.spaces and not self.domain.two_sided:  # sides may be of two parts
            object.__setattr__(self, "state", self.state.on_part(self.domain.mesh))

    def _copied(self, given: FormCoefficient) -> FormCoefficient:
        """The form's copy of a coefficient. Collective: all ranks raise if one does."""
        given = given.on_part(self.fields.first, self.geometry)
        given = given.read(on_sides=self.domain.two_sided)  # exchanges values between ranks
        with check(self.fields.whole.comm):
            return given.keep(self.geometry)

    @property
    def name(self) -> str:
        """Name of the function."""
        return name_of(self.function).strip("_")

    @property
    def label(self) -> str:
        """Name of the function, or the source line of a lambda."""
        return label_of(self.function)

    @property
    def domain(self) -> Domain:
        """Domain of integration: elements, or faces of the boundary."""
        return self.fields.first.domain

    @cached_property
    def geometry(self) -> DomainGeometry:
        """Geometry at the quadrature points: Jacobians and positions."""
        return self.domain.geometry(self.quadrature)

    @property
    def step(self) -> LinearQFunction | NonlinearQFunction:
        """The q-function. It may be linear or not."""
        return self.qfunction if self.traced is None else self.traced

    @cached_property
    def qfunction(self) -> LinearQFunction:
        """The linear q-function of the trace."""
        if isinstance(self.traced, LinearQFunction):
            return self.traced
        # a function takes all fields
        fields, tests = (side.complete.components for side in (self.fields, self.tests))
        dim, shapes, domain = self.geometry.dim, self.coefficient_shapes(), self.domain
        call = partial(trace, boundary=domain.has_normals, two_sided=domain.two_sided)
        traced = call(self.function, dim, fields, tests, shapes)
        if not self.fields.have_slopes:
            if traced.has_slopes:
                raise OperatorError(
                    f"{self.name} has derivatives with the new coefficients, and had none before: "
                    "make a new operator"
                )
            traced = traced.of_values
        return self._of_arguments(LinearQFunction(traced))

    @property
    def is_current(self) -> bool:
        """True if a new trace of the function would equal the old one. It may read variables."""
        fresh = replace(self, traced=None).qfunction
        return fresh.trace.has_results_of(self.qfunction.trace)

    def _of_arguments(self, step: LinearQFunction) -> LinearQFunction:
        """Restrict a q-function to the fields and test functions of the form."""
        fields, tests, traced = self.fields.spaces, self.tests.spaces, step.trace
        if fields.keys() == traced.fields.keys() and tests.keys() == traced.tests.keys():
            return step
        others = [name for pair in step.pairs for name in pair if name not in fields]
        if others or not {test for test, _ in step.pairs} <= tests.keys():
            raise OperatorError(
                f"the new coefficients of {self.name} couple other fields: make a new operator"
            )
        kept = {name: traced.fields[name] for name in fields}
        # the others may be left where they cancel, as in ``u - u``
        zero, gone = traced.graph.constant(0.0), traced.fields.keys() - kept.keys()
        none = {node.number: zero for name in gone for node in traced.fields[name].flat()}
        results = {
            name: Argument.of_flat(substitute(test.flat(), none), len(test.values))
            for name, test in traced.tests.items()
            if name in tests
        }
        return LinearQFunction(replace(traced, fields=kept, tests=results))

    @property
    def of_values(self) -> Integral:
        """Copy of a form on faces without derivatives on spaces of values only; else the form."""
        step, domain = self.qfunction, self.domain
        if not domain.has_normals or step.trace.has_slopes:
            return self
        fields, tests = self.fields.with_slopes(False), self.tests.with_slopes(False)
        if fields.have_slopes or tests.have_slopes:  # a basis without nodes on the face
            return self
        kept = LinearQFunction(step.trace.of_values)
        return replace(self, fields=fields, tests=tests, traced=kept)

    @property
    def reduced(self) -> Integral:
        """Copy of a form on a product, without fields and test functions that it does not couple.

        A field and its test function stay if one of them is coupled, because the transpose
        exchanges them.
        """
        step = self.qfunction
        names = [name for name in self.fields.spaces if any(name in pair for pair in step.pairs)]
        part = replace(self, fields=self.fields.only(names), tests=self.tests.only(names))
        return replace(part, traced=part._of_arguments(step))

    def coefficient_shapes(self) -> dict[str, CoefficientShape]:
        """Shapes of the coefficients, for tracing. Collective."""
        first = self.geometry.block(0, 1)
        with check(self.fields.whole.comm):
            shapes = {name: given.shape(first) for name, given in self.coefficients.items()}
        skew = np.array([not shape.symmetric for shape in shapes.values()], dtype=np.int64)
        if len(skew):  # all ranks use the same q-function, symmetric only if it is so everywhere
            skew = self.fields.whole.comm.max(skew)
        return {
            name: replace(shape, symmetric=not any_skew)
            for (name, shape), any_skew in zip(shapes.items(), skew, strict=True)
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which another process may load.

        It has the trace: the function's globals may have other values in that process.
        """
        state = {k: v for k, v in self.__dict__.items() if k not in _CACHED}
        return state | ({"traced": self.qfunction} if "qfunction" in self.__dict__ else {})

    def with_coefficients(self, values: Mapping[str, Any], made: Made) -> Integral:
        """Copy of the form with new coefficients. Trace again if their shapes have changed.

        See `replaced` for parameters and errors.
        """
        new = self.replaced(values, made)
        # coefficients of other shapes need another trace; a derivative keeps its trace
        if not self.state.spaces:
            same = new.coefficient_shapes() == self.coefficient_shapes()
            new = replace(new, traced=self.qfunction if same else None)
        else:  # without data computed from the old coefficients
            new = replace(new, state=self.state.of(self.state.spaces, {}))
        if new.traced is not None:
            new._blocks_of(self, values)
        return new

    def _blocks_of(self, old: Integral, changed: Iterable[str]) -> None:
        """Reuse the blocks of an old form that do not have the changed coefficients."""
        kept = {
            pair: part
            for pair, part in old._parts.items()
            if part.coefficients.keys().isdisjoint(changed)
        }
        self._parts.update(kept)
        self._terms.update({key: term for key, term in old._terms.items() if key[0] in kept})

    def replaced(self, values: Mapping[str, Any], made: Made) -> Integral:
        """Copy of the form with new coefficients. The trace is kept."""
        unknown = [name for name in values if name not in self.coefficients]
        if unknown:
            has = ", ".join(self.coefficients) or "none"
            raise OperatorError(f"{self.name} has no coefficient {unknown[0]!r}: it has {has}")
        changed = {}
        for name, value in values.items():
            old = self.coefficients[name]
            if old not in made:
                made[old] = self._copied(old.of(value))
            changed[name] = made[old]
        return replace(self, coefficients={**self.coefficients, **changed})

    @cached_property
    def _parts(self) -> dict[Pair, Integral]:
        return {}

    @cached_property
    def _terms(self) -> dict[tuple[Pair, Any], Any]:
        """Terms of blocks, see `Term.block`."""
        return {}

    def block(self, test: str, field: str) -> Integral:
        """Part of the form with one test function and one field, on vectors of their spaces.

        The part is made once and kept.
        """
        if (test, field) not in self._parts:
            step = self.qfunction.block(test, field)
            used, state = set(step.used()), self.state
            names = [name for name in self.state.spaces if {name, f"d{name}"} & used]
            if state.spaces:
                setups = state.setups.setdefault((test, field), {})
                state = state.of(names, setups) if names else NO_STATE
            sides = self.fields.spaces[field], self.tests.spaces[test]
            self._parts[test, field] = replace(
                self,
                fields=Arguments.of(sides[0]),
                tests=Arguments.of(sides[1]),
                coefficients={n: value for n, value in self.coefficients.items() if n in used},
                traced=step,
                state=state,
            )
        return self._parts[test, field]

    @property
    def has_maps(self) -> bool:
        """True if kernels can compute Jacobians and positions from modes of the elements' maps.

        Those by tables cannot on a device, or on cubes.
        """
        on_device = self.fields.whole.memory.device is not None
        return self.domain.has_maps and not (
            self.tabulated and (on_device or self.domain.cell.cube)
        )

    @property
    def tabulated(self) -> bool:
        """True if kernels multiply by tables; see `tabulated`."""
        return tabulated(self.fields, self.tests, self.quadrature)

    @cached_property
    def known(self) -> Known:
        """Facts about geometry and coefficients that a split of this form may rely on."""
        points = self.geometry.num_points
        given = self.coefficients.items()
        constants = [name for name, g in given if g.is_constant(self.geometry)]
        elementwise = [name for name, g in given if g.is_elementwise]
        affine = all(LegendreGeometry(mesh).affine for mesh in self.domain.meshes)
        mapped = self.has_maps
        fixed, by_element = frozenset(constants), frozenset(elementwise)
        return Known(affine, fixed, points, mapped, by_element, closed=self.closed)

    def qdata_split(self, level: str, *, transpose: bool = False) -> QDataSplit:
        """Split of the form's numbers at a level, with the q-function."""
        if level == "matrix-free" and not self.has_maps:
            if self.domain.has_maps:
                on_device = self.fields.whole.memory.device is not None
                raise OperatorError(
                    "the level 'matrix-free' does not take rules of points, and functions that "
                    f"are no products, on {self.domain.cell.plural}{' on a GPU' * on_device}: "
                    "take level='partial'"
                )
            level = "partial"  # faces are few, so their data are stored
        return split(self.step, level, self.known, transpose=transpose)

    @cached_property
    def center(self) -> DomainGeometry:
        """Geometry at one point of each element, with the weight 1."""
        geometry = self.domain.geometry(rule_of(self.domain.cell, 1))
        geometry.weights = np.ones(1)
        return geometry

    @property
    def looks(self) -> bool:
        """True if the host checks the geometry. Else the device that runs the kernels checks it."""
        return not self.has_maps or not self.fields.whole.memory.fills

    def filled(self, qdata_split: QDataSplit) -> bool:
        """True if the device computes the numbers that a split stores at points.

        The device computes numbers that depend on a state on the device, or on the geometry. The
        host computes numbers that depend on coefficients alone.
        """
        if self.state.spaces:
            return self.state.filled
        if self.looks:
            return False
        shape = [n for name in (INVERSE, WEIGHT) for n in self.static[name].flat]
        used = {node.number for node in ancestors(qdata_split.point)}
        return any(node.number in used for node in shape)

    @property
    def weight(self) -> Node:
        """Jacobian determinant times quadrature weight."""
        node: Node = self.static[WEIGHT].item()
        return node

    @cached_property
    def setups(self) -> dict[Any, Any]:
        """Programs and data that derivatives at all states share; see `State.setups`."""
        return self.state.setups

    def check(self, stored: list[Node]) -> None:
        """Evaluate the numbers that a split stores, and raise errors. The values are not kept.

        With a state only coefficients and weights are evaluated, because a bad state shows in its
        residual.
        """
        used = {node.number for node in ancestors(stored)}
        used &= {n.number for name in self.coefficients for n in self.static[name].flat}
        for block in self.geometry:
            if self.state.spaces:
                self.inputs(block, used)
            else:
                self.values(stored, block)

    def values(
        self,
        stored: list[Node],
        block: DomainBlock,
        *,
        check: bool = True,
        known: Mapping[int, Any] | None = None,
    ) -> NDArray[np.float64]:
        """Values (n, points, nodes) of static nodes at the points of a block of elements.

        ``known`` has known values of nodes, by number of the node. Without ``known``, the nodes in
        ``rounded`` are rounded to float32 first.
        """
        if known is None:
            used = {node.number for node in ancestors(stored)} if self.rounded else set()
            nodes = [node for node in self.rounded if node.number in used]
            known = self._whole_values(stored, block) if self.closed else {}
            if nodes:
                found = self.values(nodes, block, check=False, known=known).astype(np.float32)
                rounded = np.moveaxis(found.astype(np.float64), -1, 0)
                known = {**known, **{node.number: rounded[k] for k, node in enumerate(nodes)}}
        order = ancestors(stored, known)
        inputs = self.inputs(block, {node.number for node in order})
        inputs |= known
        values = np.empty((block.stop - block.start, block.geometry.num_points, len(stored)))
        underflows: list[str] = []
        # values that are not finite are reported below
        with np.errstate(all="ignore", under="call", call=lambda what, _: underflows.append(what)):
            for k, value in enumerate(evaluate(stored, inputs, order)):
                values[..., k] = value
        if underflows and not self.state.spaces:
            self._check_digits(stored, values, inputs)
        if check:
            self._check_finite(stored, values, block)
        return values

    def _whole_values(self, stored: list[Node], block: DomainBlock) -> dict[int, Any]:
        """Values of the expressions of coefficients in stored nodes, by number of the node."""
        nodes = self.whole(stored)
        inputs = self.inputs(block, {node.number for node in ancestors(nodes)})
        values, _ = with_all_digits(nodes, inputs)
        return {node.number: value for node, value in zip(nodes, values, strict=True)}

    def whole(self, outputs: list[Node]) -> list[Node]:
        """Largest expressions of coefficients and positions in nodes, without plain inputs."""
        key = tuple(node.number for node in outputs)
        if key not in self._wholes:
            traced = self.program
            moving = {node.number for field in traced.fields.values() for node in field.flat()}
            self._wholes[key] = [n for n in expressions(traced, outputs, moving) if n.args]
        return self._wholes[key]

    @cached_property
    def _wholes(self) -> dict[tuple[int, ...], list[Node]]:
        """Results of `whole`, by the numbers of the nodes."""
        return {}

    def _check_digits(
        self, stored: list[Node], values: NDArray[np.float64], inputs: dict[int, Any]
    ) -> None:
        """Raise if values (n, points, nodes) are wrong as numbers on the way are below 1e-308."""
        wide = {number: np.asarray(given, np.longdouble) for number, given in inputs.items()}
        with np.errstate(all="ignore"):
            for k, exact in enumerate(evaluate(stored, wide)):
                most = np.max(abs(exact), initial=0.0, where=np.isfinite(exact))
                # zero is right for results that are below 1e-308 themselves
                least = max(float(np.finfo(np.float64).tiny), 1e-10 * float(most))
                if np.any(abs(values[..., k] - exact) > least):
                    raise OperatorError(
                        f"{self.name}: numbers inside its expressions are below 1e-308, where "
                        "float64 loses digits: scale the coefficients or the coordinates"
                    )

    def _check_finite(
        self, stored: list[Node], values: NDArray[np.float64], block: DomainBlock
    ) -> None:
        bad = np.argwhere(~np.isfinite(values).all(axis=-1))
        if len(bad) and not self.state.spaces:  # a bad state shows in its residual
            self.check_laws(failing(stored), [block])
            where = ", ".join(f"{c:.6g}" for c in block.points[tuple(bad[0])])
            raise OperatorError(
                f"{self.name} is not finite at {len(bad)} quadrature points, the first of them "
                f"({where}): look at square roots, logarithms and divisions in the form, and at "
                "products and powers beyond 1e308 or below 1e-308"
            )

    def check_laws(self, calls: Iterable[Node], blocks: Iterable[DomainBlock]) -> None:
        """Raise a `LawError` if a law fails at a point of some blocks of elements."""
        from femops.pointwise.law_function import failures, raised  # few programs have laws

        wanted = list(calls)
        for block in blocks:
            for call in wanted:
                numbers = np.moveaxis(self.values([*call.args], block, check=False), -1, 0)
                for place in np.argwhere(failures(call.data, *numbers))[:1]:
                    given = [float(number[tuple(place)]) for number in numbers]
                    error = raised(call.data, given)
                    where = ", ".join(f"{c:.6g}" for c in block.points[tuple(place)])
                    shown = ", ".join(f"{number:.6g}" for number in given)
                    element = self._element(block.start + int(place[0]))
                    raise LawError(
                        f"{self.name}: {call.data.title}({shown}) fails{element} at ({where}): "
                        f"{type(error).__name__}: {error}"
                    ) from error

    def _element(self, k: int) -> str:
        """Words for an element, by its number in the whole mesh; none for a face."""
        if not self.domain.on_elements:
            return ""
        whole = self.fields.first.volume.distributed
        return f" in element {k if whole is None else whole.part.elements[k]}"

    def data_flops(self, qdata_split: QDataSplit) -> int:
        """Number of floating-point operations that compute the stored data.

        The count has Jacobians by sum factorisation, their determinants and inverses, and the
        operations of the graph. It does not have the evaluation of coefficients and states.
        """
        each = sum(
            self._store_flops(nodes, rule)
            for nodes, rule in (
                (qdata_split.element, gauss(1)),
                (qdata_split.point, self.quadrature),
            )
        )
        return int(self.domain.num_elements * each)

    def _store_flops(self, stored: list[Node], rule: Rule) -> int:
        """Number of floating-point operations that compute the stored numbers of one element."""
        if not stored:
            return 0
        dim, g1d = self.geometry.dim, self.domain.order + 1
        operations = sum(node.op not in ("const", "input") for node in ancestors(stored))
        if isinstance(rule, Quadrature1D):
            rows = [rule.q1d] * dim if self.domain.on_elements else [*[rule.q1d] * (dim - 1), 1]
            lines = sum(g1d ** (dim - 1 - k) * math.prod(rows[: k + 1]) for k in range(dim))
            points, jacobian = math.prod(rows), dim * dim * lines * (2 * g1d - 1)
        else:
            points = rule.count(self.domain.cell.dim)
            jacobian = dim * dim * points * (2 * g1d**dim - 1)
        return int(jacobian + points * (_INVERSE_FLOPS[dim] + operations))

    @property
    def program(self) -> Trace:
        """The trace of the function, linear or not."""
        return self.step.trace

    @property
    def static(self) -> Mapping[str, Objects]:
        """Inputs that do not depend on the fields, by name; see `Trace`."""
        return self.program.static

    def inputs(self, block: DomainBlock, used: set[int]) -> dict[int, Any]:
        """Values (n, points) of the static inputs in ``used``, by number of the node."""
        inputs: dict[int, Any] = {}
        # the weights are evaluated unless determinants are known to be positive: this checks them
        sources: dict[str, Callable[[], NDArray[Any]]] = {
            WEIGHT: lambda: block.weighted_det,
            POSITION: lambda: block.points,
            INVERSE: lambda: block.inverse,
            OTHER: lambda: block.other.inverse,
            NORMAL: lambda: block.normals,
            **self._state_at(block),
        }
        for name, nodes in self.static.items():
            wanted = [(i, n) for i, n in np.ndenumerate(nodes) if n.number in used]
            if wanted or (name == WEIGHT and not block.geometry.valid):
                given = self.coefficients.get(name)
                array = sources[name]() if given is None else self._coefficient(given, block)
                inputs |= {node.number: array[(..., *index)] for index, node in wanted}
        return inputs

    @cached_property
    def _constants(self) -> dict[str, NDArray[np.float64]]:
        """Values (1, 1, *shape) of the constant coefficients that were used, by name."""
        return {}

    def _coefficient(self, given: FormCoefficient, block: DomainBlock) -> NDArray[np.float64]:
        """Values (n, points, *shape) of a coefficient; (1, 1, *shape) if it is constant."""
        if given.name in self.known.constants:
            if given.name not in self._constants:
                self._constants[given.name] = given.at(self.geometry.block(0, 1))[:, :1]
            return self._constants[given.name]
        return given.at(block)

    def _state_at(self, block: DomainBlock) -> dict[str, Callable[[], NDArray[Any]]]:
        """Functions that evaluate the state's fields and their derivatives, by static input."""
        found: dict[str, Callable[[], NDArray[Any]]] = {}
        for name in self.state.spaces:
            found[name] = partial(self._state_values, name, block)
            found[f"d{name}"] = partial(self._state_slopes, name, block)
        return found

    def _state_values(self, name: str, block: DomainBlock) -> NDArray[np.float64]:
        """Values (n, points, ncomp) of a field of the state."""
        values = self.state.field(name).at(self._side(name, block))
        return values.reshape(*values.shape[:2], -1)

    def _state_slopes(self, name: str, block: DomainBlock) -> NDArray[np.float64]:
        """Reference derivatives (n, points, ncomp, dim) of a field of the state."""
        slopes = self.state.field(name).slopes_at(self._side(name, block))
        return slopes.reshape(*slopes.shape[:2], -1, slopes.shape[-1])

    def _side(self, name: str, block: DomainBlock) -> DomainBlock:
        """Faces seen from the side of a field of the state; elements are not changed."""
        return block.other if self.domain.two_sided and is_plus(name) else block


def with_all_digits(nodes: list[Node], inputs: dict[int, Any]) -> tuple[list[Any], bool]:
    """Values of nodes, and True if float64 alone would lose digits of one of them.

    Numbers on the way may be beyond float64's range, as a determinant of numbers of 1e-104 in 3-D.
    Then the values come from numbers with a wider range, if the machine has any.
    """
    events: list[str] = []
    lost = False
    with np.errstate(all="ignore"):
        with np.errstate(over="call", under="call", call=lambda what, _: events.append(what)):
            found = evaluate(nodes, inputs)
        if not events:
            return found, lost
        wide = {number: np.asarray(given, np.longdouble) for number, given in inputs.items()}
        for k, exact in enumerate(evaluate(nodes, wide)):
            value, right = np.asarray(found[k]), np.asarray(exact).astype(np.float64)
            close = abs(value - exact) <= np.maximum(np.finfo(float).tiny, 1e-10 * abs(exact))
            wrong = ~(close | np.isnan(right))
            found[k], lost = np.where(wrong, right, value), lost or bool(wrong.any())
    return found, lost


def failing(outputs: Iterable[Node]) -> list[Node]:
    """Calls of laws that may fail, on which outputs depend."""
    return [node for node in ancestors(outputs) if node.op == LAW and node.data.failing]
