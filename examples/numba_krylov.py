"""A Krylov method of one's own, BiCGStab(l), compiled by Numba: convection on a fine mesh.

Needs Numba: pip install numba
"""

import numba
import numpy as np

import femops
import femops.numba


def bicgstab(apply, inverse, b, rtol=1e-10, ell=2, maxiter=2000):
    """Solve A x = b: BiCGStab(l) of Sleijpen and Fokkema (1993), divided by the diagonal."""
    x, product = np.zeros_like(b), np.empty_like(b)
    r, u = np.zeros((ell + 1, b.size)), np.zeros((ell + 1, b.size))
    r[0] = inverse * b
    shadow, goal = r[0].copy(), rtol * np.linalg.norm(r[0])
    rho, alpha, omega = 1.0, 0.0, 1.0
    for count in range(0, maxiter, 2 * ell):
        if np.linalg.norm(r[0]) <= goal:
            return x, count
        rho *= -omega
        for j in range(ell):  # ell steps of BiCG
            before, rho = rho, r[j] @ shadow
            for i in range(j + 1):
                u[i] = r[i] - alpha * rho / before * u[i]
            apply(u[j], product)
            u[j + 1] = inverse * product
            alpha = rho / (u[j + 1] @ shadow)
            x += alpha * u[0]
            for i in range(j + 1):
                r[i] -= alpha * u[i + 1]
            apply(r[j], product)
            r[j + 1] = inverse * product
        best = np.linalg.solve(r[1:] @ r[1:].T, r[1:] @ r[0])  # smallest residual
        omega = best[ell - 1]
        for j in range(ell):
            x += best[j] * r[j]
            u[0] -= best[j] * u[j + 1]
        r[0] -= best @ r[1:]
    return x, maxiter


def transport(u, x):
    """A vortex that stirs, and a little diffusion."""
    wind = np.array([2 * x[1] - 1, 1 - 2 * x[0]])
    return {"value": wind @ u.grad, "grad": 0.02 * u.grad}


def main():
    """Stir a square whose left half of the boundary is warm, and check the residual."""
    V = femops.H1(femops.box((24, 24)), order=4)
    A = femops.form(transport, V).constrained(V.boundary_dofs())
    b = A.rhs(V.zeros(), V.interpolate(lambda x: 1.0 * (x[0] < 0.5)))
    solve = numba.njit(bicgstab)
    u, products = solve(femops.numba.applier(A), 1.0 / A.diagonal(), b)
    residual = np.linalg.norm(b - A @ u) / np.linalg.norm(b)
    print(f"{V.size} dofs: {products} products, relative residual {residual:.1e}")
    assert residual < 1e-8
    assert abs(V.components(u)[:, 0].mean() - 0.5) < 0.05


if __name__ == "__main__":
    main()
