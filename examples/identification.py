"""Identification: the conductivity of a disc from temperatures that are measured with noise.

The disc is heated inside, and its rim is cold. The unknown is the logarithm m of the conductivity,
which is m = S z for a smoothing S. Tikhonov's term, |z|^2, keeps z from following the noise. In z
L-BFGS takes about as many steps on fine meshes as on coarse ones. `femops.gradient` differentiates
the misfit by the field m, and the transpose of S carries the derivative to z.
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


def misfit(u, data):
    """Half the squared distance to the data, in units of the noise."""
    return 0.5 * ((u - data) / NOISE) ** 2


def truth(x):
    """Logarithm of the conductivity: one good conductor, one bad one."""
    good = np.exp(-(((x[0] - 0.4) ** 2 + (x[1] - 0.1) ** 2) / 0.08))
    bad = np.exp(-(((x[0] + 0.4) ** 2 + (x[1] + 0.2) ** 2) / 0.05))
    return good - bad


class Experiment:
    """A disc, and what is measured on it."""

    def __init__(self, refine):
        mesh = femops.disc(4, order=3).refine(refine)
        self.V, self.K = V, K = femops.H1(mesh, order=3), femops.H1(mesh, order=1)
        self.A = femops.form(flux, V, m=femops.GridFunction(K, K.zeros()))
        self.A = self.A.constrained(V.boundary_dofs())
        self.b = self.A.rhs(femops.load(V, SOURCE))
        data = self.temperature(K.interpolate(truth))
        noise = np.random.default_rng(1).standard_normal(V.size)
        data = femops.GridFunction(V, data + NOISE * noise)
        self.misfit = femops.functional(misfit, V, data=data)
        # S = (M + L^2 K)^-1 M^1/2, with a lumped mass matrix in the root
        self.root = np.sqrt(femops.load(K, 1.0))
        smoothing = femops.mass(K) + femops.diffusion(K, LENGTH**2)
        self.smooth = splu(smoothing.assemble().tocsc()).solve

    def log_conductivity(self, z):
        """The field m = S z."""
        return self.smooth(self.root * z)

    def temperature(self, m):
        """Solve the heat equation."""
        self.A = self.A.update(m=femops.GridFunction(self.K, m))
        self.solve = splu(self.A.assemble().tocsc()).solve
        return self.solve(self.b)

    def __call__(self, z):
        """Misfit and Tikhonov's term, and their derivative by z."""
        u = self.temperature(self.log_conductivity(z))
        slopes = femops.gradient(
            self.misfit, self.A, u, "m", linear=lambda _A, b, _rtol: self.solve(b)
        )
        value = self.misfit(u) + 0.5 * z @ z
        return value, self.root * self.smooth(slopes["m"]) + z


def main(refinements):
    """Find the conductivity on meshes, compare it with the true one, and draw it."""
    for refine in refinements:
        experiment = Experiment(refine)
        K = experiment.K
        options = {"method": "L-BFGS-B", "options": {"ftol": 1e-5}}
        found = minimize(experiment, K.zeros(), jac=True, **options)
        m = experiment.log_conductivity(found.x)
        error = femops.l2_error(K, m, truth) / femops.l2_error(K, K.zeros(), truth)
        print(f"{K.size} unknowns: {found.nit} steps, {found.nfev} solves, error {error:.2f}")
    assert error < 0.45
    try:
        Path("out").mkdir(exist_ok=True)
        options = {"name": "log conductivity", "edges": False}
        print(femops.io.picture("out/identification.png", K, m, **options))
    except femops.errors.MissingExtraError as missing:
        print(missing)


if __name__ == "__main__":
    # "small" is for a first look: the coarse mesh
    main((0,) if "small" in sys.argv else (0, 1))
