"""Sound in a box with hard walls: pressure and velocity by a discontinuous Galerkin method.

Waves leave each element on characteristics: the flux between elements is upwind. A standing wave
should return after a period.
"""

from pathlib import Path

import numpy as np

import femops

EYE = np.eye(2)


def inside(p, v):
    """Pressure drives the velocity, and the divergence of the velocity the pressure."""
    return {"p": {"grad": -1.0 * v.value}, "v": {"grad": -p.value * EYE}}


def between(p, v, n):
    """Upwind flux: the mean of both sides, and a term with the jump that damps it."""
    across = v.jump.value @ n
    return {
        "p": {"jump": v.mean.value @ n + 0.5 * p.jump.value},
        "v": {"jump": (p.mean.value + 0.5 * across) * n},
    }


def at_walls(p, v, n):
    """Nothing flows through a wall."""
    return {"p": {}, "v": {"value": (p.value + v.value @ n) * n}}


def main():
    """Let a standing wave swing for a period, on two meshes."""
    order, period, errors = 3, np.sqrt(2.0), []
    for count in (4, 8):
        mesh = femops.box((count, count))
        W = femops.Product(p=femops.L2(mesh, order), v=femops.L2(mesh, order, ncomp=2))
        A = femops.form({"cells": inside, "interior": between, "boundary": at_walls}, W)
        spaces = W.spaces.items()
        masses = {name: femops.mass(V, quadrature=order + 1).diagonal() for name, V in spaces}
        M = 1.0 / W.join(**masses)  # Gauss points are the nodes
        wave = W.spaces["p"].interpolate(lambda x: np.cos(np.pi * x[0]) * np.cos(np.pi * x[1]))
        start = W.join(p=wave, v=W.spaces["v"].zeros())
        dt = 0.4 / count / order**2
        end = femops.runge_kutta(lambda _, u: -M * (A @ u), start, period, dt)  # noqa: B023
        errors.append(femops.l2_norm(W.spaces["p"], W.split(end)[0] - wave))
    rate = np.log2(errors[0] / errors[1])
    print(f"errors after a period: {errors[0]:.1e} and {errors[1]:.1e}, rate {rate:.1f}")
    assert rate > order + 0.5
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/acoustics.png", W.spaces["p"], wave, name="pressure"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
