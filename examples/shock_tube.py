"""A shock tube: Euler's equations in one dimension, with a limiter.

Two gases at rest are let go. A shock, a contact and a rarefaction leave the middle. The flux
between elements is that of Harten, Lax and van Leer. The limiter keeps slopes below those between
neighbours.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import brentq

import femops

GAMMA, END = 1.4, 0.2
LEFT, RIGHT = (1.0, 0.0, 1.0), (0.125, 0.0, 0.1)  # density, velocity, pressure


def conserved(state):
    """Density, momentum and energy per length."""
    rho, v, p = state
    return np.array([rho, rho * v, p / (GAMMA - 1) + 0.5 * rho * v * v])


def flux(u):
    """Flux of density, momentum and energy; then the velocity and the speed of sound."""
    v = u[1] / u[0]
    p = (GAMMA - 1) * (u[2] - 0.5 * u[1] * v)
    return np.array([u[1], u[1] * v + p, (u[2] + p) * v]), v, np.sqrt(GAMMA * p / u[0])


def inside(u):
    """Integrals over elements."""
    return {"grad": -flux(u)[0][:, np.newaxis]}


def between(u, n):
    """Flux from the minus side to the plus side, which is at larger x if n is 1."""
    (f, v, c), (g, w, d) = flux(u.minus), flux(u.plus)
    slow = femops.minimum(femops.minimum(v * n[0] - c, w * n[0] - d), 0.0)
    fast = femops.maximum(femops.maximum(v * n[0] + c, w * n[0] + d), 0.0)
    return {"jump": ((fast * f - slow * g) * n[0] - slow * fast * u.jump.value) / (fast - slow)}


def at_ends(u, n):
    """The gas may leave."""
    return {"value": flux(u)[0] * n[0]}


def limited(u):
    """Bound the difference of an element's two nodes by the differences to its neighbours."""
    nodes = u.reshape(-1, 2, 3)
    mean, own = nodes.mean(axis=1), nodes[:, 1] - nodes[:, 0]
    steps = np.diff(mean, axis=0, prepend=mean[:1], append=mean[-1:]) / np.sqrt(3.0)
    three = np.stack([own, steps[:-1], steps[1:]])
    same = np.abs(np.sign(three).sum(axis=0)) == 3
    own = np.where(same, np.sign(own) * np.abs(three).min(axis=0), 0.0)
    return np.stack([mean - 0.5 * own, mean + 0.5 * own], axis=1).reshape(-1)


def exact_density(x):
    """Density at the end (Toro, Riemann Solvers and Numerical Methods, section 4.3)."""
    (rl, _, pl), (rr, _, pr) = LEFT, RIGHT
    k, power = (GAMMA - 1) / (GAMMA + 1), (GAMMA - 1) / (2 * GAMMA)
    cl, cr = np.sqrt(GAMMA * pl / rl), np.sqrt(GAMMA * pr / rr)

    def behind_rarefaction(p):
        return 2 * cl / (GAMMA - 1) * (1 - (p / pl) ** power)

    def behind_shock(p):
        return (p - pr) * np.sqrt(2 / (GAMMA + 1) / rr / (p + k * pr))

    p = brentq(lambda p: behind_rarefaction(p) - behind_shock(p), pr, pl)
    v = behind_shock(p)
    shock = cr * np.sqrt((1 - power) * p / pr + power)
    tail = v - cl * (p / pl) ** power
    s = (x - 0.5) / END
    fan = rl * (2 / (GAMMA + 1) - k * np.minimum(s, v) / cl) ** (2 / (GAMMA - 1))
    inner, outer = rl * (p / pl) ** (1 / GAMMA), rr * (p / pr + k) / (k * p / pr + 1)
    return np.select([s < -cl, s < tail, s < v, s < shock], [rl, fan, inner, outer], rr)


def main():
    """Compare the density with the exact one on two meshes."""
    errors = []
    states = [conserved(state)[:, np.newaxis] for state in (LEFT, RIGHT)]
    for count in (100, 200):
        V = femops.L2(femops.box((count,)), order=1, ncomp=3)
        R = femops.residual(inside, V) + femops.residual(between, V, faces="interior")
        R += femops.residual(at_ends, V, boundary="all")
        M = femops.jacobi(femops.mass(V, quadrature=2))  # diagonal: Gauss points are the nodes
        start = V.interpolate(lambda x: np.where(x[0] < 0.5, *states))
        u = femops.runge_kutta(
            lambda _, u: -(M @ R.residual(u)),  # noqa: B023  (called at once)
            start,
            END,
            dt=0.2 / count,
            method="ssp3",
            limiter=limited,
        )
        rho = u.reshape(-1, 3)[:, 0]
        errors.append(np.abs(rho - exact_density(V.dof_coordinates()[:, 0])).mean())
        assert rho.min() > 0.124
        assert rho.max() < 1.001  # no new extremes
    print(f"error of the density: {errors[0]:.4f} on 100 elements, {errors[1]:.4f} on 200")
    assert errors[1] < 0.7 * errors[0] < 0.007
    try:
        Path("out").mkdir(exist_ok=True)
        density = femops.L2(V.mesh, order=1)
        print(femops.io.picture("out/shock_tube.png", density, rho.copy(), name="density"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
