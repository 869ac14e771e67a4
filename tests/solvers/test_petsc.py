"""Operators in PETSc and SLEPc, on one rank and on several, where there are petsc4py and slepc4py.

Everything is compared with one process: the same solve on PETSc's COMM_SELF.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import femops
from femops.errors import SolverError, VectorError
from femops.parallel import Serial
from support.cases.kernels import smooth
from support.cases.products import stokes
from support.cases.rank_operators import close
from support.mpi_runs import launch, why_not

MISSING = "petsc4py is missing, or built for another NumPy: docs/petsc.md says how to get it"
pytest.importorskip("petsc4py", reason=MISSING, exc_type=ImportError)
pytest.importorskip("petsc4py.PETSc", reason=MISSING, exc_type=ImportError)
from petsc4py import PETSc  # noqa: E402

from femops import petsc  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "petsc_krylov.py"
FOUND = r"29521 dofs, CG (alone|with GAMG|with femops' multigrid): (\d+) iterations, L2 error (\S+)"


def disc(ranks, order=3, ncomp=1):
    return femops.H1(femops.read_mesh(femops.sample("disc.mesh"), 1, comm=ranks), order, ncomp)


def conduction(ranks):
    V = disc(ranks)
    A = (femops.diffusion(V, smooth) + femops.boundary_mass(V, attributes=1)).constrained(
        V.boundary_dofs(1)
    )
    return A, A.rhs(femops.load(V, smooth))


@pytest.fixture(autouse=True)
def smoother():
    """For GAMG Gauss-Seidel: the guess of eigenvalues for Chebyshev's polynomials is too low."""
    settings = {"mg_levels_ksp_type": "richardson", "mg_levels_pc_type": "sor"}
    options = PETSc.Options()
    for name, value in settings.items():
        options[name] = value
    yield
    for name in settings:
        options.delValue(name)


def wave(V):
    return V.interpolate(lambda x: np.sin(3 * x[0]) + x[1])


def test_vectors_are_not_copied():
    V = disc(None)
    u = wave(V)
    v = petsc.vec(V, u)
    v.scale(2.0)
    assert np.array_equal(u, 2.0 * wave(V))
    u[0] = 7.0
    assert v.array_r[0] == 7.0
    assert petsc.vec(V).norm() == 0.0


@pytest.mark.parallel(1, 2, 3)
def test_products_transposes_and_diagonals(comm):
    V = disc(comm)
    A = femops.convection(V, lambda x: (1.0 + x[0], x[1])) + femops.mass(V)
    shell, x, y = petsc.mat(A), petsc.vec(V, wave(V)), petsc.vec(V)
    shell.mult(x, y)
    assert np.array_equal(y.array_r, A @ wave(V))
    shell.multTranspose(x, y)
    assert np.array_equal(y.array_r, A.T @ wave(V))
    assert np.array_equal(shell.getDiagonal().array_r, A.diagonal())
    assert shell.getSizes() == ((V.size, V.global_size),) * 2


@pytest.mark.parallel(1, 2, 3)
def test_matrices_of_several_components(comm):
    V = disc(comm, 2, ncomp=2)
    A = femops.elasticity(V, 1.0, smooth).constrained(V.boundary_dofs(components=0))
    u = V.interpolate(lambda x: (np.sin(x[0]), x[1] ** 2))
    x, y = petsc.vec(V, u), petsc.vec(V)
    matrix = petsc.aij(A.assemble(), V)
    matrix.mult(x, y)
    product = A @ u
    assert abs(y.array_r - product).max() < 1e-12 * abs(product).max()
    assert matrix.getBlockSize() == 2


@pytest.mark.parallel(1, 2, 3, timeout=60)
@pytest.mark.parametrize("kind", ["femops multigrid", "jacobi of low_order", "gamg of low_order"])
def test_iterations_do_not_depend_on_ranks(comm, kind):
    def solve(ranks):
        A, b = conduction(ranks)
        M = femops.multigrid(A, dtype="float64") if "multigrid" in kind else femops.low_order(A)
        solver, u = petsc.ksp(A, M), A.space.zeros()
        if "of" in kind:
            solver.getPC().setType(kind.split()[0])
        solver.setTolerances(rtol=1e-10)
        solver.solve(petsc.vec(A.space, b), petsc.vec(A.space, u))
        assert solver.getConvergedReason() > 0
        return A.space, u, solver.getIterationNumber()

    (V, u, count), (_, alone, expected) = solve(comm), solve(Serial())
    close(u, alone, V, 1e-7)
    assert abs(count - expected) <= (3 if "gamg" in kind else 0)  # its aggregates are a rank's


def test_one_process_and_femops_own_solver():
    A, b = conduction(None)
    M, u = femops.multigrid(A), A.space.zeros()
    solver = petsc.ksp(A, M)
    solver.setTolerances(rtol=1e-9)
    solver.solve(petsc.vec(A.space, b), petsc.vec(A.space, u))
    v, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert abs(u - v).max() < 1e-7 * abs(v).max()
    assert abs(solver.getIterationNumber() - info.iterations) <= 2
    assert solver.getType() == "cg"


@pytest.mark.parallel(1, 2)
def test_several_fields(comm):
    mesh = femops.distribute(femops.box((8, 8)), comm)
    U, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    W = femops.Product(u=U, p=Q)
    A = femops.form(stokes, W, mu=1.0).constrained(W.positions(u=U.boundary_dofs()))
    b = A.rhs(W.zeros(), W.interpolate(u=lambda x: (x[1] ** 2, 0.0 * x[0])))
    velocity, mass = femops.multigrid(A["u", "u"], dtype="float64"), femops.mass(Q)
    M = femops.block_triangular(A, p=femops.jacobi(-mass), u=velocity)
    solver, z = petsc.ksp(A, M), W.zeros()
    solver.setType("gmres")
    solver.setPCSide(PETSc.PC.Side.RIGHT)
    solver.setTolerances(rtol=1e-8)
    solver.solve(petsc.vec(W, b), petsc.vec(W, z))
    expected, info = femops.gmres(A, b, M=M, rtol=1e-8)
    assert info.converged
    assert abs(solver.getIterationNumber() - info.iterations) <= 1
    assert np.allclose(W.split(z)[0], W.split(expected)[0], atol=1e-6)


@pytest.mark.parallel(1, 2, 3, timeout=60)
@pytest.mark.parametrize("make", [femops.low_order, femops.multigrid, femops.jacobi])
def test_a_nonlinear_problem(comm, make):
    V = disc(comm, 2, ncomp=2)
    F = femops.neo_hookean(V, lam=1.0, mu=1.0).constrained(V.boundary_dofs())
    u = V.interpolate(lambda x: (0.2 * x[0], 0.1 * x[0] * x[1]))
    b = femops.load(V, lambda x: (0.1 + 0.0 * x[0], 0.0 * x[1]))
    expected, info = femops.newton(F, u, b, rtol=1e-10)
    assert info.converged
    solver = petsc.snes(F, u, b, make)
    solver.setTolerances(rtol=1e-9)
    solver.getKSP().setTolerances(rtol=1e-6)
    solver.solve(None, petsc.vec(V, u))
    assert solver.getConvergedReason() > 0
    assert 2 <= solver.getIterationNumber() <= 8
    close_to = abs(u - expected).max() if V.size else 0.0
    assert close_to < 1e-7


@pytest.mark.parallel(1, 2, timeout=60)
def test_eigenvalues_by_slepc(comm):
    """The lowest of the Laplacian on the unit square: pi^2 times 2, 5, 5, 8."""
    slepc = pytest.importorskip(
        "slepc4py.SLEPc", reason="slepc4py is missing", exc_type=ImportError
    )
    V = femops.H1(femops.distribute(femops.box((4, 4)), comm), order=6)
    held = V.boundary_dofs()
    A = femops.diffusion(V).constrained(held)
    B = 1e-6 * (1e6 * femops.mass(V)).constrained(held)  # held dofs have the eigenvalue 1e6
    solver = slepc.EPS().create(V.comm.raw if V.comm.size > 1 else PETSc.COMM_SELF)
    solver.setOperators(petsc.mat(A), petsc.mat(B))
    solver.setProblemType(slepc.EPS.ProblemType.GHEP)
    solver.setType(slepc.EPS.Type.LOBPCG)
    solver.setWhichEigenpairs(slepc.EPS.Which.SMALLEST_REAL)
    solver.setDimensions(4)
    solver.setTolerances(1e-8)
    solver.getST().getKSP().setPC(petsc.pc(femops.multigrid(A, dtype="float64")))
    solver.solve()
    assert solver.getConverged() >= 4
    values = [solver.getEigenvalue(k).real / np.pi**2 for k in range(4)]
    assert values == pytest.approx([2.0, 5.0, 5.0, 8.0], rel=1e-6)


def test_what_petsc_cannot_take_is_refused():
    V = femops.H1(femops.box((2, 2)), 2)
    A = femops.mass(V)
    cases = {
        "in float32": lambda: petsc.mat(femops.mass(V, dtype="float32")),
        "rows of shape \\(25, 25\\)": lambda: petsc.aij(
            femops.mass(femops.H1(V.mesh, 1)).assemble(), V
        ),
        "A is": lambda: petsc.mat(A.assemble()),
        "M is": lambda: petsc.pc(A.assemble()),
    }
    for text, call in cases.items():
        with pytest.raises(SolverError, match=text):
            call()
    with pytest.raises(VectorError):
        petsc.vec(V, np.zeros(3))


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_the_example_on_two_ranks():
    code, text = launch(2, [sys.executable, str(EXAMPLE)], 120)
    assert code == 0, text
    found = {name: (int(count), float(error)) for name, count, error in re.findall(FOUND, text)}
    assert text.count("iterations") == len(found) == 3
    assert found["alone"][0] > 2 * found["with GAMG"][0] > 4 * found["with femops' multigrid"][0]
    assert max(error for _, error in found.values()) < 2e-5
