"""Exponentials, logarithms, powers, sines and cosines of lanes, beside those of long doubles."""

import numpy as np
import pytest

from femops_kernels.codegen.specialize import specialize
from femops_kernels.simd.lanes import Lane

BOUNDS = {"exp": 1.0, "log": 0.9, "sin": 1.6, "cos": 1.6}
"""Errors in units of the last place of float64."""


def computed(name, x, width=8, dtype="float64"):
    """Values of a function of lanes, for as many numbers as fill lanes."""
    x = np.ascontiguousarray(x, dtype)
    program = f"def LAW(x):\n    return (lane_{name}(x),)\n"
    kernel = specialize(("law_on_arrays",), {"LANE": Lane(width, dtype), "INPUTS": 1}, program)
    out, count = np.empty_like(x), x.size // width
    table = np.array([x.ctypes.data, out.ctypes.data], np.int64)
    kernel.run(count, table.ctypes.data)
    return out[: count * width]


def arguments(name):
    rng = np.random.default_rng(0)
    if name == "exp":
        parts = rng.uniform(-708, 709, 40000), rng.uniform(-1, 1, 20000), 1e-300 * np.arange(8)
    elif name == "log":
        near = 1 + rng.uniform(-1e-6, 1e-6, 20000)
        parts = 10.0 ** rng.uniform(-307, 308, 40000), rng.uniform(0.5, 2, 20000), near
    else:
        turns = 0.5 * np.pi * np.arange(1, 4001)
        parts = rng.uniform(-10, 10, 40000), rng.uniform(-1e5, 1e5, 20000), turns, 1e6 * turns
    return np.concatenate(parts)


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_in_the_last_place(name):
    x = arguments(name)
    found = computed(name, x)
    exact = getattr(np, name)(x[: found.size].astype(np.longdouble))
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long doubles have no more digits here")
    error = np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float64))
    assert error.max() <= BOUNDS[name]


@pytest.mark.parametrize("name", BOUNDS)
def test_all_widths_and_float32(name):
    x = arguments(name)[::37][:1600]
    found = computed(name, x)
    for width in (2, 4, 16):
        assert computed(name, x, width).tobytes() == found.tobytes()
    with np.errstate(over="ignore"):
        short = x.astype(np.float32)
    if name != "exp":
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(short.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(computed(name, short, 16, "float32"), expected, rtol=1e-7)


@pytest.mark.parametrize("name", BOUNDS)
def test_ends_of_the_range(name):
    """NaN, infinite and large numbers, zeros with their signs, and numbers below 1e-308."""
    x = np.array(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 5e-324, 1e-310, 800.0, -800.0, 1e300, -740.0]
    )
    x = np.resize(x, 16)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    found = computed(name, x)
    np.testing.assert_allclose(found, expected, rtol=4e-16, atol=5e-324)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()


def powers(x, y):
    program = "def LAW(x, y):\n    return (lane_pow(x, y),)\n"
    kernel = specialize(("law_on_arrays",), {"LANE": Lane(8), "INPUTS": 2}, program)
    out = np.empty_like(x)
    table = np.array([x.ctypes.data, y.ctypes.data, out.ctypes.data], np.int64)
    kernel.run(x.size // 8, table.ctypes.data)
    return out


@pytest.mark.parametrize(
    ("least", "most", "exponent"),
    [
        (1e-3, 1e3, 3),
        (1e-300, 1e300, 1),
        (0.5, 2, 900),
        (0.99, 1.01, 5e4),
        (1 - 1e-9, 1 + 1e-9, 6e11),
    ],
)
def test_errors_of_powers(least, most, exponent):
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long doubles have no more digits here")
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(np.log(least), np.log(most), 40000))
    y = rng.uniform(-exponent, exponent, 40000)
    exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    error = np.abs(powers(x, y) - exact) / np.spacing(np.abs(exact).astype(np.float64))
    assert error.max() <= 1.0


def test_powers_that_are_not_ordinary():
    """Those of zeros, negative and infinite numbers and NaN, and results beyond the range."""
    x = np.array([0.0, -0.0, -1.0, -2.0, np.inf, -np.inf, np.nan, 1.0, 5e-324, 1e308, 0.5, 3.0])
    x, y = (each.ravel().copy() for each in np.meshgrid(x, [*x, 2.0, -3.0, 0.5, 1e4, -2000.0, 7.0]))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    found = powers(x, y)
    np.testing.assert_allclose(found, expected, rtol=3e-16, atol=5e-324)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()
