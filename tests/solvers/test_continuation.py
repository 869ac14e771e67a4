"""Continuation by arc length: folds whose place is known, and an arch that snaps through."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import ConvergenceWarning, OperatorError, SolverError
from support import fixtures

one_thread = fixtures.one_thread

Array = np.ndarray
BRATU = {1: 3.513830719, 2: 6.808124423}
"""Parameter at the fold of Bratu's problem on the unit interval and square."""


def bratu(dim: int, n: int, order: int) -> tuple[Any, Any]:
    V = femops.H1(femops.box((n,) * dim), order)
    F = femops.residual(lambda u, k: {"grad": u.grad, "value": -k * np.exp(u)}, V, k=0.0)
    return V, F.constrained(V.boundary_dofs())


@pytest.mark.parametrize(
    ("dim", "options"),
    [(1, {"linear": "direct"}), (1, {}), (2, {"preconditioner": "multigrid"})],
)
def test_the_fold_of_bratu(dim: int, options: dict[str, Any]) -> None:
    V, F = bratu(dim, 4, 6 - dim)
    start = 0.85 * BRATU[dim]
    path = femops.continuation(
        F, V.zeros(), parameter="k", start=start, step=0.1, largest=8.0, **options
    )
    limits, points = [], []
    for u, point in path:
        residual = F.update(k=point.parameter).residual(u)
        assert np.linalg.norm(residual) <= max(2.0 * point.tolerance, 1e-12)
        points.append((point.parameter, u.max()))
        limits += [point.limit] if point.limit else []
        if point.slope < 0.0 and point.parameter < 0.97 * BRATU[dim]:
            break
    assert limits == [pytest.approx(BRATU[dim], rel=1e-4)]
    assert all(low < high for (_, low), (_, high) in pairwise(points))
    assert path.reason == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("dim", [1, 2])
def test_digits_of_the_fold_of_bratu(dim: int) -> None:
    V, F = bratu(dim, 6, 8)
    path = femops.continuation(
        F, V.zeros(), parameter="k", step=0.1, largest=2.0, linear="direct", rtol=1e-11
    )
    limit = next(point.limit for _, point in path if point.limit)
    assert limit == pytest.approx(BRATU[dim], rel=2e-9 if dim == 1 else 1e-8)


def arch(n: int = 6, order: int = 3) -> tuple[Any, Any, Array, int]:
    """Half of a clamped shallow arch of Saint Venant's material, with a force at the top."""

    def shape(x: Array) -> Array:
        return np.stack([x[0], 0.08 * (1.0 - (1.0 - x[0]) ** 2) + 0.03 * x[1]])

    V = femops.H1(femops.box((n, 1), mapping=shape), order, ncomp=2)

    def law(u: Any) -> Any:
        F = np.eye(2) + u.grad
        e = 0.5 * (F.T @ F - np.eye(2))
        return {"grad": F @ (np.trace(e) * np.eye(2) + 2.0 * e)}

    R = femops.residual(law, V, symmetric=True)
    R = R.constrained(np.union1d(V.boundary_dofs(1), V.boundary_dofs(2, components=0)))
    x = V.dof_coordinates()
    top = 2 * int(np.argmax(x[:, 0] + x[:, 1])) + 1
    b = V.zeros()
    b[top] = -1e-4
    return V, R, b, top


def test_a_shallow_arch_past_its_limit_load() -> None:
    """Loads are those of a path along which the displacement of the top is prescribed."""
    V, F, b, top = arch()
    path = femops.continuation(F, V.zeros(), b, step=0.2, linear="direct", largest=4.0)
    found, limits = [], []
    for u, point in path:
        found.append((u, point.parameter))
        limits += [point.limit] if point.limit else []
        if u[top] < -0.17:
            break
    assert len(limits) == 2
    assert limits[0] > 1.4 * limits[1] > 0.0
    controlled = F.constrained([top])
    for u, load in found[2::6]:
        start = u + 1e-3 * np.sin(np.arange(V.size))
        start[F.constrained_dofs], start[top] = 0.0, u[top]
        same, info = femops.newton(controlled, start, linear="direct", rtol=1e-10)
        assert info.converged
        assert F.residual(same)[top] / b[top] == pytest.approx(load, rel=1e-5, abs=1e-6)
    _, info = femops.newton(F, V.zeros(), limits[0] * 0.99 * b, linear="direct", maxiter=60)
    assert info.converged


def test_a_path_may_begin_anywhere_and_go_down() -> None:
    V, F = bratu(1, 4, 4)
    path = femops.continuation(
        F, V.zeros(), parameter="k", start=1.0, step=-0.5, linear="direct", points=3
    )
    points = [point for _, point in path]
    assert points[0].parameter == 1.0
    assert points[1].parameter == pytest.approx(0.5, abs=0.05)
    assert path.reason == "3 points are found"
    assert path.parameter == points[-1].parameter


def test_what_a_path_refuses() -> None:
    V, F = bratu(1, 2, 2)
    R = femops.residual(lambda u, k: {"grad": u.grad, "value": 0.0 * k * u}, V, k=0.0)
    R = R.constrained(V.boundary_dofs())
    for error, words, given in (
        (SolverError, "does not change the solution at 0", (R, {"parameter": "k"})),
        (SolverError, "the factor of the load b: give b", (F, {})),
        (OperatorError, "q", (F, {"parameter": "q"})),
        (SolverError, "give the first change", (F, {"parameter": "k", "step": 0.0})),
        (
            SolverError,
            "no solution near u0 at the parameter 5",
            (F, {"parameter": "k", "start": 5.0}),
        ),
        (SolverError, "F is .*: give", (femops.diffusion(V), {"parameter": "k"})),
    ):
        form, options = given
        with pytest.raises(error, match=words):
            next(femops.continuation(form, V.zeros(), linear="direct", **options))


def test_a_path_that_ends_tells_why() -> None:
    """The square root has no value below zero, where the path leads."""
    V = femops.H1(femops.box((2,)), 1)
    F = femops.residual(lambda u, k: {"value": np.sqrt(u) - k, "grad": u.grad}, V, k=1.0)
    path = femops.continuation(F, V.zeros() + 1.0, parameter="k", step=-0.5, linear="direct")
    with pytest.warns(ConvergenceWarning) as told:
        states = [u for u, _ in path]
    assert np.isfinite(states[-1]).all()
    assert path.reason
    assert path.reason in str(told[0].message)
