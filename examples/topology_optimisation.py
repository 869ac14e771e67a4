"""Topology optimisation: the stiffest bracket for a given amount of material.

Each element has a density between 0 and 1, and a stiffness that grows with its third power (SIMP).
A filter, a solve with a length in it, smooths the densities: so there is a least thickness, and no
chequerboard. `femops.gradient` differentiates the work of the load by the filtered density, the
transpose of the filter carries the derivative to the elements, and the optimality criterion of the
text books (Bendsoe and Sigmund, Topology Optimization, 2003) makes the next densities.
"""

import sys
from pathlib import Path

import numpy as np

import femops

VOLUME, RADIUS, LEAST = 0.3, 0.04, 1e-3  # part of the box, length of the filter, stiffness of holes
CLAMPED, LOADED = 1, 2  # the low and the high end of x


def stress(u, rho):
    """Stress of a material with a density; of solid material, Poisson's ratio is 0.3."""
    young = LEAST + (1 - LEAST) * rho**3
    return {"grad": young * (0.577 * u.div * np.eye(len(u.grad)) + 0.769 * u.sym_grad)}


def pull(x):
    """Weight on the end, at its lower edge."""
    return np.exp(-40 * x[-1] ** 2)


def work(u, x):
    """Work of the weight: the compliance, as u solves the equation."""
    return -pull(x) * u[len(x) - 1]


class Bracket:
    """A box to cut a bracket from, with a filter and a weight."""

    def __init__(self, counts):
        mesh = femops.box(counts, upper=np.array(counts) / counts[-1])
        self.D, self.H = femops.L2(mesh, order=0), femops.H1(mesh, order=1)
        self.V = V = femops.H1(mesh, order=2, ncomp=mesh.dim)
        self.clamped, self.u = V.boundary_dofs(CLAMPED), V.zeros()
        down = [0.0] * (mesh.dim - 1)
        self.b = femops.boundary_load(V, lambda x: [*down, -pull(x)], LOADED)
        self.work = femops.functional(work, V, boundary=LOADED)
        self.filter = femops.mass(self.H) + femops.diffusion(self.H, RADIUS**2)
        self.moments = femops.form(lambda d: {"value": d}, self.D, self.H)
        self.volumes = femops.load(self.D, 1.0)

    def filtered(self, moments):
        """Solve with the filter, which is symmetric."""
        return femops.cg(self.filter, moments, M=femops.jacobi(self.filter), rtol=1e-8)[0]

    def compliance(self, d):
        """The work of the weight, and its derivative by the densities d."""
        rho = femops.GridFunction(self.H, self.filtered(self.moments @ d))
        A = femops.form(stress, self.V, rho=rho).constrained(self.clamped)
        M = femops.multigrid(A)
        self.u, info = femops.cg(A, A.rhs(self.b), x0=self.u, M=M, rtol=1e-6)
        assert info.converged
        found = femops.gradient(self.work, A, self.u, "rho", preconditioner=M, rtol=1e-6)
        return self.work(self.u), self.moments.T @ self.filtered(found["rho"])

    def next(self, d, slopes):
        """Optimality criterion: as much work is saved by a volume anywhere. Bisection finds it."""
        low, high = 0.0, (-slopes / self.volumes).max()
        while high - low > 1e-6 * high:
            price = 0.5 * (low + high)
            wish = d * np.sqrt(np.maximum(-slopes, 0) / (price * self.volumes))
            new = np.clip(np.clip(wish, d - 0.2, d + 0.2), 0.0, 1.0)
            above = self.volumes @ new > VOLUME * self.volumes.sum()
            low, high = (price, high) if above else (low, price)
        return new


def draw(bracket, d):
    """Cut the bracket out of the box, and draw how far it gives way."""
    mesh, solid = bracket.V.mesh, d > 0.5
    part = femops.Mesh.from_arrays(None, mesh.elements[solid], coordinates=mesh.coordinates[solid])
    V = femops.H1(part, order=1, ncomp=mesh.dim)
    u = V.interpolate(femops.GridFunction(bracket.V, bracket.u))
    Path("out").mkdir(exist_ok=True)
    options = {"name": "displacement", "arrows": False, "cut": False if mesh.dim == 3 else None}
    return femops.io.picture("out/topology_optimisation.png", V, u, **options)


def main(counts, steps):
    """Find the density of least compliance, and draw the solid part."""
    bracket = Bracket(counts)
    d, values = np.full(bracket.D.size, VOLUME), []
    for step in range(steps + 1):
        value, slopes = bracket.compliance(d)
        values.append(value)
        if step % 5 == 0:
            print(f"step {step:2}: compliance {value:.3f}")
        d = bracket.next(d, slopes) if step < steps else d
    assert values[-1] < values[0] / 4
    assert abs(bracket.volumes @ d / bracket.volumes.sum() - VOLUME) < 1e-5
    try:
        print(draw(bracket, d))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    # "small" is for a first look: in two dimensions
    main(*(((32, 16), 20) if "small" in sys.argv else ((24, 8, 16), 30)))
