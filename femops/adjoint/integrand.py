"""Integrands of gradients: derivatives of the functions that users give to forms.

A `DerivedFunction` calls the user's function with symbols, as tracing does. It differentiates the
results before it returns them. So a tangent, a gradient or a product with a second derivative is an
integral like any other, with the same kernels and levels, and runs on ranks and devices.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from femops.errors import TraceError
from femops.pointwise.expressions.derivative import derivatives, gradients
from femops.pointwise.expressions.graph import (
    Graph,
    Node,
    ancestors,
    substitute,
    symbol_array,
)
from femops.pointwise.expressions.tensors import det, inv
from femops.pointwise.sides import (
    SIDES,
    Argument,
    FieldSymbol,
    Objects,
    TwoSided,
    factors_by_side,
    plain_entry,
)
from femops.pointwise.trace import definition, name_of, on_both_sides

MESH = "mesh"
"""Name of the displacement of the mesh's nodes among the variables."""

SUFFIXES = ("__state", "__adjoint", "__control", "__direction")
"""Suffixes of the names of a derivative's fields. No coefficient has such a name."""


def state_name(field: str) -> str:
    """Name of the variable for a field. The variable for a coefficient has the same name."""
    return f"{field}__state"


def adjoint_name(field: str) -> str:
    """Name of the adjoint of a field among the variables."""
    return f"{field}__adjoint"


def place_of(variable: str) -> str:
    """Name of a variable's space in the product. No coefficient has this name."""
    return variable if variable.endswith(("__state", "__adjoint")) else f"{variable}__control"


def direction_name(variable: str) -> str:
    """Name, in the product, of the space of the direction along which a variable changes."""
    return f"{variable}__direction"


@final
@dataclass(frozen=True)
class Variables:
    """The variables of an integrand."""

    # number of components of each field of the function, in the order of its arguments
    fields: Mapping[str, int]
    # shape of each coefficient that is a variable. The product has a field for its values.
    controls: Mapping[str, tuple[int, ...]]
    # controls that are constants. On a face between elements they have one value.
    constants: frozenset[str]
    moving: bool  # whether the displacement of the mesh is a variable. Its value is zero.


@final
class DerivedFunction:
    r"""Derivative of an integrand by some of its variables, for `femops.residual`.

    The function of a residual returns the factors f and F of a test function. The integrand is
    :math:`E = f \cdot \lambda + F : \nabla \lambda` with an adjoint :math:`\lambda`. The function
    of a functional returns a number, and this is E. The derivatives of E along directions come
    first, then those by variables.

    If the mesh moves by a displacement d, E is pulled back to the mesh that has not moved. With
    :math:`\mathsf F = I + \nabla d`, gradients are multiplied by :math:`\mathsf F^{-1}` and E by
    :math:`\det \mathsf F`. On faces, E is multiplied by the length of the cofactor matrix of
    :math:`\mathsf F` times the normal (Nanson's formula). Derivatives are those at d = 0.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        variables: Variables,
        names: Sequence[str],
        by: Sequence[str],
        along: Sequence[str],
        *,
        energy: bool,
        tested: bool,
        on_faces: bool,
    ) -> None:
        self._function, self._on_faces = function, on_faces
        self._energy, self._tested = energy, tested
        self._variables, self._names, self._by, self._along = variables, tuple(names), by, along
        self.__name__ = f"derivative_of_{name_of(function)}".replace("<lambda>", "lambda")
        self._own = dict(inspect.signature(function).parameters)
        wanted = [*self._own.values()][len(variables.fields) :]
        place = {"n", "h"} if variables.moving and on_faces else set()
        kept = {
            p.name: p
            for p in wanted
            if p.name not in variables.controls and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }
        kept |= {name: inspect.Parameter(name, _KEYWORD) for name in sorted(place)}
        if variables.moving:
            kept["x"] = inspect.Parameter("x", _KEYWORD)
        self.__signature__ = inspect.Signature(
            [
                *(inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names),
                *(p.replace(kind=_KEYWORD) for p in kept.values()),
            ]
        )

    def __call__(self, *symbols: FieldSymbol | TwoSided, **keywords: Any) -> dict[str, Any]:
        """Return the factors of each variable's test function, by name."""
        given = dict(zip(self._names, symbols, strict=True))
        place = _Place(self._variables, given, keywords, on_faces=self._on_faces)
        integrand = self._integrand(place)
        if self._along:
            steps: dict[int, Node] = {}
            for name in self._along:
                steps |= place.steps(name)
            integrand = derivatives([integrand], steps)[0]
        leaves = {name: place.leaves(name) for name in self._by}
        self._check_slopes(place, integrand)
        nodes = gradients(
            integrand, [n for sides in leaves.values() for one in sides for n in one.nodes]
        )
        nodes = substitute(nodes, place.meaning)
        results: dict[str, Any] = {}
        for name, sides in leaves.items():
            factors = []
            for leaf in sides:
                factors.append(leaf.factors(nodes[: leaf.size]))
                nodes = nodes[leaf.size :]
            results[place_of(name)] = place.result(factors)
        return results

    def _integrand(self, place: _Place) -> Node:
        """Return E, from the function's results at the moved point."""
        variables = self._variables
        fields = [place.field(name) for name in variables.fields]
        keywords = {k: v for k, v in place.keywords.items() if k in self._own}
        results = self._function(*fields, **keywords)
        if self._energy:
            number: Node = place.graph.node(plain_entry(results["value"])) * place.volume
            return derivatives([number], place.to_adjoints())[0] if self._tested else number
        total: Any = place.graph.constant(0.0)
        several = len(variables.fields) > 1
        for name, ncomp in variables.fields.items():
            part = results.get(name, {}) if several else results
            explain = f"{definition(self._function)}{name_of(self._function)}"
            for given, test in zip(
                place.factors(part, name, ncomp, explain), place.adjoints(name), strict=True
            ):
                for key, factors in given.items():
                    for factor, slot in zip(factors.flat, test[key].flat, strict=True):
                        total = total + factor * slot
        whole: Node = total * place.volume
        return whole

    def _check_slopes(self, place: _Place, integrand: Node) -> None:
        """Raise if the function uses a variable's derivatives along the element's directions."""
        varied = {*self._by, *self._along}
        if self._energy and self._tested:
            varied |= {*map(state_name, self._variables.fields)}
        needed = {node.number for node in ancestors([integrand])}
        for name in (n for n in self._variables.fields if state_name(n) in varied):
            if any(node.number in needed for node in place.reference_slopes(name)):
                raise TraceError(
                    f"{definition(self._function)}{name_of(self._function)} uses "
                    f"{name}.reference_grad, by which nothing can be differentiated: use "
                    f"{name}.grad"
                )


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


@final
class _Leaf:
    """Nodes of the expression graph that stand for a variable, to differentiate by.

    Shapes: `grad` (ncomp, dim).
    """

    def __init__(self, values: Objects, grad: Objects | None = None) -> None:
        self.values, self.grad = values, grad
        self.nodes = [*values.flat, *(() if grad is None else grad.flat)]
        self.size = len(self.nodes)

    def factors(self, nodes: Sequence[Node]) -> dict[str, Any]:
        """Sort derivatives by all nodes into the factors of the test function and its gradient."""
        count = self.values.size
        found = {"value": np.array(nodes[:count], dtype=object)}
        if self.grad is not None:
            found["grad"] = np.array(nodes[count:], dtype=object).reshape(self.grad.shape)
        return found

    def steps(self, direction: FieldSymbol) -> dict[int, Node]:
        """Symbols of the changes of nodes in a direction, by number of the node."""
        slopes = [] if self.grad is None else [*np.atleast_2d(direction.grad).flat]
        given = [*np.atleast_1d(np.asarray(direction.value, dtype=object)).flat, *slopes]
        return {node.number: step for node, step in zip(self.nodes, given, strict=True)}


@final
class _Point:
    """Symbols at a point of an element, whose nodes may move."""

    def __init__(
        self, variables: Variables, given: Mapping[str, FieldSymbol], side: str = ""
    ) -> None:
        self.given, self._variables, self._side = given, variables, side
        first = next(iter(given.values()))
        self.dim = np.atleast_2d(first.grad).shape[1]
        self.graph: Graph = np.atleast_2d(first.grad).flat[0].graph
        self.meaning: dict[int, Node] = {}
        self.leaves: dict[str, _Leaf] = {}
        self._inverse: Objects | None = None
        self.volume: Any = self.graph.constant(1.0)
        if variables.moving:
            self._move()
        for name, ncomp in variables.fields.items():
            state, adjoint = state_name(name), adjoint_name(name)
            values = np.atleast_1d(np.asarray(given[state].value, dtype=object))
            self.leaves[state] = _Leaf(values, self._fresh(state, ncomp, given[state]))
            self.leaves[adjoint] = self._adjoint(adjoint, ncomp)
        self.controls: dict[str, Any] = {}
        for name, shape in variables.controls.items():
            values = np.asarray(given[place_of(name)].value, dtype=object).reshape(shape)
            self.controls[name] = symbol_array(values) if shape else values[()]
            self.leaves[name] = _Leaf(values)

    def _symbols(self, name: str, shape: tuple[int, ...]) -> Objects:
        """Make new inputs of the graph."""
        found = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            found[index] = self.graph.input("_".join([f"@{name}{self._side}", *map(str, index)]))
        return found

    def _fresh(self, name: str, ncomp: int, symbol: FieldSymbol) -> Objects:
        """Make new inputs that stand for the gradient of a field."""
        slopes = self._symbols(f"grad({name})", (ncomp, self.dim))
        actual = np.atleast_2d(symbol.grad)
        self.meaning |= {a.number: b for a, b in zip(slopes.flat, actual.flat, strict=True)}
        return slopes

    def _adjoint(self, name: str, ncomp: int) -> _Leaf:
        """Nodes of an adjoint. They need no field in the product, as E is linear in the adjoint."""
        values = self._symbols(name, (ncomp,))
        if name not in self.given:
            return _Leaf(values, self._symbols(f"grad({name})", (ncomp, self.dim)))
        symbol = self.given[name]
        actual = np.atleast_1d(np.asarray(symbol.value, dtype=object))
        self.meaning |= {a.number: b for a, b in zip(values.flat, actual.flat, strict=True)}
        return _Leaf(values, self._fresh(name, ncomp, symbol))

    def _move(self) -> None:
        """Make the displacement, the inverse of its deformation gradient and the determinant."""
        values = self._symbols(MESH, (self.dim,))
        slopes = self._symbols(f"grad({MESH})", (self.dim, self.dim))
        self.leaves[MESH] = _Leaf(values, slopes)
        zero = self.graph.constant(0.0)
        self.meaning |= dict.fromkeys((node.number for node in self.leaves[MESH].nodes), zero)
        deformation = np.eye(self.dim) + slopes
        self._inverse, self.volume = np.asarray(inv(deformation)), det(deformation)

    def carried(self, slopes: Objects) -> Objects:
        """Transform a gradient, or a normal, to the moved point."""
        return slopes if self._inverse is None else slopes @ self._inverse

    def field(self, name: str) -> tuple[Argument, Objects]:
        """Values, reference derivatives and gradient of a field at the moved point."""
        leaf = self.leaves[state_name(name)]
        assert leaf.grad is not None
        return Argument(leaf.values, self.reference_slopes(name)), self.carried(leaf.grad)

    def reference_slopes(self, name: str) -> Objects:
        """Derivatives of a field along the element's directions."""
        symbol = self.given[state_name(name)]
        return np.atleast_2d(np.asarray(symbol.reference_grad, dtype=object))

    def adjoint(self, name: str) -> dict[str, Objects]:
        """Value and gradient of a field's adjoint at the moved point."""
        leaf = self.leaves[adjoint_name(name)]
        assert leaf.grad is not None
        return {"value": leaf.values, "grad": self.carried(leaf.grad)}


def _on_side(symbol: FieldSymbol | TwoSided, part: str) -> FieldSymbol:
    """A field on one side of a face. On cells and the boundary it is the field itself."""
    found: FieldSymbol = getattr(symbol, part) if isinstance(symbol, TwoSided) else symbol
    return found


@final
class _Place:
    """Symbols where the function is called: at a point of an element, or on two sides of a face."""

    def __init__(
        self,
        variables: Variables,
        given: Mapping[str, FieldSymbol | TwoSided],
        keywords: Mapping[str, Any],
        *,
        on_faces: bool,
    ) -> None:
        self._variables = variables
        self._two_sided = any(isinstance(symbol, TwoSided) for symbol in given.values())
        sides = [("minus", SIDES[0]), ("plus", SIDES[1])] if self._two_sided else [("", "")]
        self._points = [
            _Point(variables, {n: _on_side(s, part) for n, s in given.items()}, side)
            for part, side in sides
        ]
        first = self._points[0]
        self.graph, self.dim, self.volume = first.graph, first.dim, first.volume
        self.meaning = {k: node for point in self._points for k, node in point.meaning.items()}
        self.keywords = {**keywords, **{name: self._control(name) for name in variables.controls}}
        if variables.moving:
            self._move(on_faces=on_faces)

    def _control(self, name: str) -> Any:
        """Value of a control, on both sides of a face."""
        values = [point.controls[name] for point in self._sides_of(name)]
        return TwoSided.of_values(name, values[0], values[-1]) if self._two_sided else values[0]

    def _sides_of(self, name: str) -> list[_Point]:
        """The points that have their own value of a variable."""
        return self._points[:1] if name in self._variables.constants else self._points

    def _move(self, *, on_faces: bool) -> None:
        """Move position, normal and extents, and the area if the place is on a face."""
        found, first = self.keywords, self._points[0]
        found["x"] = found["x"] + first.leaves[MESH].values
        if not on_faces:
            return
        # the row of the inverse Jacobian for the direction across the face is n / h or -n / h
        normals = [point.carried(found["n"]) for point in self._points]
        lengths = [np.sqrt(np.sum(normal**2)) for normal in normals]
        self.volume = self.volume * lengths[0]
        found["n"], h = symbol_array(normals[0] / lengths[0]), found["h"]
        if self._two_sided:
            found["h"] = TwoSided.of_values("h", h.minus / lengths[0], h.plus / lengths[1])
        else:
            found["h"] = h / lengths[0]

    def field(self, name: str) -> FieldSymbol | TwoSided:
        """A field of the function, with its gradient at the moved point."""
        sides = [point.field(name) for point in self._points]
        if not self._two_sided:
            return FieldSymbol(name, *sides[0])
        return on_both_sides(name, *zip(*sides, strict=True))

    def reference_slopes(self, name: str) -> list[Node]:
        """Derivatives of a field along the directions of its elements."""
        return [node for point in self._points for node in point.reference_slopes(name).flat]

    def leaves(self, name: str) -> list[_Leaf]:
        """Nodes of a variable or adjoint, for each side that has its own."""
        return [point.leaves[name] for point in self._sides_of(name)]

    def adjoints(self, name: str) -> list[dict[str, Objects]]:
        """Value and gradient of a field's adjoint on each side."""
        return [point.adjoint(name) for point in self._points]

    def factors(
        self, result: Any, name: str, ncomp: int, explain: str
    ) -> Sequence[Mapping[str, Objects]]:
        """Nodes of a test function's factors on each side, from the result of the function."""
        shapes = {"value": (ncomp,), "grad": (ncomp, self.dim)}

        def shaped(factor: Any, kind: str) -> Objects:
            numbers = np.array(factor, dtype=object).reshape(shapes[kind])
            for index, number in np.ndenumerate(numbers):
                numbers[index] = self.graph.node(plain_entry(number))
            return numbers

        if self._two_sided:
            return factors_by_side(result, name, explain, shaped)
        return [{k: shaped(result[k], k) for k in shapes if result.get(k) is not None}]

    def result(self, factors: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Result of a form's function, from the factors of a test function on each side."""
        if not self._two_sided:
            return factors[0]
        return dict(zip(("minus", "plus"), factors, strict=False))

    def to_adjoints(self) -> dict[int, Node]:
        """Adjoints as directions of the fields, by number."""
        return {
            node.number: step
            for point in self._points
            for name in self._variables.fields
            for node, step in zip(
                point.leaves[state_name(name)].nodes,
                point.leaves[adjoint_name(name)].nodes,
                strict=True,
            )
        }

    def steps(self, name: str) -> dict[int, Node]:
        """Directions of a variable's nodes, by number."""
        found: dict[int, Node] = {}
        for point in self._sides_of(name):
            found |= point.leaves[name].steps(point.given[direction_name(name)])
        return found
