"""Sound of a vibrating cylinder in open space: Helmholtz's equation with complex numbers.

The time factor is exp(-i omega t). Around the air lies a perfectly matched layer, in which the
radius takes complex values: waves that go out decay there, and nothing comes back. The exact
pressure is a Hankel function.
"""

from pathlib import Path

import numpy as np
from scipy.special import hankel1

import femops

WAVE = 4.0 * np.pi  # wave number k: wave length 0.5
INNER, EDGE, OUTER = 0.25, 1.0, 1.5  # cylinder, begin and end of the layer
DAMPING = 60.0  # at the end of the layer


def helmholtz(u, x, k):
    """The layer stretches the radius r to r + i s(r), so dr to (1 + i s'(r)) dr."""
    r = np.sqrt(x @ x)
    depth = femops.maximum(r - EDGE, 0.0) / (OUTER - EDGE)
    radial = 1.0 + 1j * DAMPING / k * depth**2
    along = 1.0 + 1j * DAMPING / k * (OUTER - EDGE) * depth**3 / (3.0 * r)
    out = x / r
    outwards = out * (out @ u.grad)
    flux = (along / radial) * outwards + (radial / along) * (u.grad - outwards)
    return {"grad": flux, "value": -(k**2) * radial * along * u}


def main():
    """Solve on two meshes, and compare with the exact pressure in the air."""
    errors = []
    for layers in (6, 12):
        mesh = femops.shell(layers // 2, layers, INNER, OUTER, order=5, dim=2)
        V = femops.H1(mesh, order=5)
        A = femops.form(helmholtz, V, k=WAVE, dtype="complex128")
        A = A.constrained(V.boundary_dofs())

        r = np.linalg.norm(V.dof_coordinates(), axis=1)
        cylinder = np.where(r < 0.5 * (INNER + OUTER), 1.0 + 0.0j, 0.0)
        b = A.rhs(V.zeros(complex), cylinder)
        # multigrid of a similar, definite operator; complex vectors are two real ones to it
        M = femops.multigrid(
            (femops.diffusion(V) + femops.mass(V, WAVE**2)).constrained(V.boundary_dofs())
        )
        u, info = femops.gmres(A, b, M=M, rtol=1e-9, restart=200)

        exact = hankel1(0, WAVE * r) / hankel1(0, WAVE * INNER)
        errors.append(np.abs((u - exact)[r <= EDGE]).max())
        print(f"{V.size} unknowns: {info.iterations} iterations, error {errors[-1]:.1e}")
    assert errors[1] < 1e-4
    assert errors[0] > 2**4 * errors[1]
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/radiation.png", V, u.real, name="pressure"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
