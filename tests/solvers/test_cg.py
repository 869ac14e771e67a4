"""How conjugate gradients end: by the tolerance, by round-off, by an interrupt."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import ConvergenceWarning, SolverError
from femops.solvers import cg_bodies
from femops_kernels.cpu.cg import ConjugateGradients
from femops_kernels.cpu.operators import HostOperator


def problem(dtype: str) -> tuple[femops.Operator, np.ndarray]:
    V = femops.H1(femops.box((9, 8)), 3)
    b = np.random.default_rng(0).standard_normal(V.size).astype(dtype)
    return femops.mass(V, dtype=dtype), b


@pytest.mark.parametrize("seconds", [1e-5, 1e-3, 3e-2])
def test_interrupts_are_looked_for_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """On machines on which an iteration takes so long, by a clock that only iterations turn on."""
    now, bursts, compiled = [0.0], [], ConjugateGradients.advance

    def advance(
        solve: ConjugateGradients, tolerance: float, limit: int, steps: int, *, show: bool = True
    ) -> None:
        before = solve.iterations
        compiled(solve, tolerance, limit, steps, show)
        bursts.append(seconds * (solve.iterations - before))
        now[0] += bursts[-1]

    monkeypatch.setattr(ConjugateGradients, "advance", advance)
    monkeypatch.setattr(cg_bodies, "perf_counter", lambda: now[0])
    A, b = problem("float64")
    _, info = femops.cg(A, b, rtol=0.0, atol=1e-300, merged=False, warn=False)
    assert sum(bursts) == pytest.approx(seconds * info.iterations)
    assert max(bursts) <= max(16 * seconds, 0.11)  # the first is of 16 iterations
    assert len(bursts) > 3


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-300), ("float64", 0.0), ("float32", 1e-30)]
)
@pytest.mark.parametrize("merged", [True, False])
def test_a_tolerance_that_round_off_forbids(dtype: str, tolerance: float, merged: bool) -> None:
    """The recursion ends by itself; what is said of the residual is true."""
    A, b = problem(dtype)
    with pytest.warns(ConvergenceWarning, match="no longer decreases: give a larger rtol"):
        x, info = femops.cg(A, b, rtol=0.0, atol=tolerance, maxiter=10**9, merged=merged)
    left = np.linalg.norm((b - A @ x).astype(float))
    assert not info.converged
    assert info.tolerance == tolerance
    assert info.residual == pytest.approx(left, rel=1e-6)
    assert 0.0 < left < 100 * np.finfo(dtype).eps * np.linalg.norm(b)
    assert info.iterations < 10**4


def test_a_right_hand_side_whose_squares_underflow_is_refused() -> None:
    A, b = problem("float64")
    with pytest.raises(SolverError, match="squares underflow: multiply b"):
        femops.cg(A, 1e-200 * b)
    with pytest.raises(SolverError, match="squares underflow: multiply b"):
        femops.gmres(A, 1e-160 * b)  # some digits of squares remain
    x, info = femops.cg(A, 0.0 * b)
    assert info.converged
    assert not x.any()
    x, info = femops.cg(A, 1e-140 * b, rtol=1e-10)
    assert info.converged
    assert np.linalg.norm(1e140 * (1e-140 * b - A @ x)) <= 1e-9 * np.linalg.norm(b)


@pytest.mark.parametrize("merged", [True, False])
def test_no_product_without_a_first_guess(monkeypatch: pytest.MonkeyPatch, merged: bool) -> None:
    """But for that of the residual as it is in the end."""
    A, b = problem("float64")
    products, apply = [], HostOperator.apply

    def counted(operator: HostOperator, x: np.ndarray, y: np.ndarray) -> None:
        products.append(operator)
        apply(operator, x, y)

    monkeypatch.setattr(HostOperator, "apply", counted)
    found = []
    for guess, count in ((None, 1), (np.zeros_like(b), 2)):
        products.clear()
        found.append(femops.cg(A, b, guess, rtol=1e-8, merged=merged))
        assert len(products) == count
    (x, cold), (y, warm) = found
    assert cold == warm
    assert np.array_equal(x, y)
