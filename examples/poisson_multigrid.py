"""A Poisson problem on a curved ball, solved by conjugate gradients with multigrid.

The number of iterations hardly depends on the order, nor on how often the mesh is refined.
"""

import time

import numpy as np

import femops


def exact(x):
    """Solution; x has shape (3, n)."""
    return np.sin(2 * x[0]) * np.sin(2 * x[1]) * np.sin(2 * x[2])


def source(x):
    """Its right-hand side, -div grad u."""
    return 12 * exact(x)


def solve(order, refine):
    """Solve with multigrid and with the diagonal; iterations of both."""
    mesh = femops.read_mesh(femops.sample("ball.mesh"), refine=refine)
    V = femops.H1(mesh, order=order)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, source), V.interpolate(exact))
    M = femops.multigrid(A)
    begin = time.perf_counter()
    u, info = femops.cg(A, b, M=M, rtol=1e-10)
    seconds = time.perf_counter() - begin
    _, slow = femops.cg(A, b, M=femops.jacobi(A), rtol=1e-10)
    error = femops.l2_error(V, u, exact)
    print(
        f"order {order}, {V.ndofs} dofs: {info.iterations} iterations in {seconds:.2f} s, "
        f"with the diagonal {slow.iterations}; L2 error {error:.1e}"
    )
    return M, info, slow


def main():
    """Solve for some orders and meshes, and look at the levels of the last."""
    for order, refine in ((4, 1), (6, 1), (4, 2)):
        M, info, slow = solve(order, refine)
        assert info.converged
        assert info.iterations < slow.iterations / 6
    print(M)
    for level in M.report():
        print(f"order {level.order}, {level.dofs} dofs: reduces by {level.factor:.2f}")
        assert level.factor < 0.5


if __name__ == "__main__":
    main()
