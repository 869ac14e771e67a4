"""SciPy's solvers run on the operators as they are."""

import itertools

import numpy as np
import pytest
import scipy.sparse.linalg as spla

import femops
from femops.errors import OperatorError, VectorError
from support import fixtures
from support.cases.kernels import bend, random_vector, smooth, turned
from support.oracles.naive import Oracle

one_thread = fixtures.one_thread


@pytest.fixture(scope="module")
def space():
    return femops.H1(turned(femops.box((7, 5), order=2, mapping=bend)), 3)


@pytest.fixture(scope="module")
def poisson(space):
    """Diffusion held at the boundary."""
    return femops.diffusion(space, smooth).constrained(space.boundary_dofs())


@pytest.fixture(scope="module")
def dense(space):
    """The oracle's diffusion and mass on the free dofs."""
    oracle = Oracle(space.mesh.coordinates, space.restriction.indices)
    free = np.setdiff1d(np.arange(space.size), space.boundary_dofs())
    both = oracle.diffusion(smooth), oracle.mass()
    diffusion, mass = (m.assembled().toarray()[np.ix_(free, free)] for m in both)
    return diffusion, mass


@pytest.mark.parametrize("solver", ["cg", "gmres"])
def test_krylov_solvers(space, poisson, dense, solver):
    b = poisson.rhs(femops.load(space, smooth))
    x, info = getattr(spla, solver)(poisson, b, rtol=1e-12, M=femops.jacobi(poisson), maxiter=2000)
    assert info == 0
    free = np.setdiff1d(np.arange(space.size), space.boundary_dofs())
    expected = np.linalg.solve(dense[0], b[free])
    assert np.linalg.norm(x[free] - expected) < 1e-8 * np.linalg.norm(expected)
    assert np.all(x[space.boundary_dofs()] == 0.0)


def test_eigsh_and_lobpcg(space, poisson, dense):
    diffusion, _ = dense
    expected = np.linalg.eigvalsh(diffusion)
    # the constrained rows add eigenvalues 1, which lie inside the spectrum
    largest = spla.eigsh(poisson, k=3, return_eigenvectors=False)
    np.testing.assert_allclose(np.sort(largest), expected[-3:], rtol=1e-9)
    start = np.random.default_rng(3).standard_normal((space.size, 6))
    values, vectors = spla.lobpcg(poisson, start, largest=True, tol=1e-7, maxiter=500)
    np.testing.assert_allclose(np.sort(values)[-3:], expected[-3:], rtol=1e-8)
    assert np.linalg.norm(poisson @ vectors - vectors * values) < 1e-3


def test_a_field_by_components_is_refused():
    V = femops.H1(femops.box((4, 4, 4)), 1, ncomp=3)
    A = femops.elasticity(V, 1.0, 1.0)
    one, flat = ("apply", "matvec", "rmatvec"), r"is flat, \(375,\): use x.reshape\(-1\)"
    for B, use in itertools.product(
        (A, A.T, femops.mass(V) + A), (*one, "dot", "matmat", "__matmul__")
    ):
        with pytest.raises(VectorError, match=rf"x has shape \(125, 3\); .* {flat}"):
            getattr(B, use)(V.components(V.zeros()))
    for use in one:
        with pytest.raises(VectorError, match=r"one column, x\[:, k\]; many .* for A @ X"):
            getattr(A, use)(np.zeros((V.size, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_operator_algebra(space, dtype):
    """What SciPy's own arithmetic makes of an operator: products, powers, sums with others."""
    mass = femops.mass(space, dtype=dtype)
    u = random_vector(space, dtype)
    once = mass.apply(u)
    np.testing.assert_allclose(mass.dot(u), once)
    np.testing.assert_allclose((mass @ mass) @ u, mass.apply(once))
    identity = spla.aslinearoperator(np.eye(space.size, dtype=dtype))
    np.testing.assert_allclose((mass + identity) @ u, once + u, rtol=1e-6)
    assert spla.aslinearoperator(mass) is mass
    assert mass.dtype == dtype
    assert mass.shape == (space.size, space.size)


def test_cg_refuses_what_is_not_symmetric():
    V = femops.H1(femops.box((4, 4)), 2)
    A = femops.diffusion(V) + femops.convection(V, [1.0, 0.0])
    assert not A.symmetric
    with pytest.raises(femops.errors.SolverError, match="gmres"):
        femops.cg(A, V.zeros())


def test_what_is_no_operator_is_not_added():
    """NumPy told of ufuncs, or of concatenation."""
    V = femops.H1(femops.box((2, 2)), 2)
    P = femops.Product(a=V, b=V)
    both = femops.form(lambda a, b: {"a": {"value": a}, "b": {"value": b}}, P)
    for A in (femops.mass(V), both):
        matrix = A.assemble()
        for B in (matrix.toarray(), matrix, 1.0, 0):
            sums = [lambda A=A, B=B: A + B, lambda A=A, B=B: A - B, lambda A=A, B=B: B - A]
            sums += [lambda A=A, B=B: B + A] * (np.ndim(B) > 0 or B != 0)  # sum() begins with 0
            for compute in sums:
                with pytest.raises(OperatorError, match=r"can't be added: .*A.assemble\(\) \+ B"):
                    compute()
    with pytest.raises(OperatorError, match="different spaces"):
        both + femops.mass(V)
    assert sum([both, both]).shape == both.shape


def test_solvers_for_matrices_are_told_of_the_matrix(space, poisson):
    b = space.zeros()
    for solve in (np.linalg.solve, spla.spsolve, np.dot):
        with pytest.raises(ValueError, match=r"A.assemble\(\) is the matrix|unrecognized") as found:
            solve(poisson, b)
        error = found.value if isinstance(found.value, OperatorError) else found.value.__cause__
        assert "A.assemble().toarray() a dense one. femops.cg(A, b) solves" in str(error)
    complex_mass = femops.form(lambda u: {"value": 1j * u}, space, dtype=complex)
    with pytest.raises(OperatorError, match="ComplexOperator is not a matrix"):
        np.asarray(complex_mass)


def test_outputs_with_gaps_are_refused_with_a_cure_that_keeps_the_result(poisson, space):
    with pytest.raises(VectorError, match="out is not contiguous in memory: leave it out, and"):
        poisson.apply(space.zeros(), out=np.zeros(2 * space.size)[::2])


def test_factors_that_are_no_vectors():
    A = femops.mass(V := femops.H1(femops.box((2, 2)), 2))
    x = np.arange(V.size) + 0.5
    with pytest.raises(VectorError, match=r"x is a csr_array: give x.toarray\(\)"):
        A @ A.assemble()
    with pytest.raises(VectorError, match=r"x is a GridFunction: give x.vector"):
        A @ femops.GridFunction(V, x)
    for imaginary in (A * 1j, 1j * A):
        np.testing.assert_allclose(imaginary @ x, 1j * (A @ x), rtol=1e-14)
