"""The 56 lowest states of a quantum oscillator in three dimensions: six whole shells.

The Hamiltonian -1/2 Laplacian + |x|^2/2 is one form, applied to all states at once. Its energies
are n + 3/2, each (n + 1)(n + 2)/2 times. With the Gauss-Lobatto points for quadrature the mass is
diagonal.
"""

import sys
from pathlib import Path

import numpy as np

import femops
from femops.eigen import chebyshev_subspace

# Where elements end along each half axis: the best for these states with order 12.
ENDS = 2.5, 6.04


def hamiltonian(u, x):
    """Kinetic energy, and a harmonic potential."""
    return {"grad": 0.5 * u.grad, "value": 0.5 * (x @ x) * u}


def states(ends, order, shells, tol):
    """The space, the states of some shells, and their exact energies."""
    ends = np.array([*np.negative(ends[::-1]), 0.0, *ends])
    count = len(ends) - 1
    mesh = femops.box([count] * 3, 0, count, mapping=lambda x: np.interp(x, range(count + 1), ends))
    V = femops.H1(mesh, order=order)
    nodes = femops.basis.lobatto(V.p1d)
    H = femops.form(hamiltonian, V, quadrature=nodes).constrained(V.boundary_dofs())
    M = femops.mass(V, quadrature=nodes).diagonal()
    n = np.arange(shells)
    exact = np.repeat(n + 1.5, (n + 1) * (n + 2) // 2)
    found = chebyshev_subspace(
        H, M, len(exact), tol=tol, progress=lambda i, r: print(f"  {i}: residual {r:.1e}")
    )
    return V, found, exact


def main(ends=ENDS, order=12, shells=6, tol=5e-6, most=1e-8):
    """Solve, compare the energies, draw a state."""
    V, found, exact = states(ends, order, shells, tol)
    error = np.abs(found.values - exact).max()
    print(f"{V.size} dofs, {len(exact)} states, {found.products} products, error {error:.1e}")
    assert error < most
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/oscillator.png", V, found.vectors[-1].copy(), name="state"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    # "small" is for a first look: two shells
    main(*(((2.0, 5.0), 6, 2, 1e-4, 1e-3) if "small" in sys.argv else ()))
