"""A Poisson problem on a curved ball, solved by PETSc: an operator, and three preconditioners.

PETSc's conjugate gradients are given the operator as a shell matrix, which is never formed. They
are preconditioned by PETSc's algebraic multigrid (GAMG) of a low-order matrix on the same nodes,
which is spectrally equivalent and has few entries a row (Orszag 1980), and by femops' multigrid.
Run it on any number of ranks:

    mpiexec -n 4 python examples/petsc_krylov.py

It needs petsc4py, and an mpi4py that uses the same MPI as PETSc does: `docs/petsc.md`.
"""

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

import femops
from femops import petsc


def exact(x):
    """Solution; x has shape (3, n)."""
    return np.sin(2 * x[0]) * np.sin(2 * x[1]) * np.sin(2 * x[2])


def source(x):
    """Its right-hand side, -div grad u."""
    return 12 * exact(x)


def solve(A, b, M, kind):
    """Solution and iterations of PETSc's conjugate gradients."""
    solver, u = petsc.ksp(A, M), A.space.zeros()
    if kind is not None:
        solver.getPC().setType(kind)
    solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    solver.setTolerances(rtol=1e-10, max_it=10_000)
    solver.setFromOptions()
    solver.solve(petsc.vec(A.space, b), petsc.vec(A.space, u))  # which writes to u
    assert solver.getConvergedReason() > 0
    return u, solver.getIterationNumber()


def main():
    """Solve with each preconditioner, report, and check the error."""
    mesh = femops.read_mesh(femops.sample("ball.mesh"), refine=1, comm=MPI.COMM_WORLD)
    V = femops.H1(mesh, order=4)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, source), V.interpolate(exact))
    settings = PETSc.Options()  # a smoother that needs no guess of eigenvalues
    settings["mg_levels_ksp_type"], settings["mg_levels_pc_type"] = "richardson", "sor"
    ways = {
        "alone": (None, None),
        "with GAMG": (femops.low_order(A), "gamg"),
        "with femops' multigrid": (femops.multigrid(A, dtype="float64"), None),
    }
    found = {}
    for name, (M, kind) in ways.items():
        u, found[name] = solve(A, b, M, kind)
        error = femops.l2_error(V, u, exact)
        if MPI.COMM_WORLD.rank == 0:
            size = f"{V.global_ndofs} dofs"
            print(f"{size}, CG {name}: {found[name]} iterations, L2 error {error:.2e}")
        assert error < 2e-5
    assert found["with femops' multigrid"] < 20 < found["with GAMG"] < 60 < found["alone"]


if __name__ == "__main__":
    main()
