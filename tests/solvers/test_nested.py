"""`femops.solve`, and nested iteration to the accuracy of the mesh."""

import numpy as np
import pytest
import scipy.sparse as sp

import femops
from femops.errors import ConvergenceWarning, SolverError
from femops_meshes.coarsening import coarse_mesh


def bent(x):
    return (x[0] ** 1.3 + 0.05 * np.sin(3 * x[1]), *x[1:])


def graded(dim):
    return femops.box((8,) * dim, mapping=bent)


def energy(A, e):
    e = e.copy()
    e[A.constrained_dofs] = 0.0
    return float(np.sqrt(e @ (A @ e)))


def poisson(mesh, order, family="gll", **options):
    V = femops.H1(mesh, order, family=family)
    A = femops.diffusion(V, **options).constrained(V.boundary_dofs())
    return A, A.rhs(femops.load(V, lambda x: np.exp(2.0 * x[0])))


def prescribed(mesh, order):
    V = femops.H1(mesh, order)
    A = femops.form(lambda u: {"value": 3.0 * u, "grad": u.grad}, V)
    A = A.constrained(V.boundary_dofs([1, 2]))
    values = V.interpolate(lambda x: np.exp(x[0]) * np.cos(2 * x[1]))
    return A, A.rhs(femops.load(V, 1.0), values)


def clamped(mesh, order):
    V = femops.H1(mesh, order, ncomp=mesh.dim)
    A = femops.elasticity(V, 1.0, 1.0).constrained(V.boundary_dofs([1]))
    return A, A.rhs(femops.load(V, lambda x: (x[1], *(0 * x[1:] + 1))))


def swelling(x):
    return 1.0 + x[0] + 0.5 * np.sin(4 * x[1])


def cooling(x):
    return 2.0 + np.sin(2 * x[0] + x[-1])


def cooled(mesh, order):
    V = femops.H1(mesh, order)
    A = femops.diffusion(V) + femops.boundary_mass(V, cooling, attributes=[1, 2])
    return A, femops.load(V, lambda x: np.exp(x[0]))


CASES = {
    "square": lambda: poisson(femops.box((16, 16)), 2),
    "order 1": lambda: poisson(femops.box((32, 32)), 1),
    "order 5": lambda: poisson(femops.box((8, 8)), 5),
    "interval": lambda: poisson(femops.box((32,)), 3),
    "varying": lambda: poisson(femops.box((16, 16)), 3, kappa=swelling),
    "matrix-free": lambda: poisson(femops.box((16, 16)), 2, kappa=swelling, level="matrix-free"),
    "bernstein": lambda: poisson(femops.box((8, 8)), 3, family="bernstein"),
    "graded": lambda: poisson(graded(2), 3),
    "graded cubes": lambda: poisson(graded(3), 2),
    "ball": lambda: poisson(femops.ball(1).refine(2), 2),
    "prescribed": lambda: prescribed(femops.box((16, 16)), 3),
    "prescribed, ball": lambda: prescribed(graded(3), 2),
    "cooled": lambda: cooled(graded(2), 3),
    "cooled cubes": lambda: cooled(graded(3), 2),
    "cooled bar": lambda: cooled(femops.box((32,)), 2),
    "elasticity": lambda: clamped(femops.box((8, 4, 4)), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_that_of_the_mesh(name):
    A, b = CASES[name]()
    x, info = femops.solve(A, b, accuracy="discretisation")
    exact, _ = femops.cg(A, b, M="multigrid", rtol=1e-11)
    left = energy(A, x - exact)
    assert info.converged
    assert info.iterations <= 4
    assert left <= 0.2 * info.error
    assert info.remaining <= 0.1 * info.error
    held = A.constrained_dofs
    np.testing.assert_array_equal(x[held], b[held])


@pytest.mark.parametrize(("dim", "order"), [(2, 1), (2, 2), (2, 4), (3, 2)])
def test_the_estimate_is_the_error(dim, order):
    V = femops.H1(femops.box((8,) * dim), order)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    square = dim * np.pi**2

    def load(x):
        return square * np.prod(np.sin(np.pi * np.asarray(x)), axis=0)

    b = A.rhs(femops.load(V, load))
    exact, _ = femops.cg(A, b, M="multigrid", rtol=1e-12)
    error = np.sqrt(square / 2**dim - b @ exact)  # in the energy norm, by Galerkin orthogonality
    _, info = femops.solve(A, b, accuracy="discretisation")
    assert info.error == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_estimates_with_a_boundary_and_coefficients(dim):
    mesh = femops.box((8 if dim < 3 else 4,) * dim)
    A, b = cooled(mesh, 2)
    _, info = femops.solve(A, b, accuracy="discretisation")
    exact, _ = femops.cg(A, b, M="multigrid", rtol=1e-12)
    B, f = cooled(mesh.refine(2), 2)
    best, _ = femops.cg(B, f, M="multigrid", rtol=1e-12)
    assert info.error == pytest.approx(np.sqrt(f @ best - b @ exact), rel=0.2)


def test_materials_and_singular_solutions():
    # the error falls slower than that of smooth solutions, so the estimate is below it
    V = femops.H1(femops.box((16, 16)), 2)
    A = femops.diffusion(V, kappa=lambda x: np.where((x[0] > 0.5) & (x[1] > 0.5), 100.0, 1.0))
    A = A.constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0))
    x, info = femops.solve(A, b, accuracy="discretisation")
    exact, _ = femops.cg(A, b, M="multigrid", rtol=1e-12)
    fine = femops.H1(V.mesh.refine(2), 2)
    B = femops.diffusion(fine, kappa=lambda x: np.where((x[0] > 0.5) & (x[1] > 0.5), 100.0, 1.0))
    B = B.constrained(fine.boundary_dofs())
    f = B.rhs(femops.load(fine, 1.0))
    best, _ = femops.cg(B, f, M="multigrid", rtol=1e-12)
    error = np.sqrt(f @ best - b @ exact)
    assert energy(A, x - exact) < 0.1 * error
    assert 0.3 * error < info.error < 1.1 * error


def test_without_essential_conditions():
    V = femops.H1(femops.box((16, 16)), 2)
    A = femops.diffusion(V)
    b = femops.load(V, lambda x: np.cos(np.pi * x[0]))
    x, info = femops.solve(A, b, accuracy="discretisation")
    exact, _ = femops.cg(A, b, M="multigrid", rtol=1e-11)
    assert info.converged
    assert energy(A, x - exact) <= 0.2 * info.error


def test_arguments_stay():
    A, b = prescribed(femops.box((8, 8)), 2)
    kept = b.copy()
    first, _ = femops.solve(A, b, accuracy="discretisation", M=femops.jacobi(A))
    second, _ = femops.solve(A, b, accuracy="discretisation")
    np.testing.assert_array_equal(b, kept)
    assert energy(A, first - second) < 1e-2 * energy(A, first)
    zero, info = femops.solve(A, 0.0 * b, accuracy="discretisation")
    assert not zero.any()
    assert info.converged


def test_coarse_meshes():
    for mesh in (femops.box((8, 4, 2)), femops.ball(2).refine(), graded(2)):
        coarse, children = coarse_mesh(mesh)
        assert children.shape == (coarse.num_elements, 2**mesh.dim)
        assert coarse.volume() == pytest.approx(mesh.volume(), rel=1e-3)
        assert {*coarse.boundary_attributes} == {*mesh.boundary_attributes}
    assert coarse_mesh(femops.box((3, 4))) is None
    assert coarse_mesh(femops.box((4, 4)).refined([0])) is None


def test_solvers_are_chosen():
    A, b = CASES["square"]()
    x, info = femops.solve(A, b)
    assert info.residual <= 1e-8 * np.linalg.norm(b)
    V = A.space
    C = femops.form(lambda u: {"value": u.grad[0] + u, "grad": u.grad}, V)
    x, info = femops.solve(C, femops.load(V, 1.0), rtol=1e-10)
    assert np.linalg.norm(C @ x - femops.load(V, 1.0)) < 1e-9
    many, _ = femops.solve(A, np.stack([b, 2 * b], axis=1))
    np.testing.assert_allclose(many[:, 1], 2 * many[:, 0], atol=1e-7)


def test_bad_input():
    A, b = poisson(femops.box((8, 8)), 2)

    def refused(A, b, text):
        with pytest.raises(SolverError, match=text):
            femops.solve(A, b, accuracy="discretisation")

    refused(*poisson(femops.box((5, 5)), 2), "no coarser")
    refused(*poisson(femops.box((8, 8), cells="triangles"), 2), "quadrilaterals")
    jump = poisson(femops.box((6, 6)), 2, kappa=lambda x: np.where(x[0] > 0.5, 1.0, 5.0))
    refused(*jump, "kappa jumps within elements of the coarser mesh")
    V = A.space
    field = femops.GridFunction(V, V.interpolate(lambda x: 1 + x[0]))
    refused(*poisson(V.mesh, 2, kappa=field), "kappa is a GridFunction")
    inner = femops.interior_penalty(femops.H1(V.mesh, 2))
    refused(inner, b, "faces between elements")
    carried = femops.form(lambda u: {"value": u.grad[0], "grad": u.grad}, V)
    refused(carried, b, "symmetric")
    refused(femops.diffusion(V, dtype="float32"), b, "float64")
    D = femops.L2(V.mesh, 2)
    refused(femops.interior_penalty(D), D.zeros(), "H1")
    with pytest.raises(SolverError, match="give 'discretisation' or None"):
        femops.solve(A, b, accuracy="mesh")
    with pytest.raises(femops.errors.VectorError):
        femops.solve(A, b[1:], accuracy="discretisation")


def test_a_poor_preconditioner_is_told():
    A, b = poisson(graded(2), 6)
    weak = sp.eye_array(A.shape[0])
    with pytest.warns(ConvergenceWarning, match="the solver's error is"):
        _, info = femops.solve(A, b, accuracy="discretisation", M=weak)
    assert not info.converged
