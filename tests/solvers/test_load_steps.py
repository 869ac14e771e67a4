"""Loads in steps: how steps grow and shrink, what a failure leaves, and how the end is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import ConvergenceWarning, SolverError
from support import fixtures

one_thread = fixtures.one_thread

Array = np.ndarray
ZERO = np.zeros(2)


def solver(iterations: Any, most: float = np.inf) -> Any:
    """A solve that takes some iterations, and fails above a load, or for a step above 0.3."""
    asked: list[float] = []

    def solve(load: float, u: Array) -> tuple[Array, Any]:
        good = load <= most
        asked.append(load)
        info = SimpleNamespace(converged=good, iterations=iterations, reason="too far")
        return np.full(2, load), info

    solve.asked = asked  # type: ignore[attr-defined]
    return solve


def test_steps_grow_and_shrink_by_iterations() -> None:
    grows = [step.size for _, step in femops.load_steps(solver(1), ZERO, first=0.1, wanted=4)]
    assert grows == pytest.approx([0.1, 0.2, 0.4, 0.3])
    stays = femops.load_steps(solver(5), ZERO, first=0.25, wanted=5)
    assert [step.load for _, step in stays] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    shrinks = femops.load_steps(solver(9), ZERO, first=0.4, wanted=4, to=0.8)
    assert [step.size for _, step in shrinks][:2] == pytest.approx([0.4, 0.4 * 2 / 3])
    capped = femops.load_steps(solver(1), ZERO, first=0.1, largest=0.1, to=-1.0)
    assert [step.load for _, step in capped][-1] == -1.0
    assert capped.converged
    assert capped.reason == "the whole load is applied"


def test_a_failure_halves_the_step_and_keeps_the_state() -> None:
    solve = solver(3, most=0.7)
    steps = femops.load_steps(solve, ZERO, first=0.4, smallest=0.01)
    with pytest.warns(ConvergenceWarning) as told:
        found = list(steps)
    assert 0.69 < steps.load <= 0.7
    assert not steps.converged
    assert (steps.u == steps.load).all()
    assert "too far" in steps.reason
    assert steps.reason in str(told[0].message)
    assert max(step.tries for _, step in found) > 1
    assert sum(step.tries for _, step in found) < len(solve.asked)


def test_errors_of_solves_are_failures_and_others_are_not() -> None:
    def fails(load: float, u: Array) -> Any:
        if load > 0.5:
            raise SolverError("inverted")
        return u, SimpleNamespace(converged=True, iterations=2)

    steps = femops.load_steps(fails, ZERO, first=0.25, smallest=0.1, warn=False)
    assert len(list(steps)) >= 1
    assert "inverted" in steps.reason

    def mistaken(load: float, u: Array) -> Any:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        list(femops.load_steps(mistaken, ZERO))


def test_what_is_refused() -> None:
    for words, given, options in (
        ("returned an array .*: return .u, info.", lambda load, u: u, {}),
        (r"calls solve\(load, u\)", lambda load: None, {}),
        ("smallest", solver(1), {"smallest": 1.0}),
        ("first is 0", solver(1), {"first": 0}),
        ("solve is 3: give a function", 3, {}),
    ):
        options_of: Any = options
        function: Any = given
        with pytest.raises(SolverError, match=words):
            list(femops.load_steps(function, ZERO, **options_of))
    with pytest.raises(SolverError, match="u0 is 0: give a vector"):
        femops.load_steps(solver(1), 0)  # type: ignore[arg-type]


def test_a_large_deformation() -> None:
    """The whole load fails at once. The state is that of many equal steps."""
    V = femops.H1(femops.box((4, 1), upper=(4.0, 0.5)), 2, ncomp=2)
    F = femops.neo_hookean(V, lam=1.0, mu=1.0).constrained(V.boundary_dofs(1))
    b = femops.boundary_load(V, (0.0, 0.01), 2)

    def solve(load: float, u: Array) -> tuple[Array, Any]:
        return femops.newton(F, u, load * b, linear="direct", maxiter=8, warn=False)

    assert not solve(1.0, V.zeros())[1].converged
    steps = femops.load_steps(solve, V.zeros(), first=0.4)
    tried = [step.tries for _, step in steps]
    assert steps.converged
    assert tried[0] > 1
    assert len(tried) < 40
    u, info = femops.newton(F, V.zeros(), b, linear="direct")
    assert info.converged
    assert abs(steps.u - u).max() < 1e-5 * abs(u).max()
