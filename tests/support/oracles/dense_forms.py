"""Forms as dense matrices, from their integrals, with a bound of round-off for every entry.

Written from docs/conventions.md alone: own rules, own bases, own geometry; of femops it takes mesh
coordinates and the numbers of the dofs.  The form's function is called with `Num` and `Dual` of
tests/support/oracles/running_error.py: for a linear form once for each value and derivative that
its fields have.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from support.oracles.running_error import (
    EPS,
    LONG,
    ONE,
    ZERO,
    Dual,
    Num,
    Unsure,
    det,
    inverse,
    nums,
)

Array = np.ndarray[Any, Any]
# Rounding errors of bases and of sums over points and nodes, in units of EPS.
BASIS, SUMS = 8.0, 8.0


# --- one dimension --------------------------------------------------------------------------------


def gauss(n: int) -> tuple[Array, Array]:
    """Points and weights of Gauss on [0, 1], by Newton's method on the recurrence of Legendre."""
    k = np.arange(1, n + 1)
    x = -np.cos(np.pi * (k - LONG(0.25)) / (n + LONG(0.5))).astype(LONG)
    for _ in range(8):
        last, here = np.ones_like(x), x.copy()
        for m in range(2, n + 1):
            last, here = here, ((2 * m - 1) * x * here - (m - 1) * last) / m
        slope = n * (x * here - last) / (x * x - 1)
        x = x - here / slope
    return (1 + x) / 2, 1 / ((1 - x * x) * slope * slope)


def nodes(family: str, p: int) -> Array:
    """Nodes of degree p on [0, 1]."""
    if family == "gauss":
        return gauss(p + 1)[0]
    inner = {1: [], 2: [LONG(1) / 2], 3: [(1 - 1 / np.sqrt(LONG(5))) / 2] * 2}[p]
    if p == 3:
        inner[1] = 1 - inner[0]
    return np.array([0, *inner, 1], LONG)


def lagrange(at: Array, x: Array) -> Array:
    """Values and derivatives (2, len(x), len(at)) of the polynomials that are one at one node."""
    out = np.zeros((2, len(x), len(at)), LONG)
    for j, here in enumerate(at):
        others = np.delete(at, j)
        out[0, :, j] = np.prod((x[:, None] - others) / (here - others), axis=1)
        for m in range(len(others)):
            rest = np.delete(others, m)
            factor = np.prod((x[:, None] - rest) / (here - rest), axis=1)
            out[1, :, j] += factor / (here - others[m])
    return out


@dataclass(frozen=True)
class Table:
    """Values and reference derivatives (1 + dim, points, nodes) of a basis, with error bounds."""

    v: Array
    e: Array

    @staticmethod
    def of(family: str, p: int, grids: list[Array]) -> Table:
        lines = [lagrange(nodes(family, p), grid) for grid in grids]
        rows, errors = [], []
        for slot in range(len(grids) + 1):
            exact, upper, size = np.ones((1, 1), LONG), np.ones((1, 1)), np.ones((1, 1))
            for d, line in enumerate(lines):
                part = line[int(slot == d + 1)]
                plain = np.abs(part).astype(float)
                exact = np.kron(part, exact)  # x fastest
                size = np.kron(plain, size)
                upper = np.kron(plain + BASIS * EPS * plain.max(), upper)
            rows.append(exact)
            errors.append(upper - size + BASIS * EPS * size)
        return Table(np.stack(rows), np.stack(errors))

    def apply(self, coefficients: Array) -> tuple[Array, Array]:
        """Values and error bounds (slots, points, ...), of coefficients (nodes, ...)."""
        given = coefficients.astype(LONG)
        size = np.abs(coefficients).astype(float)
        v = np.tensordot(self.v, given, 1)
        sums = SUMS * EPS * np.abs(self.v).astype(float) + self.e
        return v, np.tensordot(sums, size, 1)


# --- where the points are -------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """An element, or one of its faces: its 1-D grids and the weights of its points."""

    element: int
    grids: list[Array]
    weights: Array
    side: tuple[int, int] | None = None  # direction and end


def faces_of(mesh: Any) -> list[tuple[int, int, int]]:
    """Boundary faces (element, direction, end): by element, then by code."""
    dim = mesh.coordinates.shape[2]
    corners = mesh.elements.reshape(-1, *(2,) * dim)
    found: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for e, d, end in itertools.product(range(len(corners)), range(dim), (0, 1)):
        vertices = corners[e].take(end, axis=dim - 1 - d)  # x is the last axis
        found.setdefault(tuple(sorted(vertices.ravel())), []).append((e, d, end))
    single = [where[0] for where in found.values() if len(where) == 1]

    def code(face: tuple[int, int, int]) -> tuple[int, int]:
        e, d, end = face
        return e, sum(3**k * (2 * end if k == d else 1) for k in range(dim))

    return sorted(single, key=code)


class Points:
    """All quadrature points of an integral, cell by cell, and the geometry there."""

    def __init__(self, mesh: Any, q1d: int, boundary: bool = False, faces: Any = None) -> None:
        self.mesh, self.q1d = mesh, q1d
        self.dim = mesh.coordinates.shape[2]
        x, w = gauss(q1d)
        if boundary:
            chosen = faces_of(mesh) if faces is None else faces
            self.cells = [self._face(*face, x, w) for face in chosen]
        else:
            weights = self._product([w] * self.dim)
            self.cells = [Cell(e, [x] * self.dim, weights) for e in range(len(mesh.coordinates))]
        self.per_cell = len(self.cells[0].weights)
        self._tables: dict[Any, Table] = {}
        self.boundary = boundary

    def _product(self, lines: list[Array]) -> Array:
        out = np.ones(1, LONG)
        for line in lines:
            out = np.kron(line, out)
        return out

    def _face(self, e: int, d: int, end: int, x: Array, w: Array) -> Cell:
        grids, lines = [x] * self.dim, [w] * self.dim
        grids[d], lines[d] = np.array([LONG(end)]), np.ones(1, LONG)
        return Cell(e, grids, self._product(lines), (d, end))

    def table(self, family: str, p: int, cell: Cell) -> Table:
        """The basis of degree p at the points of a cell."""
        key = family, p, cell.side
        if key not in self._tables:
            self._tables[key] = Table.of(family, p, cell.grids)
        return self._tables[key]

    @property
    def count(self) -> int:
        return len(self.cells) * self.per_cell

    def at_points(self, family: str, p: int, coefficients: Array) -> tuple[Any, Any]:
        """A function with coefficients (ne, nodes, ncomp): its values and reference slopes.

        Returns
        -------
        (ncomp,) and (ncomp, dim) object arrays of Num
        """
        parts = [
            self.table(family, p, cell).apply(coefficients[cell.element]) for cell in self.cells
        ]
        v, e = (np.concatenate([part[k] for part in parts], axis=1) for k in (0, 1))
        found = nums(np.moveaxis(v, 1, 2), np.moveaxis(e, 1, 2))  # (slots, ncomp)
        return found[0], found[1:].T

    @cached_property
    def _map(self) -> tuple[Any, Any]:
        coordinates = self.mesh.coordinates
        degree = round(coordinates.shape[1] ** (1 / self.dim)) - 1
        return self.at_points("gll", degree, coordinates)

    @property
    def x(self) -> Any:
        """Positions, (dim,) of Num."""
        return self._map[0]

    @cached_property
    def inverse(self) -> Any:
        """The inverse Jacobian, (dim, dim) of Num: d xi_k / d x_i."""
        return inverse(self._map[1])

    @cached_property
    def normal(self) -> Any:
        """The outer unit normal, (dim,) of Num."""
        rows, length = self._outward
        return np.array([row / length for row in rows], dtype=object)

    @cached_property
    def _outward(self) -> tuple[Any, Any]:
        rows = []
        for i in range(self.dim):
            v, e = (self._of_sides([getattr(n, k) for n in self.inverse[:, i]]) for k in "ve")
            sign = np.repeat([2 * cell.side[1] - 1 for cell in self.cells], self.per_cell)
            rows.append(Num(sign * v, e))
        square = sum((row * row for row in rows), ZERO)
        return rows, square**0.5

    def _of_sides(self, along: list[Array]) -> Array:
        """Of an array for each direction, that across the face of each point."""
        across = np.repeat([cell.side[0] for cell in self.cells], self.per_cell)
        return np.stack([np.broadcast_to(a, (self.count,)) for a in along])[
            across, np.arange(self.count)
        ]

    @cached_property
    def weight(self) -> Num:
        """Quadrature weight times the element of volume or surface."""
        w = np.concatenate([cell.weights for cell in self.cells])
        weight = Num(w, 4 * EPS * w) * det(self._map[1])
        return weight * self._outward[1] if self.boundary else weight


# --- fields ---------------------------------------------------------------------------------------


_COMPARISONS = {
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


class PointField(np.lib.mixins.NDArrayOperatorsMixin):
    """A field at the points, as docs/forms.md says what a form sees: here of numbers."""

    def __init__(self, value: Any, grad: Any) -> None:
        self._all = grad
        self.value = value[0] if len(value) == 1 else value

    @property
    def grad(self) -> Any:
        if self._all is None:
            raise AttributeError("a field on the boundary has no gradient")
        return self._all[0] if len(self._all) == 1 else self._all

    @property
    def div(self) -> Any:
        return np.trace(np.atleast_2d(self.grad))

    @property
    def sym_grad(self) -> Any:
        grad = np.atleast_2d(self.grad)
        return (grad + grad.T) * 0.5

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [i.value if isinstance(i, PointField) else i for i in inputs]
        if ufunc in _COMPARISONS:  # NumPy would ask whether they are true
            return np.frompyfunc(_COMPARISONS[ufunc], 2, 1)(*plain)
        return getattr(ufunc, method)(*plain, **options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.value, dtype=object)

    def __getitem__(self, index: Any) -> Any:
        return self.value[index]

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class Side:
    """A space, as plain arrays: connectivity (ne, nodes), components and basis."""

    indices: Array
    ncomp: int
    family: str
    degree: int
    count: int

    @property
    def size(self) -> int:
        return self.count * self.ncomp

    def flat(self, element: int) -> Array:
        """Positions (nodes, ncomp) of an element's dofs in the flat vector."""
        return self.indices[element][:, None] * self.ncomp + np.arange(self.ncomp)

    def element_values(self, vector: Array) -> Array:
        return np.asarray(vector).reshape(self.count, self.ncomp)[self.indices]


@dataclass
class Matrix:
    """A dense matrix: exact entries, their error bounds."""

    v: Array
    e: Array

    @property
    def T(self) -> Matrix:
        return Matrix(self.v.T, self.e.T)

    def times(self, u: Array) -> tuple[Array, Array]:
        """A product and its error bound."""
        return self.v @ u.astype(LONG), self.e @ np.abs(u)

    @property
    def skew(self) -> bool:
        """Whether it differs from its transpose by more than round-off can do."""
        return self.v.shape[0] == self.v.shape[1] and bool(
            np.any(np.abs(self.v - self.v.T) > 4 * (self.e + self.e.T))
        )

    @property
    def is_zero(self) -> bool:
        """Whether it cannot be told from zero."""
        return bool(np.all(np.abs(self.v) <= self.e))


Function = Callable[..., Any]


@dataclass
class DenseForm:
    """A form with its points, coefficients and spaces.

    Parameters
    ----------
    function : callable
        As the user wrote it, with the names of tests/support/oracles/running_error.py.
    points : Points
    fields, tests : dict of Side
    coefficients : dict
        Of what the function is given besides fields, x and n: Num or object arrays of Num.
    """

    function: Function
    points: Points
    fields: Mapping[str, Side]
    tests: Mapping[str, Side]
    coefficients: Mapping[str, Any]
    wants: set[str] = field(default_factory=set)

    def _call(self, fields: list[Any]) -> dict[str, tuple[Any, Any]]:
        place = {"x": lambda: self.points.x, "n": lambda: self.points.normal}
        keywords = dict(self.coefficients) | {k: place[k]() for k in self.wants}
        result = self.function(*fields, **keywords)
        parts = {name: result[name] for name in self.tests} if len(self.tests) > 1 else None
        if parts is None:
            parts = dict.fromkeys(self.tests, result)
        return {name: self._weighted(part, self.tests[name]) for name, part in parts.items()}

    def _weighted(self, part: dict[str, Any], test: Side) -> list[Any]:
        """What multiplies the test functions, then their reference derivatives, slot by slot."""
        dim, weight = self.points.dim, self.points.weight
        value = np.empty(test.ncomp, dtype=object)
        value[:] = _entries(part.get("value", np.zeros(test.ncomp)), (test.ncomp,))
        rows = [value * weight]
        if "grad" in part:
            flux = _entries(part["grad"], (test.ncomp, dim)) * weight
            rows += list((flux @ self.points.inverse.T).T)
        else:
            rows += [np.full(test.ncomp, ZERO, dtype=object)] * (0 if self.points.boundary else dim)
        return rows

    def _slots(self) -> int:
        return 1 if self.points.boundary else 1 + self.points.dim

    def _units(self) -> Any:
        """For each field, component and slot: the fields of which that alone is one."""
        inverse = None if self.points.boundary else self.points.inverse
        for name, side in self.fields.items():
            for slot, c in itertools.product(range(self._slots()), range(side.ncomp)):
                made = []
                for other, those in self.fields.items():
                    value = np.full(those.ncomp, ZERO, dtype=object)
                    grad = None
                    if inverse is not None:
                        grad = np.full((those.ncomp, self.points.dim), ZERO, dtype=object)
                    if other == name and slot == 0:
                        value[c] = ONE
                    elif other == name:
                        grad[c] = inverse[slot - 1]
                    made.append((value, grad))
                yield name, slot, c, made

    def matrix(self) -> dict[tuple[str, str], Matrix]:
        """The dense matrix of each test function and field, of a linear form."""
        pieces: dict[Any, Any] = {}
        for name, slot, c, made in self._units():
            results = self._call([PointField(*pair) for pair in made])
            for test, rows in results.items():
                pieces[test, name, slot, c] = rows
        return self._integrate(pieces)

    def jacobian(self, *states: Array) -> dict[tuple[str, str], Matrix]:
        """The derivative at a state, given as a vector of each field."""
        sides = self.fields.values()
        points = [self.state(side, state) for side, state in zip(sides, states, strict=True)]
        pieces: dict[Any, Any] = {}
        both = np.frompyfunc(Dual, 2, 1)
        for name, slot, c, units in self._units():
            results = self._call(
                [
                    PointField(both(value, dv), both(grad, dg))
                    for (value, grad), (dv, dg) in zip(points, units, strict=True)
                ]
            )
            for test, rows in results.items():
                pick = [[r.d if isinstance(r, Dual) else ZERO for r in row] for row in rows]
                pieces[test, name, slot, c] = pick
        return self._integrate(pieces)

    def state(self, side: Side, vector: Array) -> tuple[Any, Any]:
        """Values and gradients of a state at the points."""
        coefficients = side.element_values(vector)
        value, slopes = self.points.at_points(side.family, side.degree, coefficients)
        return value, slopes @ self.points.inverse

    def residual(self, state: Array) -> tuple[Array, Array]:
        """The residual at a state and its error bound, of a form of one field."""
        ((_, side),) = self.fields.items()
        ((name, test),) = self.tests.items()
        rows = self._call([PointField(*self.state(side, state))])[name]
        v, e = _stacked(rows, self.points.count)
        out, bound = np.zeros(test.size, LONG), np.zeros(test.size)
        for k, cell in enumerate(self.points.cells):
            table = self.points.table(test.family, test.degree, cell)
            at = slice(k * self.points.per_cell, (k + 1) * self.points.per_cell)
            size = np.abs(v[:, :, at]).astype(float)
            basis = np.abs(table.v).astype(float)
            more = e[:, :, at] + SUMS * EPS * size
            local = np.einsum("siq,sqn->ni", v[:, :, at], table.v[: len(v)])
            error = np.einsum("siq,sqn->ni", more, basis[: len(v)])
            error += np.einsum("siq,sqn->ni", size, table.e[: len(v)])
            np.add.at(out, test.flat(cell.element), local)
            np.add.at(bound, test.flat(cell.element), error)
        return out, bound

    def _integrate(self, pieces: dict[Any, Any]) -> dict[tuple[str, str], Matrix]:
        out = {}
        slots = self._slots()
        for (test, to), (name, source) in itertools.product(
            self.tests.items(), self.fields.items()
        ):
            shape = (slots, to.ncomp, slots, source.ncomp, self.points.count)
            v, e = np.zeros(shape, LONG), np.zeros(shape)
            for s, c in itertools.product(range(slots), range(source.ncomp)):
                v[:, :, s, c], e[:, :, s, c] = _stacked(pieces[test, name, s, c], self.points.count)
            out[test, name] = self._dense(v, e, to, source)
        return out

    def _dense(self, v: Array, e: Array, to: Side, source: Side) -> Matrix:
        total = Matrix(np.zeros((to.size, source.size), LONG), np.zeros((to.size, source.size)))
        slots = self._slots()
        for k, cell in enumerate(self.points.cells):
            at = slice(k * self.points.per_cell, (k + 1) * self.points.per_cell)
            left = self.points.table(to.family, to.degree, cell)
            right = self.points.table(source.family, source.degree, cell)
            here, error = v[..., at], e[..., at]
            size = np.abs(here).astype(float)
            lv, rv = (np.abs(t.v[:slots]).astype(float) for t in (left, right))
            le, re = (t.e[:slots] for t in (left, right))
            local = _sandwich(left.v[:slots], here, right.v[:slots])
            bound = _sandwich(lv, error + SUMS * EPS * size, rv)
            bound += _sandwich(le, size, rv) + _sandwich(lv, size, re)
            rows = to.flat(cell.element)[:, :, None, None]
            columns = source.flat(cell.element)
            np.add.at(total.v, (rows, columns), local)
            np.add.at(total.e, (rows, columns), bound)
        return total


def _sandwich(left: Array, d: Array, right: Array) -> Array:
    """(nodes, ncomp, nodes, ncomp) of D between tables of test and trial functions."""
    half = np.zeros((d.shape[0], d.shape[1], d.shape[3], right.shape[2], d.shape[4]), d.dtype)
    for t, i, s, c in np.ndindex(d.shape[:4]):
        if d[t, i, s, c].any():
            half[t, i, c] += d[t, i, s, c] * right[s].T
    out = np.zeros((left.shape[2], d.shape[1], right.shape[2], d.shape[3]), d.dtype)
    for t, i, c in np.ndindex(half.shape[:3]):
        if half[t, i, c].any():
            out[:, i, :, c] += (half[t, i, c] @ left[t]).T
    return out


def _entries(value: Any, shape: tuple[int, ...]) -> Any:
    value = getattr(value, "value", value)
    array = np.asarray(value, dtype=object)
    plain = shape[1:] if shape[0] == 1 else shape
    assert array.shape in (plain, shape), f"a test of the wrong shape: {array.shape}, not {shape}"
    return array.reshape(shape)


def _stacked(rows: Any, count: int) -> tuple[Array, Array]:
    """Values and bounds (slots, ncomp, points) of rows of Num."""
    out = [
        [[np.broadcast_to(getattr(_num(n), k), (count,)) for n in row] for row in rows]
        for k in "ve"
    ]
    v, e = np.array(out[0], LONG), np.array(out[1], float)
    if not (np.isfinite(v).all() and np.isfinite(e).all()):
        raise Unsure("a value that is not finite")
    return v, e


def _num(value: Any) -> Num:
    return value.n if isinstance(value, Dual) else value
