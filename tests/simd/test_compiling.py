"""Functions of kernels: written where they are called, once for a kind, and entry points."""

import ctypes

import numpy as np
import pytest

from femops_kernels.errors import KernelError
from support.kernels import compiled


def test_traced_functions_are_written_once_for_a_kind():
    """Numbers are arguments, whatever they are; other objects are constants of the function."""
    seen = []
    run = compiled(
        """
        @traced
        def put_one(out, k, value, flag):
            seen.append(flag)
            out[k] = 1.0 / value
            if flag == "other":
                out[k] = -8.0

        @function
        def run(address, n, x: float):
            out = numbers(Lane(2), address)
            put_one(out, 0, 0.0, None)
            put_one(out, 1, -0.0, None)
            put_one(out, 2, 4, None)
            put_one(out, 3, 1, None)
            put_one(out, 4, True, None)
            put_one(out, 5, 1.0, None)
            put_one(out, 6, x, "text")
            put_one(out, n, n, "text")
            put_one(out, n + 1, x, "other")
        """,
        seen=seen,
    ).run
    out = np.zeros(10)
    run(out.ctypes.data, 7, 0.25)
    assert out.tolist() == [np.inf, -np.inf, 0.25, 1, 1, 1, 4, 1 / 7, -8, 0]
    # a real number, an integer, a truth value; and so on
    assert seen == [None, None, None, "text", "text", "other"]


def test_traced_functions_of_tuples_that_call_each_other_and_themselves():
    run = compiled("""
        @traced
        def twice(out, pair):
            once(out, pair)
            once(out, (pair[1], (7, 0.5)))

        @traced
        def once(out, pair):
            first, (second, third) = pair if isinstance(pair[1], tuple) else (pair[0], (1, 2.0))
            out[first] = second * third

        @traced
        def down(out, n):
            if n > 20:
                out[n] = n
                down(out, n - 2)

        @function
        def run(address, n):
            out = numbers(Lane(2), address)
            twice(out, (n, n + 1))
            once(out, (n + 2, (n, 1.5)))
            down(out, 26 + n)
        """).run
    out = np.zeros(40)
    run(out.ctypes.data, 3)
    expected = np.zeros(40)
    expected[[3, 4, 5, 29, 27, 25, 23, 21]] = [2.0, 3.5, 4.5, 29, 27, 25, 23, 21]
    assert out.tolist() == expected.tolist()


def test_inner_functions_of_constants_may_call_themselves():
    run = compiled("""
        @inner
        def factorial(n):
            if n == 0:
                return 1
            return n * factorial(n - 1)

        @function
        def run(n) -> int:
            return factorial(5) + n
        """).run
    assert run(3) == 123


def test_traced_functions_return_nothing():
    with pytest.raises(KernelError, match="is no integer"):
        compiled("""
            @traced
            def more(n):
                return n + 1

            @function
            def run(n) -> int:
                return more(n)
            """)


def test_a_shared_loop_of_one_thread():
    """Its arguments arrive: arrays, tuples, truth values and constants."""
    run = compiled("""
        @shared
        def work(k, thread, out, pair, flag, name):
            scale = 0.5 if name == "half" else 1
            out[k] = (pair[0] * k + pair[1]) * scale
            if flag:
                out[k + 10] = thread

        @function
        def run(address, n, x: float):
            out = numbers(Lane(2), address)
            work(0, n, out, (x, n), n > 3, "half")
            work(0, n, numbers(Lane(2), address + 160), (1, x), False, "whole")
        """).run
    out, n = np.full(40, -1.0), 4
    expected = out.copy()
    run(out.ctypes.data, n, 2.5)
    k = np.arange(n)
    expected[:n], expected[10 : 10 + n], expected[20 : 20 + n] = (2.5 * k + n) / 2, 0, k + 2.5
    assert out.tolist() == expected.tolist()


def test_lanes_are_carried():
    run = compiled("""
        @function
        def run(source, target, n):
            total, pair = fill(Lane(4), 0.0), (fill(Lane(4), 1.0), 0)
            for k in range(n):
                v = load(Lane(4), source, k)
                total = total + v
                if k % 2:
                    pair = v * pair[0], pair[1] + 1
            store(Lane(4), target, 0, total)
            store(Lane(4), target, 1, pair[0])
            store(Lane(4), target, 2, pair[1])
        """).run
    v, out = np.arange(24.0).reshape(6, 4), np.zeros((3, 4))
    for n in (0, 1, 6):
        run(v.ctypes.data, out.ctypes.data, n)
        expected = v[:n].sum(axis=0), v[1:n:2].prod(axis=0), np.full(4, n // 2)
        np.testing.assert_array_equal(out, expected)


def test_entry_points():
    """By their address, and those that Python calls too."""
    kernel = compiled("""
        SIZE, HALF, small = 3, 0.5, 4

        @entry
        def outside(n, x: float) -> int:
            return n + int(x / HALF)

        @entry
        def nothing(address):
            put(Lane(2), address, 0, SIZE)

        @function
        def called(n, x: float) -> int:
            return n - int(x)
        """)
    assert (kernel.SIZE, kernel.HALF) == (3, 0.5)
    assert sorted(kernel.addresses) == ["called", "nothing", "outside"]
    sort = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_double)
    assert sort(kernel.addresses["outside"])(3, 2.75) == 8
    assert sort(kernel.addresses["called"])(3, 2.75) == kernel.called(3, 2.75) == 1
    out = np.zeros(1)
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(kernel.addresses["nothing"])(out.ctypes.data)
    assert out[0] == 3.0
    for name in ("outside", "nothing", "small"):
        with pytest.raises(AttributeError, match=f"no {name}"):
            getattr(kernel, name)
