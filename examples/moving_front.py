"""A moving front: the mesh follows it, refined ahead and coarsened behind.

A sharp front travels around a square with a rotating flow. In each step the estimate of the error
says where elements are halved, and where they give way to their parents.
"""

from pathlib import Path

import numpy as np

import femops

ORDER, STEPS, DT, FINEST = 3, 32, 1.0 / 64.0, 2


def front(x):
    """A disc of warm fluid with a steep side, to the right of the centre."""
    return 0.5 - 0.5 * np.tanh(15.0 * (np.hypot(x[0] - 0.5, x[1]) - 0.25))


def step(V, u):
    """One step of the Crank-Nicolson method for u' + b grad u = 1e-4 div grad u."""
    wind = lambda x: (-np.pi * x[1], np.pi * x[0])  # noqa: E731
    M, K = femops.mass(V), femops.convection(V, wind) + femops.diffusion(V, 1e-4)
    A = (M + 0.5 * DT * K).constrained(V.boundary_dofs())
    b = M @ u - 0.5 * DT * (K @ u)
    found, _ = femops.gmres(A, A.rhs(b), u, M=femops.jacobi(A), rtol=1e-8)
    return found


def adapted(V, u):
    """The space and the field on a mesh that fits the field."""
    eta = femops.adapt.recovered(V, u)
    level = np.zeros(len(eta), int) if V.mesh.forest is None else V.mesh.forest.level
    marked = femops.adapt.mark(eta, fraction=0.95)
    low = eta < 0.03 * eta.max()
    mesh = femops.adapt.change(V.mesh, marked[level[marked] < FINEST], low)
    W = femops.H1(mesh, ORDER)
    return W, femops.adapt.transfer(u, V, W)


def main():
    """Turn the disc by a quarter, and compare it with where it should be."""
    V = femops.H1(femops.box((8, 8), (-1, -1), (1, 1)), ORDER)
    for _ in range(FINEST):
        V, _ = adapted(V, V.interpolate(front))
    u = V.interpolate(front)
    start, most = femops.integrate(V, u), 0
    for k in range(STEPS):
        V, u = adapted(V, step(V, u))
        most = max(most, V.ndofs)
        if k % 8 == 7:
            print(f"time {(k + 1) * DT:.2f}: {V.mesh.num_elements} elements, {V.ndofs} dofs")
    turned = lambda x: front(np.stack([x[1], -x[0]]))  # noqa: E731
    error = femops.l2_error(V, u, turned) / femops.l2_norm(V, V.interpolate(turned))
    uniform = (8 * 2**FINEST * ORDER + 1) ** 2
    print(f"error after a quarter of a turn {error:.3f}")
    print(f"at most {most} dofs, a uniform mesh has {uniform}")
    print(f"heat kept to {abs(femops.integrate(V, u) / start - 1.0):.1e}")
    assert error < 0.06
    assert most < 0.6 * uniform
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/moving_front.png", V, u, name="heat"))
    except femops.errors.MissingExtraError as missing:
        print(f"no picture: {missing}")


if __name__ == "__main__":
    main()
