"""A Poisson problem on a curved ball, solved by SciPy's conjugate gradients.

A femops operator is a SciPy LinearOperator: SciPy's solvers take it without a matrix.
"""

from pathlib import Path

import numpy as np
from scipy.sparse.linalg import cg

import femops


def exact(x):
    """Solution; x has shape (3, n)."""
    return np.sin(2 * x[0]) * np.sin(2 * x[1]) * np.sin(2 * x[2])


def source(x):
    """Its right-hand side, -div grad u."""
    return 12 * exact(x)


def main():
    """Solve, report, and check the error."""
    mesh = femops.read_mesh(femops.sample("ball.mesh"), refine=1)
    V = femops.H1(mesh, order=4)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, source), V.interpolate(exact))
    u, status = cg(A, b, rtol=1e-10, M=femops.jacobi(A))
    error = femops.l2_error(V, u, exact)
    print(f"{V.ndofs} dofs, status {status}, L2 error {error:.2e}")
    assert status == 0
    assert error < 2e-5
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/poisson_scipy.png", V, u, cut=True))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
