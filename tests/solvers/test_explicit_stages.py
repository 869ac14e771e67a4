"""Stages of explicit methods: beside long double, short and long, on a device; who owns arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import SolverError, VectorError
from femops.parallel import communicator
from femops.solvers.runge_kutta import METHODS, PAIRS, Tolerance
from femops.spaces import weighted_sums
from support.cuda.guarded import GuardedDevice, guarded_device

PLACES = "short", "long", "device"
ALL = [*METHODS, *PAIRS]
DT = 0.37
LAST = 1e300  # a tolerance that no error exceeds


@pytest.fixture(params=PLACES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GuardedDevice | None:
    """A device, or None for the host, where vectors are short (NumPy) or long (compiled)."""
    monkeypatch.setattr(weighted_sums, "_SHORT", 10**9 * (request.param == "short"))
    return guarded_device() if request.param == "device" else None


def put(device: GuardedDevice | None, array: Any) -> Any:
    return array if device is None else device.upload(array)


def get(device: GuardedDevice | None, array: Any) -> Any:
    return array.copy() if device is None else device.download(array)


Stages = list[list[tuple[Any, Any]]]
"""Terms (weight, vector) of each vector that f is given, and of the solution at last."""


def stages_of(method: str, u: Any, k: Any) -> Stages:
    """The method's stages as sums of terms: textbook formulas, in long double."""
    u, k, h = u.astype(np.longdouble), [each.astype(np.longdouble) for each in k], np.longdouble(DT)
    if method in PAIRS:
        rows = list(PAIRS[method].rows)
    elif method == "rk4":
        rows = [(0.5,), (0.0, 0.5), (0.0, 0.0, 1.0), np.array([1, 2, 2, 1]) / np.longdouble(6)]
    elif method == "lsrk4":
        scheme, change, total, rows = METHODS[method], np.zeros(5, np.longdouble), np.zeros(5), []
        for n, (a, b) in enumerate(zip(scheme.kept, scheme.added, strict=True)):
            change = a * change + np.eye(5)[n]
            total = total + b * change
            rows.append(total)
    else:
        third = np.longdouble(1) / 3
        rows = {
            "ssp2": [(1.0,), (0.5, 0.5)],
            "ssp3": [(1.0,), (0.25, 0.25), (third / 2, third / 2, 2 * third)],
        }[method]
    terms = [[u, *(h * a * each for a, each in zip(row, k, strict=False))] for row in rows]
    return [[u], *terms]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("method", ALL)
def test_stages_are_those_of_long_double(
    method: str, dtype: str, device: GuardedDevice | None
) -> None:
    """With numbers over 40 orders of magnitude, and rates that come in one array."""
    rng, n = np.random.default_rng(7), 1237
    u, *k = (rng.standard_normal(n) * 10.0 ** rng.uniform(-20, 20, n) for _ in range(8))
    u, k = u.astype(dtype), [each.astype(dtype) for each in k]
    place, seen, start = put(device, np.empty(n, dtype)), [], put(device, u.copy())

    def f(t: float, given: Any) -> Any:
        seen.append(get(device, given))
        place[...] = put(device, k[len(seen) - 1])
        return place

    options = {"rtol": LAST, "atol": LAST} if method in PAIRS else {}
    end = femops.runge_kutta(f, start, DT, DT, method=method, **options)
    expected = stages_of(method, u, k)
    found = [*seen, get(device, end)]
    if method in PAIRS:  # the last stage is the solution
        assert np.array_equal(found.pop(), found[-1])
    assert len(found) == len(expected)
    for vector, terms in zip(found, expected, strict=True):
        bound = 16 * np.finfo(dtype).eps * np.abs([u, *(DT * each for each in k)]).sum(axis=0)
        assert vector.dtype == dtype
        assert (abs(vector - np.sum(terms, axis=0)) <= bound).all()
    assert np.array_equal(get(device, start), u)


@pytest.mark.parametrize("method", ALL)
def test_rates_may_be_arrays_of_the_method(method: str, device: GuardedDevice | None) -> None:
    """The vector that f is given, a view of it, or a view backwards, as a copy would be."""
    u = put(device, np.random.default_rng(8).standard_normal(501))
    options: dict[str, Any] = {"method": method, "rtol": 1e-3}
    turns: tuple[Callable[[Any], Any], ...] = (lambda v: v, lambda v: v[:], lambda v: v[::-1])
    for turn in turns:
        found, expected = (
            get(device, femops.runge_kutta(f, u, 0.6, 0.2, **options))
            for f in (lambda t, v, turn=turn: turn(v), lambda t, v, turn=turn: turn(v).copy())
        )
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("method", ALL)
def test_solutions_that_callbacks_keep_stay(method: str, device: GuardedDevice | None) -> None:
    start, kept, copies = put(device, np.linspace(1.0, 2.0, 77)), list[Any](), list[Any]()

    def keep(t: float, u: Any) -> None:
        kept.append(u)
        copies.append(get(device, u))

    options: dict[str, Any] = {"method": method, "callback": keep}
    end = femops.runge_kutta(lambda t, u: -u, start, 1.0, 0.05, **options)
    assert len(kept) > 3
    assert (get(device, kept[-1]) == get(device, end)).all()
    assert all(np.array_equal(get(device, u), copy) for u, copy in zip(kept, copies, strict=True))
    assert np.array_equal(get(device, start), np.linspace(1.0, 2.0, 77))
    del options["callback"]  # now steps write over solutions of earlier ones
    assert np.array_equal(
        get(device, femops.runge_kutta(lambda t, u: -u, start, 1.0, 0.05, **options)), copies[-1]
    )
    assert np.array_equal(get(device, start), np.linspace(1.0, 2.0, 77))


@pytest.mark.parametrize("method", METHODS)
def test_limiters_may_return_one_array(method: str, device: GuardedDevice | None) -> None:
    """The same array each time, their argument, or a view of it, as a new array would be."""
    start, place = put(device, np.linspace(-1.0, 1.0, 99)), put(device, np.empty(99))

    def same_array(u: Any) -> Any:
        place[...] = 0.9 * u
        return place

    def in_place(u: Any) -> Any:
        u *= 0.9
        return u

    def backwards(u: Any) -> Any:
        u *= -0.9  # the solution is odd
        return u[::-1]

    results = [
        get(device, femops.runge_kutta(lambda t, u: u, start, 1.0, 0.1, method=method, limiter=one))
        for one in (lambda u: 0.9 * u, same_array, in_place, backwards)
    ]
    assert all(np.allclose(results[0], other, rtol=1e-13, atol=1e-15) for other in results[1:])


@pytest.mark.parametrize("method", ALL)
def test_a_stage_is_one_launch(method: str) -> None:
    """Nothing but the solutions of the steps is allocated on the device."""
    device = guarded_device()
    u, k = device.upload(np.ones(1000)), device.upload(np.full(1000, 0.5))
    calls, made = [0], list[tuple[int, int, int]]()

    def f(t: float, given: Any) -> Any:
        calls[0] += 1
        return k

    def note(t: float, given: Any) -> None:
        made.append((calls[0], device.host.launches, device.made))

    given: dict[str, Any] = {"callback": note, "method": method, "rtol": LAST, "atol": LAST}
    femops.runge_kutta(f, u, 1.0, 0.1 if method in METHODS else 1e-6, **given)
    steps = np.diff(made, axis=0)
    extra = 2 * (method in PAIRS)  # the error, and the copy of the first rate
    assert (steps[:, 1] == steps[:, 0] + extra).all()
    if method in METHODS:
        assert (steps[:-1, 2] == 1).all()


def test_sizes_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean square over blocks of entries, on the host, and over all at once on a device."""
    monkeypatch.setattr(sys.modules[Tolerance.__module__], "_BLOCK", 10)
    tolerance, rng = Tolerance(0.1, 0.2, communicator(None)), np.random.default_rng(9)
    error, u, new = (rng.standard_normal(37) for _ in range(3))
    ratio = error / (0.2 + 0.1 * np.maximum(abs(u), abs(new)))
    expected = pytest.approx(np.sqrt((ratio**2).mean()), rel=1e-13)
    there = map(guarded_device().upload, (error, u, new))
    assert tolerance.size(error, u, new) == expected
    assert tolerance.size(*there) == expected
    zero = Tolerance(1.0, 0.0, communicator(None))
    assert zero.size(0.0 * u, 0.0 * u, 0.0 * u) == 0.0
    assert tolerance.size(u[:0], u[:0], u[:0]) == 0.0
    error[33] = np.nan
    assert tolerance.size(error, u, new) == np.inf


def test_the_solution_keeps_its_type(device: GuardedDevice | None) -> None:
    single, double = np.ones(50, np.float32), np.ones(50)
    for u, rate in ((single, double), (double, single), (double, np.ones(50, int))):
        start, k = put(device, u), put(device, rate)
        for method in ALL:
            end = femops.runge_kutta(
                lambda t, v, k=k: k, start, np.float64(1.0), 0.25, method=method
            )
            assert end.dtype == u.dtype
            np.testing.assert_allclose(get(device, end), 2.0, rtol=1e-6)


def test_results_of_other_kinds_are_refused() -> None:
    double = np.ones(50)
    with pytest.raises(SolverError, match=r"f\(t, u\) has type complex128: real numbers"):
        femops.runge_kutta(lambda t, v: 1j * v, double, 1.0, 0.1)
    with pytest.raises(SolverError, match=r"limiter\(u\) has type complex128"):
        femops.runge_kutta(lambda t, v: v, double, 1.0, 0.1, limiter=lambda v: 1j * v)
    there = guarded_device().upload(double)
    with pytest.raises(VectorError, match=r"f\(t, u\) is on a GPU"):
        femops.runge_kutta(lambda t, v: there, double, 1.0, 0.1)
    with pytest.raises(VectorError, match=r"f\(t, u\) is an array of the host"):
        femops.runge_kutta(lambda t, v: double, there, 1.0, 0.1)


def test_warnings_of_callbacks_are_those_outside() -> None:
    """What overflows in a method is looked at afterwards; callbacks warn as elsewhere."""

    def overflows(t: float, u: Any) -> None:
        u * 1e300 * 1e300

    with pytest.warns(RuntimeWarning, match="overflow"):
        femops.runge_kutta(lambda t, u: u, np.ones(3), 1.0, 0.5, callback=overflows)
