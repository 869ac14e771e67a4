"""Estimates of errors in goals, by the solution of an adjoint equation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.adapt.enriched import (
    AnySpace,
    checked_vector,
    embedded,
    enriched,
    equation_of,
    essential,
    on_space,
    parts_of,
    vector_of,
    with_ghosts,
)
from femops.adapt.solving import Preconditioning, solved
from femops.errors import OperatorError
from femops.operators import Functional
from femops.solvers.newton_steps import Linear
from femops.spaces.base import GridFunction, Space
from femops.spaces.h1_l2 import H1
from femops.spaces.product import Product
from femops_common.arguments import Fraction, checked, shown

Floats = NDArray[np.float64]
Vector = NDArray[np.float64]
Goal = Functional | Callable[[Any], Any]


@checked(OperatorError)
def goal(
    F: Any,
    u: Vector,
    J: Goal,
    *,
    linear: Linear = "auto",
    preconditioner: Preconditioning = "auto",
    rtol: Fraction = 1e-8,
) -> tuple[Floats, float]:
    r"""Estimate the error of a goal J(u), and the part of each element in it.

    The adjoint equation :math:`F'(u)^T z = J'(u)` is solved in the space of order p + 1 on the same
    mesh. The error is the residual of u, tested with z less its interpolant in the space of u
    (Becker and Rannacher, *An optimal control approach to a posteriori error estimation*, 2001).
    Continuous functions of order 1, whose sum is one, divide it between the vertices, and these
    divide it between their elements (Richter and Wick, *Variational localizations of the dual
    weighted residual estimator*, 2015).

    Parameters
    ----------
    F : Residual or (Operator, callable)
        The equation with its constrained dofs, as for `residual`. The error of prescribed values
        that are no functions of the space counts if ``values(V)`` returns the values in a space V:
        (F, values) or (A, load, values), as with ``lambda V: V.interpolate(g)``.
    u : (size,) array
        The solution, with its values at constrained dofs.
    J : Functional or callable
        The goal: `femops.functional` on the space of u, or a function ``J(V)`` that returns a
        vector j of a space V, for the goal :math:`j \cdot u`, such as
        ``lambda V: femops.Probe(V.mesh, x).load(V)`` for the value at a point x.
    linear : {"auto", "cg", "minres", "gmres"} or callable
        Solver of the adjoint equation, see `femops.newton`.
    preconditioner : {"auto", "jacobi", "multigrid", "direct"} or callable
        "auto" is multigrid for a symmetric operator that has it, else Jacobi. See `femops.newton`.
    rtol : float
        Relative residual of the adjoint equation.

    Returns
    -------
    eta : (ne,) float64
        Contributions of the elements. The squares have the sum ``error**2``.
    error : float
        Estimate of the goal's exact value less J(u). So ``J(u) + error`` is a better value.

    Raises
    ------
    OperatorError
        If the equation has no load, a rule has fewer than p + 2 points, or J is no goal.
    SolverError
        If the adjoint equation is not solved.

    Notes
    -----
    For nonlinear equations and goals the estimate is that of the linearised problem. Where
    contributions of different signs cancel, the estimate may be small by chance.

    Examples
    --------
    The mean of the solution of Poisson's equation on the unit square is 0.0351443:

    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=1)
    >>> A = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> u, info = femops.cg(A, A.rhs(femops.load(V, 1.0)), rtol=1e-12)
    >>> J = femops.functional(lambda u: u, V)
    >>> eta, error = femops.adapt.goal((A, lambda V: femops.load(V, 1.0)), u, J)
    >>> bool(abs(J(u) + error - 0.0351443) < 0.1 * abs(J(u) - 0.0351443))
    True
    """
    equation = equation_of(F)
    V = equation.space
    u = checked_vector(V, u)
    W = enriched(V)
    rich = embedded(V, u, W)
    slope = _derivative(J, V, W, rich)
    held = essential(equation.form, W)
    jacobian = equation.jacobian(W, rich)
    right = slope.copy()
    right[held] = 0.0
    z, _ = solved(jacobian.constrained(held).T, right, linear, preconditioner, rtol)
    z[held] = 0.0
    r = equation.residual(W, rich)
    r[held] = 0.0
    products = r * (z - embedded(V, _interpolated(W, z, V), W))
    if equation.values is not None and V.comm.max(len(held)):
        lacking = vector_of(equation.values, W, "the prescribed values") - rich
        reaction = slope - jacobian.T @ z
        products[held] = reaction[held] * lacking[held]
    error = float(V.comm.sum(float(products.sum())))
    eta = np.sqrt(_by_element(W, products))
    total = math.sqrt(V.comm.sum(float(eta @ eta)))
    return eta * (abs(error) / total if total else 0.0), error


def _derivative(J: Goal, V: AnySpace, W: AnySpace, u: Vector) -> Vector:
    """Derivative of the goal at u in a space W of higher order."""
    if isinstance(J, Functional):
        if J.space is not V:
            raise OperatorError(f"the goal is on {J.space!r}, the equation on {V!r}")
        found: Vector = on_space(J, W).residual(u)
        return found
    if not callable(J):
        raise OperatorError(
            f"the goal is {shown(J)}: give femops.functional(function, V), or a function of the "
            "space that returns a vector, as lambda V: femops.load(V, weight)"
        )
    return vector_of(J, W, "the goal")


def _interpolated(W: AnySpace, z: Vector, V: AnySpace) -> Vector:
    """Interpolant in V of a vector of W."""
    if isinstance(W, Space):
        assert isinstance(V, Space)
        return V.interpolate(GridFunction(W, z))
    assert isinstance(V, Product)
    fields = zip(V.spaces.values(), W.spaces.values(), W.split(z), strict=True)
    return np.concatenate([own.interpolate(GridFunction(rich, part)) for own, rich, part in fields])


def _by_element(W: AnySpace, products: Vector) -> Floats:
    """Absolute contributions (ne,) of the vertices, divided between their elements."""
    first = next(iter(parts_of(W).values()))
    hats = H1(first.distributed or first.mesh, order=1)
    at_vertices, start = np.zeros(hats.ndofs), 0
    for space in parts_of(W).values():
        sums = products[start : start + space.size].reshape(space.ndofs, space.ncomp).sum(axis=1)
        start += space.size
        line = np.stack([1.0 - space.basis.nodes, space.basis.nodes])
        weights = line
        for _ in range(space.dim - 1):
            weights = np.kron(line, weights)
        at_vertices += hats.sum_elements(_divided(space, sums) @ weights.T)
    return np.asarray(_divided(hats, np.abs(at_vertices)).sum(axis=1))


def _divided(space: Space, values: Floats) -> Floats:
    """Divide numbers of dofs (ndofs,) between the elements that have these dofs: (ne, nodes)."""
    found = space.restriction.entries(with_ghosts(space, values / space.multiplicity()))
    free = space.restriction.free
    return found if free is None else np.where(free, found, 0.0)
