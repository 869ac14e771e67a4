"""A plate with a hole is pulled: the von Mises stress by projection, against Kirsch's solution.

A quarter of the plate is meshed by curved elements of degree 4. The stress is a function of the
displacement's gradient: `femops.project` makes it a field that may jump between elements, and one
file holds it beside the continuous displacement.
"""

from pathlib import Path

import numpy as np

import femops

HOLE, OUTER, PULL = 1.0, 4.0, 1.0
YOUNG, POISSON = 100.0, 0.3
MU = YOUNG / (2 + 2 * POISSON)
LAM = YOUNG * POISSON / (1 - POISSON**2)  # of plane stress
LOW_Y, LOW_X, RIM = 3, 4, 2  # boundary attributes of the box that is bent


def quarter(angles, radii, order=4):
    """A quarter of a ring, from the hole outwards."""

    def ring(x):
        radius, angle = HOLE * (OUTER / HOLE) ** x[0], 0.5 * np.pi * x[1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)])

    return femops.box((radii, angles), order=order, mapping=ring)


def kirsch(x):
    """Stresses xx, yy, xy of an infinite plate that is pulled along x."""
    angle, q = np.arctan2(x[1], x[0]), HOLE**2 / (x[0] ** 2 + x[1] ** 2)
    two, four = 2 * angle, 4 * angle
    xx = 1 - q * (1.5 * np.cos(two) + np.cos(four)) + 1.5 * q**2 * np.cos(four)
    yy = -q * (0.5 * np.cos(two) - np.cos(four)) - 1.5 * q**2 * np.cos(four)
    xy = -q * (0.5 * np.sin(two) + np.sin(four)) + 1.5 * q**2 * np.sin(four)
    return PULL * np.stack([xx, yy, xy])


def traction(x):
    """Kirsch's stress on the rim, times the normal x / |x|."""
    (xx, yy, xy), n = kirsch(x), x / np.linalg.norm(x, axis=0)
    return np.stack([xx * n[0] + xy * n[1], xy * n[0] + yy * n[1]])


def von_mises(u):
    """Von Mises stress of a displacement, in plane stress."""
    stress = 2 * MU * u.sym_grad + LAM * u.div * np.eye(2)
    xx, yy, xy = stress[0, 0], stress[1, 1], stress[0, 1]
    return np.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)


def exact_von_mises(x):
    """The same of Kirsch's stresses."""
    xx, yy, xy = kirsch(x)
    return np.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)


def pull(V):
    """Displacement of the plate."""
    fixed = [V.boundary_dofs(LOW_Y, components=1), V.boundary_dofs(LOW_X, components=0)]
    A = femops.elasticity(V, lam=LAM, mu=MU).constrained(np.concatenate(fixed))
    b = A.rhs(femops.boundary_load(V, traction, attributes=RIM))
    u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-10)
    assert info.converged, info
    return u


def main():
    """Pull on two meshes, compare the stress with the exact one, write and draw it."""
    errors = []
    for refined in (1, 2):
        V = femops.H1(quarter(4 * refined, 3 * refined), order=4, ncomp=2)
        Q = femops.L2(V.mesh, order=3)
        u = pull(V)
        stress = femops.project(Q, von_mises, V, u)
        errors.append(femops.l2_error(Q, stress, exact_von_mises))
        peak = femops.Probe(V.mesh, [(0.0, HOLE)])(Q, stress).item()
        print(f"{V.size} unknowns: stress at the hole {peak:.4f} (exact 3), error {errors[-1]:.1e}")
    # at one point of the hole there is no stress: as a norm it has a tip there, of order 2
    assert errors[1] < errors[0] / 3
    assert abs(peak - 3 * PULL) < 0.002
    Path("out").mkdir(exist_ok=True)
    fields = {"displacement": femops.GridFunction(V, u), "stress": femops.GridFunction(Q, stress)}
    femops.save("out/von_mises.vtu", **fields)
    try:
        print(femops.io.picture("out/von_mises.png", Q, stress, name="von Mises stress"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
