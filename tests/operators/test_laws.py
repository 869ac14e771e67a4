"""Laws that Numba has compiled, in kernels: against Python's own results, point by point."""

import math
import random

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, TraceError
from femops_kernels.cpu.laws import evaluated
from femops_kernels.cpu.machine import set_threads

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
    from femops_kernels.laws.derivative import derivative

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
