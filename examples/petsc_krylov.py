"""A Poisson problem on a curved ball, solved by PETSc: a femops operator, and algebraic multigrid.

PETSc's conjugate gradients are given the operator as a shell matrix, which is never formed, and to
its algebraic multigrid (GAMG) a low-order matrix: that of order 1 on the grid of the nodes, which
is spectrally equivalent and has few entries a row (Orszag 1980). Run it on any number of ranks:

    mpiexec -n 4 python examples/petsc_krylov.py

It needs petsc4py, and an mpi4py that uses the same MPI as PETSc does: `docs/parallel.md`.
"""

import itertools

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

import femops
from femops_meshes.coordinates.mapping import positions


def exact(x):
    """Solution; x has shape (3, n)."""
    return np.sin(2 * x[0]) * np.sin(2 * x[1]) * np.sin(2 * x[2])


def source(x):
    """Its right-hand side, -div grad u."""
    return 12 * exact(x)


class Shell:
    """What PETSc calls for products with an operator."""

    def __init__(self, operator):
        self.operator = operator

    def mult(self, _, x, y):
        """Compute y = A x of the entries that this rank owns; femops exchanges the others."""
        self.operator.apply(x.array_r, y.array)


def shell(A):
    """The operator as a matrix of PETSc, which keeps nothing."""
    sizes = (A.shape[0], A.space.global_size), (A.shape[1], A.space.global_size)
    matrix = PETSc.Mat().createPython(sizes, Shell(A), comm=PETSc.COMM_WORLD)
    matrix.setUp()
    return matrix


def cells_of_nodes(V):
    """Elements of this rank cut at the nodes, as a mesh whose vertices are the nodes."""
    steps = [np.array(corner[::-1]) for corner in itertools.product((0, 1), repeat=V.dim)]
    place = np.arange(V.p1d**V.dim).reshape((V.p1d,) * V.dim)  # z, y, x
    inner = itertools.product(range(V.order), repeat=V.dim)
    cells = [[place[tuple(np.array(at) + step[::-1])] for step in steps] for at in inner]
    nodes = V.restriction.indices[:, cells].reshape(-1, 2**V.dim)
    x = positions(V.mesh.coordinates, V.basis.nodes)[:, cells]
    return femops.Mesh.from_arrays(None, nodes, coordinates=x.reshape(-1, 2**V.dim, V.dim)), nodes


def low_order(V, constrained):
    """The diffusion matrix of order 1 on the nodes of V, with constrained rows and columns."""
    mesh, nodes = cells_of_nodes(V)
    Q = femops.H1(mesh, order=1)
    node = np.empty(Q.ndofs, dtype=np.int64)  # of V, of each dof of Q
    node[Q.restriction.indices] = nodes
    own, whole = femops.diffusion(Q).assemble(), V.numbering.whole[node]
    matrix = PETSc.Mat().createAIJ([(V.ndofs, V.global_ndofs)] * 2, comm=PETSc.COMM_WORLD)
    matrix.setPreallocationNNZ(2 * 3**V.dim)
    matrix.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    matrix.setLGMap(PETSc.LGMap().create(whole.astype(PETSc.IntType), comm=PETSc.COMM_WORLD))
    pattern = (array.astype(PETSc.IntType) for array in (own.indptr, own.indices))
    rows = np.arange(Q.ndofs, dtype=PETSc.IntType)
    matrix.setValuesLocalIJV(*pattern, own.data, PETSc.InsertMode.ADD, rows)
    matrix.assemble()  # adds what several ranks have
    matrix.zeroRowsColumns((V.first_dof + constrained).astype(PETSc.IntType))
    return matrix


def solve(A, b, preconditioner, low=None):
    """Solution and iterations of PETSc's conjugate gradients."""
    matrix = shell(A)
    solver = PETSc.KSP().create(comm=PETSc.COMM_WORLD)
    solver.setOperators(matrix, low or matrix)
    solver.setType(PETSc.KSP.Type.CG)
    solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    solver.getPC().setType(preconditioner)
    solver.setFromOptions()
    solver.setTolerances(rtol=1e-10, max_it=10_000)
    right, x = matrix.createVecs()
    right.array[:] = b
    solver.solve(right, x)
    assert solver.getConvergedReason() > 0
    return x.array_r.copy(), solver.getIterationNumber()


def main():
    """Solve with and without multigrid, report, and check the error."""
    mesh = femops.read_mesh(femops.sample("ball.mesh"), refine=1, comm=MPI.COMM_WORLD)
    V = femops.H1(mesh, order=4)
    sides = V.boundary_dofs()
    A = femops.diffusion(V).constrained(sides)
    b = A.rhs(femops.load(V, source), V.interpolate(exact))
    low = low_order(V, sides)
    settings = PETSc.Options()  # a smoother that needs no guess of eigenvalues
    settings["mg_levels_ksp_type"], settings["mg_levels_pc_type"] = "richardson", "sor"
    for name, options in {"alone": ("none",), "with GAMG": ("gamg", low)}.items():
        u, iterations = solve(A, b, *options)
        error = femops.l2_error(V, u, exact)
        if MPI.COMM_WORLD.rank == 0:
            print(
                f"{V.global_ndofs} dofs, CG {name}: {iterations} iterations, L2 error {error:.2e}"
            )
        assert error < 2e-5
    assert iterations < 60  # the last: with multigrid


if __name__ == "__main__":
    main()
