"""Identification: the conductivity of a disc from temperatures that are measured with noise.

The disc is heated inside, and its rim is cold. The unknown is the logarithm m of the conductivity.
It is m = S z with a smoothing S, so that L-BFGS takes about as many steps on fine meshes as on
coarse ones. Tikhonov's term, |z|^2, keeps z from following the noise. `femops.gradient`
differentiates the misfit by the field m. The transpose of S carries the derivative to z.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import splu

import femops

SOURCE, NOISE, LENGTH = 4.0, 0.01, 0.1


def flux(u, m):
    """Flux of heat where the logarithm of the conductivity is m."""
    return {"grad": np.exp(m) * u.grad}


def truth(x):
    """Logarithm of the conductivity: one good conductor, one bad one."""
    good = np.exp(-(((x[0] - 0.4) ** 2 + (x[1] - 0.1) ** 2) / 0.08))
    bad = np.exp(-(((x[0] + 0.4) ** 2 + (x[1] + 0.2) ** 2) / 0.05))
    return good - bad


def identify(refine):
    """Find the logarithm of the conductivity on a mesh, and compare it with the true one."""
    mesh = femops.disc(4, order=3).refine(refine)
    V, K = femops.H1(mesh, order=3), femops.H1(mesh, order=1)
    A = femops.form(flux, V, m=femops.GridFunction(K, K.zeros())).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, SOURCE))
    # S = (M + L^2 K)^-1 M^1/2, with a lumped mass matrix in the root
    root = np.sqrt(femops.load(K, 1.0))
    smooth = splu((femops.mass(K) + femops.diffusion(K, LENGTH**2)).assemble().tocsc()).solve

    def equation(m):
        """Return the operator of the heat equation, and the function that solves for a load."""
        operator = A.update(m=femops.GridFunction(K, m))
        return operator, splu(operator.assemble().tocsc()).solve

    noise = NOISE * np.random.default_rng(1).standard_normal(V.size)
    data = femops.GridFunction(V, equation(K.interpolate(truth))[1](b) + noise)
    misfit = femops.functional(lambda u, data: 0.5 * ((u - data) / NOISE) ** 2, V, data=data)

    def goal(z):
        """Misfit and Tikhonov's term, and their derivative by z."""
        operator, solve = equation(smooth(root * z))
        u = solve(b)
        # the operator is symmetric, so the same factors solve the adjoint equation
        slopes = femops.gradient(misfit, operator, u, "m", linear=lambda _A, b, _rtol: solve(b))
        return misfit(u) + 0.5 * z @ z, root * smooth(slopes["m"]) + z

    found = minimize(goal, K.zeros(), jac=True, method="L-BFGS-B", options={"ftol": 1e-5})
    m = smooth(root * found.x)
    error = femops.l2_error(K, m, truth) / femops.l2_error(K, K.zeros(), truth)
    print(f"{K.size} unknowns: {found.nit} steps, {found.nfev} solves, error {error:.2f}")
    assert error < 0.45
    return K, m


if __name__ == "__main__":
    # "small" is for a first look: the coarse mesh
    for refine in [0] if "small" in sys.argv else [0, 1]:
        K, m = identify(refine)
    try:
        Path("out").mkdir(exist_ok=True)
        options = {"name": "log conductivity", "edges": False}
        print(femops.io.picture("out/identification.png", K, m, **options))
    except femops.errors.MissingExtraError as missing:
        print(missing)
