"""Integrals over faces between elements, point by point, from their definition.

Shares no code with femops. Faces are found by their corners' vertex numbers; a point of the plus
element is the image of the face's corners. The form's function is called with plain numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.oracles.dense_forms import PointField
from support.oracles.naive import degree, digits, gauss_rule, line

Array = NDArray[Any]
WEIGHTS = {"minus": (1.0, 0.0), "plus": (0.0, 1.0), "jump": (1.0, -1.0), "mean": (0.5, 0.5)}


class Two:
    """Values on both sides of a face."""

    def __init__(self, minus: Any, plus: Any, wrap: Any = lambda value: value) -> None:
        self.minus, self.plus = wrap(minus), wrap(plus)
        self.jump, self.mean = wrap(minus - plus), wrap(0.5 * (minus + plus))


@dataclass(frozen=True)
class Side:
    """An element at a point of a face: the point in the element, and the map there."""

    element: int
    xi: Array
    x: Array
    inverse: Array  # d xi_a / d x_i
    det: float
    axis: int
    end: int

    def basis(self, space: Any) -> Array:
        """Values and gradients (1 + dim, nodes) of a space's functions."""
        values, slopes = tabulated(space.basis.family, space.order, self.xi)
        return np.vstack([values, self.inverse.T @ slopes])


@dataclass(frozen=True)
class Point:
    """A quadrature point of a face: its number there, its weight, the normal and both sides."""

    number: int
    weight: float
    n: Array
    sides: tuple[Side, Side]

    @property
    def h(self) -> Two:
        """Extent of both elements across the face."""
        return Two(*(1.0 / np.linalg.norm(side.inverse[side.axis]) for side in self.sides))


@cache
def _line(family: str, p: int, x: float) -> tuple[Array, Array]:
    """Values and slopes (p + 1,) of the 1-D basis at a point."""
    if p == 0:
        return np.ones(1), np.zeros(1)
    values, slopes = line(family, p, np.array([x]))
    return values[0].astype(float), slopes[0].astype(float)


def tabulated(family: str, p: int, xi: Array) -> tuple[Array, Array]:
    """Values (nodes,) and reference gradients (dim, nodes) of the tensor basis at a point."""
    dim = len(xi)
    factors = np.array([_line(family, p, float(x)) for x in xi])
    j = digits(p + 1, dim)
    picks = [
        np.prod([factors[d, int(d == k), j[d]] for d in range(dim)], axis=0) for k in range(-1, dim)
    ]
    return picks[0], np.array(picks[1:])


def faces(elements: Array) -> Iterator[list[tuple[int, int, int, list[int]]]]:
    """Both sides of faces between elements, the larger element first.

    A side is (element, axis, end, local corners).
    """
    dim = int(elements.shape[1]).bit_length() - 1
    found: dict[Any, list[Any]] = {}
    at = digits(2, dim)
    for e, axis, end in itertools.product(range(len(elements)), range(dim), (0, 1)):
        local = np.flatnonzero(at[axis] == end).tolist()
        found.setdefault(frozenset(elements[e, local]), []).append((e, axis, end, local))
    return (sides[::-1] for sides in found.values() if len(sides) == 2)


def points(mesh: Any, q1d: int) -> Iterator[Point]:
    """Points of all faces between elements, with q1d Gauss points in each direction."""
    dim = mesh.dim
    line_x, line_w = (np.asarray(a, float) for a in gauss_rule(q1d))
    grid = digits(q1d, dim - 1) if dim > 1 else np.zeros((0, 1), int)
    for sides in faces(mesh.elements):
        for q in range(q1d ** (dim - 1)):
            t, w = line_x[grid[:, q]], float(np.prod(line_w[grid[:, q]]))
            share = tabulated("gll", 1, t)[0] if dim > 1 else np.ones(1)
            both = tuple(_side(mesh, side, sides[0], share) for side in sides)
            first = both[0]
            vector = (2 * first.end - 1) * first.det * first.inverse[first.axis]
            area = np.linalg.norm(vector)
            yield Point(q, w * area, vector / area, both)  # type: ignore[arg-type]


def _side(mesh: Any, side: Any, minus: Any, share: Array) -> Side:
    e, axis, end, local = side
    vertices = mesh.elements[minus[0], minus[3]]
    corner = digits(2, mesh.dim)
    of_vertex = {mesh.elements[e, k]: corner[:, k] for k in local}
    xi = sum(s * of_vertex[v] for s, v in zip(share, vertices, strict=True)).astype(float)
    nodes = mesh.coordinates[e]
    values, slopes = tabulated("gll", degree(len(nodes), mesh.dim), xi)
    jacobian = (slopes @ nodes).T
    det = float(np.linalg.det(jacobian))
    return Side(e, xi, values @ nodes, np.linalg.inv(jacobian), det, axis, end)


@dataclass
class Oracle:
    """A form over faces between elements, on spaces by name of the field.

    The function returns results by name of the test function if there are several.
    """

    function: Any
    trial: Mapping[str, Any]
    test: Mapping[str, Any]
    q1d: int
    coefficients: Mapping[str, Callable[[Point], Any]]

    @cached_property
    def _points(self) -> list[Point]:
        return [*points(next(iter(self.trial.values())).mesh, self.q1d)]

    def _gather(self, point: Point, spaces: Mapping[str, Any]) -> dict[str, list[tuple[Any, Any]]]:
        """Basis (1 + dim, nodes) and positions (nodes, ncomp) of each field's sides."""
        found, start = {}, 0
        for name, space in spaces.items():
            dofs = space.restriction.indices[[side.element for side in point.sides]]
            place = start + dofs[..., None] * space.ncomp + np.arange(space.ncomp)
            pairs = zip(point.sides, place, strict=True)
            found[name] = [(side.basis(space), at) for side, at in pairs]
            start += space.size
        return found

    def _slots(self, point: Point, vector: Array) -> dict[str, Array]:
        """Values and gradients (2, ncomp, 1 + dim) of each field on both sides."""
        sides = self._gather(point, self.trial).items()
        return {name: np.array([(b @ vector[at]).T for b, at in both]) for name, both in sides}

    def results(self, point: Point, slots: Mapping[str, Array]) -> dict[str, Any]:
        """What the function returns at a point."""
        both = (slots[name] for name in self.trial)
        fields = [Two(a, b, lambda side: PointField(side[:, 0], side[:, 1:])) for a, b in both]
        code = self.function.__code__
        known = {"x": point.sides[0].x, "n": point.n, "h": point.h}
        known |= {name: value(point) for name, value in self.coefficients.items()}
        taken = code.co_varnames[len(fields) : code.co_argcount]
        found: dict[str, Any] = self.function(*fields, **{name: known[name] for name in taken})
        return found

    def _tested(self, point: Point, slots: Mapping[str, Array]) -> Iterator[tuple[Any, Any, Any]]:
        """Positions, factors (ncomp, 1 + dim) and basis of each test function's sides."""
        results = self.results(point, slots)
        for name, both in self._gather(point, self.test).items():
            ncomp, dim = self.test[name].ncomp, len(point.n)
            factors = np.zeros((2, ncomp, 1 + dim), dtype=complex)
            for part, given in results.get(name, results).items():
                two = given if isinstance(given, dict) else {"value": given}
                for side, weight in enumerate(WEIGHTS.get(part, (0.0, 0.0))):
                    for key, at, shape in (
                        ("value", 0, ncomp),
                        ("grad", slice(1, None), (ncomp, dim)),
                    ):
                        if key in two:
                            value = np.array(np.asarray(two[key]), dtype=complex)
                            factors[side, :, at] += weight * value.reshape(shape)
            yield from ((at, part, basis) for (basis, at), part in zip(both, factors, strict=True))

    def functional(self, vector: Array, name: str) -> tuple[float, float]:
        """Integral and least value of a functional."""
        found = [self.results(point, self._slots(point, vector))[name] for point in self._points]
        values = np.array([np.asarray(value, dtype=float).item() for value in found])
        return float(np.dot([point.weight for point in self._points], values)), float(values.min())

    def residual(self, vector: Array) -> Array:
        """Residual (size,) of a state."""
        out = np.zeros(sum(space.size for space in self.test.values()))
        for point in self._points:
            for at, factor, basis in self._tested(point, self._slots(point, vector)):
                np.add.at(out, at, point.weight * (basis.T @ factor.T.real))
        return out

    def matrix(self, state: Array | None = None) -> Array:
        """Matrix of a linear form, or the derivative at a state, by complex steps."""
        rows, columns = (sum(s.size for s in side.values()) for side in (self.test, self.trial))
        out, step = np.zeros((rows, columns)), 1e-30
        for point in self._points:
            slots = self._slots(point, np.zeros(columns) if state is None else state)
            for name, both in self._gather(point, self.trial).items():
                for side, c, k in np.ndindex(slots[name].shape):
                    moved = slots[name].astype(complex)
                    moved[side, c, k] += 1j * step
                    basis, at = both[side]
                    for rows_at, factor, tests in self._tested(point, {**slots, name: moved}):
                        part = point.weight * tests.T @ (factor.T.imag / step)
                        block = part[..., None] * basis[k]
                        np.add.at(out, (rows_at[..., None], at[:, c]), block)
        return out
