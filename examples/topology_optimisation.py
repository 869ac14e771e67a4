"""Topology optimisation: the stiffest bracket for a given amount of material.

The stiffness of an element grows with the third power of its density (SIMP). A Helmholtz filter
smooths the densities, so that no part is too thin. `femops.gradient` differentiates by the smooth
density. The filter is symmetric: its solve, which gives a representer, carries the derivative back.
The optimality criterion (Bendsoe and Sigmund, Topology Optimization, 2003) moves the densities.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

import femops

VOLUME, RADIUS, LEAST = 0.3, 0.04, 1e-3  # part of the box, length of the filter, stiffness of holes
CLAMPED, LOADED = 1, 2  # the low and the high end of x


def stress(u, rho):
    """Stress at a density. Solid material has Young's modulus 1 and Poisson's ratio 0.3."""
    young = LEAST + (1 - LEAST) * rho**3
    return {"grad": young * (0.577 * u.div * np.eye(3) + 0.769 * u.sym_grad)}


def work(u, x):
    """Work of a weight at the lower edge, which is the compliance."""
    return -np.exp(-40 * x[2] ** 2) * u[2]


def improved(d, savings):
    """Optimality criterion. An element grows if it saves more work than its material costs."""

    def at_price(price):
        wish = d * np.sqrt(np.maximum(savings, 0) / price)
        return np.clip(wish, np.maximum(d - 0.2, 0), np.minimum(d + 0.2, 1))

    return at_price(brentq(lambda price: at_price(price).mean() - VOLUME, 1e-9, savings.max()))


def main(counts, steps):
    """Find the densities of least compliance, and draw how the solid part gives way."""
    mesh = femops.box(counts, upper=np.array(counts) / counts[-1])
    D, H, V = femops.L2(mesh, 0), femops.H1(mesh, 1), femops.H1(mesh, 2, ncomp=3)
    compliance = femops.functional(work, V, boundary=LOADED)
    load = compliance.derivative.residual(V.zeros())  # the work is linear in u
    smoothing = femops.mass(H) + femops.diffusion(H, RADIUS**2)
    moments = femops.form(lambda d: {"value": d}, D, H)
    d, u, values = np.full(D.size, VOLUME), V.zeros(), []
    for step in range(steps + 1):
        smooth, _ = femops.cg(smoothing, moments @ d, M=femops.jacobi(smoothing), rtol=1e-8)
        A = femops.form(stress, V, rho=femops.GridFunction(H, smooth))
        A = A.constrained(V.boundary_dofs(CLAMPED))
        M = femops.multigrid(A)
        u, _ = femops.cg(A, A.rhs(load), x0=u, M=M, rtol=1e-6)
        values.append(compliance(u))
        if step % 5 == 0:
            print(f"step {step:2}: compliance {values[-1]:.3f}")
        if step < steps:
            slopes = femops.gradient(compliance, A, u, "rho", preconditioner=M, rtol=1e-6)
            d = improved(d, -(moments.T @ slopes.representer("rho", smoothing)))
    assert values[-1] < values[0] / 4
    solid, nodes = d > 0.5, mesh.coordinates
    part = femops.Mesh.from_arrays(None, mesh.elements[solid], coordinates=nodes[solid])
    S = femops.H1(part, order=1, ncomp=3)
    displacement = S.interpolate(femops.GridFunction(V, u))
    try:
        Path("out").mkdir(exist_ok=True)
        options = {"name": "displacement", "arrows": False, "cut": False}
        print(femops.io.picture("out/topology_optimisation.png", S, displacement, **options))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    # "small" is for a first look: a coarse mesh, fewer steps
    main(*(((12, 4, 8), 12) if "small" in sys.argv else ((24, 8, 16), 30)))
