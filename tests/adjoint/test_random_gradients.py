"""Gradients of random goals and residuals, beside differences of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import Sensitivity
from femops.errors import OperatorError, TraceError
from support.cases.differences import difference_along
from support.cases.random_forms.examples import Example, example
from support.cases.random_goals import Case

GOALS = [pytest.param(seed, marks=pytest.mark.sample(50)) for seed in range(0, 200, 2)]
RESIDUALS = [pytest.param(seed, marks=pytest.mark.sample(50)) for seed in range(1, 200, 2)]


@pytest.mark.parametrize("seed", GOALS)
def test_goals(seed: int) -> None:
    case = Case(seed)
    u = 0.5 * case.rng.standard_normal(case.made(case.point)[0].space.size)

    def found(point: dict[str, Any]) -> Any:
        return femops.gradient(case.made(point)[0], u=u, wrt=[*point])

    def flat(slopes: Any) -> Any:
        return np.concatenate([np.ravel(slopes[name]) for name in case.point])

    slopes = found(case.point)
    along = flat(case.direction)
    expected = difference_along(lambda p: case.made(p)[0](u), case.point, case.direction)
    scale = np.sum(abs(flat(slopes) * along)) + 1e-3
    assert flat(slopes) @ along == pytest.approx(expected, abs=1e-7 * scale), case.described
    turned = flat(slopes.hessian_product(case.direction))
    expected = difference_along(lambda p: flat(found(p)), case.point, case.direction)
    scale = abs(turned).max() + 1e-3
    assert turned == pytest.approx(expected, abs=2e-6 * scale), case.described


@pytest.mark.parametrize("seed", RESIDUALS)
def test_residuals(seed: int) -> None:
    case = Case(seed)
    F = case.made(case.point)[1]
    F = F.constrained(np.arange(0, F.space.size, 7))
    u, v = 0.5 * case.rng.standard_normal((2, F.space.size))
    for name in case.rng.choice([*case.point], 2, replace=False).tolist():
        S, step = Sensitivity(F, u, name), case.direction[name]
        made, back = S @ step, S.T @ v
        expected = difference_along(lambda p: case.made(p)[1].residual(u), case.point, {name: step})
        expected[F.constrained_dofs] = 0.0
        scale = abs(made).max() + 1e-3
        assert made == pytest.approx(expected, abs=1e-7 * scale), f"{name}, {case.described}"
        # gradients of piecewise constants are zero but for round-off
        scale = abs(made) @ abs(v) + np.sum(abs(back * step)) + 1e-12
        assert np.sum(back * step) == pytest.approx(v @ made, abs=1e-13 * scale), case.described


def made_of(case: Example) -> Any:
    """The form of an example that has a gradient; the test is skipped for others."""
    if case.single or case.test is not None:
        pytest.skip("float32, or between two spaces")
    try:
        return case.operator("partial")
    except TraceError as error:
        pytest.skip(str(error))  # zero whatever the field


def sensitivity(F: Any, u: Any, name: str) -> Sensitivity | None:
    """Derivative by a coefficient; None for arrays and orders that are refused."""
    try:
        return Sensitivity(F, u, name)
    except OperatorError as error:
        if "an array at points: as" in str(error) or "quadrature points" in str(error):
            return None
        raise


FORMS = [pytest.param(seed, marks=pytest.mark.sample(50)) for seed in range(140)]


@pytest.mark.parametrize("seed", FORMS)
def test_coefficients_of_random_forms(seed: int) -> None:
    """Forms with powers, roots, choices and numbers of all sizes, by each of their coefficients."""
    case = example(seed)
    F, rng = made_of(case), np.random.default_rng(seed)
    u = rng.standard_normal(F.space.size)
    if case.state is not None:
        u = np.concatenate([state.ravel() for state in case.state])
    now = F.residual(u) if case.state is not None else F @ u
    for name, given in case.given.items():
        S = None if callable(given) else sensitivity(F, u, name)
        if S is None:
            continue
        value = given.vector if isinstance(given, femops.GridFunction) else np.asarray(given)
        step = rng.standard_normal(np.shape(value))
        if value.ndim > 1:
            step = step + step.swapaxes(-1, -2) if value.shape[-1] == value.shape[-2] else step
        step = value * step  # a matrix stays symmetric, and numbers keep their size

        def changed(point: dict[str, Any], name: str = name, given: Any = given) -> Any:
            new: Any = point[name]
            if isinstance(given, femops.GridFunction):
                new = femops.GridFunction(given.space, new)
            G = F.update(**{name: new})
            return G.residual(u) if case.state is not None else G @ u

        made, v = S @ step, rng.standard_normal(F.space.size)
        expected = difference_along(changed, {name: value}, {name: step}, 1e-4)
        scale = abs(made).max() + 1e-5 * abs(now).max() + 1e-300
        assert made == pytest.approx(expected, abs=1e-5 * scale), case.described
        back = S.T @ v * step
        scale = (abs(made) + 1e-5 * abs(now)) @ abs(v) + np.sum(abs(back))
        assert np.sum(back) == pytest.approx(v @ made, abs=1e-12 * scale), case.described
