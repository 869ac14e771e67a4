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
from femops.pointwise.diagnostics import definition
from femops.pointwise.expressions.derivative import derivatives, gradients
from femops.pointwise.expressions.graph import Graph, Node, ancestors, substitute
from femops.pointwise.expressions.tensors import det, inv
from femops.pointwise.field_symbol import Argument, FieldSymbol, Objects
from femops.pointwise.trace import name_of

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
    """The variables of an integrand.

    Attributes
    ----------
    fields : dict of int
        Number of components of each field of the function, in the order of its arguments.
    controls : dict of shapes
        Shape of each coefficient that is a variable. The product has a field for its values.
    moving : bool
        Whether the displacement of the mesh is a variable. Its value is zero.
    """

    fields: Mapping[str, int]
    controls: Mapping[str, tuple[int, ...]]
    moving: bool


@final
class DerivedFunction:
    r"""Derivative of an integrand by some of its variables, for `femops.residual`.

    The function of a residual returns the factors f and F of a test function. The integrand is
    :math:`E = f \cdot \lambda + F : \nabla \lambda` with an adjoint :math:`\lambda`. The function
    of a functional returns a number, and this is E. The derivatives of E along directions come
    first, then those by variables.

    If the mesh moves by a displacement d, E is pulled back to the mesh that has not moved. With
    :math:`\mathsf F = I + \nabla d`, gradients are multiplied by :math:`\mathsf F^{-1}` and E by
    :math:`\det \mathsf F`. On a boundary, E is multiplied by the length of the cofactor matrix of
    :math:`\mathsf F` times the normal (Nanson's formula). Derivatives are those at d = 0.

    Parameters
    ----------
    function : callable
        See `femops.form`.
    energy : bool
        Whether the function returns ``{"value": number}``, the integrand of a functional.
    tested : bool
        Whether E contains the adjoint. With ``energy``, E is then the derivative of the energy
        along the adjoint.
    variables : Variables
    names : sequence of str
        Names of the spaces of the product, in order.
    by : sequence of str
        Variables and adjoints by which to differentiate. The result has a test function of each.
    along : sequence of str
        Variables and adjoints that change along a direction.
    on_boundary : bool
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
        on_boundary: bool,
    ) -> None:
        self._function, self._on_boundary = function, on_boundary
        self._energy, self._tested = energy, tested
        self._variables, self._names, self._by, self._along = variables, tuple(names), by, along
        self.__name__ = f"derivative_of_{name_of(function)}".replace("<lambda>", "lambda")
        self._own = dict(inspect.signature(function).parameters)
        wanted = [*self._own.values()][len(variables.fields) :]
        place = {"n", "h"} if variables.moving and on_boundary else set()
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

    def __call__(self, *symbols: FieldSymbol, **keywords: Any) -> dict[str, Any]:
        """Return the factors of each variable's test function, by name."""
        given = dict(zip(self._names, symbols, strict=True))
        point = _Point(self._variables, given, keywords)
        integrand = self._integrand(point)
        if self._along:
            steps: dict[int, Node] = {}
            for name in self._along:
                steps |= point.steps(name)
            integrand = derivatives([integrand], steps)[0]
        leaves = {name: point.leaves[name] for name in self._by}
        self._check_slopes(point, integrand)
        nodes = gradients(integrand, [node for leaf in leaves.values() for node in leaf.nodes])
        nodes = substitute(nodes, point.meaning)
        results: dict[str, Any] = {}
        for name, leaf in leaves.items():
            factors, nodes = leaf.factors(nodes[: leaf.size]), nodes[leaf.size :]
            results[place_of(name)] = factors
        return results

    def _integrand(self, point: _Point) -> Node:
        """Return E, from the function's results at the moved point."""
        variables = self._variables
        fields = [point.field(name) for name in variables.fields]
        keywords = point.keywords(self._on_boundary)
        results = self._function(*fields, **{k: v for k, v in keywords.items() if k in self._own})
        if self._energy:
            number: Node = point.graph.node(_number(results["value"])) * point.volume
            return derivatives([number], point.to_adjoints())[0] if self._tested else number
        total: Any = point.graph.constant(0.0)
        several = len(variables.fields) > 1
        for name, ncomp in variables.fields.items():
            part = results.get(name, {}) if several else results
            test = point.adjoint(name)
            shapes = {"value": (ncomp,), "grad": (ncomp, point.dim)}
            for key, shape in shapes.items():
                if part.get(key) is not None:
                    factors = np.asarray(part[key], dtype=object).reshape(shape)
                    for factor, slot in zip(factors.flat, test[key].flat, strict=True):
                        total = total + point.graph.node(_number(factor)) * slot
        whole: Node = total * point.volume
        return whole

    def _check_slopes(self, point: _Point, integrand: Node) -> None:
        """Raise if the function uses a variable's derivatives along the element's directions."""
        varied = {*self._by, *self._along}
        if self._energy and self._tested:
            varied |= {*map(state_name, self._variables.fields)}
        needed = {node.number for node in ancestors([integrand])}
        for name in (n for n in self._variables.fields if state_name(n) in varied):
            slopes = point.given[state_name(name)].reference_grad
            if any(node.number in needed for node in np.asarray(slopes, dtype=object).flat):
                raise TraceError(
                    f"{definition(self._function)}{name_of(self._function)} uses "
                    f"{name}.reference_grad, by which nothing can be differentiated: use "
                    f"{name}.grad"
                )


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _number(value: Any) -> Any:
    return value.value if isinstance(value, FieldSymbol) else value


@final
class _Leaf:
    """Nodes of the expression graph that stand for a variable, to differentiate by.

    Parameters
    ----------
    values : array of Node
    grad : (ncomp, dim) array of Node, optional
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
        """Directions of the nodes, by number."""
        slopes = [] if self.grad is None else [*np.atleast_2d(direction.grad).flat]
        given = [*np.atleast_1d(np.asarray(direction.value, dtype=object)).flat, *slopes]
        return {node.number: step for node, step in zip(self.nodes, given, strict=True)}


@final
class _Point:
    """Symbols at a point of an element, whose nodes may move.

    Attributes
    ----------
    leaves : dict of _Leaf
        Nodes of each variable and adjoint.
    meaning : dict of Node
        Nodes that replace placeholders after differentiation, by the placeholder's number.
    """

    def __init__(
        self, variables: Variables, given: Mapping[str, FieldSymbol], keywords: Mapping[str, Any]
    ) -> None:
        self.given, self._variables, self._keywords = given, variables, dict(keywords)
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
        for name, shape in variables.controls.items():
            values = np.asarray(given[place_of(name)].value, dtype=object).reshape(shape)
            self._keywords[name] = values if shape else values[()]
            self.leaves[name] = _Leaf(values)

    def _symbols(self, name: str, shape: tuple[int, ...]) -> Objects:
        """Make new inputs of the graph."""
        found = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            found[index] = self.graph.input("_".join([f"@{name}", *map(str, index)]))
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

    def _carried(self, slopes: Objects) -> Objects:
        """Transform a gradient to the moved point."""
        return slopes if self._inverse is None else slopes @ self._inverse

    def field(self, name: str) -> FieldSymbol:
        """A field of the function, with its gradient at the moved point."""
        leaf, symbol = self.leaves[state_name(name)], self.given[state_name(name)]
        assert leaf.grad is not None
        slopes = np.atleast_2d(np.asarray(symbol.reference_grad, dtype=object))
        return FieldSymbol(name, Argument(leaf.values, slopes), self._carried(leaf.grad))

    def adjoint(self, name: str) -> dict[str, Objects]:
        """Value and gradient of a field's adjoint at the moved point."""
        leaf = self.leaves[adjoint_name(name)]
        assert leaf.grad is not None
        return {"value": leaf.values, "grad": self._carried(leaf.grad)}

    def to_adjoints(self) -> dict[int, Node]:
        """Adjoints as directions of the fields, by number."""
        pairs: list[tuple[Node, Node]] = []
        for name in self._variables.fields:
            state, adjoint = self.leaves[state_name(name)], self.leaves[adjoint_name(name)]
            pairs += zip(state.nodes, adjoint.nodes, strict=True)
        return {node.number: step for node, step in pairs}

    def keywords(self, on_boundary: bool) -> dict[str, Any]:
        """Coefficients, position, normal and extent at the moved point."""
        found = self._keywords
        if self._inverse is None:
            return found
        found = found | {"x": found["x"] + self.leaves[MESH].values}
        if on_boundary:
            # the row of the inverse Jacobian for the direction inwards is -n / h
            normal = found["n"] @ self._inverse
            length = np.sqrt(np.sum(normal**2))
            self.volume = self.volume * length
            found |= {"n": normal / length, "h": found["h"] / length}
        return found

    def steps(self, name: str) -> dict[int, Node]:
        """Directions of a variable's nodes, by number."""
        return self.leaves[name].steps(self.given[direction_name(name)])
