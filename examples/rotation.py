"""A hump that goes round a disc once, by an upwind discontinuous Galerkin method.

The velocity (-y, x) brings the hump back to its start at t = 2 pi. What has changed is the error.
The time steps are chosen by an estimate of their error.
"""

from pathlib import Path

import numpy as np

import femops


def velocity(x):
    """Turn about the origin, once in 2 pi."""
    return np.array([-x[1], x[0]])


def hump(x):
    """Solution at the start."""
    return np.exp(-40.0 * ((x[0] - 0.4) ** 2 + x[1] ** 2))


def main():
    """Turn once on three orders, and compare with the start."""
    mesh = femops.disc(4, order=3)
    errors = []
    for order in (2, 4, 6):
        V = femops.L2(mesh, order)
        A = femops.upwind_convection(V, velocity)
        M = femops.block_jacobi(femops.mass(V, quadrature=order + 1))
        start, times = V.interpolate(hump), []
        end = femops.runge_kutta(
            lambda t, u: -(M @ (A @ u)),  # noqa: ARG005, B023
            start,
            end=2.0 * np.pi,
            dt=0.01,
            method="dp54",
            rtol=1e-7,
            callback=lambda t, u: times.append(t),  # noqa: ARG005, B023
        )
        errors.append(femops.l2_error(V, end, hump))
        lost = femops.integrate(V, end) - femops.integrate(V, start)
        print(f"order {order}: {len(times)} steps, error {errors[-1]:.1e}, mass lost {lost:.1e}")
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert abs(lost) < 1e-5
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/rotation.png", V, end, name="u"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
