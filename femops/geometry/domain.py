"""Domains of integration: elements or faces, the geometry at their points, and their order.

Sweeps treat faces as elements. If faces need other treatment than elements, code tests a
property of the domain, not its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from femops.basis import Rule
from femops.element import Element
from femops_kernels.cpu.in_order import computed_once
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import Cell

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Nodal = Callable[..., Floats]
"""Values of a function at all nodes of elements (n,), or at some nodes (n, k) of each."""


class Domain(ABC):
    """Domain of an integral: the elements of a mesh, its boundary's faces, or faces inside."""

    mesh: Mesh  # the mesh, or this rank's part of a distributed mesh
    cell: Cell  # of the elements, or faces
    num_elements: int  # number of elements, or of faces
    order: int  # degree of the mesh
    # True if each dof of a space on the mesh is in an element of the domain. Then a sweep may
    # overwrite a vector instead of adding to it.
    covers: bool
    on_elements: ClassVar[bool] = False  # True if there are no faces in it

    @property
    def by_tables(self) -> bool:
        """True if points are a list, as elements are no cubes."""
        return not self.mesh.cell.cube

    # True if kernels can compute Jacobians and positions from modes of the elements' maps
    has_maps: ClassVar[bool]
    # True if there is an outer normal at each point. Forms may then have the parameters n and h.
    has_normals: ClassVar[bool]
    # True if there is an element on both sides of each point. Fields have two values there.
    two_sided: ClassVar[bool] = False

    @abstractmethod
    def geometry(self, rule: Rule) -> DomainGeometry:
        """Return the geometry at the points of a quadrature rule, used in each direction."""


class DomainGeometry(ABC):
    """Geometry at the quadrature points of a domain. Iteration yields blocks that fit in cache."""

    domain: Domain
    mesh: Mesh
    dim: int  # dimension of the mesh
    quadrature: Rule
    num_elements: int  # elements, or faces, of the domain
    num_points: int  # points of each element
    weights: Floats  # (num_points,)

    @abstractmethod
    def block(self, start: int, stop: int) -> DomainBlock:
        """Geometry of the elements start <= e < stop, computed when first used."""

    @property
    def valid(self) -> bool:
        """True if all determinants are known to be positive."""
        return False

    @abstractmethod
    def points(self, start: int, stop: int) -> Floats:
        """Positions (n, num_points, dim) of the quadrature points, in the mesh's unit."""

    @abstractmethod
    def jacobian(self, start: int, stop: int) -> Floats:
        """Jacobians (n, num_points, dim, dim) of mesh elements: [..., i, j] = dx_i / dxi_j."""

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges (start, stop) that cover the domain, of elements whose data fit in a cache."""
        return element_blocks(self.num_elements, self.num_points)

    def __iter__(self) -> Iterator[DomainBlock]:
        return (self.block(start, stop) for start, stop in self.blocks())


class DomainBlock(ABC):
    """Geometry of a range of elements. Each array is computed once, at first use.

    `points` (n, nq, dim): positions. `det`, `weighted_det` (n, nq): volume or surface element, and
    volume or surface element times quadrature weight. `inverse` (n, nq, dim, dim): [..., j, i] =
    derivative of the element's reference coordinate j by x_i. `normals` (n, nq, dim): outer unit
    normals, if the domain has normals.
    """

    geometry: DomainGeometry
    # start and stop: range of the elements start <= e < stop; n = stop - start
    start: int
    stop: int

    @property
    def mesh(self) -> Mesh:
        """Mesh of the elements, on faces of those whose side this is."""
        return self.geometry.mesh

    @property
    def other(self) -> DomainBlock:
        """The same faces, seen from their other sides, if the domain has two sides."""
        raise NotImplementedError

    @property
    @abstractmethod
    def points(self) -> Floats:
        """Positions (n, nq, dim) of the quadrature points."""

    @property
    @abstractmethod
    def det(self) -> Floats:
        """Volume or surface elements (n, nq)."""

    @property
    @abstractmethod
    def weighted_det(self) -> Floats:
        """Volume or surface elements times quadrature weights: (n, nq)."""

    @property
    def point_weights(self) -> Floats:
        """Numbers (n, nq) of ``weighted_det`` up to round-off, as a new array.

        They take less work than ``weighted_det`` where nothing else needs Jacobians at the points.
        """
        return self.weighted_det.copy()

    @property
    @abstractmethod
    def inverse(self) -> Floats:
        """Derivatives (n, nq, dim, dim) of the reference coordinates in space."""

    @property
    @abstractmethod
    def normals(self) -> Floats:
        """Outer unit normals (n, nq, dim)."""

    @abstractmethod
    def values(self, element: Element, nodal: Nodal) -> Floats:
        """Values (n, nq[, ncomp]) at the points of a function with these values at nodes."""

    @abstractmethod
    def slopes(self, element: Element, nodal: Nodal) -> Floats:
        """Derivatives (n, nq[, ncomp], dim) of a function by reference coordinates.

        The reference coordinates are those of `inverse`. For the parameters see `values`.
        """


class FaceBlock(DomainBlock, ABC):
    """Geometry of a range of faces, from the outer normals times surface elements."""

    @property
    @abstractmethod
    def _vectors(self) -> Floats:
        """Outer normals times surface elements (n, nq, dim), of valid elements."""

    @computed_once
    def det(self) -> Floats:
        """Surface elements (n, nq)."""
        lengths: Floats = np.linalg.norm(self._vectors, axis=-1)
        return lengths

    @computed_once
    def normals(self) -> Floats:
        """Outer unit normals (n, nq, dim)."""
        return np.asarray(self._vectors / self.det[..., np.newaxis])

    @computed_once
    def weighted_det(self) -> Floats:
        """Surface elements times quadrature weights: (n, nq)."""
        return np.asarray(self.det * self.geometry.weights)


BATCH = 16
"""Faces of the widest batch."""

_FORWARD = 96
"""Number of faces of a group, in the order of their minus elements, that batches go through."""


def size_of_groups(count: int) -> int:
    """Return the number of elements of each group into which the faces of a mesh are divided.

    Threads take whole groups. Kernels are faster if the elements behind the faces of a batch lie in
    the same way, and batches of smaller groups are less full.
    """
    return int(np.clip(count // (64 * BATCH) * BATCH, 128, 512))


def in_batches(group: Ints, lie: Ints, groups: int) -> tuple[Ints, Ints]:
    """Order faces by their groups, and in parts of a group by how they lie, in complete batches.

    Shapes: `group`, `lie` (nf,), `taken` (n,), `start` (groups + 1,).
    """
    kind = np.unique(lie, return_inverse=True)[1]
    runs = group * (kind.max(initial=0) + 1) + kind
    _, run, count = np.unique(runs, return_inverse=True, return_counts=True)
    begins = np.searchsorted(group, np.arange(groups))
    rare = (count < BATCH // 2)[run]  # half empty batches of their own would cost more
    order = np.lexsort((kind, rare, group))
    group, run, rare = group[order], run[order], rare[order]
    repeats = np.where(_last(run) & ~rare, 1 + -count[run] % BATCH, 1)
    sizes = np.bincount(group, repeats, groups).astype(np.int64)
    ends = np.flatnonzero(_last(group))
    repeats[ends] += -sizes[group[ends]] % BATCH
    batches = np.repeat(order, repeats).reshape(-1, BATCH)
    # Batches of one kind in all of a group would meet its elements at its beginning, and wait for
    # memory there. Kernels are faster if some batches of one kind follow each other.
    owner = np.repeat(group, repeats)[::BATCH]
    far = (batches.max(axis=1) - begins[owner]) // _FORWARD  # the same on any number of ranks
    forward = np.lexsort((far, owner))
    start = np.append(0, np.cumsum(sizes + -sizes % BATCH))
    return batches[forward].reshape(-1), start


def _last(names: Ints) -> NDArray[np.bool_]:
    """True (n,) for each number that differs from the next one, and for the last number."""
    return np.append(names[1:] != names[:-1], True)[: len(names)]


BLOCK_POINTS = 32768
"""Quadrature points per block. Their 3-D Jacobians take 2.4 MB, which fits into an L2 cache."""


def element_blocks(ne: int, points_per_element: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, stop) of elements with about `BLOCK_POINTS` points each at most."""
    step = max(1, BLOCK_POINTS // max(1, points_per_element))
    for start in range(0, ne, step):
        yield start, min(start + step, ne)
