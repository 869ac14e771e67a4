"""Gradients through steps in time, beside finite differences and with all kinds of schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adjoint import Steps, taylor

MESH = femops.box((3, 2))
V, K = femops.H1(MESH, 2), femops.H1(MESH, 1)
FIXED = V.boundary_dofs(where=lambda x: x[0] < 1e-9)
COUNT = 5
RANDOM = np.random.default_rng(0)
START = RANDOM.standard_normal(V.size)
POINT = {"kappa": 1.0 + 0.3 * RANDOM.random(K.size), "dt": 0.1, "initial": START}


def euler(u: Any, old: Any, kappa: Any, dt: Any, t: Any, x: Any) -> Any:
    return {"value": (u - old) / dt + u**3 - t * x[1], "grad": kappa * u.grad}


def steps(kappa: Any, dt: float, **options: Any) -> Steps:
    field = femops.GridFunction(K, kappa)
    old = femops.GridFunction(V, V.zeros())
    F = femops.residual(euler, V, old=old, kappa=field, dt=dt, t=0.0).constrained(FIXED)
    last = femops.functional(lambda u, kappa: kappa * u**2, V, kappa=field)
    rate = femops.functional(lambda u, dt, t: dt * t * u, V, dt=dt, t=0.0)
    given = {"final": last, "running": rate, "at": lambda n: {"t": 0.1 * n}} | options
    return Steps(F, COUNT, rtol=1e-12, **given)


def value(point: dict[str, Any]) -> float:
    return steps(point["kappa"], point["dt"]).run(point["initial"])[0]


@pytest.fixture(scope="module")
def found() -> tuple[float, dict[str, Any]]:
    return steps(POINT["kappa"], POINT["dt"]).gradient(START, [*POINT])


@pytest.mark.parametrize("name", [*POINT])
def test_gradients(found: Any, name: str) -> None:
    reached, slopes = found
    assert reached == value(POINT)
    step = 0.5 * np.random.default_rng(1).standard_normal(np.shape(POINT[name]))
    rates = taylor(value, POINT, {name: step}, float(np.sum(slopes[name] * step)), step=1e-2)
    assert rates[-2:] == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SingleMemoryStorageSchedule", ()),
        ("SingleDiskStorageSchedule", ()),
        ("Revolve", (COUNT, 2)),
        ("MultistageCheckpointSchedule", (COUNT, 2, 1)),
        ("MixedCheckpointSchedule", (COUNT, 3)),
        ("TwoLevelCheckpointSchedule", (3, 2)),
        ("HRevolve", (COUNT, 1, 2)),
    ],
)
def test_schedules_have_the_same_bits(found: Any, name: str, arguments: tuple[int, ...]) -> None:
    schedules = pytest.importorskip("checkpoint_schedules")
    schedule = getattr(schedules, name)(*arguments)
    reached, slopes = steps(POINT["kappa"], POINT["dt"]).gradient(START, [*POINT], schedule)
    assert reached == found[0]
    assert all(np.array_equal(slopes[key], found[1][key]) for key in slopes)


def test_essential_values_of_a_function_of_time() -> None:
    def begin(n: int, u: Any) -> Any:
        guess = u.copy()
        guess[FIXED] = 0.1 * n
        return guess

    one = steps(POINT["kappa"], POINT["dt"], begin=begin)
    _, slopes = one.gradient(START, "initial")
    step = np.random.default_rng(2).standard_normal(V.size)
    rates = taylor(lambda u: one.run(u)[0], START, step, float(slopes["initial"] @ step), step=1e-2)
    assert rates[-2:] == pytest.approx(2.0, abs=0.05)


def test_two_fields() -> None:
    W = femops.Product(a=V, b=V)

    def chain(a: Any, b: Any, a0: Any, b0: Any, k: Any) -> Any:
        return {"a": {"value": a - a0 + k * a * b}, "b": {"value": b - b0 - k * a * b}}

    at = {name: femops.GridFunction(V, V.zeros()) for name in ("a0", "b0")}
    goal = femops.functional(lambda a, b: a**2 + b, W)

    def run(k: float) -> Steps:
        F = femops.residual(chain, W, **at, k=k)
        return Steps(F, 3, running=goal, old={"a": "a0", "b": "b0"}, rtol=1e-12)

    start = 1.0 + 0.1 * np.random.default_rng(3).random(W.size)
    _, slopes = run(0.2).gradient(start, ["k", "initial"])
    rates = taylor(lambda k: run(k).run(start)[0], 0.2, 1.0, float(slopes["k"]), step=1e-2)
    assert rates[-2:] == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: steps(POINT["kappa"], 0.1, final=None, running=None), "needs at least one step"),
        (lambda: steps(POINT["kappa"], 0.1, old="before"), "old is 'before': give the name"),
        (
            lambda: steps(POINT["kappa"], 0.1).gradient(START, "t"),
            "t has another value in each step",
        ),
        (lambda: steps(POINT["kappa"], 0.1).gradient(START, "q"), "nothing depends on 'q'"),
        (lambda: steps(POINT["kappa"], 0.1).gradient(START, ()), "give names of coefficients"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(femops.errors.OperatorError, match=message):
        call()
