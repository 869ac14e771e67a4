"""Functions of lane vectors against NumPy, slot by slot, in one kernel for each lane format."""

import re

import numpy as np
import pytest

from femops_kernels.simd.lanes import Lane
from support.kernels import compiled

ROWS = 38


KERNEL = """
@inner
def functions(a, b, out):
    store(lane, out, 0, lane_sqrt(a))
    store(lane, out, 1, lane_exp(a))
    store(lane, out, 2, lane_log(a))
    store(lane, out, 3, lane_sin(a))
    store(lane, out, 4, lane_cos(a))
    store(lane, out, 5, lane_tan(a))
    store(lane, out, 6, lane_tanh(a))
    store(lane, out, 7, lane_sinh(a))
    store(lane, out, 8, lane_cosh(a))
    store(lane, out, 9, lane_arctan(b))
    store(lane, out, 10, lane_fabs(b))

@inner
def pairs(a, b, out):
    store(lane, out, 11, lane_minimum(a, b))
    store(lane, out, 12, lane_maximum(a, b))
    store(lane, out, 13, lane_arctan2(a, b))
    store(lane, out, 14, lane_pow(a, b))
    store(lane, out, 15, lane_minimum(b, 0.25))
    store(lane, out, 16, lane_maximum(1, b))
    store(lane, out, 17, lane_pow(a, 2.5))
    store(lane, out, 18, lane_arctan2(-1.5, b))
    store(lane, out, 19, as_lane(lane, 0.1))
    store(lane, out, 20, as_lane(lane, -3))
    store(lane, out, 28, lane_by_determinant(b, a))
    store(lane, out, 29, lane_by_determinant(1.0, a))

@inner
def more(a, b, out):
    store(lane, out, 30, lane_exp2(a))
    store(lane, out, 31, lane_expm1(b))
    store(lane, out, 32, lane_log2(a))
    store(lane, out, 33, lane_log10(a))
    store(lane, out, 34, lane_log1p(a))
    store(lane, out, 35, lane_arcsin(0.5 * a))
    store(lane, out, 36, lane_arccos(0.5 * a))
    store(lane, out, 37, lane_hypot(a, b))

@inner
def choices(a, b, out):
    store(lane, out, 21, lane_where(lane_lt(a, b), a, b))
    store(lane, out, 22, lane_where(lane_le(a, b), 1.0, b))
    store(lane, out, 23, lane_where(lane_gt(a, b), a, 0.1))
    store(lane, out, 24, lane_where(lane_ge(a, b), as_lane(lane, 1.0), b))
    store(lane, out, 25, lane_where(lane_eq(a, b), a, -7.0))
    store(lane, out, 26, lane_where(lane_ne(a, b), a, -7.0))
    store(lane, out, 27, lane_where(lane_gt(b, 0.0), a, b))

@function
def run(a, b, out):
    x, y = load(lane, a, 0), load(lane, b, 0)
    functions(x, y, out)
    pairs(x, y, out)
    choices(x, y, out)
    more(x, y, out)
"""
"""``run(a, b, out)`` of addresses: row k of out is the k-th of `expected`."""


def expected(a, b):
    """The same by NumPy, in the type of the vectors."""
    number, where = a.dtype.type, np.where
    return [
        *(f(a) for f in (np.sqrt, np.exp, np.log, np.sin, np.cos, np.tan)),
        *(f(a) for f in (np.tanh, np.sinh, np.cosh)),
        *(np.arctan(b), np.abs(b)),
        *(f(a, b) for f in (np.minimum, np.maximum, np.arctan2, np.power)),
        *(np.minimum(b, number(0.25)), np.maximum(number(1), b)),
        *(a ** number(2.5), np.arctan2(number(-1.5), b)),
        *(number(0.1), number(-3)),
        where(a < b, a, b),
        where(a <= b, number(1.0), b),
        where(a > b, a, number(0.1)),
        where(a >= b, number(1.0), b),
        where(a == b, a, number(-7.0)),
        where(a != b, a, number(-7.0)),
        where(b > 0, a, b),
        *(b / a, number(1.0) / a),
        *(np.exp2(a), np.expm1(b), *(f(a) for f in (np.log2, np.log10, np.log1p))),
        *(f(number(0.5) * a) for f in (np.arcsin, np.arccos)),
        np.hypot(a, b),
    ]


@pytest.mark.parametrize(("width", "dtype"), [(8, "float64"), (4, "float32")])
def test_agrees_with_numpy(width, dtype):
    rng = np.random.default_rng(width)
    a = rng.uniform(0.2, 1.4, width).astype(dtype)
    b = (a * rng.permutation(np.linspace(-1.5, 1.5, width))).astype(dtype)
    b[width // 2] = a[width // 2]  # one slot in which the two are equal
    out = np.full((ROWS, width), np.nan, dtype)
    run = compiled(KERNEL, lane=Lane(width, dtype)).run
    run(a.ctypes.data, b.ctypes.data, out.ctypes.data)
    rows = expected(a, b)
    assert len(rows) == ROWS
    assert {bool(x) for x in a < b} == {True, False}  # both branches are taken
    exact = {0, 10, 11, 12, 15, 16, *range(19, 30)}
    for k, row in enumerate(rows):
        tolerance = 0.0 if k in exact else 8 * np.finfo(dtype).eps
        np.testing.assert_allclose(out[k], row, rtol=tolerance, equal_nan=True, err_msg=f"row {k}")


def test_every_function_is_tried():
    from femops_kernels.simd import lane_math
    from femops_kernels.simd.lanes import __all__ as others

    tried = {*re.findall(r"\b(lane_\w+|as_lane)\(", KERNEL)}
    of_lines = {"add_lines", "scale_and_add", "scale_line"}  # products by lines have them
    assert tried | of_lines == set(lane_math.__all__)
    assert not tried & set(others)
