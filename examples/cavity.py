"""Lid-driven cavity: velocities on the centreline at Reynolds numbers of 100, 400 and 1000.

The unit square is closed, and its lid slides at speed 1.  Velocity and pressure are one system
(Taylor-Hood elements, smaller at the walls), solved by Newton's method, each Reynolds number from
the one before.  The velocities stand beside those of Ghia, Ghia and Shin (1982), which have an
error of some 1e-3, and at 1000 beside those of Botella and Peyret (1998), which have none in the
digits shown.
"""

from pathlib import Path

import numpy as np

import femops

ORDER = 4
SQUARES = 16
HEIGHTS = [0.1719, 0.2813, 0.5, 0.7344, 0.9531]
PUBLISHED = {  # horizontal velocity at these heights, on the line x = 0.5
    100: ("Ghia et al.", [-0.10150, -0.15662, -0.20581, 0.00332, 0.68717]),
    400: ("Ghia et al.", [-0.24299, -0.32726, -0.11477, 0.16256, 0.55892]),
    1000: ("Botella and Peyret", [-0.3885691, -0.2803696, -0.0620561, 0.1886747, 0.4723329]),
}


def to_walls(x):
    """Move positions in the unit square towards its walls."""
    return 0.5 - 0.5 * np.cos(np.pi * x)


def flow(u, p, nu):
    """Convection, viscous stress and pressure; the divergence is tested by q."""
    return {
        "u": {"value": u.grad @ u.value, "grad": nu * u.grad - p * np.eye(2)},
        "p": {"value": -u.div},
    }


def lid(x):
    """Velocity of the walls: 1 at the top. At its ends it is 0, so that no fluid leaves there."""
    inside = (x[0] > 1e-9) & (x[0] < 1 - 1e-9)
    return np.where(inside & (x[1] > 1 - 1e-9), 1.0, 0.0), 0 * x[0]


def main():
    """Solve at three Reynolds numbers and compare with the published values."""
    mesh = femops.box((SQUARES, SQUARES), mapping=to_walls)
    V, Q = femops.H1(mesh, ORDER, ncomp=2), femops.H1(mesh, ORDER - 1)
    W = femops.Product(u=V, p=Q)
    F = femops.residual(flow, W, nu=1.0).constrained(W.positions(u=V.boundary_dofs()))
    z = W.interpolate(u=lid)
    probe = femops.Probe(mesh, [(0.5, y) for y in HEIGHTS])
    for reynolds, (source, published) in PUBLISHED.items():
        z, info = femops.newton(F.update(nu=1 / reynolds), z, preconditioner="auto")
        assert info.converged
        found = probe(V, W.split(z)[0])[:, 0]
        print(f"Re {reynolds}: {info.iterations} steps, {info.linear_iterations} iterations")
        for name, speeds in (("femops", found), (source, published)):
            print(f"  {name:18}", *(f"{speed:9.5f}" for speed in speeds))
        assert abs(found - published).max() < (4e-3 if source == "Ghia et al." else 5e-5)
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/cavity.png", V, W.split(z)[0], name="velocity"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
