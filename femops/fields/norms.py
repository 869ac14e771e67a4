"""Integrals and norms of functions in a space.

Functions are evaluated in blocks of elements, so memory use does not grow with the mesh.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.basis import Rule as AnyRule
from femops.errors import SpaceError
from femops.fields.reproducible import rounded_sum
from femops.geometry.boundary import asked_attributes
from femops.geometry.domain import Domain, DomainBlock
from femops.geometry.jacobians import Geometry, GeometryBlock, physical_gradient
from femops.parallel.comm import Communicator
from femops.spaces.base import GridFunction, Space, simplex_rule_for
from femops.spaces.boundary_space import boundary_spaces
from femops.spaces.functions import Function, columns, evaluate_any, parts_of, place_of
from femops_common.arguments import checked, type_name

Floats = NDArray[np.float64]
Rule = int | AnyRule | None

# Number of float64 parts into which any realistic exact sum of float64 can be split.
_PARTS = 8


@checked(SpaceError)
def integrate(
    space: Space,
    u: Any,
    quadrature: Rule = None,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
) -> float | Floats:
    """Integrate a finite element function or a user's function over the mesh or boundary.

    Collective if ranks share the mesh.

    Parameters
    ----------
    space : Space
    u : (size,) or (size, nvec) array, or callable or number(s)
        One vector, or one vector in each column. For functions see `Space.interpolate`; here they
        are evaluated at the quadrature points. They give a number for each component of the
        space: for an area or another scalar take a space of one component. A function on the
        boundary may also take the outer normal, as in ``lambda x, n: ...``.
    quadrature : int or Quadrature1D, optional
        Points per direction, or a rule. The default integrates vectors exactly, even on curved
        elements and plane faces.
    boundary : "all", True, int, name, or several, optional
        Integrate over the full boundary, or over boundary attributes as for `Space.boundary_dofs`.
        A field of an L2 space has its values inside the elements.

    Returns
    -------
    float for one component, else (ncomp,) float64
        For many vectors (nvec,) or (ncomp, nvec).

    Raises
    ------
    VectorError, SpaceError, GeometryError
        If a vector or function has the wrong shape, there are too few points, an element is
        inverted, or the mesh does not have an attribute.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> u = V.interpolate(lambda x: x[0] + x[1])
    >>> round(femops.integrate(V, u), 12), round(femops.integrate(V, u, boundary="all"), 12)
    (1.0, 4.0)
    """
    if isinstance(u, GridFunction):
        raise SpaceError(
            "u is a GridFunction: give its space and its vector, as in "
            "femops.integrate(u.space, u.vector)"
        )
    components = _component_shape(space)
    tables, shape = None, components
    if isinstance(u, np.ndarray) and u.ndim > 0:
        many = u.ndim == 2 and len(u) == space.size
        tables = [space.l_vec(column) for column in (u.T if many else [u])]
        shape = (*components, len(tables)) if many else components
    sums = [np.empty((0, math.prod(shape)))]
    for part, domain in _domains(space, boundary):
        for block in domain.geometry(_rule(part, quadrature, part.order, domain)):
            if tables is None:
                values = _function(u, block, components, "the integrand")
            else:
                values = np.stack([_values(part, one, block) for one in tables], axis=-1)
            sums.append(_element_integrals(block, values))
    flat = np.concatenate(sums).T
    totals = np.array([exact_sum(column, space.comm) for column in flat]).reshape(shape)
    return float(totals) if shape == () else totals


def _domains(space: Space, boundary: Any) -> list[tuple[Space, Domain]]:
    """Elements, or faces of the boundary, with the space or its part behind them."""
    if boundary is None:
        return [(part, part.domain) for part in space.parts]
    chosen = asked_attributes(boundary, space.mesh.boundary_names)
    return [(on.volume, on.domain) for on in boundary_spaces(space, chosen, slopes=True)]


def _of_complex(norm: Callable[..., float]) -> Callable[..., float]:
    """Let the norm of a real function, or of its error, take a complex one: the norms of its parts.

    The exact functions may be complex, too.
    """

    @functools.wraps(norm)
    def of_any(*given: Any, **named: Any) -> float:
        u: Any = named.get("u", given[1] if len(given) > 1 else None)
        if getattr(getattr(u, "dtype", None), "kind", "") != "c":
            return norm(*given, **named)
        arguments = signature(norm).bind(*given, **named).arguments
        norms = []
        for part in (0, 1):
            exact = {n: parts_of(f)[part] for n, f in arguments.items() if n.startswith("exact")}
            values = (u.real, u.imag)[part].copy()
            norms.append(norm(**{**arguments, **exact, "u": values}))
        return math.hypot(*norms)

    return of_any


@checked(SpaceError)
@_of_complex
def l2_norm(space: Space, u: Any, quadrature: Rule = None) -> float:
    """L2 norm of a function u: the root of the integral of |u|^2 over the mesh.

    Parameters
    ----------
    space : Space
    u : (size,) array, real or complex
    quadrature : int or Quadrature1D, optional
        Points per direction, or a rule. The default is exact.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    l_vec = space.l_vec(u)
    return _root(
        space,
        (
            (block, _values(part, l_vec, block))
            for part in space.parts
            for block in Geometry(part.mesh, _rule(part, quadrature, 2 * part.order))
        ),
    )


@checked(SpaceError)
@_of_complex
def l2_error(space: Space, u: Any, exact: Function, quadrature: Rule = None) -> float:
    """L2 norm of u - exact.

    Parameters
    ----------
    space : Space
    u : (size,) array, real or complex
    exact : callable or number(s)
        Function, as for `Space.interpolate`. It is evaluated at the quadrature points.
    quadrature : int or Quadrature1D, optional
        Points per direction, or a rule. The default is p + 3 Gauss points.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    return _root(space, _errors(space, u, exact, quadrature))


@checked(SpaceError)
@_of_complex
def h1_seminorm_error(
    space: Space, u: Any, exact_gradient: Function, quadrature: Rule = None
) -> float:
    """L2 norm of the gradient of u minus the exact gradient.

    Parameters
    ----------
    space : Space
    u : (size,) array, real or complex
    exact_gradient : callable or number(s)
        ``g(x)`` with x of shape (dim, n) returns (dim, n), or (ncomp, dim, n) with more than
        one component.
    quadrature : int or Quadrature1D, optional
        Points per direction, or a rule. The default is p + 3 Gauss points.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    return _root(space, _gradient_errors(space, u, exact_gradient, quadrature))


@checked(SpaceError)
def h1_error(
    space: Space,
    u: Any,
    exact: Function,
    exact_gradient: Function,
    quadrature: Rule = None,
) -> float:
    """H1 norm of the error: the root of l2_error^2 + h1_seminorm_error^2.

    Parameters
    ----------
    space : Space
    u : (size,) array, real or complex
    exact, exact_gradient : callable or number(s)
        See `l2_error` and `h1_seminorm_error`.
    quadrature : int or Quadrature1D, optional
        Points per direction, or a rule. The default is p + 3 Gauss points.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    return math.hypot(
        l2_error(space, u, exact, quadrature),
        h1_seminorm_error(space, u, exact_gradient, quadrature),
    )


def _error_rule(space: Space, quadrature: Rule) -> AnyRule:
    return space.quadrature(space.order + 3 if quadrature is None else quadrature)


def _rule(space: Space, quadrature: Rule, degree: int, domain: Domain | None = None) -> AnyRule:
    """Return the user's rule, or a rule that is exact for polynomials of `degree` times det J.

    In each direction det J has at most degree dim * g - 1. n Gauss points are exact for degree 2n -
    1.
    """
    count, domain = quadrature, domain or space.domain
    if count is None:
        count = max((degree + space.dim * space.mesh.order) // 2 + 1, space.order + 2)
    if space.mesh.cell.cube or domain.on_elements:
        return space.quadrature(count)
    return simplex_rule_for(domain.cell, count, space.order)


def _component_shape(space: Space) -> tuple[int, ...]:
    return () if space.ncomp == 1 else (space.ncomp,)


def _values(space: Space, l_vec: Any, block: DomainBlock) -> Floats:
    """Values (n, nq[, ncomp]) of a field at the points of a block."""
    return block.values(space.element, space.restriction.of(l_vec))


def _function(f: Function, block: DomainBlock, shape: tuple[int, ...], what: str) -> Floats:
    """Values (n, nq, *shape) of a user's function at the points of a block."""
    place = place_of(f, block, SpaceError) if callable(f) else (columns(block.points),)
    values = evaluate_any(f, place, (shape,), what, SpaceError)
    return values.reshape(*block.points.shape[:2], *shape)


def _check_no_field(space: Space, exact: Any) -> None:
    """Raise if the exact function is a field or a vector of the space."""
    vector = space.ndofs > 1 and getattr(exact, "shape", None) == space.shape
    if vector or isinstance(exact, GridFunction):
        raise SpaceError(
            f"exact is {type_name(type(exact))}: give a function of x. Two fields differ by "
            "femops.l2_norm(W, w - W.interpolate((V, u))), where W is the finer space"
        )


def _errors(
    space: Space, u: Any, exact: Function, quadrature: Rule
) -> Iterator[tuple[GeometryBlock, Floats]]:
    _check_no_field(space, exact)
    l_vec = space.l_vec(u)
    for part in space.parts:
        for block in Geometry(part.mesh, _error_rule(part, quadrature)):
            expected = _function(exact, block, _component_shape(space), "exact")
            yield block, _values(part, l_vec, block) - expected


def _gradient_errors(
    space: Space, u: Any, exact_gradient: Function, quadrature: Rule
) -> Iterator[tuple[GeometryBlock, Floats]]:
    shape, l_vec = (*_component_shape(space), space.dim), space.l_vec(u)
    for part in space.parts:
        nodal = part.restriction.of(l_vec)
        for block in Geometry(part.mesh, _error_rule(part, quadrature)):
            slopes = block.slopes(part.element, nodal)
            expected = _function(exact_gradient, block, shape, "exact_gradient")
            yield block, physical_gradient(slopes, block.inverse) - expected


def _root(space: Space, fields: Iterator[tuple[GeometryBlock, Floats]]) -> float:
    """Root of the integral of a field's square. ``fields`` yields the field's values by block.

    Values are divided by a power of two near the largest of their element. Otherwise squares of
    values below 1e-162 or above 1e154 would be zero or infinite.
    """
    found, factors = [np.empty((0, 1))], [np.empty((0, 1))]
    for block, field in fields:
        values = field.reshape(*field.shape[:2], -1)
        scale = _power_of_two(abs(values).max(axis=(1, 2)))
        squares = np.square(values / np.where(scale, scale, 1.0)[:, None, None]).sum(axis=2)
        found.append(_element_integrals(block, squares))
        factors.append(scale[:, np.newaxis])
    sums, scales = np.concatenate(found), np.concatenate(factors)
    largest = float(space.comm.max(scales.max(initial=0.0))) or 1.0
    with np.errstate(under="ignore"):
        return largest * math.sqrt(exact_sum(sums * (scales / largest) ** 2, space.comm))


def _power_of_two(x: Floats) -> Floats:
    """Largest power of two up to each number x >= 0. Zero for zero, 1 if x is not finite."""
    finite = np.isfinite(x)
    power = np.ldexp(1.0, np.frexp(np.where(finite, x, 1.0))[1] - 1)
    return np.where(x == 0.0, 0.0, np.where(finite, power, 1.0))


def _element_integrals(block: DomainBlock, values: Floats) -> Floats:
    """Integrals (n, k) over each element or face of values (n, nq, *shape) with k entries.

    The bits of an element's integrals do not depend on the other elements of the block.
    """
    products = block.weighted_det[..., None] * values.reshape(*values.shape[:2], -1)
    return np.asarray(np.ascontiguousarray(np.moveaxis(products, 1, 2)).sum(axis=2))


def exact_sum(values: Floats, comm: Communicator) -> float:
    """Sum the numbers (n,) of all ranks, rounded once. The order does not matter. Collective.

    A rank sends its exact sum as several numbers: the rounded sum, the rounded remainder, the
    rounded remainder of that, and so on.
    """
    rest, parts = values.reshape(-1), np.zeros(_PARTS)
    for k in range(_PARTS if comm.size > 1 else 1):
        parts[k] = rounded_sum(rest)
        if parts[k] == 0.0 or not math.isfinite(parts[k]):
            break
        rest = np.append(rest, -parts[k])
    return rounded_sum(comm.gather_all(parts, alike=True).reshape(-1))


def least_element(values: Floats, comm: Communicator, numbers: NDArray[np.int64] | None) -> int:
    """Find the element with the least value on all ranks. NaN counts as least. Collective.

    Shapes: `values` (ne,), `numbers` (ne,).
    """
    seen = np.where(np.isnan(values), -np.inf, values).astype(np.float64)
    least = -float(comm.max(np.array([-seen.min(initial=np.inf)]))[0])
    own = np.flatnonzero(seen == least)
    if numbers is not None:
        own = numbers[own]
    first = int(own.min(initial=np.iinfo(np.int64).max))
    return -int(comm.max(-first))
