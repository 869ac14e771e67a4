"""Draw densities beside exact solutions: ``python docs/exact.py`` writes images/{sod,sedov}.png.

The finest mesh of the blast takes a minute or more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import femops
from femops.hydro import Blast, Lagrangian, ShockTube, Simulation, Snapshot, built_in, problem

IMAGES = Path(__file__).parent / "images"


def density(name: str, dim: int, refine: int, t_final: float) -> femops.GridFunction:
    """Density at the end of a run."""
    case = problem(name)
    run = Simulation.begin(Lagrangian(case, built_in(case.mesh[dim]).refine(refine)))
    run.run(t_final)
    return Snapshot.of(run).density


def samples(rho: femops.GridFunction) -> tuple[np.ndarray, np.ndarray]:
    """Positions (dim, n) and values at the Gauss points of elements."""
    nodal = femops.L2(rho.space.mesh, rho.space.order, family="gauss")
    return nodal.dof_coordinates().T, nodal.interpolate(rho)


def draw(
    name: str,
    dim: int,
    t_final: float,
    refinements: tuple[int, ...],
    exact: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Draw runs on some meshes, with their errors."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    line = np.linspace(0.0, 1.0, 2001)
    for refine, color in zip(refinements, ("#9aa5b1", "#1d4ed8"), strict=True):
        rho = density(name, dim, refine, t_final)
        error = femops.l2_error(rho.space, rho.vector, lambda x: exact(np.linalg.norm(x, axis=0)))
        x, values = samples(rho)
        elements = rho.space.mesh.num_elements
        label = f"{elements} elements, L2 error {error:.3f}"
        axes.plot(np.linalg.norm(x, axis=0), values, ".", ms=3.5, color=color, label=label)
    axes.plot(line, exact(line), color="#c2410c", lw=1.2, label="exact")
    axes.set(xlabel="x" if dim == 1 else "distance from the origin", ylabel="density", xlim=(0, 1))
    axes.legend()
    figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    tube, blast = ShockTube(), Blast(dim=2)
    draw("sod", 1, 0.2, (3, 5), lambda x: tube.density(x, 0.2))
    draw("sedov", 2, 0.5, (3, 5), lambda r: blast.density(r, 0.5))
