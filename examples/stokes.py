"""Stokes flow by Taylor-Hood elements: one function, solved by GMRES without a matrix.

Velocity in H1 of order k with dim components, pressure in H1 of order k - 1.  The solution is
manufactured; velocity and pressure converge at their rates.
"""

from pathlib import Path

import numpy as np

import femops

ORDER = 3


def stokes(u, p):
    """The Stokes operator; -div u is tested by q, so that it is symmetric."""
    return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}


def velocity(x):
    """Curl of sin^2(pi x) sin^2(pi y) / pi: divergence-free, zero on the unit square's boundary."""
    sx, sy = np.sin(np.pi * x[0]), np.sin(np.pi * x[1])
    return np.stack([sx**2 * np.sin(2 * np.pi * x[1]), -(sy**2) * np.sin(2 * np.pi * x[0])])


def pressure(x):
    """Pressure, whose mean is zero."""
    return np.cos(np.pi * x[0]) * np.cos(np.pi * x[1])


def force(x):
    """-Laplacian of the velocity plus the gradient of the pressure."""
    a, b = np.pi * x[0], np.pi * x[1]
    first = 2 * np.pi**2 * np.sin(2 * b) * (2 * np.sin(a) ** 2 - np.cos(2 * a))
    second = -2 * np.pi**2 * np.sin(2 * a) * (2 * np.sin(b) ** 2 - np.cos(2 * b))
    return np.stack([first - np.pi * np.sin(a) * np.cos(b), second - np.pi * np.cos(a) * np.sin(b)])


def solve(n):
    """Velocity and pressure errors in L2 on n x n squares."""
    mesh = femops.box((n, n))
    V = femops.H1(mesh, ORDER, ncomp=2)
    Q = femops.H1(mesh, ORDER - 1)
    W = femops.Product(u=V, p=Q)
    A = femops.form(stokes, W).constrained(W.positions(u=V.boundary_dofs()))
    b = A.rhs(W.join(u=femops.load(V, force)))
    x, info = femops.gmres(A, b, rtol=1e-10, M="auto")
    assert info.converged
    u, p = W.split(x)
    p = p - femops.integrate(Q, p)  # the unit square: the mean is the integral
    return V, u, femops.l2_error(V, u, velocity), femops.l2_error(Q, p, pressure)


def main():
    """Solve on three meshes and check the rates."""
    errors = []
    for n in (4, 8, 16):
        V, u, *pair = solve(n)
        errors.append(pair)
        print(f"{n:3} x {n:<3} velocity {pair[0]:.2e}  pressure {pair[1]:.2e}")
    rates = np.log2(np.divide(errors[:-1], errors[1:]))
    print("rates", rates[-1].round(2))
    assert rates[-1][0] > ORDER + 0.9
    assert rates[-1][1] > ORDER - 0.1
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/stokes.png", V, u, name="velocity"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
