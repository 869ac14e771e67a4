"""A vortex that travels with a gas: Euler's equations by a discontinuous Galerkin method.

The flux between elements is that of Lax and Friedrichs. The vortex crosses the periodic square once
and should come back as it was.
"""

from pathlib import Path

import numpy as np

import femops

GAMMA, STRENGTH, WIDTH = 1.4, 5.0, 10.0


def vortex(x):
    """Density, momentum and energy per volume of a vortex in the middle of a moving gas."""
    r = x - WIDTH / 2
    swirl = STRENGTH / (2 * np.pi) * np.exp(0.5 * (1 - r[0] ** 2 - r[1] ** 2))
    density = (1 - (GAMMA - 1) / (2 * GAMMA) * swirl**2) ** (1 / (GAMMA - 1))
    velocity = np.stack([1 - swirl * r[1], 1 + swirl * r[0]])
    energy = density**GAMMA / (GAMMA - 1) + 0.5 * density * (velocity**2).sum(axis=0)
    return np.stack([density, density * velocity[0], density * velocity[1], energy])


def flux(u):
    """Flux (4, 2) of density, momentum and energy, and pressure."""
    velocity = np.array([u[1], u[2]]) / u[0]
    pressure = (GAMMA - 1) * (u[3] - 0.5 * (u[1] * velocity[0] + u[2] * velocity[1]))
    rows = [[u[0] * v, u[1] * v, u[2] * v, (u[3] + pressure) * v] for v in velocity]
    pushed = np.array(rows, dtype=object).T
    pushed[1, 0] += pressure
    pushed[2, 1] += pressure
    return pushed, pressure


def speed(u, n):
    """Largest speed of a wave along n."""
    _, pressure = flux(u)
    return abs((u[1] * n[0] + u[2] * n[1]) / u[0]) + np.sqrt(GAMMA * pressure / u[0])


def inside(u):
    """Integrals over elements."""
    return {"grad": -flux(u)[0]}


def between(u, n):
    """Integrals over faces between elements: the flux out of the minus side."""
    mean = 0.5 * (flux(u.minus)[0] + flux(u.plus)[0])
    fastest = np.maximum(speed(u.minus, n), speed(u.plus, n))
    return {"jump": mean @ n + 0.5 * fastest * u.jump.value}


def travel(count, order):
    """Let the vortex cross a square of count x count elements, and return the error of density."""
    mesh = femops.box((count, count), upper=(WIDTH, WIDTH), periodic=True)
    V = femops.L2(mesh, order, ncomp=4)
    R = femops.residual(inside, V) + femops.residual(between, V, faces="interior")
    M = femops.jacobi(femops.mass(V, quadrature=order + 1))  # diagonal: Gauss points are the nodes
    start = V.interpolate(vortex)
    step = 0.7 * WIDTH / count / (order + 1) ** 2
    end = femops.runge_kutta(lambda _, u: -(M @ R.residual(u)), start, end=WIDTH, dt=step)
    lost = abs((femops.integrate(V, end) - femops.integrate(V, start))[0])
    assert lost < 1e-9 * WIDTH**2  # the method conserves mass
    return V, end, femops.l2_norm(V, end - start)


def main():
    """Compare two meshes."""
    order = 3
    _, _, coarse = travel(8, order)
    V, u, fine = travel(16, order)
    rate = np.log2(coarse / fine)
    print(f"order {order}: error {coarse:.1e} on 8 x 8, {fine:.1e} on 16 x 16, rate {rate:.1f}")
    assert rate > order + 0.5
    try:
        Path("out").mkdir(exist_ok=True)
        density = femops.L2(V.mesh, order)
        rho = u.reshape(-1, 4)[:, 0].copy()
        print(femops.io.picture("out/vortex.png", density, rho, name="density"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
