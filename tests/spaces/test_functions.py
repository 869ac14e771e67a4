"""Functions given by users: every shape that is taken, every one that is refused."""

import math

import numpy as np
import pytest

import femops
from femops.errors import SpaceError, VectorError
from femops.spaces.functions import evaluate, selected

X = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    ("f", "shape", "expected"),
    [
        (2.5, (), [2.5, 2.5, 2.5]),
        (3, (), [3, 3, 3]),
        (lambda x: x[0] + x[1], (), [3, 5, 7]),
        (lambda x: x[:1], (), [0, 1, 2]),
        (lambda x: 1.0, (), [1, 1, 1]),
        (lambda x: x[0] > 0.5, (), [0, 1, 1]),
        (lambda x: x[0].astype(np.float32), (), [0, 1, 2]),
        (lambda x: x, (2,), X.T),
        (lambda x: [x[1], 0.0], (2,), [[3, 0], [4, 0], [5, 0]]),
        (lambda x: (x[0], x[0] * 2), (2,), [[0, 0], [1, 2], [2, 4]]),
        ((1.0, 2.0), (2,), [[1, 2]] * 3),
        (lambda x: np.array([1.0, 2.0]), (2,), [[1, 2]] * 3),
        (0.0, (2,), np.zeros((3, 2))),
        (
            lambda x: [[x[0], 1.0], [0.0, x[1]]],
            (2, 2),
            [[[0, 1], [0, 3]], [[1, 1], [0, 4]], [[2, 1], [0, 5]]],
        ),
    ],
)
def test_numbers_vectors_and_matrices(f, shape, expected):
    values = evaluate(f, X, shape)
    assert values.dtype == np.float64
    assert values.flags.c_contiguous
    np.testing.assert_array_equal(values, expected)


def test_arguments_and_results_are_copied_where_needed():
    def moved(x):
        x += 1.0
        return x[0]

    np.testing.assert_array_equal(evaluate(moved, X.copy()), [1, 2, 3])
    data = {n: np.ones(n) for n in (3, 4)}
    evaluate(lambda x: data[x.shape[1]], X)[:] = 7
    np.testing.assert_array_equal(data[3], 1)


def hidden(values):
    return np.ma.array(values, mask=np.arange(np.size(values)) == 1)


def test_masked_entries_are_refused():
    """The numbers under the mask were read."""
    V = femops.H1(femops.box((2, 1)), 1)
    A, ones = femops.mass(V), np.ma.array(np.ones(V.size))
    np.testing.assert_array_equal(A @ ones, A @ ones.data)
    for ask in (
        lambda: A @ hidden(ones),
        lambda: femops.cg(A, hidden(ones)),
        lambda: femops.diffusion(V, hidden([2.0, 1.0])),
        lambda: A.constrained(hidden([1, 2])),
        lambda: evaluate(lambda x: hidden(x[0]), X),
        lambda: evaluate(lambda x: (0.0, hidden(x[0])), X, (2,)),
        lambda: selected(lambda x: hidden(x[0] < 1), X),
    ):
        with pytest.raises(VectorError, match="has masked entries"):
            ask()
    with pytest.raises(femops.errors.MeshError, match="has masked entries"):
        femops.Mesh.from_arrays(hidden(np.arange(2.0))[:, np.newaxis], [[0, 1]])
    with pytest.raises(femops.errors.ProbeError, match="has masked entries"):
        femops.Probe(V.mesh, hidden([0.5, 0.5]))


def test_wrong_shapes_are_one_clear_error():
    for f, shape, got in (
        (lambda x: x, (), r"\(2, 3\)"),
        (lambda x: x[0, :2], (), r"\(2,\)"),
        (lambda x: x[0], (2,), r"\(3,\)"),
        (lambda x: x.T, (2,), r"\(3, 2\)"),
        (lambda x: "u", (), "<U1"),
        (lambda x: None, (), "None"),
        (lambda x: [x[0], x[0, :2]], (2,), "do not fit together"),
        (lambda x: [x[0], x[0], x[0]], (2,), r"\(3, 3\)"),
    ):
        with pytest.raises(SpaceError, match=f"my_f gives .*{got}.* at 3 points: it must give"):
            evaluate(f, X, shape, "my_f")
    with pytest.raises(SpaceError, match=r"my_f gives complex numbers, which V\.interpolate"):
        evaluate(lambda x: 1j * x[0], X, (), "my_f")


def test_not_finite_counts_and_places_the_points():
    with pytest.raises(SpaceError, match=r"f is not finite at 1 of 3 points.*\(1, 4\)"):
        evaluate(lambda x: np.where(x[0] == 1, np.inf, x[0]), X)
    with pytest.raises(SpaceError, match="f is nan: give a finite number"):
        evaluate(np.nan, X, (2,))


# --- values that must not depend on the other points ----------------------------------------------

MANY = np.random.default_rng(3).uniform(-1, 1, (2, 30))
WRONG = {
    "first point": lambda x: x[0, 0],
    "backwards": lambda x: x[0][::-1],
    "sorted": lambda x: np.sort(x[0]),
    "neighbours": lambda x: np.gradient(x[0]),
    "small sums": lambda x: 1e-200 * np.cumsum(x[0]),
    "large differences": lambda x: 1e200 * (x[0] - x[0].min()),
    "scaled": lambda x: x[0] / x[0].max(),
    "centred": lambda x: (x[0] - x[0].mean()).astype("float32"),
    "random": lambda x: np.random.default_rng().random(x.shape[1]),
    "counted": lambda x: x.shape[1],
    "of other points": lambda x: np.arange(30.0),
    "of a number of points": lambda x: {30: x[0]}[x.shape[1]],
}


@pytest.mark.parametrize("name", WRONG)
def test_other_points_that_matter(name):
    for points in (MANY, np.sort(MANY), *([] if name.startswith("of ") else [X])):
        with pytest.raises(SpaceError, match=r"my_f depends on which points are asked for: at \("):
            evaluate(WRONG[name], points, (), "my_f")


def test_predicates_of_other_points():
    for predicate in (
        lambda x: x[0] == x[0].max(),
        lambda x: x[0] > x[0].mean(),
        lambda x: x[1] < np.sort(x[1]),
        lambda x: np.arange(30) > 12,
    ):
        with pytest.raises(SpaceError, match="the predicate depends on which points"):
            selected(predicate, MANY)


def test_one_value_that_is_not_the_same_everywhere():
    for f in (lambda x: x[:, 0], lambda x: x[:, 0] * [[1.0], [1.0]]):
        with pytest.raises(SpaceError, match="my_f depends on which points are asked for"):
            evaluate(f, MANY, f(MANY).shape, "my_f")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.sin(x[0].astype("float32")),
        lambda x: x[0] @ np.eye(x.shape[1]) * 1e-300,
        lambda x: np.exp(30 * np.sin(40 * x[0])) - np.exp(30),
        lambda x: np.array([[0.6, -0.8], [0.8, 0.6]])[0] @ x,
        lambda x: np.float32(x[0]) @ np.full((x.shape[1], 1), 0.0) + x[1],
    ],
)
def test_round_off_that_differs_is_no_dependence(f):
    for points in (MANY, X, X[:, :1]):
        np.testing.assert_array_equal(evaluate(f, points), f(points))


@pytest.mark.parametrize(
    ("f", "fix"),
    [
        (lambda x: 1.0 if x[0] > 0.5 else 2.0, r"np\.where\(x\[0\] > 0.5, 1.0, 2.0\)"),
        (lambda x: min(x[0], 1.0), r"np\.minimum"),
        (lambda x: math.sin(x[0]), "numpy's functions in place of math's"),
    ],
)
def test_arrays_that_are_taken_for_numbers(f, fix):
    with pytest.raises(SpaceError, match=rf"my_f is called with all .*test_functions\.py.*{fix}"):
        evaluate(f, X, (), "my_f")


def test_a_function_in_place_of_a_vector():
    V = femops.H1(femops.box((2, 2)), 1)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    with pytest.raises(VectorError, match=r"values is a function: give V\.interpolate\(values\)"):
        A.rhs(V.zeros(), lambda x: x[0])
    with pytest.raises(VectorError, match=r"b is a function: give femops\.load\(V, b\)"):
        femops.cg(A, lambda x: x[0])
