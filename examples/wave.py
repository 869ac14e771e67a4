"""A wave on a disc: spectral elements, whose mass matrix is diagonal, and the leapfrog method.

With Gauss-Lobatto points for nodes and for quadrature a step takes one application of the
stiffness operator and a division.
"""

from pathlib import Path

import numpy as np
from scipy.special import jn_zeros, jv

import femops

STEPS = 1500


def main():
    """Let a drum swing for a period, and compare with where it began."""
    V = femops.H1(femops.disc(3, order=4), order=5)
    K = femops.diffusion(V)
    mass = femops.mass(V, quadrature=femops.basis.lobatto(V.p1d)).diagonal()
    free = np.ones(V.size)
    free[V.boundary_dofs()] = 0
    tone = jn_zeros(0, 2)[1]
    start = V.interpolate(lambda x: jv(0, tone * np.hypot(*x)))
    dt = 2 * np.pi / tone / STEPS
    now = start
    before = now - 0.5 * dt**2 * free * (K @ now) / mass  # at rest in the beginning
    swing = []
    for _ in range(STEPS):
        before, now = now, 2 * now - before - dt**2 * free * (K @ now) / mass
        swing.append(now[0])
    error = femops.l2_norm(V, now - start) / femops.l2_norm(V, start)
    print(f"{V.size} unknowns, {STEPS} steps, off by {error:.1e} after a period")
    assert error < 1e-3
    assert min(swing) < 0
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/wave.png", V, now, name="u"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
