"""A naive oracle for forms given as functions: the function is called with plain numbers.

It stands on tests/support/oracles/naive.py and shares no code with femops: at every quadrature
point the user's function is called with a field whose value, or one of whose derivatives, is one
and all else zero.  What it returns is multiplied by the trial and the test functions.  A nonlinear
function is called with the numbers of the state, and a tiny imaginary step in their place: its
derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from support.oracles.naive import Array, degree, digits, mapping, rule, shapes

Function = Callable[..., Any]


@final
class PlainField(np.ndarray):
    """The value of a field at a point, with its derivatives: plain numbers."""

    grad: Array

    @staticmethod
    def of(value: Array, grad: Array) -> PlainField:
        """A field of value () or (ncomp,) and gradient (dim,) or (ncomp, dim)."""
        field = np.asarray(value, np.result_type(value, float)).view(PlainField)
        field.grad = grad
        return field

    @property
    def value(self) -> Array:
        """The value alone."""
        return np.asarray(self)

    @property
    def div(self) -> Any:
        """Sum of the derivatives of each component along its own direction."""
        rows = self.grad.reshape(self.size, -1)
        if rows.shape[0] != rows.shape[1]:
            raise ValueError(f"no divergence of {rows.shape[0]} components in {rows.shape[1]}-D")
        return sum(rows[i, i] for i in range(len(rows)))

    @property
    def sym_grad(self) -> Array:
        """Half the sum of the gradient and its transpose."""
        return (self.grad + self.grad.T) / 2


@final
@dataclass(frozen=True)
class Nodal:
    """One side of a form, trial or test: connectivity (ne, n), components and 1-D family."""

    indices: Array
    ncomp: int
    family: str

    @staticmethod
    def of(space: Any) -> Nodal:
        """The arrays behind a space."""
        return Nodal(space.restriction.indices, space.ncomp, space.basis.family)

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return (int(self.indices.max()) + 1) * self.ncomp

    def tabulated(self, dim: int, points: Array) -> tuple[Array, Array]:
        """Values (nq, n) and reference gradients (nq, n, dim)."""
        return shapes(dim, self.family, degree(self.indices.shape[1], dim), points)


@final
@dataclass(frozen=True)
class AtPoints:
    """A coefficient given by its values (ne, nq, *shape) at the quadrature points."""

    values: Array


@final
@dataclass(frozen=True)
class Dense:
    """A matrix, test x trial, on flat vectors."""

    matrix: Array

    @property
    def T(self) -> Dense:
        """The transpose."""
        return Dense(self.matrix.T)

    def __add__(self, other: Dense) -> Dense:
        return Dense(self.matrix + other.matrix)

    def __rmul__(self, factor: float) -> Dense:
        return Dense(factor * self.matrix)

    def eliminated(self, rows: Any, columns: Any) -> Dense:
        """The matrix with rows and columns replaced by zero."""
        matrix = self.matrix.copy()
        matrix[np.asarray(rows, int)] = 0.0
        matrix[:, np.asarray(columns, int)] = 0.0
        return Dense(matrix)

    def scale(self, u: Array) -> float:
        """The measure of round-off: the norm of |A| |u|."""
        return float(np.linalg.norm(abs(self.matrix) @ abs(np.asarray(u).ravel())))

    def error(self, result: Array, u: Array) -> float:
        """How far ``result`` is from A u, over the norm of |A| |u|."""
        expected = self.matrix @ np.asarray(u).ravel()
        return float(np.linalg.norm(np.asarray(result).ravel() - expected)) / self.scale(u)


@final
class FormOracle:
    """Forms between two spaces on one mesh, with one rule.

    Parameters
    ----------
    coordinates : (ne, (g + 1)**dim, dim) array
    trial, test : Nodal
    rule_name, q1d : the 1-D rule; p + 2 Gauss points of the larger degree if omitted
    kind : float, or complex for a form with complex coefficients
    """

    def __init__(
        self,
        coordinates: Array,
        trial: Nodal,
        test: Nodal,
        rule_name: str = "gauss",
        q1d: int | None = None,
        kind: type = float,
    ) -> None:
        self.kind = kind
        self.dim = dim = coordinates.shape[2]
        self.trial, self.test = trial, test
        most = max(degree(side.indices.shape[1], dim) for side in (trial, test))
        self.points, weights = rule(rule_name, most + 2 if q1d is None else q1d)
        self.positions, self.jacobians = mapping(np.asarray(coordinates), self.points)
        self.inverses = np.linalg.inv(self.jacobians)
        weights = np.prod(weights[digits(len(weights), dim)], axis=0).astype(float)
        self.measures = weights * np.linalg.det(self.jacobians)
        self.tables = [side.tabulated(dim, self.points) for side in (trial, test)]

    @staticmethod
    def of(
        trial: Any,
        test: Any = None,
        rule_name: str = "gauss",
        q1d: int | None = None,
        kind: type = float,
    ) -> Any:
        """The oracle for two spaces."""
        sides = Nodal.of(trial), Nodal.of(trial if test is None else test)
        return FormOracle(trial.mesh.coordinates, *sides, rule_name, q1d, kind)

    def at_points(self, field: Callable[[Array], Any]) -> AtPoints:
        """A function of x as values at the points."""
        ne, nq = self.positions.shape[:2]
        values = [[_at(field, self.positions[e, q], e, q) for q in range(nq)] for e in range(ne)]
        return AtPoints(np.array(values))

    def field(self, side: Nodal, vector: Array) -> AtPoints:
        """A finite element function as values at the points, (ne, nq[, ncomp])."""
        here, _ = side.tabulated(self.dim, self.points)
        nodal = np.asarray(vector, float).reshape(-1, side.ncomp)[side.indices]
        values = np.einsum("qn,enc->eqc", here, nodal)
        return AtPoints(values[..., 0] if side.ncomp == 1 else values)

    def matrix(self, function: Function, state: Array | None = None, **coefficients: Any) -> Dense:
        """The form of a user's function, dense; the derivative at a state if there is one.

        Whether it takes ``x`` is seen from its arguments.
        """
        total = np.zeros((self.test.size, self.trial.size), self.kind)
        for e in range(len(self.positions)):
            local = self._element(e, function, state, coefficients)
            rows, columns = _flat(self.test, e), _flat(self.trial, e)
            np.add.at(total, (rows[:, None], columns[None, :]), local)
        return Dense(total)

    def _element(
        self, e: int, function: Function, state: Array | None, coefficients: dict[str, Any]
    ) -> Array:
        """Element matrix; rows and columns are node * ncomp + component."""
        (u, _), (v, _) = self.tables
        constant = state is None and hasattr(function, "__code__") and not _takes_x(function)
        constant &= not any(callable(c) or isinstance(c, AtPoints) for c in coefficients.values())
        d = None
        local = np.zeros((v.shape[1], self.test.ncomp, u.shape[1], self.trial.ncomp), self.kind)
        for weight, here, trials, tests in self._at_points(e, function, coefficients):
            base = None if state is None else trials @ self._nodal(state, e)
            d = d if constant and d is not None else self._step(function, here, base)
            half = np.tensordot(tests, d, (0, 0))  # (nodes, ncomp_out, slots, ncomp_in)
            local += weight * np.tensordot(half, trials, (2, 0)).swapaxes(2, 3)
        return local.reshape(v.shape[1] * self.test.ncomp, -1)

    def _at_points(
        self, e: int, function: Function, coefficients: dict[str, Any]
    ) -> Iterator[tuple[float, dict[str, Any], Array, Array]]:
        """Weight, coefficients, trial and test functions (1 + dim, n) at an element's points."""
        takes_x = _takes_x(function)
        for q, x in enumerate(self.positions[e]):
            here = {name: _at(given, x, e, q) for name, given in coefficients.items()}
            here |= {"x": x} if takes_x else {}
            trials, tests = (
                np.vstack([values[q], (slopes[q] @ self.inverses[e, q]).T])
                for values, slopes in self.tables
            )
            yield self.measures[e, q], here, trials, tests

    def _nodal(self, vector: Array, e: int) -> Array:
        """The entries (nodes, ncomp) of a vector in an element."""
        return np.asarray(vector, float).reshape(-1, self.trial.ncomp)[self.trial.indices[e]]

    def residual(self, function: Function, state: Array, **coefficients: Any) -> Array:
        """The residual (size,) of a function at a state."""
        total, shape = np.zeros(self.test.size), (self.test.ncomp, self.dim)
        for e in range(len(self.positions)):
            for weight, here, trials, tests in self._at_points(e, function, coefficients):
                result = function(_field(trials @ self._nodal(state, e)), **here)
                value, slope = _part(result, "value", shape[:1]), _part(result, "grad", shape)
                both = np.column_stack([value, slope])  # (ncomp, slots)
                np.add.at(total, _flat(self.test, e), weight * (both @ tests).T.ravel())
        return total

    def _step(self, function: Function, here: dict[str, Any], base: Array | None) -> Array:
        """The form at a point: (slots, ncomp_out, slots, ncomp_in), the value's slot first."""
        ncomp_in, ncomp_out, slots = self.trial.ncomp, self.test.ncomp, 1 + self.dim
        d = np.zeros((slots, ncomp_out, slots, ncomp_in), self.kind)
        for j, b in np.ndindex(slots, ncomp_in):
            numbers = np.zeros((slots, ncomp_in))
            numbers[j, b] = 1.0
            if base is None:
                result, imaginary = function(_field(numbers), **here), False
            else:
                result, imaginary = function(_field(base + 1e-30j * numbers), **here), True
            value = _part(result, "value", (ncomp_out,))
            parts = value, _part(result, "grad", (ncomp_out, self.dim))
            for rows, part in zip((slice(1), slice(1, None)), parts, strict=True):
                flat = part.reshape(ncomp_out, -1).T
                d[rows, :, j, b] = flat.imag / 1e-30 if imaginary else flat
        return d


def _takes_x(function: Function) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and "x" in code.co_varnames[: code.co_argcount]


def _field(numbers: Array) -> PlainField:
    """A field of value and derivatives (1 + dim, ncomp)."""
    if numbers.shape[1] == 1:
        return PlainField.of(numbers[0, 0], numbers[1:, 0])
    return PlainField.of(numbers[0], numbers[1:].T)


def _part(result: dict[str, Any], name: str, shape: tuple[int, ...]) -> Array:
    if name not in result:
        return np.zeros(shape)
    part = np.asarray(result[name])
    wanted = shape[1:] if shape[0] == 1 else shape
    if part.shape != wanted:
        raise ValueError(f"the form gives a {name} of shape {part.shape}, not {wanted}")
    return part.reshape(shape)


def _at(given: Any, x: Array, e: int, q: int) -> Any:
    """A coefficient at one point: a float or an array."""
    if isinstance(given, AtPoints):
        value = given.values[e, q]
    else:
        value = given(x) if callable(given) else given
    array = np.asarray(value, np.result_type(np.asarray(value), float))
    return array if array.ndim else array.item()


def _flat(side: Nodal, e: int) -> Array:
    """Flat positions of the dofs of an element."""
    return (side.indices[e][:, None] * side.ncomp + np.arange(side.ncomp)).ravel()
