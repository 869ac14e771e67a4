"""A smooth function whose Poisson problem is known, for any mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.space import Space
from femops_meshes import Mesh
from femops_meshes.mapping import positions

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Manufactured:
    r"""The product of waves :math:`u(x) = \prod_d \sin(k_d (x_d - a_d) + d + 1/2)`.

    Then :math:`-\Delta u = |k|^2 u`. Functions take x of shape (dim, n).

    Attributes
    ----------
    wave : (dim,) float64
        Wave numbers k, 1 / length.
    corner : (dim,) float64
        The lower corner a of the mesh.
    """

    wave: Floats
    corner: Floats

    @classmethod
    def on(cls, mesh: Mesh) -> Manufactured:
        """One wave along the longest side of the mesh, or one a period where it is periodic."""
        lower, upper = mesh.bounding_box()
        longest = float((upper - lower).max())
        lengths = np.full(mesh.dim, longest)
        if not mesh.continuous:
            jumps = _jumps(mesh)
            for d in range(mesh.dim):
                present = jumps[:, d][jumps[:, d] > 1e-8 * longest]
                lengths[d] = present.min(initial=np.inf) if len(present) else longest
        return cls(2 * np.pi / lengths, lower)

    def _phases(self, x: Floats) -> Floats:
        shift = np.arange(len(self.wave)) + 0.5
        return self.wave[:, None] * (x - self.corner[:, None]) + shift[:, None]

    def exact(self, x: Floats) -> Floats:
        """u, (n,)."""
        return np.asarray(np.prod(np.sin(self._phases(x)), axis=0))

    def gradient(self, x: Floats) -> Floats:
        """Gradient of u, (dim, n)."""
        phases = self._phases(x)
        sines, cosines = np.sin(phases), np.cos(phases)
        result = np.empty_like(sines)
        for d in range(len(sines)):
            factors = sines.copy()
            factors[d] = self.wave[d] * cosines[d]
            result[d] = np.prod(factors, axis=0)
        return result

    def source(self, x: Floats) -> Floats:
        """Right-hand side -div grad u, (n,)."""
        return np.asarray(float(self.wave @ self.wave) * self.exact(x))

    def check_periodic(self, space: Space) -> None:
        """Check that u has one value wherever the mesh has one node.

        Raises
        ------
        SpaceError
            The mesh is periodic, but its periods do not lie along the axes.
        """
        if space.mesh.continuous:
            return
        x = positions(space.mesh.coordinates, space.basis.nodes)
        values = self.exact(np.moveaxis(x, -1, 0).reshape(space.dim, -1)).reshape(x.shape[:2])
        shared = np.empty(space.ndofs)
        shared[space.restriction.indices] = values
        if np.abs(shared[space.restriction.indices] - values).max() > 1e-8:
            raise SpaceError(
                "this mesh is periodic, but its periods do not lie along the axes: no exact "
                "solution is known here, so its error cannot be reported; take another mesh"
            )


def _jumps(mesh: Mesh) -> Floats:
    """Distances (n, dim) between the positions that elements give to a node they share."""
    numbers = mesh.topology.lattice(mesh.order)
    shared = np.empty((mesh.topology.lattice_size(mesh.order), mesh.dim))
    shared[numbers] = mesh.coordinates
    return np.abs(shared[numbers] - mesh.coordinates).reshape(-1, mesh.dim)
