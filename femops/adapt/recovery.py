"""Estimates of errors from polynomials that are fitted to a field around each element."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.adapt.enriched import (
    AnySpace,
    broken,
    check_host,
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
"""Numbers in the matrices of least squares that are solved at once."""

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
    check_host(space)
    u = np.asarray(space.check_vector(u), dtype=np.float64)
    apart = broken(enriched(space))
    difference = fitted(space, u, apart) - embedded(space, u, apart)
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
    inside = [pair for pair in energy.summands if pair[1].domain.covers]
    found = [pair for pair in inside if pair[1].symmetric] or inside
    if not found:
        raise OperatorError(
            f"{energy!r} has no integral over elements: give one, as femops.diffusion(V)"
        )
    return Operator(found)


def fitted(space: AnySpace, u: Vector, apart: AnySpace) -> Vector:
    """Polynomials of an order more, fitted to u around each element, in a space of jumps."""
    fields = space.split(u) if isinstance(space, Product) else (u,)
    spaces = zip(parts_of(space).values(), fields, parts_of(apart).values(), strict=True)
    return np.concatenate([_fitted(*one) for one in spaces])


def _fitted(V: Space, u: Vector, W: Space) -> Vector:
    """Values of fitted polynomials at the nodes of W."""
    mesh, ncomp, around = V.mesh, V.ncomp, V.mesh
    nodes = positions(mesh.coordinates, V.element.nodes)
    inside = nodes if V.order else positions(mesh.coordinates, np.array([0.0, 1.0]))
    values = V.element_vector(V.l_vec(u), slice(None)).reshape(*nodes.shape[:2], ncomp)
    if not V.element.is_nodal:
        turn = V.basis.interpolation(V.element.nodes)
        values = tensor_apply([turn] * V.dim, values)
    targets, own = positions(mesh.coordinates, W.element.nodes), None
    if V.distributed is not None:
        others = surroundings(V.distributed)
        around, own = others.mesh, others.own
        nodes, values = others.rows(nodes), others.rows(values)
    result = np.empty((mesh.num_elements, targets.shape[1], ncomp))
    degree = V.order + (1 if V.order < 2 else 2)
    powers = np.array([k for k in product(range(degree + 1), repeat=V.dim) if sum(k) <= degree])
    unknown = 0
    for elements, patches in _patches(around, own, nodes.shape[1] * len(powers)):
        x = nodes[patches].reshape(len(elements), -1, V.dim)
        y = values[patches].reshape(len(elements), -1, ncomp)
        weights = _weights(inside[elements], x)
        low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
        size = np.where(high > low, high - low, np.inf)
        at = _polynomials((2.0 * x - low - high) / size, powers)
        wanted = _polynomials((2.0 * targets[elements] - low - high) / size, powers)
        weighted = (at * weights[:, :, np.newaxis]).swapaxes(1, 2)
        found, turn = np.linalg.eigh(weighted @ at)
        keep = found > _SMALL * found[:, -1:]
        unknown += int(np.count_nonzero(~keep.all(axis=1)))
        inverse = np.where(keep, 1.0 / np.where(keep, found, 1.0), 0.0)
        right = turn.swapaxes(1, 2) @ (weighted @ y)
        result[elements] = wanted @ (turn @ (inverse[:, :, np.newaxis] * right))
    everywhere, count = V.comm.sum(np.array([unknown, mesh.num_elements])).tolist()
    if everywhere:
        warn_on_first_rank(
            f"around {everywhere:,} of {count:,} elements the nodes determine no polynomial of "
            f"degree {degree}, as in a single layer of elements: estimates may be far too large or "
            'small there; refine once, or take estimate="residual"',
            V.comm,
            UserWarning,
        )
    return result.reshape(-1)


def _weights(own: Floats, x: Floats) -> Floats:
    """Weights (n, k) of nodes x (n, k, dim), by the distance from the nodes of an element."""
    low, high = own.min(axis=1, keepdims=True), own.max(axis=1, keepdims=True)
    apart = np.maximum(np.maximum(low - x, x - high), 0.0) / (high - low)
    return np.asarray((1.0 + _FAR * (apart**2).sum(axis=2)) ** -2)


def _polynomials(x: Floats, powers: Ints) -> Floats:
    """Products (n, points, count) of Legendre's polynomials of some degrees, at x in [-1, 1]."""
    line = [np.ones_like(x), x]
    for k in range(1, int(powers.max())):
        line.append(((2 * k + 1) * x * line[k] - k * line[k - 1]) / (k + 1))
    table = np.stack(line[: int(powers.max()) + 1])
    result = np.ones((*x.shape[:2], len(powers)))
    for d in range(x.shape[2]):
        result *= np.moveaxis(table[powers[:, d], :, :, d], 0, -1)
    return result


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
