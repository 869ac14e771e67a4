"""Fields of a run on the mesh as it has moved: what is drawn and written into files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

import femops
from femops.errors import HydroError
from femops.hydro.simulation import Simulation
from femops_meshes.arguments import checked


@final
@dataclass(frozen=True)
class Snapshot:
    """Fields at a time.

    Attributes
    ----------
    mesh : Mesh
        As it has moved.
    velocity, density, energy : GridFunction
    """

    mesh: femops.Mesh
    velocity: femops.GridFunction
    density: femops.GridFunction
    energy: femops.GridFunction

    @staticmethod
    @checked(HydroError)
    def of(run: Simulation) -> Snapshot:
        """The fields of a run as it is now.

        The density is the projection of what each point's mass and volume give.

        Raises
        ------
        GeometryError
            Elements that are inverted.
        HydroError
            Ranks share the mesh.
        """
        equations = run.equations
        if not isinstance(equations.mesh, femops.Mesh):
            raise HydroError("fields on the moved mesh are made in one process: leave them out")
        position, velocity, energy = equations.space.split(run.state)
        V, E = equations.V, equations.E
        nodes = V.restriction.gather(V.l_vec(position)).reshape(-1, V.dim)
        mesh = equations.mesh.curved(V.order).mapped(lambda _: np.ascontiguousarray(nodes.T))
        moved = femops.L2(mesh, E.order, family=E.basis.family)
        rule = equations.quadrature
        mass = femops.load(E, equations.density, quadrature=rule)
        n = E.p1d**E.dim
        blocks = femops.mass(moved, quadrature=rule).assemble().tobsr((n, n)).data
        density = np.linalg.solve(blocks, mass.reshape(-1, n, 1)).reshape(-1)
        return Snapshot(
            mesh,
            femops.GridFunction(femops.H1(mesh, V.order, ncomp=V.ncomp), velocity.copy()),
            femops.GridFunction(moved, density),
            femops.GridFunction(moved, energy.copy()),
        )

    def save(self, series: femops.TimeSeries, t: float) -> None:
        """Add the fields to a series for ParaView."""
        fields = {"velocity": self.velocity, "density": self.density, "energy": self.energy}
        series.save(t, self.density.space, **fields)
