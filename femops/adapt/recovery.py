"""Estimates of errors from polynomials that are fitted to a field around each element."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import final

import numpy as np
from numpy.polynomial.legendre import legmul
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.adapt.enriched import (
    AnySpace,
    broken,
    checked_vector,
    embedded,
    enriched,
    mesh_of,
    on_space,
    parts_of,
)
from femops.errors import OperatorError
from femops.forms import diffusion
from femops.operators import Operator, Residual
from femops.parallel.neighbours import surroundings
from femops.solvers.warned import warn_on_first_rank
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_common.arguments import checked, shown
from femops_meshes.coordinates.mapping import positions, tensor_apply
from femops_meshes.mesh import Mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Vector = NDArray[np.float64]

_BLOCK = 2_000_000
"""Numbers at the points around elements that are fitted at once."""

_FAR = 10.0
"""Factor of squares of distances, in sizes of the element, in the weights of nodes."""

_SMALL = 1e-11
"""Eigenvalues of the normal equations, relative to the largest, that do not determine a fit."""


@checked(OperatorError)
def recovered(A: Operator | Residual | Space | Product, u: Vector) -> Floats:
    r"""Estimate the error in each element by a field of a higher order, fitted around the element.

    A polynomial is fitted by least squares to the nodal values of u in the element and in all
    elements that touch it and have its attribute, as Zhang and Naga fit it for gradients (*A new
    finite element gradient recovery method: superconvergence property*, 2005). Its degree is p + 2,
    with p of 0 and 1 it is p + 1, and nodes count less the farther they are from the element. The
    estimate is the energy norm of the fitted field less u. So it is of Zienkiewicz and Zhu's kind
    (1987). It needs neither a source nor conditions on the boundary, and is close to the error
    where the solution is smooth.

    Parameters
    ----------
    A : Operator, Residual, Space or Product
        What measures the error: the energy of the symmetric integrals over elements of an operator,
        such as ``femops.diffusion(V, kappa)``, or of a residual's derivative at u. On a product
        each field is measured by its own block. A space stands for ``femops.diffusion``: the norm
        of the gradient.
    u : (size,) array
        A vector of the space.

    Returns
    -------
    (ne,) float64
        The root of the sum of squares estimates the energy norm of the error.

    Raises
    ------
    OperatorError
        If A has no integral over elements, or a rule has fewer than p + 2 points.

    Warns
    -----
    UserWarning
        Where the nodes around an element determine no polynomial, as in a single layer of elements
        of an attribute. The estimate may be far too large or too small there.

    Examples
    --------
    >>> import numpy as np, femops
    >>> V = femops.H1(femops.box((8, 8)), order=2)
    >>> u = V.interpolate(lambda x: np.sin(3.0 * x[0]) * np.exp(x[1]))
    >>> eta = femops.adapt.recovered(V, u)
    >>> gradient = lambda x: (
    ...     3.0 * np.cos(3.0 * x[0]) * np.exp(x[1]), np.sin(3.0 * x[0]) * np.exp(x[1]))
    >>> error = femops.h1_seminorm_error(V, u, gradient)
    >>> bool(0.8 < np.linalg.norm(eta) / error < 1.2)
    True
    """
    space = A if isinstance(A, Space | Product) else getattr(A, "space", None)
    if not isinstance(space, Space | Product):
        raise OperatorError(
            f"the energy is that of {shown(A)}: give an operator, a residual or a space"
        )
    u = checked_vector(space, u)
    apart = broken(enriched(space))
    fields = space.split(u) if isinstance(space, Product) else (u,)
    spaces = zip(parts_of(space).values(), fields, parts_of(apart).values(), strict=True)
    difference = np.concatenate([_difference(*one) for one in spaces])
    if isinstance(A, Space | Product):
        return np.sqrt(_sum(apart, difference, None))
    form = A.unconstrained
    if isinstance(form, Residual):
        form = on_space(form, apart).jacobian(embedded(space, u, apart))
    else:
        form = on_space(form, apart)
    return np.sqrt(_sum(apart, difference, form))


def _sum(apart: AnySpace, difference: Vector, energy: Operator | None) -> Floats:
    """Energies (ne,) of a vector in elements, of all fields. Without an operator: of gradients."""
    total, start = np.zeros(mesh_of(apart).num_elements), 0
    for name, W in parts_of(apart).items():
        d = np.ascontiguousarray(difference[start : start + W.size])
        start += W.size
        part = diffusion(W) if energy is None else (energy[name, name] if name else energy)
        if part is not None:
            each = (d * (_measure(part) @ d)).reshape(len(total), W.element.size * W.ncomp)
            total += each.sum(axis=1)
    return np.maximum(total, 0.0)


def _measure(energy: Operator) -> Operator:
    """The integrals over elements that are symmetric, or all if none is."""
    inside = [pair for pair in energy.summands if pair[1].domain.on_elements]
    found = [pair for pair in inside if pair[1].symmetric] or inside
    if not found:
        raise OperatorError(
            f"{energy!r} has no integral over elements: give one, as femops.diffusion(V)"
        )
    return Operator(found)


def _difference(V: Space, u: Vector, W: Space) -> Vector:
    """Polynomials that are fitted to u around each element, less u, at the nodes of W."""
    mesh, ncomp, around = V.mesh, V.ncomp, V.mesh
    nodes = positions(mesh.coordinates, V.element.nodes)
    inside = nodes if V.order else positions(mesh.coordinates, np.array([0.0, 1.0]))
    box = inside.min(axis=1).T, inside.max(axis=1).T
    field = V.element_vector(V.l_vec(u), slice(None)).reshape(*nodes.shape[:2], ncomp)
    values = field
    if not V.element.is_nodal:
        values = tensor_apply([V.basis.interpolation(x) for x in V.element.nodes], field)
    targets, own = _columns(positions(mesh.coordinates, W.element.nodes)), None
    if V.distributed is not None:
        others = surroundings(V.distributed)
        around, own = others.mesh, others.own
        nodes, values = others.rows(nodes), others.rows(values)
    lows, highs = nodes.min(axis=1).T, nodes.max(axis=1).T
    numbers, rows = _distinct(np.concatenate([nodes, values], axis=2))
    result = -tensor_apply([V.basis.interpolation(x) for x in W.element.nodes], field)
    fit = _fit(V.dim, V.order + (1 if V.order < 2 else 2))
    unknown = 0
    for elements, patches in _patches(around, own, nodes.shape[1] * fit.numbers):
        which, times = _counted(numbers[patches].reshape(len(elements), -1))
        x, y = rows[: V.dim, which], rows[V.dim :, which]
        low, high = (side[:, elements, np.newaxis] for side in box)
        times *= _weights(low, high, x)
        low, high = (
            end[..., np.newaxis]
            for end in (lows[:, patches].min(axis=2), highs[:, patches].max(axis=2))
        )
        middle, factor = 0.5 * (low + high), 2.0 / np.where(high > low, high - low, np.inf)
        wanted = (targets[:, elements] - middle) * factor
        x -= middle
        x *= factor
        found, few = fit(x, y, times, wanted)
        result[elements] += found
        unknown += few
    everywhere, count = V.comm.sum(np.array([unknown, mesh.num_elements])).tolist()
    if everywhere:
        warn_on_first_rank(
            f"around {everywhere:,} of {count:,} elements the nodes determine no polynomial of "
            f"degree {fit.degree}, as in a single layer of elements: estimates may be far too "
            'large or small there; refine once, or take estimate="residual"',
            V.comm,
            UserWarning,
        )
    return result.reshape(-1)


def _columns(table: Floats) -> Floats:
    """A table (ne, n, k) as (k, ne, n)."""
    return np.ascontiguousarray(np.moveaxis(table, 2, 0))


def _distinct(table: Floats) -> tuple[Ints, Floats]:
    """Numbers (ne, n) of the distinct rows of a table (ne, n, k), and these rows (k, count).

    Elements share nodes. The order of the rows depends on their bits alone, and not on elements.
    """
    rows = np.ascontiguousarray(table).reshape(-1, table.shape[2])
    key = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.view(np.uint64).T:
        key = (key ^ column) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    order = np.argsort(key, kind="stable")
    rows = rows[order]
    new = np.ones(len(rows), dtype=np.bool_)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    numbers = np.empty(len(rows), dtype=np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers.reshape(table.shape[:2]), np.ascontiguousarray(rows[new].T)


def _counted(numbers: Ints) -> tuple[Ints, Floats]:
    """Distinct numbers of each row (n, k), padded with the first, and the count of each."""
    numbers = np.sort(numbers, axis=1)
    new = np.ones(numbers.shape, dtype=np.bool_)
    new[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    place = np.cumsum(new, axis=1) - 1
    most = int(place[:, -1].max()) + 1
    place += np.arange(len(numbers))[:, np.newaxis] * most
    which = np.repeat(numbers[:, 0], most)
    which[place[new]] = numbers[new]
    times = np.bincount(place.reshape(-1), minlength=len(which)).astype(np.float64)
    return which.reshape(-1, most), times.reshape(-1, most)


def _weights(low: Floats, high: Floats, x: Floats) -> Floats:
    """Weights (n, k) of nodes x (dim, n, k), by the distance from the box of an element."""
    apart = np.maximum(low - x, x - high)
    np.maximum(apart, 0.0, out=apart)
    apart /= high - low
    apart *= apart
    return np.asarray((1.0 + _FAR * apart.sum(axis=0)) ** -2)


@final
class _Fit:
    """Fits polynomials of a degree d to values at points in [-1, 1]**dim, by least squares.

    The product of two Legendre polynomials is a sum of Legendre polynomials. So the normal
    equations follow from the moments of the weights up to degree 2 d, of which there are far fewer
    than pairs of polynomials. Moments are one product of matrices: polynomials of x, times those of
    the other directions.
    """

    def __init__(self, dim: int, degree: int) -> None:
        self.degree = degree
        top = 2 * degree + 1
        lines = [other for other in product(range(top), repeat=dim - 1) if sum(other) < top]
        self._lines = sorted(lines, key=sum)  # degrees in the other directions, low sums first
        self._few = sum(sum(other) <= degree for other in self._lines)
        powers = [
            (k, column, other)
            for k in range(degree + 1)
            for column, other in enumerate(self._lines[: self._few])
            if k + sum(other) <= degree
        ]
        self._first, self._column = np.array([one[:2] for one in powers]).T
        every = np.array([(k, *other) for k, _, other in powers])
        self._pair, self._sums = _pairs(every, self._lines, top)

    @property
    def numbers(self) -> int:
        """Numbers at each point that are needed at once."""
        return len(self._lines) + 4 * (2 * self.degree + 1)

    def __call__(
        self, x: Floats, y: Floats, weights: Floats, targets: Floats
    ) -> tuple[Floats, int]:
        """Values (n, points, ncomp) at the targets, and how many fits are not determined.

        Shapes: `x` (dim, n, k), `y` (ncomp, n, k), `weights` (n, k), `targets` (dim, n, points).
        """
        first, others = self._tables(x, 2 * self.degree)
        first *= weights[:, np.newaxis]
        moments = first @ others.swapaxes(1, 2)
        pairs = (self._sums @ moments.reshape(len(moments), -1).T).T
        low, few = first[:, : self.degree + 1], others[:, : self._few].swapaxes(1, 2)
        right = np.stack([(low * each[:, np.newaxis]) @ few for each in y], axis=-1)
        inverse, unknown = _inverses(pairs[:, self._pair])
        found = inverse @ right[:, self._first, self._column]
        first, others = self._tables(targets, self.degree)
        at = first[:, self._first] * others[:, self._column]
        return np.asarray(at.swapaxes(1, 2) @ found), unknown

    def _tables(self, x: Floats, degree: int) -> tuple[Floats, Floats]:
        """Legendre polynomials in the first direction, and products of those in the others."""
        tables = [_legendre(line, degree) for line in x]
        lines = [other for other in self._lines if sum(other) <= degree]
        others = np.ones((x.shape[1], len(lines), x.shape[2]))
        for degrees, out in zip(lines, others.swapaxes(0, 1), strict=True):
            if len(degrees) == 1:
                out[:] = tables[1][:, degrees[0]]
            elif degrees:
                np.multiply(tables[1][:, degrees[0]], tables[2][:, degrees[1]], out=out)
        return tables[0], others


_fit = lru_cache(_Fit)


def _legendre(x: Floats, degree: int) -> Floats:
    """Legendre polynomials (n, degree + 1, points) at x (n, points)."""
    found = np.empty((len(x), degree + 1, x.shape[1]))
    found[:, 0] = 1.0
    if degree:
        found[:, 1] = x
    for k in range(1, degree):
        found[:, k + 1] = (2 * k + 1) / (k + 1) * x * found[:, k] - k / (k + 1) * found[:, k - 1]
    return found


def _pairs(powers: Ints, lines: list[tuple[int, ...]], top: int) -> tuple[Ints, csr_array]:
    """Sums of moments that are the integrals of products of two polynomials.

    Also return the row of each pair (count, count) of polynomials in the matrix of the sums. Its
    columns are moments, by the degree in x, then the `lines` of the other directions.
    """
    unit = np.eye((top + 1) // 2)
    products = np.zeros((len(unit), len(unit), top))
    for i, j in product(range(len(unit)), repeat=2):
        terms = slice(abs(i - j), i + j + 1, 2)
        products[i, j, terms] = legmul(unit[i], unit[j])[terms]
    first, second = np.tril_indices(len(powers))
    row, code, factor = np.arange(len(first)), np.zeros(len(first), dtype=np.int64), 1.0
    for i, j in zip(powers[first].T, powers[second].T, strict=True):
        each = products[i[row], j[row]]
        some, k = np.nonzero(each)
        row, code, factor = row[some], top * code[some] + k, (each.T * factor).T[some, k]
    place = np.zeros(top ** (powers.shape[1] - 1), dtype=np.int64)
    scale = top ** np.arange(powers.shape[1] - 1)[::-1]
    place[[int(np.dot(other, scale)) for other in lines]] = np.arange(len(lines))
    column = code // len(place) * len(lines) + place[code % len(place)]
    number = np.empty((len(powers), len(powers)), dtype=np.int64)
    number[first, second] = number[second, first] = np.arange(len(first))
    return number, csr_array((factor, (row, column)), shape=(len(first), top * len(lines)))


def _inverses(matrices: Floats) -> tuple[Floats, int]:
    """Inverses of positive matrices (n, k, k), and how many are singular.

    Of these they are inverses where eigenvalues are not small. Only matrices whose trace and
    inverse leave open whether an eigenvalue is small are decomposed.
    """
    with np.errstate(all="ignore"):
        try:
            found = np.linalg.inv(matrices)
        except np.linalg.LinAlgError:
            found = np.full_like(matrices, np.nan)
        size = np.trace(matrices, axis1=1, axis2=2) * np.sqrt((found**2).sum(axis=(1, 2)))
        open_ = np.flatnonzero(~(size < 0.1 / _SMALL))
    values, turn = np.linalg.eigh(matrices[open_])
    keep = values > _SMALL * values[:, -1:]
    inverse = np.where(keep, 1.0 / np.where(keep, values, 1.0), 0.0)
    found[open_] = (turn * inverse[:, np.newaxis]) @ turn.swapaxes(1, 2)
    return np.asarray(found), int(np.count_nonzero(~keep.all(axis=1)))


def _patches(mesh: Mesh, own: Ints | None, numbers: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield elements (n,) with k elements around them, and these (n, k), for each k.

    ``own`` (ne,) are the elements that are wanted; None for all. The first ones count these.
    """
    graph = touching(mesh)
    graph = graph if own is None else csr_array(graph[own])
    counts = np.diff(graph.indptr)
    for k in np.unique(counts).tolist():
        same = np.flatnonzero(counts == k)
        step = max(1, _BLOCK // (k * numbers))
        for start in range(0, len(same), step):
            some = same[start : start + step]
            yield some, graph.indices[graph.indptr[some][:, np.newaxis] + np.arange(k)]


def touching(mesh: Mesh) -> csr_array:
    """Graph (ne, ne) of elements of one attribute that have a vertex in common.

    Elements with few neighbours, such as those in the only layer of a thin part, have the
    neighbours of their neighbours too. Elements on both sides of a periodic boundary do not touch.
    """
    count, corners = mesh.num_elements, mesh.elements.shape[1]
    attributes = mesh.element_attributes.astype(np.int64)
    keys: list[Ints] = [mesh.elements.reshape(-1), np.repeat(attributes, corners)]
    if not mesh.continuous:
        ends = positions(mesh.coordinates, np.array([0.0, 1.0])).reshape(-1, mesh.dim)
        size = np.ptp(ends, axis=0).max()
        keys += [*np.round(ends / (1e-6 * size)).astype(np.int64).T]
    vertex = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)
    rows = np.repeat(np.arange(count), corners)
    shape = count, int(vertex.max(initial=-1)) + 1
    has = csr_array((np.ones(len(rows), dtype=np.int32), (rows, vertex)), shape=shape)
    graph = csr_array(has @ has.T)
    few = np.diff(graph.indptr) < 2**mesh.dim
    if few.any():
        choose = csr_array(
            (few.astype(np.int32), (np.arange(count), np.arange(count))), shape=(count, count)
        )
        graph = csr_array(graph + choose @ graph @ graph)
    return graph
