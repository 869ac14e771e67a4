"""A Poisson problem with a known solution, from a mesh to its errors."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.cli.manufactured import Manufactured
from femops.cli.options import Level
from femops.errors import SolverError
from femops_meshes import Mesh

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Result:
    """A solved problem.

    Attributes
    ----------
    space : H1
    operator : Operator
        With its essential conditions.
    u : l_vec
    iterations : int
    l2_error, h1_error : float
        Norms of u minus the exact solution.
    seconds : float
        Wall time from the mesh to u: space, operator (compiled if need be), load and iteration.
    compile_seconds, solve_seconds : float
        Of these, the first touch of the kernels (compiled, or read from the cache), and the
        iteration.
    """

    space: femops.H1
    operator: femops.Operator
    u: Floats
    iterations: int
    l2_error: float
    h1_error: float
    seconds: float
    compile_seconds: float
    solve_seconds: float


def solve(mesh: Mesh, order: int, rtol: float, level: Level = Level.partial) -> Result:
    """Solve -div grad u = f, with the values of the exact solution on the whole boundary.

    On a mesh without boundary the solution of mean zero is sought.

    Parameters
    ----------
    mesh : Mesh
    order : int
    rtol : float
        Relative residual at which conjugate gradients stop.
    level : Level
        Partial assembly, or full: a matrix, for comparison.

    Raises
    ------
    SolverError
        No convergence.
    SpaceError, GeometryError, MeshError, OperatorError, KernelError
        See what is called.
    """
    begin = perf_counter()
    problem = Manufactured.on(mesh)
    V = femops.H1(mesh, order)
    problem.check_periodic(V)
    A = femops.diffusion(V)
    b = femops.load(V, problem.source)
    closed = mesh.num_boundary == 0
    if closed:
        # Constants are in the kernel of A: b must be orthogonal to them for a solution to exist.
        b -= b.mean()
    else:
        A = A.constrained(V.boundary_dofs())
        b = A.rhs(b, V.interpolate(problem.exact))
    built = perf_counter()
    if level is Level.partial:
        femops.cg(A, b, maxiter=0, M=femops.jacobi(A))
    ready = perf_counter()
    u, iterations = _iterate(A, b, rtol, level)
    if closed:
        u -= femops.integrate(V, u) / mesh.volume()
    end = perf_counter()
    l2 = femops.l2_error(V, u, problem.exact)
    h1 = femops.h1_error(V, u, problem.exact, problem.gradient)
    return Result(V, A, u, iterations, l2, h1, end - begin, ready - built, end - ready)


def _iterate(A: femops.Operator, b: Floats, rtol: float, level: Level) -> tuple[NDArray[Any], int]:
    if level is Level.full:
        u, iterations, converged = _iterate_with_matrix(A, b, rtol)
    else:
        u, info = femops.cg(A, b, rtol=rtol, M=femops.jacobi(A))
        iterations, converged = info.iterations, info.converged
    if not converged:
        raise SolverError(
            f"no convergence to a relative residual of {rtol:g} in {iterations} iterations: "
            "ask for less (--rtol 1e-8) or look at the mesh"
        )
    return u, iterations


def _iterate_with_matrix(
    A: femops.Operator, b: Floats, rtol: float
) -> tuple[NDArray[Any], int, bool]:
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import cg

    count = 0

    def counting(_: Floats) -> None:
        nonlocal count
        count += 1

    matrix = A.assemble()
    inverse = diags_array(1 / matrix.diagonal())
    u, status = cg(matrix, b, rtol=rtol, M=inverse, callback=counting, maxiter=10 * len(b))
    return u, count, status == 0
