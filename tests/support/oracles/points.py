"""Quadrature points, bases there and where they lie, with a bound of round-off for every number.

Written from docs/conventions.md alone; of femops it takes mesh coordinates.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from support.oracles import running_error
from support.oracles.form_names import det, inverse
from support.oracles.running_error import LONG, ONE, ZERO, Num, nums

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
                upper = np.kron(plain + BASIS * running_error.EPS * plain.max(), upper)
            rows.append(exact)
            errors.append(upper - size + BASIS * running_error.EPS * size)
        return Table(np.stack(rows), np.stack(errors))

    def apply(self, coefficients: Array) -> tuple[Array, Array]:
        """Values and error bounds (slots, points, ...), of coefficients (nodes, ...)."""
        given = coefficients.astype(LONG)
        size = np.abs(coefficients).astype(float)
        v = np.tensordot(self.v, given, 1)
        sums = SUMS * running_error.EPS * np.abs(self.v).astype(float) + self.e
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
    """Boundary faces (element, direction, end): by code, then element, as up to 128 faces are."""
    dim = mesh.coordinates.shape[2]
    corners = mesh.elements.reshape(-1, *(2,) * dim)
    found: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for e, d, end in itertools.product(range(len(corners)), range(dim), (0, 1)):
        vertices = corners[e].take(end, axis=dim - 1 - d)  # x is the last axis
        found.setdefault(tuple(sorted(vertices.ravel())), []).append((e, d, end))
    single = [where[0] for where in found.values() if len(where) == 1]

    def code(face: tuple[int, int, int]) -> tuple[int, int]:
        e, d, end = face
        return sum(3**k * (2 * end if k == d else 1) for k in range(dim)), e

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
    def extent(self) -> Num:
        """Extent of the element across the face, 1 / |grad of its reference coordinate|."""
        return ONE / self._outward[1]

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
        weight = Num(w, 4 * running_error.EPS * w) * det(self._map[1])
        return weight * self._outward[1] if self.boundary else weight
