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
from functools import partial
from typing import Any

import numpy as np

from support.oracles import running_error
from support.oracles.points import SUMS, Array, Points
from support.oracles.running_error import LONG, ONE, ZERO, Dual, Num, Unsure

_COMPARISONS = {
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


PLACES = {"x": "x", "n": "normal", "h": "extent"}
"""What a form is told of a point, and its name among those of the points."""


class PointField(np.lib.mixins.NDArrayOperatorsMixin):
    """A field at the points, as docs/forms.md says what a form sees: here of numbers."""

    def __init__(self, value: Any, grad: Any) -> None:
        self._all = grad
        self.value = value[0] if len(value) == 1 else value

    @property
    def grad(self) -> Any:
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
        As the user wrote it, with the names of tests/support/oracles/form_names.py.
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
        place = {name: partial(getattr, self.points, of) for name, of in PLACES.items()}
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
            rows += [np.full(test.ncomp, ZERO, dtype=object)] * dim
        return rows

    def _slots(self) -> int:
        return 1 + self.points.dim

    def _units(self) -> Any:
        """For each field, component and slot: the fields of which that alone is one."""
        inverse = self.points.inverse
        for name, side in self.fields.items():
            for slot, c in itertools.product(range(self._slots()), range(side.ncomp)):
                made = []
                for other, those in self.fields.items():
                    value = np.full(those.ncomp, ZERO, dtype=object)
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

    def residual(self, *states: Array) -> tuple[Array, Array]:
        """The residual at a state, given as a vector of each field, and its error bound."""
        sides = self.fields.values()
        results = self._call(
            [PointField(*self.state(*pair)) for pair in zip(sides, states, strict=True)]
        )
        parts = [self._summed(results[name], test) for name, test in self.tests.items()]
        return np.concatenate([out for out, _ in parts]), np.concatenate([e for _, e in parts])

    def _summed(self, rows: Any, test: Side) -> tuple[Array, Array]:
        v, e = _stacked(rows, self.points.count)
        out, bound = np.zeros(test.size, LONG), np.zeros(test.size)
        for k, cell in enumerate(self.points.cells):
            table = self.points.table(test.family, test.degree, cell)
            at = slice(k * self.points.per_cell, (k + 1) * self.points.per_cell)
            size = np.abs(v[:, :, at]).astype(float)
            basis = np.abs(table.v).astype(float)
            more = e[:, :, at] + SUMS * running_error.EPS * size
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
            bound = _sandwich(lv, error + SUMS * running_error.EPS * size, rv)
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
