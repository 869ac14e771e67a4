"""Neighbours of dofs: the opposite dof across a face, and the dofs around a node.

On many ranks each rank has the dofs of its own elements. Messages bring the values of the
neighbouring elements of other ranks. Numbers are compared and copied, never added, so no result
depends on the number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from femops.geometry.boundary import face_digits, nodes_inwards
from femops.geometry.interior import MINUS, PLUS, InteriorFaces, interior_faces
from femops.numbering import Dofs, h1_numbering
from femops.parallel import Communicator, Serial
from femops.parallel.halo import Halo
from femops.parallel.mesh import DistributedMesh
from femops.parallel.neighbours import neighbours
from femops.parallel.numbering import RankNumbering, h1_rank_numbering
from femops_kernels.compiled import Channel
from femops_meshes.mesh import Mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = NDArray[np.bool_]
AnyMesh: TypeAlias = Mesh | DistributedMesh

_NONE = np.iinfo(np.int64).max


@final
@dataclass(frozen=True)
class Elements:
    """Elements of this rank."""

    part: Mesh  # mesh of these elements
    comm: Communicator  # ranks that share the mesh
    numbers: Ints  # (ne,): number of each element in the global mesh

    @staticmethod
    def of(mesh: AnyMesh) -> Elements:
        """Return this rank's elements of a mesh."""
        if isinstance(mesh, Mesh):
            return Elements(mesh, Serial(), np.arange(mesh.num_elements))
        return Elements(mesh.mesh, mesh.comm, mesh.part.elements)

    def first(self, marked: Marks) -> tuple[int, int]:
        """Number of marked elements (ne,) on all ranks, and the least of their global numbers.

        Collective.
        """
        least = -self.numbers[marked].min(initial=_NONE)
        return self.comm.sum(int(marked.sum())), -self.comm.max(int(least))


@final
class GhostMessages:
    """Repeated messages between ranks that share dofs. All methods are collective."""

    def __init__(self, numbering: RankNumbering, comm: Communicator, width: int) -> None:
        halo, self._width, self._owned = Halo(numbering, comm), width, numbering.owned
        self._lent = np.concatenate([np.empty(0, dtype=np.int64), *halo.send.values()])
        send = {rank: width * len(dofs) for rank, dofs in halo.send.items()}
        receive = {rank: width * (end - first) for rank, (first, end) in halo.receive.items()}
        kind = np.dtype(np.float64)
        self._to_ghosts = comm.channel(send, receive, kind)
        self._to_owners = comm.channel(receive, send, kind)

    def values(self, owned: Floats) -> Floats:
        """Return values (ghosts, width) of the ghosts, from values (owned, width) of own dofs."""
        return self._sent(self._to_ghosts, owned[self._lent])

    def largest(self, values: Floats) -> Floats:
        """Return the largest value of each dof on all ranks. Own dofs come first, then ghosts."""
        own = values[: self._owned].copy()
        np.maximum.at(own, self._lent, self._sent(self._to_owners, values[self._owned :]))
        return np.concatenate([own, self.values(own)])

    def _sent(self, channel: Channel, values: Floats) -> Floats:
        channel.outgoing[:] = values.reshape(-1)
        channel.start()
        channel.finish()
        return np.asarray(channel.incoming.reshape(-1, self._width))


@final
class Neighbours:
    """The dofs of functions of order p on the faces of elements, and opposite to them.

    An element has 2 dim faces, in the order of `face_digits`. The m = (p + 1)**(dim - 1) dofs of a
    face are lexicographic in the element. An element has n = (p + 1)**dim dofs.

    The constructor and `jumps` are collective.

    `outer` (ne, 2 dim): True for faces on the boundary.
    """

    def __init__(self, mesh: AnyMesh, order: int) -> None:
        elements = Elements.of(mesh)
        part, self.comm = elements.part, elements.comm
        digits, faces = face_digits(mesh.dim), interior_faces(mesh)
        m, n, ne = (order + 1) ** (mesh.dim - 1), (order + 1) ** mesh.dim, part.num_elements
        self._size, self._grid = n, (ne, *[order + 1] * mesh.dim)
        # the dofs of each face as a view of the grid, whose last axis is x
        self._views = [
            (slice(None), *[slice(None) if t == 1 else t // 2 * order for t in reversed(one)])
            for _, one in digits
        ]
        self._own = np.stack([nodes_inwards(one, order + 1)[:m] for _, one in digits])
        self._other = np.full((ne, len(digits), m), -1)
        rows, starts = _opposite(mesh, faces, order)
        first = starts[self.comm.rank]
        self._other[rows[:, 0] - first, rows[:, 1]] = rows[:, 2:]
        self.outer: Marks = self._other[..., 0] < 0
        self._ghosts = GhostMessages(self._with_ghosts(n * starts), self.comm, 1)

    def _with_ghosts(self, offsets: Ints) -> RankNumbering:
        """Number the opposite dofs on this rank: own dofs, then ghosts, then one for outside."""
        rank = self.comm.rank
        owned, inner = offsets[rank + 1] - offsets[rank], self._other >= 0
        local = self._other - offsets[rank]
        foreign = inner & ((local < 0) | (local >= owned))
        ghosts, places = np.unique(self._other[foreign], return_inverse=True)
        local[foreign] = owned + places
        local[~inner] = owned + len(ghosts)
        self._other = local
        indices = local.reshape(len(local), local.shape[1] * local.shape[2])
        return RankNumbering(rank, [Dofs(indices)], offsets, ghosts)

    def jumps(self, u: Floats) -> Floats:
        """Neighbour's minus own coefficients (ne, 2 dim, m) of u (ne, n). Outside, u is zero."""
        flat = u.reshape(-1, 1)
        padded = np.concatenate([flat, self._ghosts.values(flat), [[0.0]]])
        return np.take(padded, self._other) - self.own(u)

    def own(self, u: Floats) -> Floats:
        """Coefficients (ne, 2 dim, m) of u (ne, n) on each face."""
        return np.take(u, self._own, axis=1)

    def add(self, rates: Floats, u: Floats) -> None:
        """Add rates (ne, 2 dim, m) on faces to the dofs of u (ne, n)."""
        grid = u.reshape(self._grid)
        for slot, view in enumerate(self._views):
            on_face = grid[view]
            on_face += rates[:, slot].reshape(on_face.shape)

    def boundary_marks(self) -> Marks:
        """True (ne, n) for dofs on faces of the boundary."""
        marked = np.zeros(self._grid, dtype=np.bool_)
        for slot, view in enumerate(self._views):
            on_face = marked[view]
            on_face |= self.outer[:, slot].reshape(-1, *[1] * (on_face.ndim - 1))
        return marked.reshape(len(marked), self._size)


def _opposite(mesh: AnyMesh, faces: InteriorFaces, order: int) -> tuple[Ints, Ints]:
    """Faces of this rank's elements that have a neighbour on the other side. Collective.

    Elements are numbered rank by rank, and the n dofs of an element follow those of the element
    before it.

    Shapes: `rows` (k, 2 + m), `starts` (size + 1,).
    """
    elements, codes = Elements.of(mesh), [code for code, _ in face_digits(mesh.dim)]
    comm, ne = elements.comm, elements.part.num_elements
    m, n = (order + 1) ** (mesh.dim - 1), (order + 1) ** mesh.dim
    starts = np.append(0, np.cumsum(comm.gather_all(np.array([ne], dtype=np.int64))))
    numbers = starts[comm.rank] + np.arange(ne)
    if isinstance(mesh, DistributedMesh):
        numbers = neighbours(mesh).with_ghosts(numbers)
    local, rows = [faces.nodes(side, order + 1)[:, :m] for side in (MINUS, PLUS)], []
    for mine, theirs in ((MINUS, PLUS), (PLUS, MINUS)):
        opposite = np.take_along_axis(local[theirs], np.argsort(local[mine], axis=1), axis=1)
        opposite = opposite + n * numbers[faces.elements[theirs]][:, np.newaxis]
        at = numbers[faces.elements[mine]], np.searchsorted(codes, faces.codes[mine])
        rows.append(np.column_stack([*at, opposite]))
    known = np.concatenate(rows)
    # a face between two ranks is known to one of them only
    owner = np.searchsorted(starts, known[:, 0], side="right") - 1
    told = {int(rank): known[owner == rank] for rank in np.unique(owner)}
    return np.concatenate([known[:0], *comm.exchange(told).values()]), starts


@final
class Lattice:
    """The nodes of continuous functions of order p, at which elements meet.

    The constructor and the methods are collective.
    """

    def __init__(self, mesh: AnyMesh, order: int) -> None:
        # all nodes inside a vertex, edge, face or cell belong to the same elements
        self._ghosts: GhostMessages | None = None
        if isinstance(mesh, DistributedMesh):
            numbering = h1_rank_numbering(mesh.part, 2, mesh.comm)
            self._entities = numbering.indices
            self._ghosts = GhostMessages(numbering, mesh.comm, 2)
        else:
            self._entities = h1_numbering([Elements.of(mesh).part], 2)[0][0].indices
        digits = np.minimum(np.arange(order + 1), 1) + (np.arange(order + 1) == order)
        self._of_node = np.zeros(1, dtype=np.int64)
        for d in range(mesh.dim):
            self._of_node = (3**d * digits[:, np.newaxis] + self._of_node).reshape(-1)
        flat = self._entities.reshape(-1)
        self._sorted = np.argsort(flat, kind="stable")
        self._first = np.searchsorted(flat[self._sorted], np.arange(flat.max(initial=-1) + 1))
        self._element = self._sorted // self._entities.shape[1]

    def spread(self, marked: Marks) -> Marks:
        """Mark (ne, n) the nodes that are marked in one of the elements that meet there."""
        of_entity = np.zeros((*self._entities.shape, 2))
        for node, code in enumerate(self._of_node):
            of_entity[:, code, 0] += marked[:, node]
        found = self._largest(of_entity.reshape(-1, 2)[self._sorted])[:, 0]
        return np.asarray(found[self._entities][:, self._of_node] > 0.0)

    def bounds(self, u: Floats) -> tuple[Floats, Floats]:
        """Least and largest coefficient (ne, n) in the elements that meet at each node."""
        ends = np.stack([-u.min(axis=1), u.max(axis=1)], axis=1)
        found = self._largest(ends[self._element])
        return self._at_nodes(-found[:, 0]), self._at_nodes(found[:, 1])

    def _largest(self, sorted_values: Floats) -> Floats:
        """Largest values (entities, 2) around each entity, of values by entity and element."""
        found = (
            np.maximum.reduceat(sorted_values, self._first) if len(self._first) else sorted_values
        )
        return found if self._ghosts is None else self._ghosts.largest(found)

    def _at_nodes(self, of_entity: Floats) -> Floats:
        return np.take(np.take(of_entity, self._entities), self._of_node, axis=1)
