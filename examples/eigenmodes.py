"""The tones of a drum: the lowest eigenvalues of the Laplacian on a disc, by SciPy's LOBPCG.

The pencil is K u = lambda M u. Dofs on the boundary are eliminated from both operators, and the
first guess is zero there: then no eigenvalue is made by the boundary conditions.
"""

from pathlib import Path

import numpy as np
from scipy.sparse.linalg import lobpcg
from scipy.special import jn_zeros

import femops


def modes(V, count):
    """Eigenvalues, ascending, and vectors, (size, count)."""
    fixed = V.boundary_dofs()
    K = femops.diffusion(V)
    stiffness, mass = (A.eliminated(fixed, fixed) for A in (K, femops.mass(V)))
    guess = np.random.default_rng(0).standard_normal((V.size, count))
    guess[fixed] = 0
    near = femops.jacobi(K.constrained(fixed))
    return lobpcg(stiffness, guess, B=mass, M=near, tol=1e-3, maxiter=400, largest=False)


def main():
    """Compare with the zeros of Bessel's functions, draw one mode."""
    V = femops.H1(femops.disc(2, order=4), order=5)
    values, vectors = modes(V, 8)
    exact = np.sort([*jn_zeros(0, 2), *np.repeat([*jn_zeros(1, 1), *jn_zeros(2, 1)], 2)]) ** 2
    for computed, true in zip(values, exact, strict=False):
        print(f"{computed:.6f}  exact {true:.6f}")
    assert np.allclose(values[: len(exact)], exact, rtol=1e-3)
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/eigenmodes.png", V, vectors[:, 3].copy(), name="fourth mode"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
