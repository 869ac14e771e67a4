"""The expression graph: exact simplifications, evaluation, derivatives, errors that name lines."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.errors import TraceError
from femops.pointwise.expressions import operations, tensors
from femops.pointwise.expressions.derivative import derivatives
from femops.pointwise.expressions.graph import Graph, ancestors, substitute
from femops.pointwise.qfunction import evaluate

UNARY = [getattr(np, name) for name in operations.UNARY if hasattr(np, name)] + [
    np.abs,
    np.negative,
]
TABLE = [-1.0, 0.0, 0.2, 2.0], [3.0, 1.0, 2.0, 0.0]
STEEP = [-1.0, 0.3, 0.7], [3.0, 1e17, 1.0]
BINARY = [np.add, np.subtract, np.multiply, np.true_divide, np.minimum, np.maximum, np.arctan2]


@st.composite
def expressions(draw, depth=4):
    """A function of three positive numbers that works on floats, complex numbers and symbols."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        kind = draw(st.integers(0, 3))
        constant = draw(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, 3.25]))
        return (lambda v: constant) if kind == 3 else (lambda v: v[kind])
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    of_one, of_two = draw(st.sampled_from(FUNCTIONS)), draw(st.sampled_from(OPERATIONS))
    return (lambda v: of_one(a(v))) if draw(st.booleans()) else (lambda v: of_two(a(v), b(v)))


FUNCTIONS = [
    lambda a: np.exp(0.1 * np.tanh(a)),
    np.sin,
    np.tanh,
    lambda a: np.sqrt(a * a + 1.0),
    lambda a: a * a,
]
OPERATIONS = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / (y * y + 1.0),
]


def traced(f):
    graph = Graph()
    inputs = [graph.input(name) for name in "xyz"]
    return graph, inputs, graph.node(f(inputs))


@given(expressions(), st.lists(st.floats(0.25, 2.0), min_size=3, max_size=3))
@settings(max_examples=50)
def test_evaluates_as_python_does(f, point):
    """To the last bit: nothing is rearranged."""
    _, inputs, node = traced(f)
    (value,) = evaluate(
        [node], {i.number: np.float64(v) for i, v in zip(inputs, point, strict=True)}
    )
    assert value == f([np.float64(v) for v in point])


@given(expressions(), st.lists(st.floats(0.25, 2.0), min_size=3, max_size=3), st.integers(0, 2))
@settings(max_examples=50)
def test_derivative_is_the_complex_step(f, point, k):
    graph, inputs, node = traced(f)
    direction = {i.number: graph.constant(float(i is inputs[k])) for i in inputs}
    (derivative,) = derivatives([node], direction)
    (value,) = evaluate([derivative], {i.number: v for i, v in zip(inputs, point, strict=True)})
    step = np.array(point, dtype=complex)
    step[k] += 1e-30j
    expected = np.imag(f(list(step))) / 1e-30
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("function", [*UNARY, *BINARY], ids=lambda f: f.__name__)
def test_every_operation_and_its_derivatives(function):
    graph, count, h = Graph(), function.nin, 1e-6
    inputs = [graph.input(name) for name in "xy"[:count]]
    points = [np.linspace(0.3, 0.9, 7), np.linspace(1.1, 0.42, 7)][:count]
    node, given = function(*inputs), dict(zip((n.number for n in inputs), points, strict=True))
    (value,) = evaluate([node], given)
    np.testing.assert_array_equal(value, function(*points))
    for k in range(count):
        along = {n.number: graph.constant(float(n is inputs[k])) for n in inputs}
        (slope,) = evaluate(derivatives([node], along), given)
        ahead, behind = (
            function(*(p + step * (i == k) for i, p in enumerate(points))) for step in (h, -h)
        )
        np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("exponent", [-3, -1, 0, 1, 2, 5, 7, 0.5, 0.3, -1.7, 30])
def test_powers(exponent):
    graph = Graph()
    x = graph.input("x")
    node = graph.node(x**exponent)
    (slope,) = derivatives([node], {x.number: graph.constant(1.0)})
    value, derivative = evaluate([node, slope], {x.number: 1.3})
    assert value == pytest.approx(1.3**exponent, rel=1e-15)
    assert derivative == pytest.approx(exponent * 1.3 ** (exponent - 1), rel=1e-14)
    whole = exponent == int(exponent) and abs(exponent) <= 16
    assert ("pow" in {n.op for n in ancestors([node])}) == (not whole and exponent != 0.5)


def test_equal_expressions_are_one_node():
    graph = Graph()
    x, y = graph.input("x"), graph.input("y")
    assert x * y + 1.0 is 1.0 + y * x
    assert graph.constant(0.1) is graph.constant(0.1)
    assert graph.constant(0.0) is not graph.constant(-0.0)
    assert (x - y) is not (y - x)


def test_exact_simplifications_only():
    graph = Graph()
    x, y = graph.input("x"), graph.input("y")
    assert x + 0.0 is x
    assert 1.0 * x is x
    assert (0.0 * x).is_constant(0.0)
    minus = -x
    assert -minus is x
    assert x / 1.0 is x
    assert (0.0 - x).op == "neg"
    assert ((x + y) - y).op == "sub"  # not x: that would be rearranging


@pytest.mark.parametrize("function", [*UNARY, *BINARY, np.power])
def test_constants_are_computed_where_nodes_are_substituted(function):
    graph = Graph()
    x, args = graph.input("x"), [0.9, 0.7][: function.nin]
    made = function(*[graph.constant(value) for value in args])
    (product,) = substitute([x * made], {})
    assert {node.op for node in ancestors([product])} == {"mul", "input", "const"}
    np.testing.assert_allclose(evaluate([product], {x.number: 1.0}), function(*args), rtol=1e-15)


def test_constants_that_are_no_numbers_are_left():
    graph = Graph()
    zero = graph.constant(0.0)
    nodes = [1.0 / zero, np.log(zero), np.sqrt(zero - 1.0), np.exp(graph.constant(1e3))]
    assert all(node.op != "const" for node in substitute(nodes, {}))


def test_arrays_of_symbols():
    graph = Graph()
    F = np.array([[graph.input(f"F{i}{j}") for j in range(3)] for i in range(3)], dtype=object)
    numbers = np.random.default_rng(0).standard_normal((3, 3)) + 2 * np.eye(3)
    inputs = {node.number: value for node, value in zip(F.flat, numbers.flat, strict=True)}

    def value(result):
        nodes = [graph.node(entry) for entry in np.asarray(result, dtype=object).flat]
        return np.array(evaluate(nodes, inputs)).reshape(np.shape(result))

    cases = [
        (F @ F.T, numbers @ numbers.T),
        (2.0 * F - np.eye(3), 2.0 * numbers - np.eye(3)),
        (np.trace(F), np.trace(numbers)),
        (np.sqrt(F * F), np.abs(numbers)),
        (tensors.det(F), np.linalg.det(numbers)),
        (tensors.inv(F), np.linalg.inv(numbers)),
        (tensors.inner(F, F), (numbers**2).sum()),
        (tensors.sym(F), (numbers + numbers.T) / 2),
        (F[0] * F[1, 1], numbers[0] * numbers[1, 1]),
        (np.float64(3.0) * F[0, 0], 3.0 * numbers[0, 0]),
        (np.ones(2) * F[0, 0], np.full(2, numbers[0, 0])),
        (tensors.where(F[0, 0] > 0.0, F, -F), numbers if numbers[0, 0] > 0 else -numbers),
        (tensors.maximum(F, 0.5), np.maximum(numbers, 0.5)),
        (tensors.minimum(0.5, F), np.minimum(numbers, 0.5)),
        (tensors.interp(F, *TABLE), np.interp(numbers, *TABLE)),
        (tensors.interp(F, *STEEP), np.interp(numbers, *STEEP)),
        (tensors.interp(0.5, TABLE[0][:3], F[0]), np.interp(0.5, TABLE[0][:3], numbers[0])),
    ]
    for symbolic, expected in cases:
        np.testing.assert_allclose(value(symbolic), expected, rtol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tensors_on_numbers(n):
    a = np.random.default_rng(n).standard_normal((n, n)) + 2 * np.eye(n)
    np.testing.assert_allclose(tensors.det(a), np.linalg.det(a), rtol=1e-13)
    np.testing.assert_allclose(tensors.inv(a), np.linalg.inv(a), rtol=1e-13)
    np.testing.assert_array_equal(tensors.interp(a, *TABLE), np.interp(a, *TABLE))
    assert tensors.where(a[0, 0] > 0, 1.0, 2.0) == (1.0 if a[0, 0] > 0 else 2.0)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x, F: 1.0 if x > 0 else 2.0, "femops.where"),
        (lambda x, F: max(x, 0.0), "femops.maximum"),
        (lambda x, F: float(x), "numpy's functions"),
        (lambda x, F: np.arcsinh(x), "numpy.arcsinh has no meaning"),
        (lambda x, F: x + "a", None),
        (lambda x, F: x * 1j, None),
        (lambda x, F: tensors.det(F[:1]), "shape"),
        (lambda x, F: tensors.interp(x, [0.0, 1.0], [1.0, 2.0, 3.0]), "as many values"),
        (lambda x, F: tensors.interp(x, [0.0], [1.0]), "at least two"),
        (lambda x, F: tensors.interp(x, [0.0, 1.0, 1.0], F[0]), "as many values"),
        (lambda x, F: tensors.interp(x, [1.0, 1.0], F[0]), "ascend"),
        (lambda x, F: tensors.interp(x, [0.0, np.inf], F[0]), "finite"),
        (lambda x, F: tensors.interp(x, F[0], [0.0, 1.0]), "has symbols"),
        (lambda x, F: x + Graph().input("other"), "another form"),
    ],
)
def test_what_symbols_refuse(use, message):
    graph = Graph()
    F = np.array([[graph.input(f"F{i}{j}") for j in range(2)] for i in range(2)], dtype=object)
    with pytest.raises(TypeError) as caught:
        use(graph.input("x"), F)
    if message is not None:
        assert isinstance(caught.value, TraceError)
        assert isinstance(caught.value, femops.errors.FemopsError)
        assert message in str(caught.value)


def test_graphs_are_copied_row_by_row():
    """However deep: pickle and copy would recur through the arguments."""
    graph = Graph()
    x = graph.input("x")
    node = x
    for k in range(2000):
        node = node * x + 1.0 / (k + 1)
    for twin in (copy.deepcopy([x, node]), pickle.loads(pickle.dumps([x, node]))):
        assert twin[0].graph is twin[1].graph is not graph
        assert twin[1].number == node.number
        values = [evaluate([b], {a.number: 0.7})[0] for a, b in ((x, node), twin)]
        assert values[0] == values[1]
        assert twin[0] + 1.0 is twin[0] + 1.0
