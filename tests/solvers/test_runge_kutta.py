"""Explicit Runge-Kutta methods: orders, stability, limiters, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import SolverError
from femops.solvers.runge_kutta import METHODS, PAIRS, StageVectors, _stages

ORDERS = {"ssp2": 2, "ssp3": 3, "rk4": 4, "lsrk4": 4}


def _rate(t: float, u: np.ndarray) -> np.ndarray:
    """Two equations that turn, and are driven; not linear."""
    return np.array([u[1] - 0.1 * u[0] ** 3, -u[0] + np.cos(3.0 * t)])


@pytest.mark.parametrize("method", METHODS)
def test_errors_fall_with_the_order(method: str) -> None:
    start, given = np.array([1.0, 0.5]), {"end": 2.0, "method": method}
    kept = start.copy()
    exact = femops.runge_kutta(_rate, start, dt=0.002, end=2.0, method="rk4")
    errors = [
        np.linalg.norm(femops.runge_kutta(_rate, start, dt=dt, **given) - exact)
        for dt in (0.1, 0.05)
    ]
    assert abs(np.log2(errors[0] / errors[1]) - ORDERS[method]) < 0.35
    np.testing.assert_array_equal(start, kept)


@pytest.mark.parametrize("method", METHODS)
def test_the_limit_of_stability(method: str) -> None:
    """The radius is the limit for decay: just below it the solution decays, above it grows."""
    limit = METHODS[method].radius
    for factor, decays in ((0.98, True), (1.02, False)):
        step = limit * factor
        end = femops.runge_kutta(lambda _, u: -u, np.ones(1), 300 * step, step, method=method)
        assert (abs(end[0]) < 1.0) == decays


def test_times_steps_and_callbacks() -> None:
    """Steps are shortened to end at the end; the rate is evaluated at the times of the stages."""
    told: list[float] = []
    u = femops.runge_kutta(
        lambda t, u: 0.0 * u + 4.0 * t**3,
        np.zeros(1),
        3.0,
        0.3,
        start=1.0,
        callback=lambda t, _: told.append(t),
    )
    assert u[0] == pytest.approx(80.0, rel=1e-12)  # a method of order 4 is exact
    np.testing.assert_allclose(told, 1.0 + np.arange(1, 8) * 2.0 / 7.0)
    same = np.ones(2)
    np.testing.assert_array_equal(femops.runge_kutta(_rate, same, 1.0, 0.1, start=1.0), same)


@pytest.mark.parametrize("method", [*METHODS, *PAIRS])
def test_no_time_gives_a_copy(method: str) -> None:
    u = np.ones(3)
    found = femops.runge_kutta(lambda _, u: -u, u, 2.0, 0.1, start=2.0, method=method)
    assert not np.shares_memory(found, u)
    assert (found == u).all()


@pytest.mark.parametrize("method", METHODS)
def test_limiters_see_each_stage(method: str) -> None:
    seen: list[float] = []

    def limiter(u: np.ndarray) -> np.ndarray:
        seen.append(float(u.max()))
        return np.minimum(u, 1.2)

    u = femops.runge_kutta(lambda _, u: u, np.ones(3), 1.0, 0.5, method=method, limiter=limiter)
    assert u.max() <= 1.2
    assert len(seen) == 2 * {"ssp2": 2, "ssp3": 3, "rk4": 4, "lsrk4": 5}[method]


def test_steps_that_are_too_long_are_refused_with_the_limit() -> None:
    stiff = np.array([-50.0, -1.0])
    with pytest.raises(SolverError, match=r"limit of stability is about 0\.093"):
        femops.runge_kutta(lambda _, u: stiff * u, np.ones(2), 1e3, 0.5)
    with pytest.raises(SolverError, match="below the limit of stability"):
        femops.runge_kutta(lambda _, u: u**2, np.ones(2), 1e3, 0.01)
    with pytest.raises(SolverError, match="look whether f is finite"):
        femops.runge_kutta(lambda _, u: u * np.nan, np.ones(2), 1.0, 0.1)


def test_steps_far_beyond_the_limit_are_refused_with_the_growth() -> None:
    """A solution that explodes but stays finite is not returned; one that should grow is."""
    stiff, result = np.array([-50.0, -1.0]), np.empty(2)

    def same_array(_: float, u: np.ndarray) -> np.ndarray:
        return np.multiply(stiff, u, out=result)

    for method in METHODS:
        words = r"grows by a factor of .* in each step.* the limit of stability is about 0\.0"
        with pytest.raises(SolverError, match=words):
            femops.runge_kutta(same_array, np.ones(2), 5.0, 0.5, method=method)
        for late in (0.0, 1.5):  # from zero too, in few steps; a source may begin later
            with pytest.raises(SolverError, match=words):
                femops.runge_kutta(
                    lambda t, u, late=late: stiff * u + (t >= late),
                    np.zeros(2),
                    3.0,
                    0.5,
                    method=method,
                )
    filled = femops.runge_kutta(lambda _, u: stiff * u + 1.0, np.zeros(2), 50.0, 0.01)
    assert filled == pytest.approx(-1.0 / stiff)
    grown = femops.runge_kutta(lambda _, u: 2.0 * u, np.ones(1), 50.0, 0.01)
    assert grown[0] == pytest.approx(np.exp(100.0), rel=1e-5)


@pytest.mark.parametrize("method", [*METHODS, *PAIRS])
@pytest.mark.parametrize("size", [3, 50_000])
def test_functions_cannot_write_into_the_solution(method: str, size: int) -> None:
    def rate(_: float, u: np.ndarray) -> np.ndarray:
        return np.multiply(u, -1.0, out=u)

    def callback(_: float, u: np.ndarray) -> None:
        u *= 2.0

    start = np.ones(size)
    with pytest.raises(ValueError, match="read-only"):
        femops.runge_kutta(rate, start, 1.0, 0.1, method=method)
    with pytest.raises(ValueError, match="read-only"):
        femops.runge_kutta(lambda _, u: -u, start, 1.0, 0.1, method=method, callback=callback)
    assert (start == 1.0).all()
    grown = femops.runge_kutta(lambda _, u: u, start, 1.0, 0.01, method=method)
    assert grown == pytest.approx(np.e, rel=1e-4)


def test_bad_input_is_refused() -> None:
    shape = r"f\(t, u\) returned .* return an array of shape"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"dt": 0.0}, "dt = 0 from 0 to 1: give dt > 0"),
        ({"dt": np.nan}, "dt is nan"),
        ({"end": -1.0}, "from 0 to -1: give dt"),
        ({"end": 1e300}, "would never end"),
        ({"method": "euler"}, "choose one of ssp2, ssp3, rk4, lsrk4, .* dp54"),
        ({"u": 1.0}, "takes a function"),
        ({"u": np.ones(2, int)}, "takes a function"),
        ({"u": np}, r"takes a function f\(t, u\) and one vector u"),
        ({"u": np.ones((2, 2))}, "one vector u of float64 or float32, got a function and an array"),
        ({"f": lambda t, u: "abc"}, shape),
        ({"f": lambda t, u: np.zeros(3)}, shape),
        ({"f": lambda t, u: 1.0}, shape),
        ({"f": lambda u: -u}, "f takes t and u: too many positional arguments"),
        ({"callback": lambda: None}, "callback takes t and u: too many"),
        ({"limiter": 3}, "limiter is 3"),
        ({"limiter": lambda t, u: u}, "limiter takes u: missing a required argument"),
        ({"limiter": lambda u: None}, r"limiter\(u\) returned None: return an array of shape"),
        ({"limiter": lambda u: u, "method": "bs32"}, "takes no limiter"),
        ({"rtol": 0.0, "atol": 0.0, "method": "bs32"}, "and a tolerance"),
    )
    for change, words in cases:
        given = {"f": _rate, "u": np.ones(2), "end": 1.0, "dt": 0.1} | change
        with pytest.raises(SolverError, match=words):
            femops.runge_kutta(**given)


@pytest.mark.parallel(3)
def test_all_ranks_get_the_same_error(comm: Any) -> None:
    """Only the last rank's part grows without limit, and f sends messages."""

    def rate(t: float, u: np.ndarray) -> np.ndarray:
        return -(1.0 if comm.rank < 2 else 50.0) * u + 0.0 * comm.sum(float(len(u)))

    with pytest.raises(SolverError, match=r"the limit of stability is about 0\.055") as error:
        femops.runge_kutta(rate, np.ones(3), end=400.0, dt=1.0, method="rk4", comm=comm)
    assert str(error.value) == comm.broadcast(str(error.value))


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "order", "longest"), [("bs32", 3, 0.02), ("dp54", 5, 0.05)])
def test_pairs_have_their_orders(method: str, order: int, longest: float) -> None:
    """Of one step: the solution has the order, and the estimate is that of one less."""
    pair, start = PAIRS[method], np.array([1.0, 0.5])
    errors, estimates = [], []
    for dt in (longest, longest / 2):
        exact = femops.runge_kutta(_rate, start, dt, dt / 200, method="rk4")
        vectors = StageVectors(start)
        vectors.work(len(pair.times))[0][:] = _rate(0.0, start)
        new, estimate, _ = _stages(pair, _rate, 0.0, start, dt, vectors)
        errors.append(np.linalg.norm(new - exact))
        estimates.append(np.linalg.norm(estimate))
    assert abs(np.log2(errors[0] / errors[1]) - (order + 1)) < 0.4
    assert abs(np.log2(estimates[0] / estimates[1]) - order) < 0.5


@pytest.mark.parametrize("method", [*METHODS, *PAIRS])
def test_rates_in_one_array(method: str) -> None:
    """A function may return the same array each time; the solutions of steps are others."""
    start, place, kept = np.array([1.0, 0.5]), np.empty(2), list[np.ndarray]()

    def in_place(t: float, u: np.ndarray) -> np.ndarray:
        place[:] = _rate(t, u)
        return place

    options = {"end": 0.4, "dt": 0.1, "method": method}
    expected = femops.runge_kutta(_rate, start, **options)
    u = femops.runge_kutta(in_place, start, callback=lambda _, u: kept.append(u), **options)
    np.testing.assert_array_equal(u, expected)
    np.testing.assert_array_equal(start, [1.0, 0.5])
    assert len({tuple(one) for one in kept}) == len(kept) > 1


@pytest.mark.parametrize("method", PAIRS)
def test_errors_follow_the_tolerance(method: str) -> None:
    start = np.array([1.0, 0.5])
    exact = femops.runge_kutta(_rate, start, 5.0, 0.001, method="rk4")
    counts = []
    for rtol in (1e-4, 1e-6, 1e-8):
        times: list[float] = []
        u = femops.runge_kutta(
            _rate,
            start,
            5.0,
            1.0,
            method=method,
            rtol=rtol,
            callback=lambda t, _: times.append(t),  # noqa: B023
        )
        assert np.linalg.norm(u - exact) < 30 * rtol
        assert times[-1] == 5.0
        assert (np.diff([0.0, *times]) > 0.0).all()
        counts.append(len(times))
    per_decade = np.diff(np.log10(counts)) / 2
    assert (abs(per_decade - 1.0 / PAIRS[method].order) < 0.12).all()


def test_steps_grow_and_shrink_with_the_solution() -> None:
    """A pulse at t = 5: short steps there, long ones before and after."""
    times: list[float] = []
    u = femops.runge_kutta(
        lambda t, u: 0.0 * u + np.sin(t) + 9.0 * np.exp(-200.0 * (t - 5.0) ** 2),
        np.zeros(1),
        10.0,
        0.05,
        method="dp54",
        callback=lambda t, _: times.append(t),
        atol=1e-8,
    )
    steps = np.diff([0.0, *times])
    near = abs(np.array(times) - 5.0) < 0.2
    exact = 1.0 - np.cos(10.0) + 9.0 * np.sqrt(np.pi / 200.0)
    assert u[0] == pytest.approx(exact, abs=1e-5)
    assert steps[~near].max() > 10 * steps[near].min()


def test_how_pairs_begin_and_end() -> None:
    start = np.ones(1)
    with pytest.raises(SolverError, match="soon after t = 1 no step is short enough"):
        femops.runge_kutta(lambda _, u: u**2, start, 2.0, 0.1, method="dp54")
    same = femops.runge_kutta(lambda _, u: u, start, 1.0, 0.1, start=1.0, method="bs32")
    assert np.array_equal(same, start)
    begun = femops.runge_kutta(lambda _, u: -u, start, 1.0, 1e-20, method="dp54")
    assert begun[0] == pytest.approx(np.exp(-1.0), rel=1e-5)
