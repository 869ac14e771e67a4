"""One-dimensional bases (of Lagrange and Hermite) and quadrature rules on [0, 1].

A function of the tensor-product basis of degree p is a product of 1-D functions, one per direction.
So the rest of femops needs only two small matrices for each rule: ``B1d`` (values) and ``G1d``
(derivatives), both of shape ``(q1d, p1d)`` with ``p1d = p + 1``.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated, Literal, SupportsIndex, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.errors import BasisError
from femops_common.arguments import checked, numbers_of, whole_numbers
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import (
    gauss_legendre,
    gauss_lobatto,
    lagrange_derivative_matrix,
    lagrange_matrix,
)
from femops_meshes.topology.entities import SIMPLICES, Cell

Floats = NDArray[np.float64]


def hermite_matrix(p: int, x: Floats) -> Floats:
    """Values (len(x), p + 1) of the Hermite-like polynomials of degree p >= 1 at x."""
    return _mirrored(p, x, derivative=False)


def hermite_derivative_matrix(p: int, x: Floats) -> Floats:
    """Derivatives (len(x), p + 1) of the Hermite-like polynomials of degree p >= 1 at x."""
    return _mirrored(p, x, derivative=True)


def _mirrored(p: int, x: Floats, *, derivative: bool) -> Floats:
    """Values or derivatives of all functions. Those at the end 1 are mirror images."""
    result = np.empty((x.size, p + 1))
    pairs = min(2, (p + 1) // 2)
    for j in range(pairs):
        result[:, j] = _end_function(p, j, x)[derivative]
        result[:, p - j] = (-1) ** derivative * _end_function(p, j, 1.0 - x)[derivative]
    if p == 2:
        result[:, 1] = 2.0 * (1.0 - 2.0 * x) if derivative else 2.0 * x * (1.0 - x)
    if p > 3:  # with equal errors on both sides: kernels use the symmetry of the matrix
        here, there = (_inner(p, at, derivative=derivative) for at in (x, 1.0 - x))
        result[:, 2:-2] = 0.5 * (here + (-1) ** derivative * there[:, ::-1])
    return result


def _inner(p: int, x: Floats, *, derivative: bool) -> Floats:
    """Values or derivatives (len(x), p - 3) of the inner functions. Each is 1 at its zero of J."""
    nodes, bubble = _inner_nodes(p - 3), (x * (1.0 - x))[:, np.newaxis]
    lagrange, scale = lagrange_matrix(nodes, x), (nodes * (1.0 - nodes)) ** 2
    if not derivative:
        return np.asarray(bubble**2 * lagrange / scale)
    steep = 2.0 * bubble * (1.0 - 2.0 * x)[:, np.newaxis]
    slopes = bubble**2 * lagrange_derivative_matrix(nodes, x)
    return np.asarray((slopes + steep * lagrange) / scale)


def _end_function(p: int, j: int, x: Floats) -> tuple[Floats, Floats]:
    """Values and derivatives (len(x),) of function j = 0 or 1 of the end 0.

    The first is 1 at 0. The second is 0 there, ascends, and has the same norm in L2.
    """
    size = _size(p, j)
    values, slopes = _unscaled(p, j, x)
    return values / size, slopes / size


def _unscaled(p: int, j: int, x: Floats) -> tuple[Floats, Floats]:
    """Values and derivatives of `_end_function` before the division by `_size`."""
    if p == 1:
        return 1.0 - x, -np.ones_like(x)
    rest, weight = 1.0 - x, (4, 3 if j else 1)
    value, slope = _jacobi(p - 2 - j, *weight, x)
    slopes = x**j * (rest**2 * slope - 2.0 * rest * value) + j * rest**2 * value
    return x**j * rest**2 * value, slopes


@lru_cache(maxsize=256)
def _size(p: int, j: int) -> float:
    """Number by which `_end_function` divides function j."""
    at_end = _unscaled(p, j, np.zeros(1))[j][0]
    if j == 0:
        return float(at_end)
    points, weights = gauss_legendre(p + 1)
    first, second = (weights @ _unscaled(p, k, points)[0] ** 2 for k in (0, 1))
    return float(np.copysign(np.sqrt(second / first) * abs(_size(p, 0)), at_end))


def _jacobi(n: int, a: int, b: int, x: Floats) -> tuple[Floats, Floats]:
    """Values and derivatives (len(x),) of Jacobi's polynomial J_n of the weight x^b (1 - x)^a."""
    slope = (n + a + b + 1) * _jacobi_values(n - 1, a + 1, b + 1, x) if n else np.zeros_like(x)
    return _jacobi_values(n, a, b, x), slope


def _jacobi_values(n: int, a: int, b: int, x: Floats) -> Floats:
    """Jacobi's polynomials by their recurrence: Abramowitz and Stegun, 22.7.1."""
    t, c = 2.0 * x - 1.0, a + b
    before, now = np.zeros_like(x), np.ones_like(x)
    for k in range(1, n + 1):
        if k == 1:
            before, now = now, 0.5 * (a - b + (c + 2) * t)
            continue
        twice = 2 * k + c
        factor = (twice - 1) * (twice * (twice - 2) * t + (a * a - b * b))
        last = 2 * (k + a - 1) * (k + b - 1) * twice
        before, now = now, (factor * now - last * before) / (2 * k * (k + c) * (twice - 2))
    return now


@lru_cache(maxsize=128)
def _inner_nodes(n: int) -> Floats:
    """Zeros (n,) of Jacobi's polynomial J_n with a = b = 4, by the eigenvalues of its recurrence.

    G. H. Golub and J. H. Welsch, "Calculation of Gauss quadrature rules", 1969.
    """
    k = np.arange(1, n)
    beside = np.sqrt(k * (k + 8) / ((2.0 * k + 9) * (2 * k + 7)))
    t = np.linalg.eigvalsh(np.diag(beside, 1) + np.diag(beside, -1))
    return np.asarray(0.5 + 0.25 * (t - t[::-1]))


Family = Literal["gll", "gauss", "bernstein", "hermite"]

MOST_DEGREE = 64
"""Highest order of a basis. Above it, unrolled kernels would take minutes to compile."""


_FAR = 1e3  # largest coordinate of a point: beyond, polynomials of high degree overflow

MOST_POINTS = 1024
"""Maximum number of points of a rule. An element has a power of this number."""

_MOST_SIMPLEX_POINTS = 64  # tables of rules take n**dim points, and are no products by direction

Points = Annotated[int, whole_numbers(1, MOST_POINTS)]
"""Number of points in one direction."""


class Rule(ABC):
    """Quadrature rule of a reference segment, square or cube."""

    name: str
    _given_as = "a rule, as femops.basis.gauss(3), lobatto(4) or PointRule(points, weights)"

    @property
    @abstractmethod
    def places(self) -> Floats:
        """Points as an `Element` takes them: (q1d,) of each direction, or a list (n, dim)."""

    @property
    def key(self) -> tuple[tuple[int, ...], bytes]:
        """Rules with the same points have the same key."""
        return self.places.shape, self.places.tobytes()

    @abstractmethod
    def count(self, dim: int) -> int:
        """Number of points of a cell, or a face, of dimension ``dim``."""

    @abstractmethod
    def cell_weights(self, dim: int) -> Floats:
        """Weights (count,) of the points of a cell; they sum to its volume."""

    @abstractmethod
    def listed(self, dim: int) -> Floats:
        """List (count, dim) of the points of a cell, or a face, of dimension ``dim``."""

    @property
    def shape(self) -> str:
        """Shape of the cells that the rule is for; see `Cell`."""
        return "cube"

    def check_cell(self, cell: Cell) -> None:
        """Raise if the points are not those of such a cell."""
        if self.shape != cell.shape:
            raise BasisError(
                f"{self!r} has points of another cell than {cell.plural} have: give the number n "
                "of Gauss points, for a rule of the same degree, or take "
                "femops.basis.simplex_rule(dim, degree) for triangles and tetrahedra"
            )


@final
@checked(BasisError)
@dataclass(frozen=True, eq=False)
class Quadrature1D(Rule):
    """Quadrature rule on [0, 1], used in every direction of the reference element.

    Attributes
    ----------
    points, weights : (q1d,) float64
        Ascending points in [0, 1], and positive weights that sum to 1. Read-only.
    name : str
        "gauss", "lobatto", or the user's name for the rule.

    Raises
    ------
    BasisError
        The arrays are not two vectors of equal length, or a point lies outside [0, 1].
    """

    points: Floats
    weights: Floats
    name: str
    _given_as = "a rule, as femops.basis.gauss(3) or lobatto(4)"

    def __post_init__(self) -> None:
        points = _read_only(self.points)
        weights = _read_only(self.weights)
        if points.ndim != 1 or points.shape != weights.shape or points.size == 0:
            raise BasisError(
                f"a rule has points of shape {points.shape} and weights of shape {weights.shape}: "
                "give two vectors of one length"
            )
        if not (np.all(points >= 0) and np.all(points <= 1) and np.all(np.isfinite(weights))):
            raise BasisError(
                f"a rule has points {points} and weights {weights}: the points must lie in "
                "[0, 1] and the weights be finite"
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights)

    @property
    def q1d(self) -> int:
        """Number of points in one direction."""
        return int(self.points.size)

    @property
    def places(self) -> Floats:
        return self.points

    def listed(self, dim: int) -> Floats:
        grid = np.meshgrid(*[self.points] * dim, indexing="ij")
        return np.stack(grid[::-1], axis=-1).reshape(-1, dim)

    def count(self, dim: int) -> int:
        return int(self.q1d**dim)

    def cell_weights(self, dim: int) -> Floats:
        return self.tensor_weights(dim)

    @checked(BasisError)
    def tensor_weights(self, dim: Annotated[int, whole_numbers(0, 3)]) -> Floats:
        """Weights (q1d**dim,) of the product rule on [0, 1]^dim, lexicographic."""
        weights = np.ones(1)
        for _ in range(dim):
            weights = np.multiply.outer(self.weights, weights).ravel()
        return weights

    def __repr__(self) -> str:
        return f"Quadrature1D({self.name!r}, q1d={self.q1d})"


@final
@checked(BasisError)
@dataclass(frozen=True, eq=False)
class PointRule(Rule):
    """Quadrature rule whose points are a list, no grid: of a square, cube, simplex or prism.

    Such a rule may have fewer points than Gauss' of the same degree. Forms over elements take it,
    at the levels that store numbers at the points; kernels multiply by tables.

    Attributes
    ----------
    points : (n, dim) float64
        Points in [0, 1]**dim, of a simplex with a sum of coordinates of at most 1, of a prism with
        a sum of the first two of at most 1. Read-only.
    weights : (n,) float64
        Weights that sum to 1, of a triangle or prism to 1/2, of a tetrahedron to 1/6. Read-only.
    name : str
        A name for messages.
    simplex, prism : bool
        Whether the points are those of a triangle or tetrahedron, or of a prism.
    degree : int
        Degree of the polynomials that a rule of `simplex_rule` integrates exactly; else 0.

    Raises
    ------
    BasisError
        The arrays do not fit together, a point lies outside, or the weights do not sum to 1.
    """

    points: Floats
    weights: Floats
    name: str = "points"
    simplex: bool = False
    prism: bool = False
    degree: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        points, weights = _read_only(self.points), _read_only(self.weights)
        if points.ndim != 2 or points.shape[1] > 3 or weights.shape != points.shape[:1]:
            raise BasisError(
                f"a rule of points has points of shape {points.shape} and weights of shape "
                f"{weights.shape}: give (n, dim) and (n,), where dim is 1, 2 or 3"
            )
        if not (np.all(points >= 0) and np.all(points <= 1)):
            raise BasisError("points of a rule must lie in [0, 1]**dim, the reference element")
        if self.prism and (self.simplex or points.shape[1] != 3):
            raise BasisError("points of a prism have 3 coordinates, and are not of a simplex")
        flat = points[:, :2] if self.prism else points
        if self.shape != "cube" and points.size and flat.sum(axis=1).max() > 1.0 + 1e-12:
            raise BasisError(
                "coordinates of points of a simplex, and the first two of a prism, must sum to at "
                "most 1"
            )
        parts = math.factorial(flat.shape[1]) if self.shape != "cube" else 1
        if not abs(weights.sum() * parts - 1.0) < 1e-12:
            raise BasisError(
                f"weights of a rule sum to {weights.sum()}: they must sum to 1, the volume of "
                "[0, 1]**dim, or 1/2 and 1/6 for triangles and tetrahedra (simplex=True), and 1/2 "
                "for prisms (prism=True)"
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights)

    @property
    def shape(self) -> str:
        return "simplex" if self.simplex else "prism" if self.prism else "cube"

    @property
    def places(self) -> Floats:
        return self.points

    def listed(self, dim: int) -> Floats:
        self._check(dim)
        return self.points

    def count(self, dim: int) -> int:
        self._check(dim)
        return len(self.points)

    def cell_weights(self, dim: int) -> Floats:
        self._check(dim)
        return self.weights

    def _check(self, dim: int) -> None:
        if dim != self.points.shape[1]:
            raise BasisError(f"{self} has points in {self.points.shape[1]}-D, not in {dim}-D")

    def __repr__(self) -> str:
        return f"PointRule({self.name!r}, {len(self.points)} points)"


def grid_rule(rule: Rule, what: str) -> Quadrature1D:
    """The rule, if its points are a grid; else raise. ``what`` begins the message."""
    if not isinstance(rule, Quadrature1D):
        raise BasisError(
            f"{what} needs the same points in each direction, and {rule} is a list: take "
            "quadrature=femops.basis.gauss(n)"
        )
    return rule


@lru_cache(maxsize=128)
def _gauss(n: int) -> Quadrature1D:
    return Quadrature1D(*gauss_legendre(n), "gauss")


@lru_cache(maxsize=128)
def rule_of(cell: Cell, n: int) -> Rule:
    """Rule of a cell for polynomials of degree 2n - 1, as n Gauss points are."""
    if cell.cube:
        return _gauss(n)
    if n > _MOST_SIMPLEX_POINTS:
        raise BasisError(
            f"quadrature={n} on {cell.plural} is a rule of {n}**{cell.dim} points: give at most "
            f"{_MOST_SIMPLEX_POINTS}, for degree {2 * _MOST_SIMPLEX_POINTS - 1}"
        )
    return rule_to_degree(cell, 2 * n - 1)


@lru_cache(maxsize=128)
def rule_to_degree(cell: Cell, degree: int) -> PointRule:
    """Rule of a cell that is no cube, with positive weights, exact to a degree."""
    points, weights = simplices.rule(cell, degree)
    name, prism = f"{cell.name}, degree {degree}", cell.shape == "prism"
    rule = PointRule(points, weights * cell.volume, name, simplex=cell.simplex, prism=prism)
    object.__setattr__(rule, "degree", degree)
    return rule


@checked(BasisError)
def simplex_rule(
    dim: Annotated[int, whole_numbers(2, 3)], degree: Annotated[int, whole_numbers(0, 40)]
) -> PointRule:
    """Rule of a triangle (``dim=2``) or tetrahedron (3) with positive weights, exact to a degree.

    Up to degree 30 (triangles) and 15 (tetrahedra) it is one of Xiao and Gimbutas ("A numerical
    algorithm for the construction of efficient quadrature rules in two and higher dimensions",
    2010), else a product of Gauss and Jacobi.

    Raises
    ------
    BasisError
        dim is not 2 or 3, or the degree is not a whole number from 0 to 40.
    """
    return rule_to_degree(SIMPLICES[int(dim)], int(degree))


@lru_cache(maxsize=128)
def _lobatto(n: int) -> Quadrature1D:
    return Quadrature1D(*gauss_lobatto(n), "lobatto")


@checked(BasisError)
def gauss(n: Points) -> Quadrature1D:
    """Gauss-Legendre rule of n points on [0, 1], exact for polynomials of degree 2n - 1.

    Raises
    ------
    BasisError
        n is not a whole number from 1 to `MOST_POINTS`.
    """
    return _gauss(int(n))


@checked(BasisError)
def lobatto(n: Annotated[int, whole_numbers(2, MOST_POINTS)]) -> Quadrature1D:
    """Gauss-Lobatto rule of n points on [0, 1] with both ends, exact to degree 2n - 3.

    Raises
    ------
    BasisError
        n is not a whole number from 2 to `MOST_POINTS`.
    """
    return _lobatto(int(n))


@final
@checked(BasisError)
class Basis1D:
    """Basis of the polynomials of degree p on [0, 1]: the p + 1 functions of a family.

    Parameters
    ----------
    family : {"gll", "gauss", "bernstein", "hermite"}
        "gll": Lagrange polynomials in the Gauss-Lobatto points (p >= 1). "gauss": Lagrange
        polynomials in the Gauss-Legendre points (p >= 0). "bernstein": the Bernstein polynomials
        ``binom(p, j) x^j (1 - x)^(p - j)`` (p >= 1). "hermite": polynomials of which only the first
        and the last have values at the ends, and from p = 3 on only the first two and the last two
        derivatives; see `femops.basis` (p >= 1).
    p : int
        Polynomial degree.

    Attributes
    ----------
    nodes : (p1d,) float64
        Points whose values determine a function. For "gll" and "gauss" they are the Lagrange nodes.
        Coefficients of the other families are not values at points: "bernstein" has the
        Gauss-Lobatto points, "hermite" the Gauss-Legendre points. The latter lie inside elements,
        so a function that jumps between elements is interpolated on each side by itself.

    Raises
    ------
    BasisError
        The family is unknown, or the degree is not a whole number, too low, or above `MOST_DEGREE`.
    """

    def __init__(self, family: Family, p: int) -> None:
        smallest = 0 if family == "gauss" else 1
        self.family: Family = family
        self.p = whole_number(p, smallest, f"the degree of a {family!r} basis")
        if self.p > MOST_DEGREE:
            raise BasisError(f"the degree of a basis is {self.p}: it must be at most {MOST_DEGREE}")
        self.p1d = self.p + 1
        rule = gauss(self.p1d) if family in ("gauss", "hermite") else lobatto(self.p1d)
        self.nodes: Floats = rule.points

    @property
    def is_nodal(self) -> bool:
        """True if coefficients are values at the nodes."""
        return self.family in ("gll", "gauss")

    def interpolation(self, points: ArrayLike) -> Floats:
        """B1d: values (len(points), p1d) of the basis functions.

        Lagrange families use the barycentric formula (Berrut and Trefethen, SIAM Review 46, 2004).
        Bernstein uses its definition, a product of positive numbers. Hermite uses the recurrence of
        Jacobi's polynomials. All are stable to p = 20 and above.
        """
        return _values(self, _bytes(points)).copy()

    def gradient(self, points: ArrayLike) -> Floats:
        """G1d: derivatives (len(points), p1d) of the basis functions on [0, 1].

        Bernstein uses ``b'_{j,p} = p (b_{j-1,p-1} - b_{j,p-1})``.
        """
        return _slopes(self, _bytes(points)).copy()

    @cached_property
    def from_nodal(self) -> Floats:
        """Matrix (p1d, p1d) from values at `nodes` to coefficients: the inverse of B1d there.

        For "bernstein" each entry is accurate to round-off at every degree, see
        `bernstein_coefficients`. For "hermite" the condition number is below 8.
        """
        if self.is_nodal:
            return _read_only(np.eye(self.p1d))
        if self.family == "hermite":
            return _read_only(np.linalg.inv(self.interpolation(self.nodes)))
        return _read_only(bernstein_coefficients(self.nodes))

    def layers(self, *, slopes: bool) -> int:
        """Number of functions, counted from an end, that have a value there, or a derivative.

        So many layers of nodes determine a function on a face, with ``slopes`` its derivatives too.
        Functions that are not counted have exact zeros there.
        """
        ends = np.array([0.0, 1.0])
        used = self.interpolation(ends) != 0.0
        if slopes:
            used |= self.gradient(ends) != 0.0
        inwards = used[0] | used[1, ::-1]
        return int(np.flatnonzero(inwards).max()) + 1

    def __repr__(self) -> str:
        return f"Basis1D({self.family!r}, p={self.p})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Basis1D) and (self.family, self.p) == (other.family, other.p)

    def __hash__(self) -> int:
        return hash((self.family, self.p))


# Matrices at given points are kept, because functions are evaluated by small blocks of elements.


def _bytes(points: ArrayLike) -> bytes:
    """Bytes of points (n,) in float64. Points in a vector of this type are checked later."""
    plain = type(points) is np.ndarray and points.dtype == np.float64 and points.ndim == 1
    return points.tobytes() if plain else _points(points).tobytes()  # type: ignore[union-attr]


@lru_cache(maxsize=1024)
def _values(basis: Basis1D, points: bytes) -> Floats:
    x = _points(np.frombuffer(points))
    if basis.is_nodal:
        return lagrange_matrix(basis.nodes, x)
    return hermite_matrix(basis.p, x) if basis.family == "hermite" else _bernstein(basis.p, x)


@lru_cache(maxsize=1024)
def _slopes(basis: Basis1D, points: bytes) -> Floats:
    x = _points(np.frombuffer(points))
    if basis.is_nodal:
        return lagrange_derivative_matrix(basis.nodes, x)
    if basis.family == "hermite":
        return hermite_derivative_matrix(basis.p, x)
    lower = _bernstein(basis.p - 1, x)
    result = np.zeros((x.size, basis.p1d))
    result[:, 1:] += basis.p * lower
    result[:, :-1] -= basis.p * lower
    return result


def whole_number(
    value: SupportsIndex, smallest: int, what: str, error: type[Exception] = BasisError
) -> int:
    """Return `value` as an int, or raise `error` that names `what` and the smallest value."""
    try:
        number = operator.index(value)
    except TypeError:
        number = smallest - 1
    if number < smallest or isinstance(value, (bool, np.bool_)):
        raise error(f"{what} is {value!r}: it must be a whole number, at least {smallest}")
    return number


def _bernstein(p: int, x: Floats) -> Floats:
    """Bernstein polynomials (len(x), p + 1) of degree p >= 0 at x."""
    j = np.arange(p + 1)
    binomials = np.array([math.comb(p, k) for k in range(p + 1)], dtype=np.float64)
    return np.asarray(binomials * x[:, None] ** j * (1.0 - x[:, None]) ** (p - j))


def bernstein_coefficients(nodes: Floats) -> Floats:
    """Matrix from values at nodes to the Bernstein coefficients of their interpolant.

    Column j belongs to the Lagrange polynomial ``prod_i (x - x_i) / (x_j - x_i)``. The coefficients
    of each factor, ``x (1 - x_i) - (1 - x) x_i``, have opposite signs for every node. So no sum in
    the product cancels, and each entry is accurate to round-off. The condition number of the matrix
    grows like 2^p: an inverse by elimination would lose that many digits.

    Shapes: `nodes` (p + 1,), returned (p + 1, p + 1).
    """
    p = len(nodes) - 1
    binomials = np.array([math.comb(p, k) for k in range(p + 1)], dtype=np.float64)
    matrix = np.empty((p + 1, p + 1))
    for j, node in enumerate(nodes):
        product = np.ones(1)
        for other in np.delete(nodes, j):
            factor = np.array([-other, 1.0 - other]) / (node - other)
            product = np.convolve(product, factor)
        matrix[:, j] = product / binomials
    return matrix


def _points(points: ArrayLike) -> Floats:
    x = np.atleast_1d(numbers_of(points, "points", BasisError))
    if x.ndim != 1 or not (np.abs(x) <= _FAR).all():
        raise BasisError(f"points have shape {x.shape}: give a vector of points in [0, 1]")
    return x


def _read_only(array: ArrayLike) -> Floats:
    result = numbers_of(array, "an array of a rule", BasisError).copy()
    result.setflags(write=False)
    return result
