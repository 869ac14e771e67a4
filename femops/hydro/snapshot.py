"""Fields of a run on the moved mesh, for pictures and files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.basis import Basis1D
from femops.errors import HydroError
from femops.hydro.lagrangian import Lagrangian
from femops.hydro.simulation import Simulation
from femops.parallel import check
from femops_common.arguments import checked


@final
@dataclass(frozen=True)
class Snapshot:
    """Fields of a run at one time.

    Attributes
    ----------
    mesh : Mesh or DistributedMesh
        Moved mesh.
    velocity, density, energy : GridFunction
    """

    mesh: femops.Mesh | femops.DistributedMesh
    velocity: femops.GridFunction
    density: femops.GridFunction
    energy: femops.GridFunction

    @staticmethod
    @checked(HydroError)
    def of(run: Simulation) -> Snapshot:
        """Return the fields of a run at the present time. Collective.

        The density is the L2 projection of mass divided by volume at the quadrature points.

        Raises
        ------
        GeometryError
            Elements are inverted.
        """
        equations = run.equations
        parts = equations.parts(run.state)
        V, E = equations.V, equations.E
        part, mesh = _moved(equations, parts["position"])
        moved = femops.L2(mesh, E.order, family=E.basis.family)
        rule = equations.quadrature
        mass = femops.load(E, equations.density, quadrature=rule)
        n = E.element.size
        local = femops.L2(part, E.order, family=E.basis.family)
        blocks = femops.mass(local, quadrature=rule).assemble().tobsr((n, n)).data
        density = np.linalg.solve(blocks, mass.reshape(-1, n, 1)).reshape(-1)
        return Snapshot(
            mesh,
            femops.GridFunction(femops.H1(mesh, V.order, ncomp=V.ncomp), parts["velocity"].copy()),
            femops.GridFunction(moved, density),
            femops.GridFunction(moved, parts["energy"].copy()),
        )

    def save(self, series: femops.io.TimeSeries, t: float) -> None:
        """Add the fields to a series for ParaView. Collective over the ranks of the series."""
        fields = {"velocity": self.velocity, "density": self.density, "energy": self.energy}
        series.save(t, self.density.space, **fields)


def _moved(
    equations: Lagrangian, position: NDArray[np.float64]
) -> tuple[femops.Mesh, femops.Mesh | femops.DistributedMesh]:
    """Return the moved mesh twice: this rank's elements, and the full (distributed) mesh."""
    V, whole = equations.V, equations.mesh
    part = equations.part
    degree = max(V.order, part.order)  # a mesh of a higher degree cannot be made one of a lower
    nodes = V.restriction.gather(V.l_vec(position)).reshape(part.num_elements, -1, V.dim)
    x = V.element.values(Basis1D("gll", degree).nodes, nodes).reshape(-1, V.dim).T.copy()
    with check(equations.comm):
        moved = part.curved(degree).mapped(lambda _: x)
    if not isinstance(whole, femops.DistributedMesh):
        return moved, moved
    shared = replace(whole.part, mesh=moved)
    return moved, femops.DistributedMesh.of(whole.comm, shared, whole.element_groups)
