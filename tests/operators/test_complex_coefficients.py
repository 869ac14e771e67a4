"""Coefficients of complex forms: kinds of functions and arrays, and new values of them."""

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, SpaceError, VectorError
from support.cases.kernels import bend

Array = np.ndarray
V = femops.H1(femops.box((3, 2), mapping=bend), 2)
X = np.random.default_rng(0).standard_normal(V.size) + 0.5j


def scaled(u, k):
    return {"value": k * u}


def advected(u, v):
    return {"value": v[0] * u + v[1] * u.grad[0]}


def build(function, **options):
    return femops.form(function, V, dtype=complex, **options)


def test_real_forms_and_vectors_say_how_to_be_complex():
    with pytest.raises(OperatorError, match=r"k gives complex numbers, which V\.interpolate"):
        femops.form(scaled, V, k=1j)
    with pytest.raises(SpaceError, match=r"f gives complex numbers, which V\.interpolate"):
        V.interpolate(lambda x: 1j * x[0])


FUNCTIONS = {
    "list": (lambda x: [1j * x[0], x[1]], lambda x: np.array([1j * x[0], x[1]])),
    "numbers and arrays": (
        lambda x: (1j * x[0], 2.0),
        lambda x: np.array([1j * x[0], 2 + 0 * x[0]]),
    ),
    "constant": (lambda x: np.array([1j, 2.0]), lambda x: np.array([1j + 0 * x[0], 2 + 0 * x[0]])),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_of_functions(name):
    given, plain = FUNCTIONS[name]
    parts = [femops.form(advected, V, v=lambda x: part(plain(x))) for part in (np.real, np.imag)]  # noqa: B023
    expected = parts[0] @ X + 1j * (parts[1] @ X)
    assert np.allclose(build(advected, v=given) @ X, expected, rtol=0, atol=1e-14)


def test_a_constant_with_as_many_components_as_points():
    """On one element with two points a matrix could be taken for values at points."""
    D = femops.L2(femops.box((1,)), 0)
    matrix = np.array([[1.0, 2j], [3.0, 4j]])

    def entries(u, m):
        return {"value": (m[0, 0] + 10 * m[0, 1] + 100 * m[1, 0] + 1000 * m[1, 1]) * u}

    A = femops.form(entries, D, dtype=complex, m=lambda x: matrix)
    assert np.allclose(A @ np.ones(1), 301 + 4020j)


def test_a_constant_vector_on_as_many_elements_of_two_points():
    """Real and imaginary parts are no values at two points."""
    D = femops.L2(femops.box((2,)), 0)
    A = femops.form(lambda u, m: {"value": (m[0] + 10 * m[1]) * u}, D, dtype=complex, m=[1j, 2.0])
    assert np.allclose(A @ np.ones(2), 10 + 0.5j)


def late(x):
    return 1j * x[0] if (x[0] > 0.5).any() else x[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (late, "real in one element and complex in another"),
        (None, "give numbers or a function of x"),
        (np.array([1j, None], dtype=object), "give numbers or a function of x"),
        (lambda x: [None, 1j], "give numbers or a function of x"),
    ],
)
def test_values_that_make_no_sense(value, words):
    old = 1.0 if value is late else 1j
    for make in (lambda: build(scaled, k=value), lambda: build(scaled, k=old).update(k=value)):
        with pytest.raises(OperatorError, match=words):
            make()


def test_a_vector_of_two_components_is_no_symmetric_matrix():
    """Its real and imaginary parts are an array (2, 2), which may have equal entries."""
    first, second = np.array([1.0 + 2.0j, 2.0 + 3.0j]), np.array([1j, 5.0])
    for old, new in ((first, second), (second, first)):
        A = build(advected, v=old).update(v=new)
        assert np.array_equal(A @ X, build(advected, v=new) @ X)


def test_errors_of_updates_and_sums():
    A = build(scaled, k=1j)
    with pytest.raises(OperatorError, match=r"a coefficient .q."):
        A.update(q=1j)
    single = femops.form(scaled, V, dtype="complex64", k=1j)
    with pytest.raises(OperatorError, match=r"types can't be added: ComplexOperator\(.* complex64"):
        A + single


def test_many_vectors_into_others():
    A = build(scaled, k=1j)
    x = femops.MultiVector.zeros(V, 3, dtype=complex)
    with pytest.raises(VectorError, match="not of the space"):
        A.apply_many(x, femops.MultiVector.zeros(femops.H1(V.mesh, 2), 3, dtype=complex))
    with pytest.raises(VectorError, match="give a MultiVector"):
        A.apply_many(x, np.zeros((V.size, 3), complex))
    with pytest.raises(VectorError, match="overlaps"):
        A.apply_many(x, x)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("empty", [[], np.zeros((2, 0))])
def test_arrays_without_numbers_are_refused(dtype, empty):
    A = femops.form(scaled, V, dtype=dtype, k=1.0)
    with pytest.raises(OperatorError, match=r"k has shape .*, which has no numbers"):
        A.update(k=empty)
    with pytest.raises(OperatorError, match=r"k has shape .*, which has no numbers"):
        femops.form(scaled, V, dtype=dtype, k=empty)


def conducted(u, K):
    return {"grad": K @ u.grad, "value": u}


HERMITIAN = {
    "constant": (np.array([[2.0, 1j], [-1j, 3.0]]), True),
    "function": (lambda x: np.array([[2 + x[0], x[1] + 1j], [x[1] - 1j, 3 + 0 * x[0]]]), True),
    "symmetric": (np.array([[2.0, 1j], [1j, 3.0]]), False),
    "complex diagonal": (np.array([[2.0 + 0.1j, 1j], [-1j, 3.0]]), False),
}


@pytest.mark.parametrize("name", HERMITIAN)
def test_hermitian_tensors(name):
    K, hermitian = HERMITIAN[name]
    A = build(conducted, K=K)
    M = A.assemble().toarray()
    assert A.hermitian == hermitian == (abs(M - M.conj().T).max() < 1e-13)
    if hermitian:
        x, info = femops.cg(A, X, rtol=1e-12)
        assert info.converged
        assert abs(M @ x - X).max() < 1e-9
        with pytest.raises(OperatorError, match="another shape or symmetry"):
            A.update(K=np.array([[2.0, 1j], [1j, 3.0]]))
