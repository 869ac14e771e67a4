"""A form of one's own: heat that flows more easily along circles, on a curved disc.

-div(K grad u) + (1 + x^2) u = f with K = I + s b b^T, where b = (-y, x) points along the circles
around the origin. The physics is one function; femops traces it and compiles its kernel.
"""

from pathlib import Path

import numpy as np

import femops

ORDER = 3


def circular(u, x, s):
    """Return the factors of v and of grad v; u.grad has shape (2,)."""
    along = np.array([-x[1], x[0]])
    flux = u.grad + s * (along @ u.grad) * along
    return {"value": (1 + x[0] ** 2) * u, "grad": flux}


def exact(x):
    """Solution, harmonic; x has shape (2, n)."""
    return np.exp(x[0]) * np.sin(x[1])


def strength(x):
    """Coefficient s, a function of the radius: the same along each circle."""
    return 1 + x[0] ** 2 + x[1] ** 2


def source(x):
    """Its right-hand side.

    div b = 0 and b . grad s = 0, so div(s b b^T grad u) = s (b . grad)^2 u, and b . grad is the
    derivative by the angle.
    """
    u, u_y = exact(x), np.exp(x[0]) * np.cos(x[1])
    second = (x[1] ** 2 - x[0] ** 2 - x[0]) * u - (2 * x[0] + 1) * x[1] * u_y
    return (1 + x[0] ** 2) * u - strength(x) * second


def solve(mesh):
    """Space, solution and its L2 error."""
    V = femops.H1(mesh, order=ORDER)
    A = femops.form(circular, V, s=strength).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, source), V.interpolate(exact))
    u, info = femops.cg(A, b, rtol=1e-12, M=femops.jacobi(A))
    assert info.converged
    return V, u, femops.l2_error(V, u, exact)


def main():
    """Solve on three meshes, check error and rate, draw the last solution."""
    mesh = femops.disc(2, order=3)
    errors = []
    for times in range(3):
        V, u, error = solve(mesh.refine(times))
        errors.append(error)
        print(f"{V.ndofs:6} dofs, L2 error {error:.2e}")
    rates = np.log2(np.divide(errors[:-1], errors[1:]))
    print("rates", rates.round(2))
    assert errors[-1] < 1e-5
    assert np.all(rates > ORDER + 0.8)  # theory: order + 1
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/own_form.png", V, u, title="own form"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
