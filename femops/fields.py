"""Integrals and norms of functions in a space.

Everything is evaluated block by block of elements, so memory does not grow with the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D
from femops.evaluation import physical_gradient, reference_gradient, reference_values
from femops.functions import Function, evaluate
from femops.geometry import Geometry, GeometryBlock

if TYPE_CHECKING:
    from femops.abstract_space import Space

Floats = NDArray[np.float64]
Rule = int | Quadrature1D | None


def integrate(space: Space, u: Any, quadrature: Rule = None) -> float | Floats:
    """Integral over the mesh of a vector of `space`, or of a function or number.

    Parameters
    ----------
    space : Space
    u : l_vec, or callable or number(s)
        A function is as for `Space.interpolate`, but evaluated at the quadrature points.
    quadrature : int or Quadrature1D, optional
        Points per direction. The default integrates vectors exactly, on curved elements too.

    Returns
    -------
    float for one component, else (ncomp,) float64

    Raises
    ------
    VectorError, SpaceError, GeometryError
        A vector or function that does not fit, too few points, an inverted element.
    """
    rule = _rule(space, quadrature, space.order)
    vector = isinstance(u, np.ndarray) and u.ndim > 0
    sums = []
    for block in Geometry(space.mesh, rule):
        values = (
            _values(space, space.check_vector(u), rule, block)
            if vector
            else _function(space, u, block, _component_shape(space), "the integrand")
        )
        sums.append(np.tensordot(block.weighted_det, values, axes=2))
    totals = np.array([math.fsum(column) for column in np.array(sums).reshape(len(sums), -1).T])
    return float(totals[0]) if space.ncomp == 1 else totals


def l2_norm(space: Space, u: Any, quadrature: Rule = None) -> float:
    """L2 norm of a vector, the square root of the integral of |u|^2 over the mesh.

    Parameters
    ----------
    space : Space
    u : l_vec
    quadrature : int or Quadrature1D, optional
        Points per direction; the default is exact.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    rule = _rule(space, quadrature, 2 * space.order)
    blocks = Geometry(space.mesh, rule)
    return _root((block, _values(space, u, rule, block)) for block in blocks)


def l2_error(space: Space, u: Any, exact: Function, quadrature: Rule = None) -> float:
    """L2 norm of u - exact.

    Parameters
    ----------
    space : Space
    u : l_vec
    exact : callable or number(s)
        As for `Space.interpolate`; evaluated at the quadrature points.
    quadrature : int or Quadrature1D, optional
        Points per direction; by default p + 3 Gauss points.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    rule = _error_rule(space, quadrature)
    return _root(_errors(space, u, exact, rule))


def h1_seminorm_error(
    space: Space, u: Any, exact_gradient: Function, quadrature: Rule = None
) -> float:
    """L2 norm of the gradient of u minus the exact gradient.

    Parameters
    ----------
    space : Space
    u : l_vec
    exact_gradient : callable or number(s)
        ``g(x)`` with x of shape (dim, n) returns (dim, n), or (ncomp, dim, n) with more than
        one component.
    quadrature : int or Quadrature1D, optional
        Points per direction; by default p + 3 Gauss points.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    rule = _error_rule(space, quadrature)
    return _root(_gradient_errors(space, u, exact_gradient, rule))


def h1_error(
    space: Space,
    u: Any,
    exact: Function,
    exact_gradient: Function,
    quadrature: Rule = None,
) -> float:
    """Full H1 norm of the error: the root of `l2_error` squared + `h1_seminorm_error` squared.

    Parameters
    ----------
    space : Space
    u : l_vec
    exact, exact_gradient : callable or number(s)
        As for those two.
    quadrature : int or Quadrature1D, optional
        Points per direction; by default as for those two.

    Raises
    ------
    VectorError, SpaceError, GeometryError
        See `integrate`.
    """
    return math.hypot(
        l2_error(space, u, exact, quadrature),
        h1_seminorm_error(space, u, exact_gradient, quadrature),
    )


def _error_rule(space: Space, quadrature: Rule) -> Quadrature1D:
    return space.quadrature(space.order + 3 if quadrature is None else quadrature)


def _rule(space: Space, quadrature: Rule, degree: int) -> Quadrature1D:
    """The rule asked for, or one exact for an integrand of `degree` times det J.

    In each direction det J has degree dim * g - 1 at most, and n Gauss points integrate degree
    2n - 1.
    """
    if quadrature is not None:
        return space.quadrature(quadrature)
    enough = (degree + space.dim * space.mesh.order) // 2 + 1
    return space.quadrature(max(enough, space.order + 2))


def _component_shape(space: Space) -> tuple[int, ...]:
    return () if space.ncomp == 1 else (space.ncomp,)


def _values(space: Space, u: Any, rule: Quadrature1D, block: GeometryBlock) -> Floats:
    e_vec = space.element_vector(u, block.start, block.stop)
    return reference_values(space.basis, rule.points, space.dim, e_vec)


def _function(
    space: Space, f: Function, block: GeometryBlock, shape: tuple[int, ...], what: str
) -> Floats:
    """A user's function at the points of a block, (n, q1d**dim, *shape)."""
    x = np.ascontiguousarray(block.points.reshape(-1, space.dim).T)
    return evaluate(f, x, shape, what).reshape(*block.points.shape[:2], *shape)


def _errors(
    space: Space, u: Any, exact: Function, rule: Quadrature1D
) -> Iterator[tuple[GeometryBlock, Floats]]:
    for block in Geometry(space.mesh, rule):
        expected = _function(space, exact, block, _component_shape(space), "exact")
        yield block, _values(space, u, rule, block) - expected


def _gradient_errors(
    space: Space, u: Any, exact_gradient: Function, rule: Quadrature1D
) -> Iterator[tuple[GeometryBlock, Floats]]:
    shape = (*_component_shape(space), space.dim)
    for block in Geometry(space.mesh, rule):
        e_vec = space.element_vector(u, block.start, block.stop)
        derivatives = reference_gradient(space.basis, rule.points, space.dim, e_vec)
        expected = _function(space, exact_gradient, block, shape, "exact_gradient")
        yield block, physical_gradient(derivatives, block.inverse) - expected


def _root(fields: Iterator[tuple[GeometryBlock, Floats]]) -> float:
    """Root of the integral of the squares of a field given block by block."""
    sums = []
    for block, field in fields:
        squares = np.square(field).reshape(*field.shape[:2], -1).sum(axis=2)
        sums.append(float(np.vdot(block.weighted_det, squares)))
    return math.sqrt(math.fsum(sums))
