"""Laws that Numba has compiled, in kernels: against Python's own results, point by point."""

import ctypes
import math
import pickle
import random
import runpy
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, TraceError
from femops_kernels.cpu.laws import evaluated
from femops_kernels.cpu.machine import set_threads
from femops_kernels.laws.cuda import function as in_cuda
from femops_kernels.laws.derivative import derivative
from support.cuda import building

numba = pytest.importorskip("numba")
law = pytest.importorskip("femops.numba").law
cases = pytest.importorskip("support.cases.laws")
branches, cardano, close, mesh_of = cases.branches, cases.cardano, cases.close, cases.mesh_of
pair, reaction, root = cases.pair, cases.reaction, cases.root

TABLE = np.array([0.5, -1.25, 3.0, 2.0, 0.125])

# --- random laws ----------------------------------------------------------------------------------


class _Writer:
    """Writes random functions of numbers, as text."""

    def __init__(self, seed, smooth=False):
        self.rng, self.smooth = random.Random(seed), smooth
        self.inputs = self.rng.randint(1, 4)
        self.lines, self.depth = [], 1
        self.names = [f"a{k}" for k in range(self.inputs)]

    def number(self):
        if self.rng.random() < 0.25:
            return repr(round(self.rng.uniform(-2, 2), 2))
        return self.rng.choice(self.names)

    def expression(self, depth=2):
        if depth == 0 or self.rng.random() < 0.2:
            return self.number()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        kinds = [
            f"({a} + {b})",
            f"({a} - {b})",
            f"({a} * {b})",
            f"({a} / (1.5 + {b} * {b}))",
            f"math.sqrt(1.0 + {a} * {a})",
            f"math.exp(-abs({a}))",
            f"math.sin({a})",
            f"math.atan2({a}, 1.0 + {b} * {b})",
            f"math.tanh({a})",
            f"math.log1p({a} * {a})",
            f"math.hypot({a}, 1.0 + abs({b}))",
            f"({a}) ** 2",
            f"abs({a}) ** 1.5",
            f"-({a})",
        ]
        if not self.smooth:
            kinds += [
                f"max({a}, {b})",
                f"min({a}, {b})",
                f"({a} if {self.condition()} else {b})",
                f"math.floor({a})",
                f"TABLE[int(min(abs({a}), 4.0))]",
                f"float(int({a}) % 3)",
                f"math.copysign({a}, {b})",
            ]
        return self.rng.choice(kinds)

    def condition(self):
        sign = self.rng.choice(["<", ">", "<=", ">="])
        plain = f"{self.number()} {sign} {self.number()}"
        if self.rng.random() < 0.2:
            plain += f" {self.rng.choice(['and', 'or'])} not {self.number()} > {self.number()}"
        return f"({plain})"

    def say(self, line):
        self.lines.append("    " * self.depth + line)

    def statements(self, count):
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.6 or self.depth > 3:
                name = self.rng.choice([*self.names[self.inputs :], f"x{len(self.names)}"])
                self.say(f"{name} = {self.expression()}")
                if self.depth == 1 and name not in self.names:
                    self.names.append(name)
            elif kind < 0.8:
                self.say(f"if {self.condition()}:")
                self.block()
                if self.rng.random() < 0.6:
                    self.say("else:")
                    self.block()
            else:
                self.loop()

    def block(self):
        self.depth += 1
        self.say(f"{self.name()} = {self.expression()}")
        self.statements(self.rng.randint(0, 2))
        self.depth -= 1

    def name(self):
        return self.rng.choice(self.names[self.inputs :])

    def loop(self):
        counter = f"k{len(self.lines)}"
        if self.rng.random() < 0.5:
            self.say(f"for {counter} in range({self.rng.randint(1, 6)}):")
            self.depth += 1
        else:
            self.say(f"{counter} = 0")
            self.say(f"while {counter} < {self.rng.randint(2, 9)} and {self.condition()}:")
            self.depth += 1
            self.say(f"{counter} += 1")
        self.say(f"{self.name()} = 0.5 * {self.name()} + {self.expression()}")
        if self.rng.random() < 0.4:
            self.say(f"if {self.condition()}:")
            self.say(f"    {self.rng.choice(['break', 'continue'])}")
        self.statements(self.rng.randint(0, 2))
        self.depth -= 1

    def function(self):
        self.say("x0 = 0.75")
        self.names.append("x0")
        self.statements(self.rng.randint(2, 5))
        results = [self.expression() for _ in range(self.rng.randint(1, 3))]
        self.say(f"return {', '.join(results)}" + ("," if len(results) == 1 else ""))
        head = f"def written({', '.join(f'a{k}' for k in range(self.inputs))}):"
        text = "\n".join([head, *self.lines])
        names = {"math": math, "TABLE": TABLE}
        exec(text, names)
        return names["written"], text


def points(inputs, seed, count=67):
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((inputs, count)) * 10.0 ** rng.integers(-3, 3, (inputs, count))
    found[:, :5] = rng.integers(-2, 3, (inputs, 5))
    return found


def values_of(function, given):
    return np.array([function(*map(float, point)) for point in given.T]).T


COUNT = 100


@pytest.mark.parametrize(
    "seed", [pytest.param(k, marks=[pytest.mark.exhaustive] * (k >= 8)) for k in range(COUNT)]
)
def test_random_laws_against_python(seed):
    """Loops, branches, tables and integers. Where slots go apart, each has its own result."""
    function, text = _Writer(seed).function()
    given = points(function.__code__.co_argcount, seed)
    found = np.array(law(function)(*given))
    expected = values_of(function, given)
    size = np.maximum(np.abs(expected), 1e-3)
    assert (np.abs(found - expected) <= 1e-12 * size).all(), text


@pytest.mark.parametrize(
    "seed", [pytest.param(k, marks=[pytest.mark.exhaustive] * (k >= 3)) for k in range(20)]
)
def test_derivatives_of_random_laws(seed):
    """Against differences of Richardson's kind, where loops and branches go the same way."""
    function, text = _Writer(1000 + seed, smooth=True).function()
    made, given = law(function), points(function.__code__.co_argcount, seed, 23) % 2.0 + 0.1
    n = made.law.inputs
    slopes = evaluated(derivative(made.law, tuple(range(n))), *given)
    for j in range(n):
        h, ways = 1e-3, []
        for step in (h, h / 2, h / 4):
            moved = [given + sign * step * np.eye(n)[:, [j]] for sign in (1, -1)]
            ahead, behind = (np.array(made(*one)) for one in moved)
            ways.append((ahead - behind) / (2 * step))
        first, second = (4 * ways[1] - ways[0]) / 3, (4 * ways[2] - ways[1]) / 3
        best, doubt = (16 * second - first) / 15, np.abs(second - first)
        calm = doubt < 1e-6 * np.maximum(np.abs(best), 1)  # no branch changes between the points
        assert calm.mean() > 0.5, text
        found = np.array(slopes[j::n])
        error = np.abs(found - best)
        assert (error[calm] <= 1e-7 * np.maximum(np.abs(best), 1)[calm]).all(), text


# --- in forms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-13), ("float32", 2e-6)])
def test_residuals_and_jacobians(dim, dtype, tol):
    V = femops.H1(mesh_of(dim), 3)
    kappa = femops.GridFunction(V, V.interpolate(lambda x: x[0] - 0.4))
    u, v = np.random.default_rng(dim).standard_normal((2, V.size)).astype(dtype)
    lawful, traced = (
        femops.residual(reaction(*laws), V, kappa=kappa, dtype=dtype)
        for laws in ((root, pair), (cardano, branches))
    )
    close(lawful.residual(u), traced.residual(u), tol)
    J, K = lawful.jacobian(u), traced.jacobian(u)
    close(J @ v, K @ v, tol)
    X = np.random.default_rng(0).standard_normal((V.size, 5)).astype(dtype)
    close(J @ X, K @ X, tol)
    close(J.diagonal(), K.diagonal(), tol)
    close(J.assemble() @ v, K @ v, tol)


LEVELS = ("auto", "full", "element", "partial", "matrix-free")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("place", [{}, {"boundary": True}, {"faces": "interior"}])
def test_linear_forms_at_all_places_and_levels(level, place):
    mesh = mesh_of(2)
    V = (femops.L2 if "faces" in place else femops.H1)(mesh, 3)

    def form(root, pair):
        def function(u, x, kappa):
            if "faces" in place:
                return {"jump": root(pair(x[0], kappa.minus)[1]) * u.jump}
            first, second = pair(x[0], kappa)
            return {"value": root(first) * u, **({} if place else {"grad": second * u.grad})}

        return femops.form(function, V, kappa=lambda x: x[1] - 0.3, level=level, **place)

    A, B = form(root, pair), form(cardano, branches)
    x = np.random.default_rng(1).standard_normal(V.size)
    close(A @ x, B @ x)
    close(A.T @ x, B.T @ x)
    close(A.diagonal(), B.diagonal())


def test_lanes_and_threads_have_the_same_bits():
    V = femops.H1(mesh_of(2, 30), 2)
    u, v = np.random.default_rng(0).standard_normal((2, V.size))
    found = set()
    for lanes in (2, 4, 8, 16):
        for threads in (1, 2, 3):
            set_threads(threads)
            F = femops.residual(lambda u, x: {"value": root(u) * pair(u, x[0])[1]}, V, lanes=lanes)
            found.add((lanes, F.residual(u).tobytes()))
            close(F.jacobian(u) @ v, found_once(V, u, v))
    assert len(found) == 4


def found_once(V, u, v):
    F = femops.residual(lambda u, x: {"value": cardano(u) * branches(u, x[0])[1]}, V)
    return F.jacobian(u) @ v


def test_functionals_gradients_and_complex_coefficients():
    V = femops.H1(mesh_of(2), 2)
    u = np.random.default_rng(3).standard_normal(V.size)
    goals = [
        femops.functional(lambda u, x, c, f=f, g=g: f(u * c) + u * g(u, x[0])[0], V, c=0.7)
        for f, g in ((root, pair), (cardano, branches))
    ]
    close(np.array([goals[0](u)]), np.array([goals[1](u)]))
    close(goals[0].derivative.residual(u), goals[1].derivative.residual(u))


def test_a_law_is_called_with_numbers_and_arrays():
    x = np.linspace(-30, 30, 1001)
    assert np.abs(root(x) ** 3 + root(x) - x).max() < 1e-12
    assert root(2.0) == pytest.approx(1.0, abs=1e-15)
    first, second = pair(x.reshape(7, 143), 1.0)
    assert first.shape == second.shape == (7, 143)
    assert root(np.zeros((0, 3))).shape == (0, 3)
    table = np.random.default_rng(0).standard_normal((9, 31, 2))
    for strided in (table[..., 1], table[::2, :, 0], table[:, ::-1, 0], table.T[0]):
        np.testing.assert_array_equal(root(strided), root(strided.copy()))
        first, _ = pair(strided, strided[:1, :1])  # broadcast
        np.testing.assert_array_equal(
            first, pair(strided.copy(), np.full(strided.shape, strided[0, 0]))[0]
        )


def test_derivatives_that_users_give():
    @law(derivatives=lambda a, b: (2.0 * b, 2.0 * a))  # twice the right ones, to be seen
    def product(a, b):
        return a * b

    V = femops.H1(femops.box((3,)), 2)
    u, v = np.random.default_rng(0).standard_normal((2, V.size))
    lawful = femops.residual(lambda u, x: {"value": product(u, u)}, V).jacobian(u)
    traced = femops.residual(lambda u, x: {"value": u * u}, V).jacobian(u)
    close(lawful @ v, 2.0 * (traced @ v))


def test_cfuncs_dispatchers_integers_and_booleans():
    @numba.cfunc("float64(float64)")
    def square(a):
        return a * a

    @numba.njit
    def kinds(a, b):
        n = 0
        while n < 7 and b > 0.5:
            n, b = n + 1, 0.7 * b
        return a > b, n, np.float32(a)

    x = np.linspace(-2, 5, 41)
    np.testing.assert_array_equal(law(square)(x), x * x)
    flags, counts, short = law(kinds)(x, x[::-1])
    expected = [kinds.py_func(a, b) for a, b in zip(x, x[::-1], strict=True)]
    np.testing.assert_array_equal(flags, [float(one[0]) for one in expected])
    np.testing.assert_array_equal(counts, [float(one[1]) for one in expected])
    np.testing.assert_array_equal(short, [float(np.float32(one[2])) for one in expected])


def endless(a):
    while a != 1.0:  # zeros of slots without a point stay below
        a = min(2.0 * a, 1.0) if a < 1.0 else max(a / 2.0, 1.0)
    return a


def test_loops_that_do_not_end():
    one, V = law(endless), femops.H1(femops.box((5, 3)), 1)
    assert one.law.failing
    assert not law(lambda a: max(a, 1.0) if a > 0 else a).law.failing
    F = femops.residual(lambda u, x: {"value": one(u)}, V)
    mass = femops.mass(V) @ np.ones(V.size)
    close(F.residual(np.full(V.size, 3.0)), mass)  # in slots without a point it is left
    with pytest.raises(femops.errors.LawError, match=r"endless\(0\) fails .* a loop does not end"):
        F.residual(V.zeros())


def test_newton_names_a_derivative_that_fails():
    def slope(a):
        if a > 0.4:
            raise ValueError("no slope")
        return 2.0 * a

    square = law(lambda a: a * a, derivatives=slope)
    V = femops.H1(femops.box((4,)), 2)
    F = femops.residual(lambda u, x: {"value": square(u) + u - 1.0, "grad": u.grad}, V)
    _, info = femops.newton(F, V.zeros() + 0.5, warn=False)
    assert not info.converged
    assert "slope(0.5) fails in element 0" in info.reason


# --- errors ---------------------------------------------------------------------------------------


def stubborn(a):
    if a > 0.9:
        raise ValueError("no convergence")
    return a * a


@pytest.mark.parametrize("dim", [1, 3])
def test_a_law_that_raises_names_the_point(dim):
    one = law(stubborn)
    V = femops.H1(mesh_of(dim), 2)
    F = femops.residual(lambda u, x: {"value": one(u), "grad": u.grad}, V)
    assert np.isfinite(F.residual(V.interpolate(lambda x: 0.5 + 0.0 * x[0]))).all()
    message = r"stubborn\(0\.9\d+\) fails in element \d+ at \(.*ValueError: no convergence"
    with pytest.raises(femops.errors.LawError, match=message):
        F.residual(V.interpolate(lambda x: x[0]))
    for level in LEVELS:
        with pytest.raises(femops.errors.LawError, match=message):
            femops.form(lambda u, x: {"value": one(x[0]) * u}, V, level=level) @ V.zeros()


def test_a_functional_whose_law_raises():
    one, V = law(stubborn), femops.H1(mesh_of(2), 1)
    J = femops.functional(lambda u, x: one(u), V)
    assert J(V.zeros()) == 0.0
    with pytest.raises(femops.errors.LawError, match="stubborn"):
        J(V.zeros() + 2.0)


def test_an_index_outside_of_a_table():
    @law
    def entry(a):
        return TABLE[int(a)]

    V = femops.H1(femops.box((3,)), 1)
    F = femops.residual(lambda u, x: {"value": entry(u)}, V)
    F.residual(np.full(V.size, 4.5))
    for wrong in (5.5, -6.0, 1e9, 1e300):
        with pytest.raises(femops.errors.LawError, match="IndexError: index is out of bounds"):
            F.residual(np.full(V.size, wrong))


# every byte, beside some that LLVM's text could join with it
ALL = np.frombuffer(
    b"".join(
        bytes([k, second, 0x34, 0x31, 0x5C, k, 0x40, 0x3F])
        for k in range(256)
        for second in b'\\"A'
    )
)


def test_a_table_of_all_bytes():
    found = law(lambda a: ALL[int(a)])(np.arange(float(len(ALL))))
    assert np.array_equal(found, ALL)


GRID, EMPTY = np.arange(12.0).reshape(3, 4), np.zeros(0)


@pytest.mark.parametrize("compile_first", [False, True])
def test_an_index_outside_of_a_row(compile_first):
    """It would lead to the next row, and one of a number that is no whole number to any entry."""

    def column(a):
        return GRID[0, int(a)]

    found = law(numba.njit(column) if compile_first else column)
    a = np.array([0.0, 3.0, -1.0, 4.0, 9.0, -5.0, 1e19, 1e300, np.inf, np.nan])
    assert np.array_equal(found(a), [0.0, 3.0, 3.0] + [np.nan] * 7, equal_nan=True)
    assert np.isnan(law(lambda a: EMPTY[int(a)])(a)).all()


def test_an_index_in_a_function_that_a_law_calls():
    """Numba compiled it without checks, so it is not called to tell the error."""
    entry = numba.njit(lambda a: TABLE[int(a)])
    one = law(lambda a: entry(a) + 0.0)
    V = femops.H1(femops.box((3,)), 1)
    F = femops.residual(lambda u, x: {"value": one(u)}, V)
    F.residual(np.full(V.size, 4.5))
    with pytest.raises(femops.errors.LawError, match="an index is outside of a table"):
        F.residual(np.full(V.size, 1e12))


def squared(a):
    return a * a


def test_a_law_is_pickled():
    square = law(squared)
    again = pickle.loads(pickle.dumps(square))
    assert again.law == square.law
    assert again(3.0) == 9.0


@pytest.mark.parametrize("wrong", [3, int, np.sin, partial(max, 1.0)])
def test_what_is_no_function_of_python(wrong):
    with pytest.raises(OperatorError, match="is not a function of numbers: give one, written by"):
        law(wrong)


def test_newton_shortens_steps_that_are_too_long_for_a_law():
    @law
    def guarded(a):
        if abs(a) > 3.0:
            raise OverflowError("beyond the table")
        return a + a**3

    V = femops.H1(femops.box((8,)), 2)
    F = femops.residual(lambda u, x: {"value": guarded(u) - 20.0, "grad": 0.01 * u.grad}, V)
    u, info = femops.newton(F, V.zeros())
    assert info.converged
    assert np.allclose(u + u**3, 20.0, atol=1e-6)


def text(a):
    return f"{a}"


def listed(a):
    return [a, a]


def printed(a):
    print(a)
    return a


def allocated(a):
    return np.full(3, a).sum()


def recursive(a):
    return a if a < 1 else recursive(a - 1)


def variadic(*a):
    return a[0]


def nothing(a):
    pass


def arrays(a):
    return a[0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (text, "text"),
        (listed, "listed returns .*: let it return numbers"),
        (printed, "printed cannot be part of a kernel"),
        (allocated, "allocated cannot be part of a kernel"),
        (recursive, "recursive"),
        (variadic, "variadic takes .*: let it take numbers by name"),
        (nothing, "nothing returns none: let it return numbers"),
        (arrays, "Numba cannot compile arrays"),
        (lambda: 1.0, "takes .*: let it take numbers by name"),
        (3.0, "3.0 is not a function of numbers"),
    ],
)
def test_what_is_no_law(function, message):
    with pytest.raises(OperatorError, match=message):
        law(function)


def test_wrong_counts_and_arguments():
    with pytest.raises(OperatorError, match="pair returns 2 numbers, results is 3"):
        law(pair.function, results=3)
    with pytest.raises(OperatorError, match="derivatives is 'backward': give 'forward', 'none' or"):
        law(pair.function, derivatives="backward")
    with pytest.raises(
        OperatorError, match=r"takes 1 numbers and returns 1: .* take 2 and return 4"
    ):
        law(pair.function, derivatives=root.function)
    with pytest.raises(TraceError, match="pair takes 2 numbers, 1 are given"):
        pair(1.0)
    V = femops.H1(femops.box((3, 3)), 1)
    for wrong, message in (
        (
            lambda u: root(u.grad),
            r"argument 1 of root is an array of shape \(2,\): give its entries",
        ),
        (lambda u: root(u, u), "root takes 1 numbers, 2 are given"),
        (lambda u: pair(u, "1"), "argument 2 of pair is str: give a number"),
    ):
        with pytest.raises(TraceError, match=message):
            femops.residual(lambda u, x, f=wrong: {"value": f(u)}, V)
    with pytest.raises(TraceError, match="the form is not linear"):
        femops.form(lambda u, x: {"value": root(u)}, V)
    still = law(root.function, derivatives="none")
    F = femops.residual(lambda u, x: {"value": still(u)}, V)
    F.residual(V.zeros())
    with pytest.raises(TraceError, match="root has no derivative, and one is needed"):
        F.jacobian(V.zeros())


# --- histories ------------------------------------------------------------------------------------


def ageing(u, x, old):
    return {
        "value": u * (1 + old[0]),
        "grad": u.grad,
        "history": {"old": [old[0] + u, root(old[1] + x[0])]},
    }


def test_a_history():
    V = femops.H1(mesh_of(2), 2)
    old = femops.numba.history(V, 2)
    F = femops.residual(ageing, V, old=old)
    u, L = V.interpolate(lambda x: x[0] - x[1]), old.space
    before = F.residual(u)
    G = old.commit(F, u)
    values = L.components(old.vector)
    close(values[:, 0], femops.L2(V.mesh, L.order).interpolate(lambda x: x[0] - x[1]))
    x0 = femops.L2(V.mesh, L.order).interpolate(lambda x: x[0])
    close(values[:, 1], cardano(x0))
    assert F.residual(u).tobytes() == before.tobytes()  # F keeps what it was given
    direct = femops.residual(lambda u, x: {"value": u * (1 + x[0] - x[1]), "grad": u.grad}, V)
    close(G.residual(u), direct.residual(u))
    close(G.jacobian(u) @ u, direct.jacobian(u) @ u)
    H = old.commit(G, u)
    close(L.components(old.vector)[:, 1], cardano(x0 + cardano(x0)))
    close(H.residual(u) - G.residual(u), G.residual(u) - before, 1e-12)


def test_histories_that_do_not_fit():
    V = femops.H1(mesh_of(2), 2)
    old, u = femops.numba.history(V, 2), V.zeros()
    with pytest.raises(OperatorError, match="the history old is at other points than ageing"):
        femops.residual(ageing, V, old=old, quadrature=5)
    with pytest.raises(OperatorError, match="is at Gauss points, and the rule is 'lobatto'"):
        femops.numba.history(V, 2, quadrature=femops.basis.lobatto(5))
    with pytest.raises(TraceError, match="return its next values too"):
        femops.residual(lambda u, x, old: {"value": old[0] * u}, V, old=old)
    with pytest.raises(TraceError, match="an array of 2 entries"):
        femops.residual(lambda u, x, old: {"value": u, "history": {"old": u}}, V, old=old)
    with pytest.raises(OperatorError, match=r"does not have this history \(it has none\)"):
        old.commit(femops.residual(lambda u, x: {"value": u}, V), u)
    with pytest.raises(OperatorError, match="is no residual"):
        old.commit(femops.mass(V), u)
    bad = law(stubborn)
    one = femops.numba.history(V)
    F = femops.residual(
        lambda u, x, one: {"value": u, "history": {"one": one + bad(u)}}, V, one=one
    )
    F = one.commit(F, V.interpolate(lambda x: 0.5 + 0.0 * x[0]))
    kept = one.vector.copy()
    with pytest.raises(femops.errors.LawError, match="fails in element"):
        one.commit(F, V.interpolate(lambda x: x[0]))
    assert one.vector.tobytes() == kept.tobytes()


def test_what_is_no_commit():
    V = femops.H1(mesh_of(2), 2)
    one, two, u = femops.numba.history(V), femops.numba.history(V), np.full(V.size, 0.5)

    def grown(old, a):
        function = lambda u, x, old: {"value": u + old, "history": {"old": old + a * u}}  # noqa: E731
        return femops.residual(function, V, old=old)

    both = femops.residual(
        lambda u, x, a, b: {"value": u, "history": {"a": a + u, "b": b - u}}, V, a=one, b=one
    )
    for F in (grown(one, 1) + grown(two, 2), grown(one, 1) + grown(one, 2), both):
        with pytest.raises(OperatorError, match="has two next values for the history"):
            one.commit(F, u)
    with pytest.raises(OperatorError, match=r"does not have this history \(it has old\)"):
        two.commit(grown(one, 1), u)
    assert not one.vector.any()
    assert not two.vector.any()
    one.commit(grown(one, 1) + femops.residual(lambda u, x: {"value": u}, V), u)
    close(one.vector, np.full(one.space.size, 0.5))
    with pytest.raises(TraceError, match="returned next values of 'new', which is no history"):
        femops.residual(
            lambda u, x, old: {"value": u, "history": {"old": old, "new": u}}, V, old=one
        )
    for space in (None, V.mesh, femops.Product(a=V, b=V)):
        with pytest.raises(OperatorError, match=r"V is .*: give a space"):
            femops.numba.history(space)


def test_updates_of_histories():
    V = femops.H1(mesh_of(2), 2)
    old, u = femops.numba.history(V), np.full(V.size, 0.5)

    def plain(u, x, old):
        return {"value": u + old}

    def grown(u, x, old):
        return {"value": u + old, "history": {"old": old + u}}

    with pytest.raises(TraceError, match="takes the history 'old': return its next values too"):
        femops.residual(plain, V, old=old.field).update(old=old)
    F, other = femops.residual(grown, V, old=old), femops.numba.history(V)
    with pytest.raises(OperatorError, match="does not have this history"):
        old.commit(F.update(old=other), u)
    other.commit(F.update(old=other), u)
    assert other.vector.all()
    with pytest.raises(OperatorError, match="is at other points than grown"):
        F.update(old=femops.numba.history(V, quadrature=6))
    with pytest.raises(TraceError, match="history"):
        F.update(old=3.0)


def test_a_history_is_saved_and_set(tmp_path):
    V = femops.H1(mesh_of(2), 2)
    old = femops.numba.history(V, 2)
    F = old.commit(femops.residual(ageing, V, old=old), V.interpolate(lambda x: x[0]))
    file = femops.io.save_state(tmp_path / "step.state", {"old": (old.space, old.vector)})
    again = femops.numba.history(V, 2)
    again.vector = femops.io.load_state(file, {"old": again.space}).vectors["old"]
    u = V.interpolate(lambda x: x[1])
    assert femops.residual(ageing, V, old=again).residual(u).tobytes() == F.residual(u).tobytes()


def test_jacobians_that_are_said_to_be_symmetric():
    """One half of the derivatives is computed, and serves for the other half."""

    @law
    def stress(exx, eyy, exy):
        size = math.sqrt(exx * exx + eyy * eyy + 2.0 * exy * exy + 1e-8)
        factor = 1.0 + 1.0 / size
        return factor * exx, factor * eyy, factor * exy

    def solid(u, x):
        e = u.sym_grad
        sxx, syy, sxy = stress(e[0, 0], e[1, 1], e[0, 1])
        return {"grad": [[sxx, sxy], [sxy, syy]], "value": 0.1 * u.value}

    V = femops.H1(mesh_of(2), 2, ncomp=2)
    u, v = np.random.default_rng(5).standard_normal((2, V.size))
    plain, said = (femops.residual(solid, V, symmetric=flag).jacobian(u) for flag in (False, True))
    close(said @ v, plain @ v)
    assert said.symmetric
    assert not plain.symmetric
    W = femops.Product(a=V, b=femops.H1(V.mesh, 1))
    both = [
        femops.residual(
            lambda a, b, x: {
                "a": {"grad": (1 + b.value**2) * a.grad, "value": b * a},
                "b": {"value": b * (a.grad[0] @ a.grad[0] + a.grad[1] @ a.grad[1]) + a @ a / 2},
            },
            W,
            symmetric=flag,
        ).jacobian(np.resize(u, W.size))
        for flag in (False, True)
    ]
    close(both[1] @ np.resize(v, W.size), both[0] @ np.resize(v, W.size))


@pytest.mark.parametrize("count", [6, pytest.param(COUNT, marks=pytest.mark.exhaustive)])
def test_the_text_in_cuda(count, tmp_path):
    """The host's compiler builds it, without fused operations."""
    if building.compiler() is None:
        pytest.skip("no C++ compiler")
    laws = [law(_Writer(seed).function()[0]).law for seed in range(count)]
    laws += [
        derivative(law(_Writer(1000 + k, smooth=True).function()[0]).law, (0,)) for k in (0, 1)
    ]
    lines = ["#include <cmath>", "#include <cstring>", "using namespace std;"]
    lines += ["#define __device__", "#define __forceinline__ inline"]
    for k, one in enumerate(laws):
        given = ", ".join(f"x[{j}]" for j in range(one.inputs))
        head = f'extern "C" void run{k}(const double* x, double* results)'
        lines += [in_cuda(one), f"{head} {{ {one.name}({given}, results); }}"]
    source, library = tmp_path / "laws.cpp", tmp_path / "laws.so"
    source.write_text("\n".join(lines))
    options = ("-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w", "-o", str(library))
    subprocess.run([building.compiler(), *options, str(source)], check=True)
    functions = ctypes.CDLL(str(library))
    for k, one in enumerate(laws):
        given = np.ascontiguousarray(points(one.inputs, k).T)
        found = np.empty((len(given), one.results))
        for row, out in zip(given, found, strict=True):
            getattr(functions, f"run{k}")(*(ctypes.c_void_p(a.ctypes.data) for a in (row, out)))
        # exponentials and the like are the lanes' own, within two units in the last place
        np.testing.assert_allclose(found.T, evaluated(one, *given.T), rtol=1e-12, atol=1e-14)


# --- plasticity -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(Path(__file__).parents[2] / "examples" / "plasticity.py"))


def test_the_perforated_strip_is_that_of_scikit_fem(example):
    """Forces and the largest plastic strain by scikit-fem 12.0.2, with the same mesh and points."""
    *_, history, forces, _ = example["strip"]()
    expected = [0.032131735369, 0.080329338422, 0.152853430652]
    expected += [0.171229997592, 0.179466368441, 0.189862309832]
    np.testing.assert_allclose(forces, expected, rtol=1e-10)
    age = history.space.components(history.vector)[:, 3]
    assert age.max() == pytest.approx(0.062251591571, rel=1e-9)
    assert (age > 0).mean() == pytest.approx(0.553819, abs=1e-6)


def test_the_thick_cylinder_reaches_its_limit(example):
    """The limit is 2 / sqrt(3) times the yield stress and the logarithm of the radii's ratio."""
    pressure, steps = example["cylinder"]()
    assert abs(pressure[-1] - 1.0) < 1e-4
    assert (np.diff(pressure) > 0).all()
    assert max(steps) <= 4  # as the tangent is consistent
