"""Lines and contractions against NumPy: every symmetry, size, float type and lane width."""

from fractions import Fraction

import numpy as np
import pytest

from femops_kernels.errors import KernelError
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.lines import Matrix1D
from support.kernels import compiled


def symmetric(rng, m, n, symmetry):
    a = rng.standard_normal((m, n))
    return a + symmetry * a[::-1, ::-1] if symmetry else a


# A contraction is compiled for its matrix, so few are tried here; the operators' cover tries many
# more.
@pytest.mark.parametrize(
    ("m", "n", "symmetry", "width", "dtype"),
    [
        (6, 5, 1, 8, "float64"),
        (5, 6, 1, 4, "float64"),
        (7, 7, -1, 16, "float32"),
        (4, 4, -1, 2, "float64"),
        (3, 2, 0, 8, "float32"),
    ],
)
def test_contract(m, n, symmetry, width, dtype):
    rng = np.random.default_rng(m * n)
    lane, matrix = Lane(width, dtype), Matrix1D(symmetric(rng, m, n, symmetry))
    assert matrix.symmetry == symmetry or m == n == 1
    run = compiled(
        """
        @function
        def run(source, target):
            line = load_line(lane, source, 1, 2, size)
            store_line(lane, target, 0, 1, contract(matrix, line))
        """,
        lane=lane,
        matrix=matrix,
        size=n,
    ).run

    v = rng.standard_normal((2 * n, width)).astype(dtype)
    u = np.zeros((m, width), dtype)
    run(v.ctypes.data, u.ctypes.data)
    expected = np.array(matrix.rows) @ v[1::2].astype(np.float64)
    tolerance = 1e-14 if dtype == "float64" else 1e-6
    scale = np.abs(np.array(matrix.rows)) @ np.abs(v[1::2].astype(np.float64))
    assert np.abs(u - expected).max() <= tolerance * scale.max()


@pytest.mark.parametrize(
    ("rows", "width", "dtype"),
    [
        (np.random.default_rng(3).standard_normal((5, 3)), 8, "float64"),
        ([[1.0, 0.3], [1.0, -0.7], [1.0, 0.2], [1.0, 5.0]], 2, "float64"),  # values of modes
        ([[0.0, 1.0]] * 4, 16, "float32"),  # and their slopes
        ([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]], 4, "float64"),  # but not all
        ([[0.0, 0.0]] * 4, 4, "float64"),
        ([[0.2, 1.0], [0.4, 1.0], [0.6, 1.0], [0.8, 1.0]], 4, "float64"),  # a product, then a sum
    ],
    ids=["any", "values", "slopes", "some", "zeros", "sums"],
)
def test_rows_of_a_matrix_by_number(rows, width, dtype):
    """Each row times both parts of a line of random lanes; zeros and ones cost no product."""
    matrix = Matrix1D(rows)
    (m, n), lane = matrix.shape, Lane(width, dtype)
    size = 2 * n + 1  # one more than the parts take
    run = compiled(
        """
        @function
        def run(source, target):
            line = load_line(lane, source, 0, 1, size)
            for k in range(m):
                both = (dot_row(matrix, k, line, 0), dot_row(matrix, k, line, 1))
                store_line(lane, target, 2 * k, 1, both)
        """,
        lane=lane,
        matrix=matrix,
        size=size,
        m=m,
    ).run

    v = np.random.default_rng(m * n).standard_normal((size, width)).astype(dtype)
    u = np.zeros((m, 2, width), dtype)
    run(v.ctypes.data, u.ctypes.data)
    parts = v[: 2 * n].reshape(2, n, width).astype(np.float64)
    expected = np.einsum("kj,pjw->kpw", np.array(matrix.rows), parts)
    scale = np.einsum("kj,pjw->kpw", np.abs(matrix.rows), np.abs(parts)).max()
    assert np.abs(u - expected).max() <= (1e-15 if dtype == "float64" else 1e-6) * 4 * scale


def test_a_part_that_the_line_does_not_have():
    text = """
        @function
        def run(source, target):
            line = load_line(lane, source, 0, 1, 5)
            store_line(lane, target, 0, 1, (dot_row(matrix, 0, line, 1),))
        """
    with pytest.raises(KernelError, match="part 1 of a line of 5 meets a 2 x 3"):
        compiled(text, lane=Lane(4), matrix=Matrix1D(np.ones((2, 3))))


def test_strict_lanes_fuse_what_is_added_to_a_product():
    """Whatever the compiler would do; a sum of two products rounds the second."""
    width = 16
    run = compiled(
        """
        @traced
        def compute(source, target):
            a, b, c = load_line(lane, source, 0, 1, 3)
            d = a * b
            results = d + c, c + d, d - c, c - d, a * b + b * c, (a + b) * c, a / b + c
            store_line(lane, target, 0, 1, results)

        @function
        def run(source, target):
            compute(source, target)
        """,
        lane=Lane(width, strict=True),
    ).run
    numbers = np.random.default_rng(1).standard_normal((3, width))
    out = np.empty((7, width))
    run(numbers.ctypes.data, out.ctypes.data)
    for (x, y, z), found in zip(numbers.T, out.T, strict=True):
        a, b, c = Fraction(x), Fraction(y), Fraction(z)
        exact = a * b + c, a * b + c, a * b - c, c - a * b, a * b + Fraction(y * z)
        rounded = (x + y) * z, x / y + z
        assert found.tolist() == [*map(float, exact), *rounded]


def test_numbers_in_all_slots():
    width, dtype = 4, "float32"
    matrix = Matrix1D(np.random.default_rng(1).standard_normal((3, 2)))
    run = compiled(
        """
        @function
        def run(source, target):
            store_line(lane, target, 0, 1, fill_line(lane, source, 2, 3))
            for k in range(6):
                store_line(lane, target, 3 + k, 1, (fill_entry(lane, matrix, k),))
        """,
        lane=Lane(width, dtype),
        matrix=matrix,
    ).run

    numbers = np.random.default_rng(2).standard_normal(5).astype(dtype)
    out = np.zeros((9, width), dtype)
    run(numbers.ctypes.data, out.ctypes.data)
    entries = np.array(matrix.rows).ravel().astype(dtype)
    expected = np.concatenate([numbers[2:], entries])
    np.testing.assert_array_equal(out, np.repeat(expected[:, None], width, axis=1))


def test_flops_are_those_of_the_smaller_way():
    assert Matrix1D(np.eye(4)).flops() == 0
    assert Matrix1D(np.eye(4)).is_identity
    rng = np.random.default_rng(0)
    full = Matrix1D(rng.standard_normal((6, 6)))
    split = Matrix1D(symmetric(rng, 6, 6, 1))
    assert full.flops() == 2 * 36 - 6
    # 6 additions before, 6 after, 6 chains of 3 products
    assert split.flops() == 6 + 6 + 6 * (2 * 3 - 1)


def test_gathered_by_indices():
    rng = np.random.default_rng(1)
    indices = rng.integers(0, 20, (3, 8)).astype(np.int32)
    x, y = rng.standard_normal(20), np.zeros((3, 8))
    run = compiled(
        """
        @function
        def run(x, y, indices):
            for k in range(3):
                store(lane, y, k, gather(lane, x, indices, k))
        """,
        lane=Lane(8),
    ).run
    run(x.ctypes.data, y.ctypes.data, indices.ctypes.data)
    np.testing.assert_array_equal(y, x[indices])


def test_lane_arithmetic_with_numbers():
    run = compiled(
        """
        @function
        def run(source, target):
            a = load(lane, source, 0)
            store(lane, target, 0, -(2.0 * a - 1.0) / (a + 3))
        """,
        lane=Lane(4, "float32"),
    ).run
    v = np.array([0.0, 1.0, 2.0, -1.0], np.float32)
    u = np.zeros(4, np.float32)
    run(v.ctypes.data, u.ctypes.data)
    np.testing.assert_allclose(u, -(2 * v - 1) / (v + 3), rtol=1e-6)


def test_lanes_and_matrices_that_are_none():
    with pytest.raises(KernelError, match="3 wide: choose one of"):
        Lane(3)
    with pytest.raises(KernelError, match="float16: choose float64 or float32"):
        Lane(4, "float16")
    for rows in ([1.0], [[np.nan]], np.zeros((0, 2))):
        with pytest.raises(KernelError, match="finite and has two dimensions"):
            Matrix1D(rows)
