"""Elements of other ranks that a rank needs for integrals over faces between elements.

A face between the elements of two ranks belongs to one of them: to the rank whose element has the
larger number in the global mesh. This rank needs the other element too, as a *ghost element*.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.numbering import entity_offsets
from femops.parallel.mesh import DistributedMesh
from femops.parallel.sharing import shared_entities
from femops_kernels.derived import Derived
from femops_meshes.mesh import Mesh

Ints = NDArray[np.int64]


@final
class Neighbours:
    """A rank's elements and its ghost elements. `neighbours` makes it, collectively.

    `numbers` (n,): number in the global mesh of each element: this rank's elements, then the ghost
    elements.
    """

    def __init__(self, mesh: DistributedMesh) -> None:
        part, self._comm = mesh.part, mesh.comm
        self.send = _lent(mesh)
        own = part.mesh
        self.numbers = self.with_ghosts(part.elements)
        vertices = self.with_ghosts(part.vertices[own.elements])
        used, corners = np.unique(vertices, return_inverse=True)
        self.mesh = Mesh(
            corners.reshape(vertices.shape).astype(np.int64),
            self.with_ghosts(own.coordinates),
            self.with_ghosts(own.element_attributes),
            np.empty((0, 2 ** (own.dim - 1)), dtype=np.int64),
            np.empty(0, dtype=np.int32),
            len(used),
            np.arange(len(self.numbers)),
        )
        self.joined = bool(mesh.comm.max(int((self.mesh.topology.faces[:, 1] >= 0).any())))

    def with_ghosts(self, values: NDArray[Any]) -> NDArray[Any]:
        """Append the ghost elements' rows to a table (ne, ...) of this rank's elements. Collective.

        Ghost elements are ordered by rank, then by element.
        """
        lent = {rank: values[elements] for rank, elements in self.send.items() if len(elements)}
        return np.concatenate([values, *self._comm.exchange(lent).values()])


def _lent(mesh: DistributedMesh) -> dict[int, Ints]:
    """Elements of this rank, by other ranks that own one of their faces. See `Neighbours.send`."""
    part, topology = mesh.part, mesh.mesh.topology
    kind = mesh.dim - 1
    shared = shared_entities(part, [kind], mesh.comm)
    first = entity_offsets(topology)[kind]
    behind = {rank: topology.faces[faces - first, 0] for rank, faces in shared.items()}
    numbers = {rank: part.elements[elements] for rank, elements in behind.items()}
    theirs = mesh.comm.exchange(numbers)
    return {
        rank: np.unique(elements[theirs[rank] > numbers[rank]]) for rank, elements in behind.items()
    }


_known = Derived[DistributedMesh, Neighbours]()


def neighbours(mesh: DistributedMesh) -> Neighbours:
    """Return a rank's elements and its ghost elements. Collective at the first call for a mesh."""
    return _known.get(mesh, lambda: Neighbours(mesh))
