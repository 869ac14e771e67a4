"""Laws that compilers write in unusual ways: tuples, tables, integers, compiled functions."""

import copy
import gc
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

import femops
from femops.errors import LawError, OperatorError, TraceError
from femops_kernels.cpu.laws import evaluated
from femops_kernels.laws.reader import read

numba = pytest.importorskip("numba")
law = pytest.importorskip("femops.numba").law
derivative = pytest.importorskip("femops_kernels.laws.derivative").derivative
close = pytest.importorskip("support.cases.laws").close

ENTRIES = np.array([1.0, 92.0, 92.0 / 7.0, -0.0, math.inf])  # a byte of 92 is a backslash
WHOLE = np.array([0, 92, -92, 23644, 5])


# --- what LLVM makes of functions -----------------------------------------------------------------


def test_tables_whose_bytes_are_backslashes():
    found = law(lambda a: (ENTRIES[int(a)], WHOLE[int(a)]))(np.arange(5.0))
    np.testing.assert_array_equal(found, [ENTRIES, WHOLE])


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8", "?"])
def test_tables_of_all_kinds(kind):
    table = np.array([1, 92, 100, 0, 7]).astype(kind)
    found = law(lambda a: table[int(a)] * 1.0)(np.arange(5.0))
    np.testing.assert_array_equal(found, table.astype(float))


MATRIX = np.arange(60.0).reshape(6, 10) / 7.0


def searched(a):
    k = 0
    while k < len(MATRIX) - 2 and MATRIX[k + 1, 2] < a:
        k += 1
    return MATRIX[k, 2] + a * (MATRIX[k + 1, 2] - MATRIX[k, 2])


def summed(a):
    total = 0.0
    for i in range(int(a)):
        for j in range(MATRIX.shape[1]):
            total += MATRIX[i, j] * (a * j)
    return total


@pytest.mark.parametrize("function", [searched, summed])
def test_loops_over_tables(function):
    """LLVM reads the tables from other places than their beginnings."""
    given = np.linspace(0.0, 5.9, 33)
    np.testing.assert_allclose(law(function)(given), [*map(function, given)], rtol=1e-14)


def test_tables_that_differ_in_the_sign_of_zero():
    plus, minus = np.array([0.0, 1.0]), np.array([-0.0, 1.0])
    one = law(lambda a: (math.copysign(1.0, plus[int(a)]), math.copysign(1.0, minus[int(a)])))
    assert one(0.0) == (1.0, -1.0)


def test_a_branch_for_each_of_some_integers():
    @law
    def one(a):
        n = int(a)
        if n == 0:  # noqa: SIM116
            return 1.0
        elif n == 1:  # noqa: RET505
            return 7.1
        elif n == 2:
            return -math.inf
        elif n == 3:
            return 2.0
        return 0.5

    np.testing.assert_array_equal(one(np.arange(5.0)), [1.0, 7.1, -math.inf, 2.0, 0.5])


HOLES = """
@table = private constant [3 x double] [double 1.5, double poison, double -2.0]
define i32 @f(ptr %result, ptr %error, double %a) {
  %n = fptosi double %a to i64
  %place = getelementptr inbounds double, ptr @table, i64 %n
  %entry = load double, ptr %place
  store double %entry, ptr %result
  ret i32 0
}
"""


def test_tables_with_entries_that_are_not_read():
    one = read("f", HOLES, "f", 1, [(0, "f64")])
    np.testing.assert_array_equal(evaluated(one, np.array([0.0, 2.0]))[0], [1.5, -2.0])


def test_integers_of_any_width():
    @law
    def squares(a):  # LLVM multiplies in 65 bits, and has no loop
        n = 0
        for k in range(int(a)):
            n += k * k
        return n

    @law
    def chosen(a):  # LLVM asks for a bit of a number with 9 bits
        n = int(a)
        return n in (0, 4, 5, 8)

    given = np.arange(40.0)
    expected = [sum(k * k for k in range(int(a))) for a in given]
    np.testing.assert_array_equal(squares(given), expected)
    np.testing.assert_array_equal(chosen(given), [a in (0, 4, 5, 8) for a in given])


def test_signs_of_integers():
    one = law(lambda a: (int(a) > 2) - (int(a) < 2))  # LLVM has an operation for it
    np.testing.assert_array_equal(one(np.arange(5.0)), [-1, -1, 0, 1, 1])
    one = law(lambda a, b: max(np.uint32(a), np.uint32(b)) - np.uint32(b) + 0.0)
    np.testing.assert_array_equal(one(np.arange(5.0), 2.0), [0, 0, 0, 1, 2])


def test_powers_of_integers():
    one = law(lambda a, n: (a ** int(n), 2.0 ** int(n)))
    for n in range(-5, 6):
        assert one(1.5, n) == pytest.approx((1.5**n, 2.0**n), rel=1e-15)


def test_tuples():
    assert law(lambda a: (a, True, 3, 2.5))(2.0) == (2.0, 1.0, 3.0, 2.5)
    assert law(lambda a: (a > 1, (a > 2, a)))(2.0) == (1.0, 0.0, 2.0)
    assert law(lambda a: ((a, a > 1), a > 2, a > 0))(2.0) == (2.0, 1.0, 0.0, 1.0)
    assert law(lambda a: (0.0, 0.0, a, -1, -1, -1, -1, True))(2.0) == (0, 0, 2, -1, -1, -1, -1, 1)

    assert law(lambda a: (0.0, a))(2.0) == (0.0, 2.0)
    assert law(lambda a: ((0.5, (7, 0.1)), a))(2.0) == (0.5, 7.0, 0.1, 2.0)
    assert law(lambda a: (1.5, -math.inf, 3))(2.0) == (1.5, -math.inf, 3.0)

    assert law(lambda a: ((True, False, True), a))(2.0) == (1.0, 0.0, 1.0, 2.0)

    @law
    def chosen(a, n):
        return (a, 2.0 * a, -a)[int(n)]

    np.testing.assert_array_equal(chosen(3.0, np.arange(3.0)), [3.0, 6.0, -3.0])


@pytest.mark.parametrize("options", [{"fastmath": True}, {"parallel": True}, {"debug": True}])
def test_options_of_numba(options):
    @numba.njit(**options)
    def total(a):
        n = 0.0
        for k in numba.prange(int(a)):
            n += 1.0 / (k + 1.0)
        return n

    total(3.0)  # compiled before, for vectors
    np.testing.assert_allclose(law(total)(100.0), total(100.0), rtol=1e-13)


def test_functions_of_numbas_cache(tmp_path):
    program = tmp_path / "cached.py"
    program.write_text(
        "import numba, femops.numba\n"
        "@numba.njit(cache=True)\n"
        "def f(a):\n    return 3.0 * a\n"
        "assert f(1.0) == 3.0\n"
        "assert femops.numba.law(f)(2.0) == 6.0\n"
    )
    for _ in range(2):
        subprocess.run([sys.executable, program], check=True)


def test_laws_of_the_same_instructions_and_other_inputs():
    V = femops.H1(femops.box((3,)), 1)
    one, two = law(lambda a: a), law(lambda a, b: a)
    F = femops.residual(lambda u, x: {"value": one(u) + two(u, x[0])}, V)
    G = femops.residual(lambda u, x: {"value": 2.0 * u}, V)
    u = np.arange(4.0)
    close(F.residual(u), G.residual(u))


# --- derivatives ----------------------------------------------------------------------------------


def slopes(function, *given):
    one = law(function).law
    return [float(x) for x in evaluated(derivative(one, tuple(range(one.inputs))), *given)]


def test_derivatives_of_powers_of_constants():
    assert slopes(lambda a: 3.0**a, 0.5) == pytest.approx([3.0**0.5 * math.log(3.0)])


def test_derivatives_that_are_constant_or_the_same():
    """Forms store less for them."""
    made = derivative(law(lambda a, b, k: (k * a, k * b, 2.0 * a)).law, (0, 1)).known
    assert made == ((False, 0), (True, 0.0), (True, 0.0), (False, 0), (True, 2.0), (True, 0.0))

    V = femops.H1(femops.box((4, 4)), 2)
    flux = law(lambda a, b, k: (k * k * a, k * k * b))
    forms = [
        lambda u, x: {"grad": [*flux(*u.grad, u)]},
        lambda u, x: {"grad": u * u * u.grad},
    ]
    J, K = (femops.residual(one, V).jacobian(V.zeros() + 0.5) for one in forms)
    v = np.arange(float(V.size))
    close(J @ v, K @ v)


@pytest.mark.parametrize("first", [(0,), (1,), (0, 1), (1, 0)])
@pytest.mark.parametrize("second", [(0,), (1,), (0, 1)])
def test_second_derivatives_by_other_inputs(first, second):
    def one(a, b):
        return math.sqrt(a * a + b) * math.exp(a * b)

    def exact(a, b):  # second derivatives, by (a, a), (a, b) and (b, b)
        r, e = math.sqrt(a * a + b), math.exp(a * b)
        ra, rb = a / r, 0.5 / r
        raa, rab, rbb = b / r**3, -0.5 * a / r**3, -0.25 / r**3
        return (
            e * (raa + 2 * b * ra + b * b * r),
            e * (rab + a * ra + b * rb + (1 + a * b) * r),
            e * (rbb + 2 * a * rb + a * a * r),
        )

    found = evaluated(derivative(derivative(law(one).law, first), second), 1.3, 0.7)
    expected = [exact(1.3, 0.7)[i + j] for i in first for j in second]
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-13)


# --- failures -------------------------------------------------------------------------------------


def stubborn(a):
    if a > 0.9:
        raise ValueError("no convergence")
    return a * a


def test_an_index_far_outside_of_a_table():
    """The function itself would read memory there, and end the process."""
    one, V = law(lambda a: ENTRIES[int(a)]), femops.H1(femops.box((3,)), 1)
    F = femops.residual(lambda u, x: {"value": one(u)}, V)
    with pytest.raises(LawError, match=r"index is out of bounds|an index is outside of a table"):
        F.residual(np.full(V.size, 1e15))


def test_a_law_that_fails_and_is_gone():
    V = femops.H1(femops.box((3,)), 1)
    F = femops.residual(lambda u, x: {"value": law(stubborn)(u)}, V)
    gc.collect()
    with pytest.raises(LawError, match=r"stubborn\(2\) fails in element 0"):
        F.residual(np.full(V.size, 2.0))


def test_derivatives_that_fail():
    def slope(a):
        if a > 0.9:
            raise ValueError("no slope")
        return 2.0 * a

    V = femops.H1(femops.box((3,)), 1)
    one = law(lambda a: a * a, derivatives=slope)
    J = femops.functional(lambda u, x: one(u), V).derivative
    with pytest.raises(LawError, match=r"slope\(2\) fails in element 0"):
        J.residual(np.full(V.size, 2.0))


def test_a_fork_waits_for_laws(monkeypatch):
    """A child would have LLVM's lock, and nobody to release it."""
    from numba.core.compiler_lock import global_compiler_lock

    held, read = [], femops.numba.read

    def watched(*given):
        held.append(global_compiler_lock.is_locked())
        return read(*given)

    monkeypatch.setattr(femops.numba, "read", watched)
    law(lambda a: 2.5 * a)
    assert held == [True]


# --- arguments and copies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (None, "a NoneType: give real numbers"),
        (1j, "a complex: give real numbers"),
        (np.array([1j]), "complex128: give real numbers"),
        ("2.5", "a str: give real numbers"),
        ([1, [2]], "a list: give real numbers"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
        (np.zeros(3), "do not fit: shape mismatch"),
    ],
)
def test_arguments_that_are_no_numbers(given, what):
    with pytest.raises(TraceError, match=what):
        law(lambda a, b: a + b)(given, np.zeros(4))


@pytest.mark.parametrize("function", [np.sin, math.sin, float, numba.vectorize(lambda a: a), "a"])
def test_functions_that_numba_does_not_compile(function):
    with pytest.raises(OperatorError, match="is not a function of numbers"):
        law(function)
    with pytest.raises(OperatorError, match=r"is not a function of numbers|derivatives is 'a'"):
        law(lambda a: a, derivatives=function)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_of_laws(copied):
    one = copied(law(stubborn))
    assert (one.__name__, one(0.5)) == ("stubborn", 0.25)
    V = femops.H1(femops.box((3,)), 1)
    F = femops.residual(lambda u, x: {"value": one(u)}, V)
    with pytest.raises(LawError, match="no convergence"):
        F.residual(np.full(V.size, 2.0))
