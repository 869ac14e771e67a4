"""Newton's method with a trust region: energies with many minima, and residuals without one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import femops
from support import fixtures
from support.cases.kernels import bend

one_thread = fixtures.one_thread

V = femops.H1(femops.box((5, 5), mapping=bend), 2)


def wells() -> Any:
    """Ginzburg and Landau's energy, whose residual is zero at u = 0, a maximum."""
    return femops.residual(lambda u: {"value": u**3 - u, "grad": 0.01 * u.grad}, V)


def energy(u: Any) -> Any:
    return 0.25 * (u**2 - 1.0) ** 2 + 0.005 * femops.inner(u.grad, u.grad)


@pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid", lambda J: None])
def test_the_way_down_from_a_maximum(preconditioner: Any) -> None:
    """The Jacobian is indefinite at first. The minimum is one that SciPy finds, too."""
    F, J = wells(), femops.functional(energy, V)
    start = V.interpolate(lambda x: 1e-3 * np.cos(3.0 * x[0]))
    u, info = femops.newton(
        F, start, globalization="trust region", preconditioner=preconditioner, rtol=1e-8
    )
    assert info.converged
    eigenvalues = np.linalg.eigvalsh(F.jacobian(u).assemble().toarray())
    assert eigenvalues[0] > 0.0
    known = minimize(J, u, jac=F.residual, method="L-BFGS-B", options={"gtol": 1e-10})
    assert J(u) <= known.fun + 1e-10
    assert J(u) < 0.9 * J(start)


def test_a_line_search_stays_at_the_maximum() -> None:
    start = V.interpolate(lambda x: 1e-3 * np.cos(3.0 * x[0]))
    u, _ = femops.newton(wells(), start, linear="minres", warn=False, rtol=1e-6)
    assert abs(u).max() < 1e-2


def test_a_beam_that_is_bent_at_once() -> None:
    """A thin beam under a load that the line search takes in steps."""
    W = femops.H1(femops.box((8, 1), upper=(8.0, 0.5)), 2, ncomp=2)
    F = femops.neo_hookean(W, lam=1.0, mu=1.0).constrained(W.boundary_dofs(1))
    load = femops.boundary_load(W, (0.0, 1e-3), 2)
    u, info = femops.newton(F, W.zeros(), load, globalization="trust region", maxiter=100)
    assert info.converged
    steps = W.zeros()
    for part in (0.5, 1.0):
        steps, found = femops.newton(F, steps, part * load)
        assert found.converged
    assert abs(u - steps).max() < 1e-4 * abs(steps).max()


@pytest.mark.parametrize("linear", ["gmres", "direct"])
def test_a_residual_without_an_energy(linear: Any) -> None:
    F = femops.residual(
        lambda u: {"value": 30.0 * u * u.grad[0], "grad": (1.0 + u**2) * u.grad}, V
    ).constrained(V.boundary_dofs())
    b = femops.load(V, 300.0)
    u, info = femops.newton(F, V.zeros(), b, linear=linear, globalization="trust region", rtol=1e-9)
    assert info.converged
    r = F.residual(u) - b
    r[F.constrained_dofs] = 0.0
    assert np.linalg.norm(r) <= 1e-9 * info.residuals[0]
    assert all(after < before for before, after in pairwise(info.residuals))


def test_a_trust_region_tells_why_it_ends() -> None:
    """exp(u) has no zero: the residual falls for ever."""
    F = femops.residual(lambda u: {"value": np.exp(u)}, V)
    _, info = femops.newton(F, V.zeros(), globalization="trust region", maxiter=5, warn=False)
    assert not info.converged
    assert info.reason == "not converged in 5 steps"
    stuck = femops.residual(lambda u: {"value": 1.0 + u**2}, V)
    with pytest.warns(femops.errors.ConvergenceWarning) as found:
        _, info = femops.newton(
            stuck, V.zeros() + 1.0, globalization="trust region", linear="gmres"
        )
    assert info.reason in str(found[0].message)
