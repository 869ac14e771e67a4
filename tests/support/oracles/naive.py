"""A naive finite element oracle, written straight from the integrals.

It shares no code with femops: it has its own quadrature, its own polynomials (product formulas, in
long double), its own mapping, its own loops.  It is slow and dense on purpose.  What it takes from
outside are plain arrays: element coordinates (values at Gauss-Lobatto points, x fastest) and the
connectivity.

Everywhere ``ne`` elements, ``n`` nodes and ``nq`` points an element, ``ncomp`` components.  A field
is a function of ``x`` of shape (dim, ne, nq), or a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import Any, final

import numpy as np
import scipy.sparse
from numpy.polynomial import Legendre
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from support.oracles.hermite import hermite

Array = NDArray[Any]
Field = float | Array | Callable[[Array], Any]
LONG = np.longdouble


def legendre(n: int, x: Array) -> tuple[Array, Array]:
    """P_n and P_n' at interior points of [-1, 1], by the three-term recurrence."""
    before, here = np.zeros_like(x), np.ones_like(x)
    for k in range(n):
        before, here = here, ((2 * k + 1) * x * here - k * before) / LONG(k + 1)
    return here, n * (before - x * here) / (1 - x * x)


def kept(*arrays: Array) -> tuple[Array, ...]:
    """The arrays, which nobody can write to: they are computed once."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


@cache
def gauss_rule(n: int) -> tuple[Array, Array]:
    """Points and weights of the n-point Gauss rule on [0, 1], in long double."""
    x = leggauss(n)[0].astype(LONG)
    for _ in range(3):
        value, slope = legendre(n, x)
        x = x - value / slope
    slope = legendre(n, x)[1]
    return kept((1 + x) / 2, 1 / ((1 - x * x) * slope * slope))


@cache
def lobatto_rule(n: int) -> tuple[Array, Array]:
    """Points and weights of the Lobatto rule on [0, 1]: the ends, and the roots of P'_{n-1}."""
    m = n - 1
    x = np.sort(Legendre.basis(m).deriv().roots().real).astype(LONG)
    for _ in range(3):
        value, slope = legendre(m, x)
        # Legendre's equation gives P'' for Newton's step on P'
        x = x - slope * (1 - x * x) / (2 * x * slope - m * (m + 1) * value)
    inside = 1 / (m * (m + 1) * legendre(m, x)[0] ** 2)
    end = np.ones(1, LONG) / (m * (m + 1))
    one = np.ones(1, LONG)
    return kept((1 + np.concatenate([-one, x, one])) / 2, np.concatenate([end, inside, end]))


def rule(name: str, n: int) -> tuple[Array, Array]:
    """Points and weights of the rule called ``gauss`` or ``lobatto``."""
    return {"gauss": gauss_rule, "lobatto": lobatto_rule}[name](n)


def lagrange(nodes: Array, x: Array) -> tuple[Array, Array]:
    """Values and slopes (len(x), len(nodes)) of Lagrange polynomials by the product formula."""
    n = len(nodes)
    values, slopes = np.ones((len(x), n), LONG), np.zeros((len(x), n), LONG)
    for j in range(n):
        others = [k for k in range(n) if k != j]
        for k in others:
            values[:, j] *= (x - nodes[k]) / (nodes[j] - nodes[k])
        for m in others:
            term = np.full(len(x), 1 / (nodes[j] - nodes[m]), LONG)
            for k in others:
                if k != m:
                    term *= (x - nodes[k]) / (nodes[j] - nodes[k])
            slopes[:, j] += term
    return values, slopes


def bernstein(p: int, x: Array) -> tuple[Array, Array]:
    """Values and slopes (len(x), p + 1) of the Bernstein polynomials of degree p."""

    def values(degree: int, j: int) -> Array:
        if not 0 <= j <= degree:
            return np.zeros(len(x), LONG)
        return comb(degree, j) * x**j * (1 - x) ** (degree - j)

    here = np.stack([values(p, j) for j in range(p + 1)], axis=1)
    slopes = [p * (values(p - 1, j - 1) - values(p - 1, j)) for j in range(p + 1)]
    return here, np.stack(slopes, axis=1)


def line(family: str, p: int, x: Array) -> tuple[Array, Array]:
    """Values and slopes of a 1-D basis: ``gll``, ``gauss``, ``bernstein`` or ``hermite``."""
    points = np.asarray(x, LONG)
    if family == "hermite":
        return hermite(p, points)
    if family == "bernstein":
        return bernstein(p, points)
    return lagrange(nodes_1d(family, p), points)


def nodes_1d(family: str, p: int) -> Array:
    """The nodes of a nodal family; Gauss-Lobatto nodes stand for those of other families."""
    return gauss_rule(p + 1)[0] if family == "gauss" else lobatto_rule(p + 1)[0]


def digits(n: int, dim: int) -> Array:
    """The 1-D indices (dim, n**dim) behind the lexicographic index, x fastest."""
    k = np.arange(n**dim)
    return np.stack([(k // n**d) % n for d in range(dim)])


def shapes(dim: int, family: str, p: int, x: Array) -> tuple[Array, Array]:
    """Values (nq, n) and reference gradients (nq, n, dim) at the tensor grid of the points x."""
    values, slopes = line(family, p, x)
    q, j = digits(len(x), dim), digits(p + 1, dim)
    here = np.ones((q.shape[1], j.shape[1]), LONG)
    gradients = np.ones((*here.shape, dim), LONG)
    for d in range(dim):
        pick = np.ix_(q[d], j[d])
        here *= values[pick]
        for k in range(dim):
            gradients[:, :, k] *= slopes[pick] if k == d else values[pick]
    return here.astype(float), gradients.astype(float)


def degree(count: int, dim: int) -> int:
    """The degree whose (degree + 1)**dim is ``count``."""
    p = round(count ** (1 / dim)) - 1
    if (p + 1) ** dim != count:
        raise ValueError(f"{count} nodes are no {dim}-D grid")
    return p


def mapping(coordinates: Array, x: Array) -> tuple[Array, Array]:
    """Positions (ne, nq, dim) and Jacobians dx_i/dxi_j (ne, nq, dim, dim) at the grid of x."""
    dim = coordinates.shape[2]
    values, gradients = shapes(dim, "gll", degree(coordinates.shape[1], dim), x)
    positions = np.einsum("qn,eni->eqi", values, coordinates)
    return positions, np.einsum("qnj,eni->eqij", gradients, coordinates)


def evaluate(field: Field, positions: Array) -> Array:
    """A field at positions (ne, nq, dim): shape (..., ne, nq), the value's axes first."""
    if callable(field):
        value = np.asarray(field(np.moveaxis(positions, -1, 0)), float)
        return value if value.ndim >= 2 else value[..., None, None]
    return np.asarray(field, float)[..., None, None]


@final
@dataclass(frozen=True)
class Matrices:
    """Element matrices ``local`` (ne, n, n), the same for each component, and where they go."""

    local: Array
    indices: Array
    ndofs: int
    ncomp: int

    def __add__(self, other: Matrices) -> Matrices:
        return Matrices(self.local + other.local, self.indices, self.ndofs, self.ncomp)

    def __rmul__(self, factor: float) -> Matrices:
        return Matrices(factor * self.local, self.indices, self.ndofs, self.ncomp)

    def apply(self, u: Array) -> Array:
        """A u in float64, in the shape of u (any that holds ndofs * ncomp numbers)."""
        source = np.asarray(u, float).reshape(self.ndofs, self.ncomp)
        result = np.zeros_like(source)
        for matrix, nodes in zip(self.local, self.indices, strict=True):
            np.add.at(result, nodes, matrix @ source[nodes])
        return result.reshape(np.shape(u))

    def assembled(self) -> scipy.sparse.csr_matrix:
        """The CSR matrix on flat vectors, whose index is node * ncomp + component."""
        ne, n = self.indices.shape
        rows = np.broadcast_to(self.indices[:, :, None], (ne, n, n)).ravel()
        columns = np.broadcast_to(self.indices[:, None, :], (ne, n, n)).ravel()
        matrix = scipy.sparse.coo_matrix((self.local.ravel(), (rows, columns)), (self.ndofs,) * 2)
        return scipy.sparse.csr_matrix(scipy.sparse.kron(matrix, np.eye(self.ncomp), "csr"))

    def diagonal(self) -> Array:
        """The diagonal (ndofs * ncomp,)."""
        result = np.zeros(self.ndofs)
        for matrix, nodes in zip(self.local, self.indices, strict=True):
            np.add.at(result, nodes, np.diag(matrix))
        return np.repeat(result, self.ncomp)

    def scale(self, u: Array) -> float:
        """The measure of round-off: the norm of |A| |u|."""
        flat = np.abs(np.asarray(u, float)).ravel()
        return float(np.linalg.norm(abs(self.assembled()) @ flat))

    def error(self, result: Array, u: Array) -> float:
        """How far ``result`` is from A u, over the norm of |A| |u|."""
        difference = np.asarray(result, float).ravel() - self.apply(u).ravel()
        return float(np.linalg.norm(difference)) / self.scale(u)


@final
class Oracle:
    """The integrals over one mesh, for one space and one rule.

    Parameters
    ----------
    coordinates : (ne, (g + 1)**dim, dim) array
    indices : (ne, (p + 1)**dim) int array, the node numbers
    family : as for `line`
    rule_name, q1d : the 1-D rule
    """

    def __init__(
        self,
        coordinates: Array,
        indices: Array,
        family: str = "gll",
        rule_name: str = "gauss",
        q1d: int | None = None,
        ncomp: int = 1,
    ) -> None:
        self.dim = coordinates.shape[2]
        self.indices = np.asarray(indices)
        self.ndofs = int(self.indices.max()) + 1
        self.ncomp = ncomp
        p = degree(self.indices.shape[1], self.dim)
        points, weights = rule(rule_name, p + 2 if q1d is None else q1d)
        self.values, self.gradients = shapes(self.dim, family, p, points)
        self.positions, self.jacobians = mapping(np.asarray(coordinates), points)
        q = digits(len(points), self.dim)
        self.weights = np.prod(weights[q], axis=0).astype(float)

    def _measure(self, e: int) -> Array:
        """Weight times the determinant of the Jacobian at the points of element e."""
        return self.weights * np.linalg.det(self.jacobians[e])

    def _physical_gradients(self, e: int) -> Array:
        """Gradients (nq, n, dim) in x: in the reference element, times J^-1."""
        return np.einsum("qnk,qki->qni", self.gradients, np.linalg.inv(self.jacobians[e]))

    def _matrices(self, local: list[Array]) -> Matrices:
        return Matrices(np.stack(local), self.indices, self.ndofs, self.ncomp)

    def mass(self, rho: Field = 1.0) -> Matrices:
        """∫ rho u v."""
        at = evaluate(rho, self.positions)
        density = np.broadcast_to(at, self.positions.shape[:2])
        local = []
        for e in range(len(self.indices)):
            scaled = (self._measure(e) * density[e])[:, None] * self.values
            local.append(self.values.T @ scaled)
        return self._matrices(local)

    def diffusion(self, kappa: Field = 1.0) -> Matrices:
        """∫ kappa grad u . grad v, kappa a number, the diagonal of a tensor, or the tensor."""
        tensor = self._tensor(evaluate(kappa, self.positions))
        local = []
        for e in range(len(self.indices)):
            gradients = self._physical_gradients(e)
            weighted = self._measure(e) * tensor[:, :, e]
            matrix = np.zeros((gradients.shape[1],) * 2)
            for i in range(self.dim):
                for j in range(self.dim):
                    if np.any(weighted[i, j]):
                        matrix += gradients[:, :, i].T @ (
                            weighted[i, j][:, None] * gradients[:, :, j]
                        )
            local.append(matrix)
        return self._matrices(local)

    def _tensor(self, value: Array) -> Array:
        """Kappa as a full tensor (dim, dim, ne, nq)."""
        result = np.zeros((self.dim, self.dim, *self.positions.shape[:2]))
        for i in range(self.dim):
            for j in range(self.dim):
                if value.ndim == 4:
                    result[i, j] = value[i, j]
                elif i == j:
                    result[i, i] = value[i] if value.ndim == 3 else value
        return result

    def load(self, f: Field) -> Array:
        """∫ f v, (ndofs * ncomp,), with f of shape (ncomp, ...) or one for all."""
        at = evaluate(f, self.positions)
        value = np.broadcast_to(at, (self.ncomp, *self.positions.shape[:2]))
        result = np.zeros((self.ndofs, self.ncomp))
        for e, nodes in enumerate(self.indices):
            for c in range(self.ncomp):
                moments = self.values.T @ (self._measure(e) * value[c, e])
                np.add.at(result[:, c], nodes, moments)
        return result.reshape(-1)

    def l2_error(self, u: Array, exact: Field) -> float:
        """The L2 norm of u - exact, u of one component."""
        at = np.broadcast_to(evaluate(exact, self.positions), self.positions.shape[:2])
        total = 0.0
        for e, nodes in enumerate(self.indices):
            total += float(self._measure(e) @ (self.values @ u[nodes] - at[e]) ** 2)
        return total**0.5

    def volume(self) -> float:
        """∫ 1."""
        return float(sum(self._measure(e).sum() for e in range(len(self.indices))))
