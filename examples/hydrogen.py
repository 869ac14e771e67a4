"""The 14 lowest states of the hydrogen atom, on a curved mesh graded towards the nucleus.

The Hamiltonian is -1/2 Laplacian - 1/r. States have a cusp at the nucleus, so they are written as
psi = f u with a factor f that has this cusp, f = exp(-r / (1 + r)). Then u is smooth there, and the
potential -1/r - (Laplacian f) / (2 f) is finite. Energies are -1/(2 n^2), each n^2 times.
"""

import sys
from pathlib import Path

import numpy as np

import femops
from femops.eigen import chebyshev_subspace


def hamiltonian(u, x):
    """The Hamiltonian between f u and f v."""
    r = np.sqrt(x @ x)
    f2 = np.exp(-2 * r / (1 + r))
    potential = -0.5 / (1 + r) ** 4 - 1 / (1 + r) ** 3 - (2 + r) / (1 + r) ** 2
    return {"grad": 0.5 * f2 * u.grad, "value": f2 * potential * u}


def mass(u, x):
    """The product of f u and f v."""
    r = np.sqrt(x @ x)
    return {"value": np.exp(-2 * r / (1 + r)) * u}


def states(ball, order, shells, radius, tol):
    """The space, the states of some shells, and their exact energies."""
    mesh = ball.mapped(lambda x: radius * x * (0.1 + 0.9 * (x**2).sum(axis=0)))
    V = femops.H1(mesh, order=order)
    H = femops.form(hamiltonian, V).constrained(V.boundary_dofs())
    M = femops.form(mass, V, quadrature=femops.basis.lobatto(V.p1d)).diagonal()
    n = np.arange(1, shells + 1)
    exact = np.repeat(-0.5 / n**2, n**2)
    # as many guard vectors as the next shell has states
    guard = (shells + 1) ** 2 + 2
    found = chebyshev_subspace(
        H, M, len(exact), tol=tol, guard=guard, progress=lambda i, r: print(f"  {i}: {r:.1e}")
    )
    return V, found, exact


def main(order=7, shells=3, radius=40.0, tol=4e-4, most=1e-5):
    """Solve, compare the energies, draw a state."""
    ball = femops.ball(2, order=6)
    V, found, exact = states(ball, order, shells, radius, tol)
    error = np.abs(found.values - exact).max()
    print(f"{V.size} dofs, {len(exact)} states, {found.products} products, error {error:.1e}")
    assert error < most
    r = np.linalg.norm(V.dof_coordinates(), axis=1)
    psi = np.exp(-r / (1 + r)) * found.vectors[-1]
    try:
        Path("out").mkdir(exist_ok=True)
        drawn = femops.H1(ball, order=order)  # what is far out is nearer there
        print(femops.io.picture("out/hydrogen.png", drawn, psi, name="the highest state"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    # "small" is for a first look: two shells
    main(*((5, 2, 20.0, 1e-3, 1e-3) if "small" in sys.argv else ()))
