"""Flow over a backward-facing step: where it reattaches, at Reynolds numbers of 200, 400 and 800.

A channel of height 1 opens to height 2 behind a step of height 1.  The fluid enters with a parabola
of mean 1, four heights before the step.  Erturk (2008) calls 2 h U / nu the Reynolds number, with
the height h of the inlet and the mean velocity U.  Velocity and pressure are one system
(Taylor-Hood elements), solved by Newton's method, each Reynolds number from the one before.
"""

import sys
from pathlib import Path

import numpy as np

import femops

ORDER = 4
BEFORE, BEHIND = 4, 40
PUBLISHED = {100: 2.922, 200: 4.982, 400: 8.237, 800: 11.834}  # step heights; Erturk (2008)


def channel():
    """Rectangles before and behind the step, longer towards the outflow."""
    x = [*np.arange(-BEFORE, 16.0), *np.arange(16.0, BEHIND + 1, 2.0)]
    y = np.linspace(0.0, 2.0, 5)
    number = np.arange(len(x) * len(y)).reshape(len(y), len(x))
    corners = [number[j : j + 2, i : i + 2].ravel() for j in range(4) for i in range(len(x) - 1)]
    vertices = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    fluid = [c for c in corners if not (vertices[c].mean(axis=0) < [0, 1]).all()]
    mesh = femops.Mesh.from_arrays(vertices, fluid)
    ends = {"inflow": lambda x: x[0] < 1e-9 - BEFORE, "outflow": lambda x: x[0] > BEHIND - 1e-9}
    walls = {"walls": lambda x: ~(ends["inflow"](x) | ends["outflow"](x))}
    return mesh.with_names(boundary=ends | walls)


def flow(u, p, nu):
    """Convection, viscous stress and pressure; the divergence is tested by q."""
    return {
        "u": {"value": u.grad @ u.value, "grad": nu * u.grad - p * np.eye(2)},
        "p": {"value": -u.div},
    }


def inflow(x):
    """Parabola of mean 1."""
    return 6 * (x[1] - 1) * (2 - x[1]), 0 * x[0]


def reattachment(V, u):
    """First position behind the step where the fluid at the lower wall flows forwards."""
    x = np.linspace(1, 16, 1501)
    speed = femops.Probe(V.mesh, [(a, 1e-4) for a in x])(V, u)[:, 0]
    k = np.argmax(speed > 0)
    return np.interp(0.0, speed[k - 1 : k + 1], x[k - 1 : k + 1])


def main():
    """Solve at rising Reynolds numbers and compare with the published lengths."""
    mesh = channel().refine(0 if "small" in sys.argv else 1)
    V, Q = femops.H1(mesh, ORDER, ncomp=2), femops.H1(mesh, ORDER - 1)
    W = femops.Product(u=V, p=Q)
    F = femops.residual(flow, W, nu=1.0)
    F = F.constrained(W.positions(u=V.boundary_dofs(["inflow", "walls"])))
    u, entering = V.zeros(), V.boundary_dofs("inflow")
    u[entering] = V.interpolate(inflow)[entering]
    z = W.join(u=u)
    for reynolds, published in PUBLISHED.items():
        z, info = femops.newton(F.update(nu=2 / reynolds), z, preconditioner="auto")
        assert info.converged
        length = reattachment(V, W.split(z)[0])
        print(
            f"Re {reynolds}: {info.iterations} steps, {info.linear_iterations} iterations, "
            f"reattachment at {length:.3f}, published {published}"
        )
        assert abs(length - published) < 0.03
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/step.png", V, W.split(z)[0], name="velocity"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
