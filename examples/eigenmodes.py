"""The tones of a drum: the lowest eigenvalues of the Laplacian on a disc.

The pencil is K u = lambda M u. The solver has multigrid as preconditioner, so it takes few
iterations on any mesh.
"""

from pathlib import Path

import numpy as np
from scipy.special import jn_zeros

import femops


def modes(V, count):
    """Return the lowest eigenpairs of a drum that is held at its rim."""
    K = femops.diffusion(V).constrained(V.boundary_dofs())
    return femops.eigen.lobpcg(K, femops.mass(V), k=count)


def main():
    """Compare with the zeros of Bessel's functions, draw one mode."""
    V = femops.H1(femops.disc(2, order=4), order=5)
    found = modes(V, 6)
    exact = np.sort([*jn_zeros(0, 2), *np.repeat([*jn_zeros(1, 1), *jn_zeros(2, 1)], 2)]) ** 2
    for computed, true in zip(found.values, exact, strict=True):
        print(f"{computed:.6f}  exact {true:.6f}")
    assert np.allclose(found.values, exact, rtol=1e-5)
    try:
        Path("out").mkdir(exist_ok=True)
        mode = found.vectors[3].copy()
        print(femops.io.picture("out/eigenmodes.png", V, mode, name="fourth mode"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
