"""Derivatives from the output to the inputs are those from the inputs to the output."""

import numpy as np
import pytest

import femops
from femops.pointwise.expressions.derivative import derivatives, gradients
from femops.pointwise.expressions.graph import Graph, ancestors
from femops.pointwise.qfunction import evaluate

UNARY = ["sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "arctan", "abs"]
UNARY += ["exp2", "expm1", "log2", "log10", "log1p"]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # branches not taken


class Expression:
    """A random function of symbols. Roots and logarithms of negative numbers are in branches."""

    def __init__(self, seed):
        self.random, self.graph = np.random.default_rng([7, seed]), Graph()
        self.inputs = [self.graph.input(name) for name in "xyz"]
        self.made = [*self.inputs]
        for _ in range(int(self.random.integers(3, 15))):
            self.made.append(self._operation())
        self.output = self.graph.node(self.made[-1] + self.made[-2])

    def _some(self):
        """A result from before, so that many have several uses."""
        if self.random.random() < 0.1:
            return self.graph.constant(float(self.random.choice([-1.0, 0.5, 2.0])))
        return self.made[int(self.random.integers(len(self.made)))]

    def _operation(self):
        a, b, c = self._some(), self._some(), self._some()
        kind = int(self.random.integers(9))
        if kind == 0:
            return getattr(np, str(self.random.choice(UNARY)))(np.sin(a) + 1.01)
        if kind == 1:
            return a * b
        if kind == 2:
            return a + b if self.random.random() < 0.5 else a - b
        if kind == 3:
            return a / (1.0 + b * b)
        if kind == 4:
            return (1.1 + np.cos(a)) ** np.sin(b)
        if kind == 5:
            return femops.minimum(a, b) if self.random.random() < 0.5 else femops.maximum(a, b)
        if kind == 6:
            return self.random.choice([np.arctan2, np.hypot])(a, 1.0 + b * b)
        inner = np.sqrt(a) * b if kind == 7 else np.log(a) / a
        return femops.where(a > 0.0, inner, c)

    def points(self):
        """Numbers for the inputs, of both signs."""
        return {node.number: self.random.standard_normal(50) for node in self.inputs}


def test_powers_of_zero():
    graph = Graph()
    base, exponent = graph.input("x"), graph.input("y")
    slopes = gradients(graph.node(base**exponent), [base, exponent])
    found = evaluate(slopes, {base.number: np.zeros(1), exponent.number: np.full(1, 2.0)})
    assert found == [0.0, 0.0]


def test_both_directions():
    for seed in range(100):
        check(Expression(seed))


def check(made):
    zero, one = made.graph.constant(0.0), made.graph.constant(1.0)
    still = {node.number: zero for node in made.inputs}
    ahead = [derivatives([made.output], still | {node.number: one})[0] for node in made.inputs]
    back = gradients(made.output, made.inputs)
    point = made.points()
    for one_way, other in zip(*(evaluate(nodes, point) for nodes in (ahead, back)), strict=True):
        finite = np.isfinite(np.broadcast_to(one_way, 50))
        expected = np.broadcast_to(one_way, 50)[finite]
        got = np.broadcast_to(other, 50)[finite]
        np.testing.assert_allclose(
            got, expected, rtol=1e-9, atol=1e-9 * max(abs(expected), default=0)
        )


def operations(nodes):
    return sum(node.op not in ("const", "input") for node in ancestors(nodes))


def test_operations_do_not_grow_with_the_inputs():
    graph = Graph()
    inputs = [graph.input(f"x{k}") for k in range(40)]
    total = graph.constant(1.0)
    for k, node in enumerate(inputs):
        total = total * node + np.sin(node) / (2.0 + inputs[k - 1] * inputs[k - 1])
    count = operations([total])
    assert operations([total, *gradients(total, inputs)]) <= 4 * count


def test_a_branch_that_is_not_taken_adds_zero():
    graph = Graph()
    x = graph.input("x")
    safe = femops.where(x > 0.0, np.sqrt(x) * np.log(x), 0.0)
    twice = femops.where(x > 1.0, safe / (x - 1.0), femops.minimum(1.0 / x, 2.0) * x)
    points = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
    (slope,) = evaluate(gradients(graph.node(twice), [x]), {x.number: points})
    ahead = derivatives([graph.node(twice)], {x.number: graph.constant(1.0)})[0]
    (bent,) = evaluate(gradients(ahead, [x]), {x.number: points})
    assert np.isfinite(slope[[0, 2, 3, 4]]).all()
    assert np.isfinite(bent[[0, 2, 3, 4]]).all()
