"""Functions given by users: every shape that is taken, every one that is refused."""

import numpy as np
import pytest

from femops.errors import SpaceError
from femops.spaces.functions import evaluate

X = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (2.5, [2.5, 2.5, 2.5]),
        (3, [3, 3, 3]),
        (lambda x: x[0] + x[1], [3, 5, 7]),
        (lambda x: x[:1], [0, 1, 2]),
        (lambda x: 1.0, [1, 1, 1]),
        (lambda x: x[0] > 0.5, [0, 1, 1]),
        (lambda x: x[0].astype(np.float32), [0, 1, 2]),
    ],
)
def test_scalars(f, expected):
    values = evaluate(f, X)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x, X.T),
        (lambda x: [x[1], 0.0], [[3, 0], [4, 0], [5, 0]]),
        (lambda x: (x[0], x[0] * 2), [[0, 0], [1, 2], [2, 4]]),
        ((1.0, 2.0), [[1, 2]] * 3),
        (lambda x: np.array([1.0, 2.0]), [[1, 2]] * 3),
        (0.0, np.zeros((3, 2))),
    ],
)
def test_vectors(f, expected):
    values = evaluate(f, X, (2,))
    assert values.flags.c_contiguous
    np.testing.assert_array_equal(values, expected)


def test_gradient_of_a_vector():
    values = evaluate(lambda x: [[x[0], 1.0], [0.0, x[1]]], X, (2, 2))
    np.testing.assert_array_equal(values[1], [[1, 1], [0, 4]])


def test_the_users_own_array_is_copied():
    data = np.ones(3)
    evaluate(lambda x: data, X)[:] = 7
    np.testing.assert_array_equal(data, 1)


@pytest.mark.parametrize(
    ("f", "shape", "got"),
    [
        (lambda x: x, (), r"\(2, 3\)"),
        (lambda x: x[0, :2], (), r"\(2,\)"),
        (lambda x: x[0], (2,), r"\(3,\)"),
        (lambda x: x.T, (2,), r"\(3, 2\)"),
        (lambda x: 1j * x[0], (), "complex128"),
        (lambda x: "u", (), "<U1"),
        (lambda x: None, (), "object"),
        (lambda x: [x[0], x[0, :2]], (2,), "do not fit together"),
        (lambda x: [x[0], x[0], x[0]], (2,), r"\(3, 3\)"),
    ],
)
def test_wrong_shapes_are_one_clear_error(f, shape, got):
    with pytest.raises(SpaceError, match=f"my_f gives .*{got}.* at 3 points: it must give"):
        evaluate(f, X, shape, "my_f")


def test_not_finite_counts_and_places_the_points():
    def f(x):
        with np.errstate(divide="ignore"):
            return 1 / (x[0] - 1)

    with pytest.raises(SpaceError, match=r"f is not finite at 1 of 3 points.*\(1, 4\)"):
        evaluate(f, X)
    with pytest.raises(SpaceError, match="not finite at 3 of 3"):
        evaluate(np.nan, X, (2,))
