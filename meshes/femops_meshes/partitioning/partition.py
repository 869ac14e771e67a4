"""Partitions: the owner of each element of a mesh, and the cost of the partition."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_common.arguments import Degree, checked
from femops_meshes import checks
from femops_meshes.errors import MeshArgumentError
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.partitioning.metis import metis_owner
from femops_meshes.partitioning.pieces import equal_pieces, weighted_pieces
from femops_meshes.shared_faces import numbered_entities
from femops_meshes.topology.entities import Cell
from femops_meshes.topology.ordering import hilbert_order
from femops_meshes.topology.topology import listed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

METHODS = ("curve", "metis")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Owner of each element of a mesh, with figures. Use `partition` or `Partition.of` to make it.

    Parts are numbered from 0. A part *touches* the vertices, edges and faces of its elements. An
    entity that several parts touch is *shared*, and belongs to the lowest of them. Columns are
    dimensions of entities, vertices first. In a locally refined mesh an element touches larger
    edges and faces, and their vertices, in place of the pieces of them that it has.

    Attributes
    ----------
    owner
        Shape (ne,) int64: the part that owns each element.
    load
        Shape (size,): sum of the weights of each part's elements. Without weights, their number.
    touched
        Shape (size, dim + 1) int64: entities that each part touches; the last column counts its
        elements.
    shared
        Shape (size, dim) int64: entities of the part that other parts touch too. The last column is
        the part's surface: its faces to other parts.
    total
        Shape (dim + 1,) int64: entities of the mesh.
    total_shared
        Shape (dim,) int64: shared entities of the mesh. The last is the surface of the partition:
        the faces between its parts.
    copies
        Shape (n, 2 + dim) int64, ascending. A row has an owning part, another part that touches
        some of its entities, and the numbers of these entities.
    neighbours
        Shape (size,) int64: number of parts with which each part shares a vertex.
    cell
        Cell of the elements; None for several shapes.
    """

    owner: Ints
    load: Floats
    touched: Ints
    shared: Ints
    total: Ints
    total_shared: Ints
    copies: Ints
    neighbours: Ints
    cell: Cell | None

    @classmethod
    def of(
        cls, mesh: Mesh | MixedMesh, owner: ArrayLike, size: int, weights: ArrayLike | None = None
    ) -> "Partition":
        """Make the partition with given owners of the elements.

        Parameters
        ----------
        mesh
            The whole mesh. Elements of several shapes are counted part by part.
        owner
            Shape (ne,), whole numbers from 0 to size - 1; a part may own nothing.
        size
            Number of parts.
        weights
            Shape (ne,), positive: work of each element, in any unit; None if all are equal.

        Raises
        ------
        MeshArgumentError
            If an argument has another shape, or is out of range.
        """
        count = checks.whole(size, "size")
        owners = _checked_owners(owner, mesh.num_elements, count)
        work = None if weights is None else checked_weights(weights, mesh.num_elements)
        dim = mesh.dim
        touched = np.zeros((count, dim + 1), dtype=np.int64)
        touched[:, dim] = np.bincount(owners, minlength=count)
        shared = np.zeros((count, dim), dtype=np.int64)
        total_shared = np.zeros(dim, dtype=np.int64)
        total = np.full(dim + 1, mesh.num_elements, dtype=np.int64)
        pairs = []
        for kind in range(dim):
            entities, parts = _incidence(mesh, owners, count, kind)
            first, several = _runs(entities)
            touched[:, kind] = np.bincount(parts, minlength=count)
            shared[:, kind] = np.bincount(parts[several], minlength=count)
            copied = first != np.arange(len(first))
            total_shared[kind] = np.count_nonzero(several & ~copied)
            total[kind] = np.count_nonzero(~copied)
            pairs.append(parts[first[copied]] * count + parts[copied])
            if kind == 0:
                neighbours = _neighbours(entities, parts, count)
        return cls(
            owners,
            np.bincount(owners, weights=work, minlength=count).astype(np.float64),
            touched,
            shared,
            total,
            total_shared,
            _counted_pairs(pairs, count),
            neighbours,
            mesh.parts[0].cell if len(mesh.parts) == 1 else None,
        )

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    @property
    def size(self) -> int:
        """Number of parts."""
        return len(self.load)

    @property
    def elements(self) -> Ints:
        """Number (size,) of elements of each part."""
        return self.touched[:, -1]

    @property
    def empty(self) -> int:
        """Number of parts without elements."""
        return int(np.count_nonzero(self.elements == 0))

    @property
    def balance(self) -> float:
        """Largest load over the mean load: 1 is perfect, and run time is proportional to it."""
        return float(self.load.max() / self.load.mean())

    @property
    def owned(self) -> Ints:
        """Number (size, dim + 1) of entities that belong to each part."""
        owned = self.touched.copy()
        np.subtract.at(owned, self.copies[:, 1], np.pad(self.copies[:, 2:], [(0, 0), (0, 1)]))
        return owned

    @checked(MeshArgumentError)
    def owned_dofs(self, order: Degree) -> Ints:
        """Number (size,) of dofs of an H1 space of this order that belong to each part."""
        return self.owned @ self._inside(order, self.owned.shape[1])

    @checked(MeshArgumentError)
    def shared_dofs(self, order: Degree) -> Ints:
        """Number (size,) of dofs of an H1 space that each part shares with other parts."""
        return self.shared @ self._inside(order, self.shared.shape[1])

    @checked(MeshArgumentError)
    def exchange(self, order: Degree) -> tuple[int, int]:
        """Least traffic that sends all dofs of an H1 space to the parts that touch them.

        Returns
        -------
        messages, numbers
            Number of messages, one from each owner of dofs to each other part that touches some of
            them, and number of dofs in all messages.
        """
        numbers = self.copies[:, 2:] @ self._inside(order, self.copies.shape[1] - 2)
        return int(np.count_nonzero(numbers)), int(numbers.sum())

    def _inside(self, order: int, kinds: int) -> Ints:
        """Number of dofs inside an entity, for each of the first ``kinds`` dimensions."""
        if self.cell is None or self.cell.shape == "prism":
            raise MeshArgumentError(
                "a partition of elements of several shapes, or of prisms, does not count dofs: "
                "their faces have different numbers: make a space, and ask V.comm for sums"
            )
        return np.array(
            [self.cell.inside_kind(kind, order) for kind in range(kinds)], dtype=np.int64
        )

    def __repr__(self) -> str:
        return (
            f"Partition({self.size} parts, {self.empty} empty, balance {self.balance:.4g}, "
            f"{self.total_shared[-1]} faces between them)"
        )


@checked(MeshArgumentError)
def partition(
    mesh: Mesh | MixedMesh,
    size: int,
    method: str = "curve",
    weights: ArrayLike | None = None,
) -> Partition:
    """Partition the elements of a mesh into ``size`` parts.

    Parameters
    ----------
    mesh
        The whole mesh.
    size
        Number of parts, at least 1. If there are fewer elements, the last parts stay empty.
    method
        "curve" cuts the order of the elements into pieces that are as equal as possible. Elements
        of meshes that are read or generated are ordered along a Hilbert curve. Elements of several
        shapes are ordered here, along one curve. "metis" lets METIS
        find parts of about equal weight with few faces between them; needs ``pip install pymetis``.
    weights
        Shape (ne,), positive: work of each element, in any unit; None if all are equal.

    Returns
    -------
    Partition
        Owners of the elements, and figures about the parts.

    Raises
    ------
    MeshArgumentError
        If an argument is out of range.
    MeshExtraError
        If METIS is asked for, and the package ``pymetis`` is missing.

    Examples
    --------
    >>> from femops_meshes import box, partition
    >>> parts = partition(box((4, 4)), 4)
    >>> parts.elements.tolist(), parts.balance
    ([4, 4, 4, 4], 1.0)
    >>> parts.total_shared.tolist()  # vertices, and edges between parts
    [9, 8]
    """
    count = checks.whole(size, "size")
    if method not in METHODS:
        raise MeshArgumentError(f"method is {' or '.join(map(repr, METHODS))}, got {method!r}")
    work = None if weights is None else checked_weights(weights, mesh.num_elements)
    if method == "metis":
        owner = metis_owner(mesh, count, work)
    elif len(mesh.parts) == 1:
        owner = curve_owner(mesh.num_elements, count, work)
    else:
        order = hilbert_order(mesh.element_centers())
        owner = np.empty_like(order)
        owner[order] = curve_owner(len(order), count, None if work is None else work[order])
    return Partition.of(mesh, owner, count, work)


def curve_owner(count: int, size: int, weights: Floats | None = None) -> Ints:
    """Owner (count,) of each element if the order of elements is cut into `size` pieces."""
    cuts = equal_pieces(count, size) if weights is None else weighted_pieces(weights, size)
    lengths = np.diff(cuts)
    return np.repeat(np.arange(size, dtype=np.int64), lengths)


def checked_weights(weights: ArrayLike, count: int) -> Floats:
    """Copy weights into an array (count,)."""
    work = checks.array(weights, "weights", np.float64)
    if work.shape != (count,):
        raise MeshArgumentError(
            f"weights have shape {work.shape}, it must be ({count},): one for each element"
        )
    bad = np.flatnonzero(~((work > 0) & (work <= checks.LARGEST)))
    if len(bad):
        raise MeshArgumentError(
            f"{len(bad)} weight(s) are not positive numbers up to {checks.LARGEST:g}: those of "
            f"element(s) {listed(bad)} (counted from 0; the first is {work[bad[0]]})"
        )
    result: Floats = work
    return result


def _checked_owners(owner: ArrayLike, count: int, size: int) -> Ints:
    owners = checks.array(owner, "owner")
    if owners.shape != (count,) or owners.dtype.kind not in "iu":
        raise MeshArgumentError(
            f"owner holds {owners.dtype} of shape {owners.shape}: it must be whole numbers of "
            f"shape ({count},), one for each element"
        )
    if count and not 0 <= owners.min() <= owners.max() < size:
        raise MeshArgumentError(
            f"owner goes from {owners.min()} to {owners.max()}, but parts are 0 to {size - 1}"
        )
    return owners.astype(np.int64)


def _incidence(mesh: Mesh | MixedMesh, owner: Ints, size: int, kind: int) -> tuple[Ints, Ints]:
    """Pairs of an entity of dimension `kind` and a part that touches it, by entity, then by part.

    Return the entities (n,) and the parts (n,).
    """
    found, first = list[Ints](), 0
    for part, number in zip(mesh.parts, numbered_entities(mesh.parts, kind), strict=True):
        entities = number[part.topology.carrying[0][:, list(part.cell.codes(kind))]]
        owners = owner[first : first + part.num_elements, np.newaxis]
        found.append((entities * size + owners).reshape(-1))
        first += part.num_elements
    pairs = np.unique(np.concatenate(found))
    return pairs // size, pairs % size


def _runs(ascending: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Start (n,) of each entry's run of equal numbers, and True (n,) if it has several entries."""
    new = np.ones(len(ascending), dtype=bool)
    new[1:] = ascending[1:] != ascending[:-1]
    starts = np.flatnonzero(new)
    lengths = np.diff(starts, append=len(ascending))
    return np.repeat(starts, lengths), np.repeat(lengths > 1, lengths)


def _counted_pairs(pairs: list[Ints], size: int) -> Ints:
    """Count equal pairs of parts in each dimension: rows (n, 2 + dim) of two parts and counts."""
    distinct = np.unique(np.concatenate(pairs))
    counts = [
        np.bincount(np.searchsorted(distinct, of_kind), minlength=len(distinct))
        for of_kind in pairs
    ]
    return np.stack([distinct // size, distinct % size, *counts], axis=1)


def _neighbours(vertices: Ints, parts: Ints, size: int) -> Ints:
    """Number (size,) of parts with which each part shares a vertex.

    ``vertices`` (n,) and ``parts`` (n,) are pairs of a vertex and a part that touches it, sorted by
    vertex, then by part.
    """
    pairs, distance = [np.zeros(0, dtype=np.int64)], 1
    while (same := vertices[distance:] == vertices[:-distance]).any():
        pairs.append((parts[:-distance] * size + parts[distance:])[same])
        distance += 1
    distinct = np.unique(np.concatenate(pairs))
    return np.bincount(np.concatenate([distinct // size, distinct % size]), minlength=size)
