"""Mesh of which every rank holds a part."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.parallel.comm import Communicator, check, check_same, communicator
from femops.parallel.scattering import (
    WIDEST,
    gathered_mesh,
    groups_of,
    scattered,
    shares,
    whole_trees,
)
from femops_common.arguments import checked, type_name
from femops_kernels.exclusive import Derived
from femops_meshes import Mesh, MeshArgumentError, MixedMesh, Part, part_of
from femops_meshes.checks import array, element_ranges
from femops_meshes.forest import Forest
from femops_meshes.names import Chosen, Names, Parts, chosen_elements
from femops_meshes.topology.entities import Cell

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_OF_WHOLE_MESHES = frozenset({"curved", "mapped", "with_attributes", "with_names"})


@final
@dataclass(frozen=True, eq=False, repr=False)
class DistributedMesh:
    """One rank's view of a mesh of which every rank holds a part.

    `femops.box`, `femops.read_mesh` and `femops.distribute` make it. `DistributedMesh.of` makes it
    from parts that the ranks have made.

    Attributes
    ----------
    comm
        Ranks that hold the mesh.
    part
        Part with this rank's elements.
    whole_element_attributes, whole_boundary_attributes
        Shape (k,) int64, ascending: attributes that occur on any rank.
    has_outer_faces
        Whether a face of any rank's part belongs to only one element of the global mesh.
    checksum
        Checksum of the global mesh. It does not depend on the number of ranks or the partition.
    element_groups
        Shape (m + 1,) int64: group k has this rank's elements element_groups[k] to
        element_groups[k + 1] - 1. The groups do not depend on the number of ranks, so results can
        be independent of it too. None if the mesh is not `reproducible`.
    """

    comm: Communicator
    part: Part
    whole_element_attributes: Ints
    whole_boundary_attributes: Ints
    has_outer_faces: bool
    checksum: int
    element_groups: Ints | None
    _whole: DistributedMesh | None = None
    _given_as = "a mesh, as femops.box(counts) or femops.read_mesh(path)"

    @classmethod
    def of(cls, comm: Any, part: Part, element_groups: ArrayLike | None = None) -> DistributedMesh:
        """Make the mesh from the ranks' parts. Collective.

        Parameters
        ----------
        comm : mpi4py.MPI.Intracomm or Communicator
        part : Part
            This rank's part, which may have no elements. All parts must come from one partition of
            one mesh. This is checked when a space is made.
        element_groups : (m + 1,) array_like of int, optional
            Starts of the m groups in the part, and its number of elements. On all ranks or on none.

        Raises
        ------
        MeshArgumentError
            If the part belongs to another rank, or the groups do not fit its elements.
        RankError
            If another rank failed.

        Warns
        -----
        UserWarning
            On rank 0, if there are ranks without elements.
        """
        ranks = communicator(comm)
        with check(ranks):
            groups = element_groups
            cuts = None if groups is None else np.array(groups, dtype=np.int64)
            _check_part(ranks, part, cuts)
            hashes = sum(checksum(p.mesh, p.elements, p.vertices) for p in part.parts) % 2**64
        _warn_of_empty(ranks, part, whole_groups=cuts is not None)
        return cls(
            ranks,
            part,
            _on_any_rank(ranks, part.mesh.element_attributes),
            _on_any_rank(ranks, part.mesh.boundary_attributes),
            bool(ranks.max(int(_outer_faces(part) > 0))),
            int(ranks.sum(np.array([hashes], dtype=np.uint64))[0]),
            cuts,
        )

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled mesh. Raise if another rank has written it."""
        _check_part(state["comm"], state["part"], state["element_groups"])
        vars(self).update(state)
        self.__post_init__()

    if not TYPE_CHECKING:  # type checkers would think that any attribute exists

        def __getattr__(self, name: str) -> Any:
            """Raise an error that tells where to find an attribute of `Mesh`."""
            hint = f": of this rank's elements it is mesh.mesh.{name}" if _of_mesh(name) else ""
            if hint and not hasattr(self.mesh, name):
                hint = ": mesh.parts are meshes of one shape, which have it"
            if name in _OF_WHOLE_MESHES:
                hint = f": write mesh.changed(lambda whole: whole.{name}(...))"
            raise AttributeError(f"a DistributedMesh has no attribute {name!r}{hint}")

    @property
    def mesh(self) -> Mesh:
        """Mesh of this rank's elements. Its boundary is part of the global mesh's boundary.

        It is a `MixedMesh` if the global mesh is one, with a part for each of its shapes.
        """
        mesh: Mesh = self.part.mesh
        return mesh

    @cached_property
    def parts(self) -> tuple[DistributedMesh, ...]:
        """Meshes of the elements of each shape, if there are several; else the mesh itself."""
        if isinstance(self.part.mesh, Mesh):
            return (self,)
        found, first = [], 0
        for part in self.part.parts:
            end, cuts = first + len(part.elements), self.element_groups
            if cuts is not None:
                mine = cuts[(cuts >= first) & (cuts <= end)] - first
                cuts = np.unique(np.append(mine, 0))
            found.append(replace(self, part=part, element_groups=cuts, _whole=self))
            first = end
        return tuple(found)

    @property
    def whole(self) -> DistributedMesh:
        """The mesh of several shapes that has this part, or the mesh itself if it is no part."""
        return self if self._whole is None else self._whole

    @property
    def dim(self) -> int:
        """Dimension of the elements and of space, 1 to 3."""
        return self.mesh.dim

    @property
    def cell(self) -> Cell:
        """Reference cell of the elements."""
        return self.mesh.cell

    @property
    def num_elements(self) -> int:
        """Number of elements of the global mesh."""
        return self.part.num_elements

    def volume(self) -> float:
        """Length, area or volume of the global mesh; see `Mesh.volume`. Collective."""
        return float(self.comm.sum(self.mesh.volume()))

    @property
    def conforming(self) -> bool:
        """False if elements of two sizes meet on any rank; see `Mesh.conforming`. Collective."""
        if self.part.leaves is None:
            return True
        return not self.comm.max(int(not self.mesh.conforming))

    @property
    def element_names(self) -> Names:
        """Element attributes by name, the same on all ranks."""
        return self.mesh.element_names

    @property
    def boundary_names(self) -> Names:
        """Boundary attributes by name, the same on all ranks."""
        return self.mesh.boundary_names

    @property
    def reproducible(self) -> bool:
        """True if ranks hold complete groups, so that results can be the same for 1 to 8 ranks."""
        return self.element_groups is not None

    @checked(MeshArgumentError)
    def changed(
        self,
        function: Callable[..., Mesh | MixedMesh],
        *tables: ArrayLike,
        weights: Callable[..., ArrayLike] | None = None,
    ) -> DistributedMesh:
        """Make another mesh from the global mesh, and share it out anew. Collective.

        Rank 0 gathers the global mesh, so it must have the memory for it. Elements are shared out
        along the curve of their order.

        Parameters
        ----------
        function
            ``function(whole, *tables)`` returns a mesh. It is called on rank 0 alone.
        *tables
            Shape (ne, ...): numbers for each of this rank's elements. The function gets those of
            all elements, in the order of the global mesh.
        weights
            Function of the new mesh that returns the work (ne,) of its elements. None means equal
            work.

        Raises
        ------
        MeshArgumentError
            If a table has another length, tables differ between ranks, or the function returns no
            mesh.
        RankError
            On other ranks, if rank 0 fails.

        Examples
        --------
        >>> import femops
        >>> from femops.parallel import Serial
        >>> mesh = femops.distribute(femops.box((4, 4)), Serial())
        >>> mesh.changed(lambda whole: whole.mapped(lambda x: 2 * x))
        DistributedMesh(rank 0 of 1: 16 of 16 elements, dim 2)
        """
        comm, count = self.comm, self.mesh.num_elements
        with check(comm):
            rows = [array(table, "a table") for table in tables]
            wrong = [each for each in rows if each.shape[:1] != (count,)]
            if wrong:
                raise MeshArgumentError(
                    f"a table has shape {wrong[0].shape}: give a row for each of {count} elements"
                )
            wrong = [each for each in rows if each.dtype.kind not in "biufc"]
            if wrong:
                raise MeshArgumentError(f"a table has type {wrong[0].dtype}: give numbers")
        shapes = [each.shape[1:] for each in rows]
        check_same(comm, "the tables", {"shapes of their rows": shapes}, error=MeshArgumentError)
        whole = gathered_mesh(self.part, comm)
        numbers = comm.exchange({0: self.part.elements})
        sent = [comm.exchange({0: np.ascontiguousarray(each)}) for each in rows]
        parts: list[Part] = []
        with check(comm):
            if whole is not None:
                order = np.argsort(np.concatenate([*numbers.values()]))
                mesh = function(whole, *(np.concatenate([*t.values()])[order] for t in sent))
                if not isinstance(mesh, Mesh | MixedMesh):
                    raise MeshArgumentError(
                        f"the function returned {type_name(type(mesh))}: return a Mesh"
                    )
                work = None if weights is None else weights(mesh)
                cut = shares(mesh, comm.size, "curve", work, self.reproducible)
                parts = [part_of(mesh, cut, rank) for rank in range(comm.size)]
        part = scattered(parts, comm, 0)
        return DistributedMesh.of(comm, part, groups_of(part, comm) if self.reproducible else None)

    @checked(MeshArgumentError)
    def refine(self, times: int = 1) -> DistributedMesh:
        """Split every element; see `Mesh.refine` and `changed`. Collective."""
        check_same(self.comm, "the mesh", {"times": times}, error=MeshArgumentError)
        return self.changed(lambda whole: whole.refine(times))

    @checked(MeshArgumentError)
    def refined(
        self, elements: Chosen | None = None, *, attributes: Parts = None
    ) -> DistributedMesh:
        """Halve some elements; see `Mesh.refined` and `changed`. Collective.

        ``elements`` are numbers, a mask or a predicate of this rank's own elements, of which each
        rank may choose others, or none by ``[]``.
        """
        return self.changed(
            lambda whole, flags: whole.refined(flags), self.chosen(elements, attributes)
        )

    @checked(MeshArgumentError)
    def coarsened(
        self, elements: Chosen | None = None, *, attributes: Parts = None
    ) -> DistributedMesh:
        """Undo refinements of elements; see `Mesh.coarsened` and `refined`. Collective."""
        return self.changed(
            lambda whole, flags: whole.coarsened(flags), self.chosen(elements, attributes)
        )

    @property
    def trees(self) -> Forest:
        """Trees of the global mesh, on each rank. Collective at the first call."""
        return _trees.get(self, lambda: whole_trees(self.part, self.comm))

    def chosen(self, elements: Chosen | None, attributes: Parts) -> NDArray[np.bool_]:
        """Mask (ne,) of this rank's elements that a user chose; see `refined`. Collective."""
        with check(self.comm):
            known = self.whole_element_attributes.tolist()
            found = chosen_elements(self.mesh, elements, attributes, known)
        return np.asarray(found)

    def __repr__(self) -> str:
        cuts = self.element_groups
        groups = "" if cuts is None else f" in {len(cuts) - 1} groups"
        return (
            f"DistributedMesh(rank {self.comm.rank} of {self.comm.size}: {self.mesh.num_elements} "
            f"of {self.num_elements} elements{groups}, dim {self.dim})"
        )


def ranks_of(mesh: object) -> Communicator:
    """Ranks that share a mesh; this process alone if it is not distributed."""
    return mesh.comm if isinstance(mesh, DistributedMesh) else communicator()


_trees = Derived[DistributedMesh, Forest]()


def _of_mesh(name: str) -> bool:
    """True if every `Mesh` has this attribute."""
    return hasattr(Mesh, name) or name in Mesh.__dataclass_fields__


def checksum(mesh: Mesh, elements: Ints, vertices: Ints) -> int:
    """Sum, modulo 2**64, of hashes of all elements and boundary entries.

    Shapes: `elements`, `vertices` (ne,).
    """
    width = mesh.coordinates.shape[1] * mesh.dim
    nodes = np.ascontiguousarray(mesh.coordinates).reshape(-1, width)
    corners = np.append(vertices, -1)[mesh.boundary]  # -1 for no vertex
    total = sum_of_hashes(corners, mesh.boundary_attributes[:, np.newaxis])
    for some in element_ranges(mesh.num_elements, width):
        numbers = elements[some, np.newaxis], vertices[mesh.elements[some]]
        attributes = mesh.element_attributes[some, np.newaxis]
        total += sum_of_hashes(*numbers, attributes, nodes[some].view(np.int64))
    return total % 2**64


def whole_checksum(mesh: Mesh | MixedMesh) -> int:
    """`DistributedMesh.checksum` of a mesh that no ranks share."""
    total, first, vertices = 0, 0, np.arange(mesh.num_vertices)
    for part in mesh.parts:
        total += checksum(part, first + np.arange(part.num_elements), vertices)
        first += part.num_elements
    return total % 2**64


def sum_of_hashes(*columns: NDArray[np.signedinteger[Any]]) -> int:
    """Sum, modulo 2**64, of hashes of the rows of whole numbers, one array per column."""
    rows = np.concatenate(columns, axis=1, dtype=np.int64).view(np.uint64)
    places = np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return int(_mixed(_mixed(rows + places).sum(axis=1)).sum())


def _mixed(numbers: Hashes) -> Hashes:
    """Hash 64-bit numbers. Each bit of a result depends on all bits of its input.

    Notes
    -----
    G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
    with the constants of D. Stafford.
    """
    mixed = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    result: Hashes = mixed ^ mixed >> np.uint64(31)
    return result


def _on_any_rank(comm: Communicator, attributes: NDArray[np.int32]) -> Ints:
    """Attributes that occur on any rank, ascending."""
    told = comm.exchange({0: np.unique(attributes).astype(np.int64)})
    union = np.unique(np.concatenate([*told.values()])) if comm.rank == 0 else None
    result: Ints = comm.broadcast(union)
    return result


def _outer_faces(part: Part) -> int:
    """Number of faces of a part that belong to one element of the global mesh."""
    count = -len(part.interface)
    for topology in (each.mesh.topology for each in part.parts):
        alone = topology.faces[topology.faces[:, 0] >= 0, 1] < 0
        count += int(alone.sum()) - len(topology.joined)
    return count


def _check_part(comm: Communicator, part: object, groups: Ints | None) -> None:
    if not isinstance(part, Part):
        raise MeshArgumentError(f"part is {type_name(type(part))}: give each rank its Part")
    if (part.rank, part.size) != (comm.rank, comm.size):
        raise MeshArgumentError(
            f"rank {comm.rank} of {comm.size} has part {part.rank} of {part.size}: give each rank "
            "the part of its own number, of a partition into as many parts as ranks"
        )
    if groups is not None:
        ends = [groups[0], groups[-1]] if groups.ndim == 1 and len(groups) else []
        if ends != [0, part.mesh.num_elements] or (np.diff(groups) <= 0).any():
            raise MeshArgumentError(
                f"element_groups are {groups.tolist()}: they must ascend from 0 to the part's "
                f"number of elements, {part.mesh.num_elements}"
            )


def _warn_of_empty(comm: Communicator, part: Part, *, whole_groups: bool) -> None:
    empty = comm.sum(int(part.mesh.num_elements == 0))
    with check(comm):  # a warning may be an error
        if empty and comm.rank == 0:
            warnings.warn(
                f"{empty} of {comm.size} ranks have no elements: the mesh has {part.num_elements}"
                f"{f', shared out in groups of {WIDEST} or more' * whole_groups}: take fewer "
                "ranks or a finer mesh",
                stacklevel=5,
            )
