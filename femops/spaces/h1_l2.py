"""Finite element spaces on a mesh: their dofs, and functions written in them.

Dofs are numbered by first touch in element order (`femops.numbering`), so locality of the mesh's
element order is locality of the vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Family
from femops.errors import SpaceError
from femops.geometry.boundary import boundary_attributes, chosen
from femops.numbering import boundary_nodes, h1_numbering
from femops.parallel.mesh import DistributedMesh
from femops.parallel.numbering import RankNumbering, h1_rank_numbering, l2_rank_numbering
from femops.spaces.base import AnyMesh, BoundaryPart, Space
from femops.spaces.functions import Predicate, selected
from femops.spaces.memory import DeviceLike
from femops.spaces.restriction import ElementRestriction
from femops_meshes.arguments import checked
from femops_meshes.formats.mfem import mfem_h1_dofs

__all__ = ["H1", "L2", "Space"]

Ints = NDArray[np.int64]


@final
@checked(SpaceError)
class H1(Space):
    """Continuous functions, polynomials of degree p in each direction on each element.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
    order : int
        p >= 1.
    ncomp : int
        Number of components.
    family : {"gll", "bernstein"}
        Basis; see `Basis1D`.
    device : str, optional
        Device of vectors and operators: ``"cuda"``, a GPU; ``"cuda:1"``, the second one. The
        host if omitted.
    reproducible : bool
        On a device: results have the same bits at each run, because what elements add to a dof
        is summed in their order, which takes a second launch. The host always does so.

    Raises
    ------
    SpaceError
        p < 1, ncomp < 1, a family that cannot be made continuous, or what names no device.
    DeviceError
        No such device; the message says what to install.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4, 4)), order=3)
    >>> V.ndofs
    2197
    """

    def __init__(
        self,
        mesh: AnyMesh,
        order: int,
        ncomp: int = 1,
        family: Literal["gll", "bernstein"] = "gll",
        *,
        device: DeviceLike = None,
        reproducible: bool = False,
    ) -> None:
        super().__init__(mesh, order, ncomp, family, device)
        self.reproducible = bool(reproducible)
        self._check_order()

    def _lowest_order(self, family: Family) -> int:  # noqa: ARG002  (the same for all)
        return 1

    def _restriction(self) -> ElementRestriction:
        return ElementRestriction(*h1_numbering(self.mesh.topology, self.order))

    def _rank_numbering(self, mesh: DistributedMesh) -> RankNumbering:
        return h1_rank_numbering(mesh.part, self.order, mesh.comm)

    def file_dofs(self) -> Ints:
        """Number of each node in the file: MFEM's, by vertices, edges, faces, cells.

        The file is the one that `femops_meshes.write_mfem` writes of the mesh, refined ones and
        those from Gmsh or a generator included. Of a mesh as it was read from MFEM's format it
        is numbered as the file that it came from. A mesh that was refined here is numbered as its
        own file, and not as MFEM numbers one that it refines itself: write it, and give MFEM
        that. Elements that reading turned over, because their corners were listed in mirrored
        order, count as turned; MFEM turns quadrilaterals in the same way, and no others.

        Raises
        ------
        SpaceError
            Many ranks share the space: the numbers take the whole mesh.
        """
        if self.comm.size > 1:
            raise SpaceError(
                "the node numbers in the file count all edges of the mesh, and this rank "
                "has only a part: use the space on the whole mesh, in one process"
            )
        result = np.empty(self.ndofs, dtype=np.int64)
        result[self.restriction.indices] = mfem_h1_dofs(self.mesh, self.order)
        return result

    @checked(SpaceError)
    def boundary_dofs(
        self,
        attributes: BoundaryPart = None,
        components: int | Iterable[int] | None = None,
        where: Predicate | None = None,
    ) -> Ints:
        """Indices of the dofs on the boundary; see `Space.boundary_dofs`."""
        if callable(attributes):
            if where is not None:
                raise SpaceError("boundary_dofs was given two predicates: join them by & in one")
            attributes, where = None, attributes
        numbers = boundary_attributes(self.distributed or self.mesh, attributes)
        picked = chosen(components, list(range(self.ncomp)), "component", "space")
        listed = np.isin(self.mesh.boundary_attributes, numbers)
        nodes = boundary_nodes(self.mesh.topology, self.order, self.restriction.indices, listed)
        if self.halo is not None:  # a rank may touch the boundary at an edge only
            nodes = self.halo.marked(nodes)
        if where is not None:
            nodes = nodes[selected(where, self.dof_coordinates()[nodes].T.copy())]
        return np.asarray(np.add.outer(nodes * self.ncomp, picked).ravel())


@final
@checked(SpaceError)
class L2(Space):
    """Functions that may jump between elements, polynomials of degree p in each direction.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
    order : int
        p >= 0 with family "gauss", else p >= 1.
    ncomp : int
        Number of components.
    family : {"gauss", "gll", "bernstein"}
        Basis; see `Basis1D`.
    device : str, optional
        Device of vectors and operators: ``"cuda"``, a GPU; ``"cuda:1"``, the second one. The
        host if omitted.

    Raises
    ------
    SpaceError
        p or ncomp too low, an unknown family, or what names no device.
    DeviceError
        No such device; the message says what to install.
    """

    def __init__(
        self,
        mesh: AnyMesh,
        order: int,
        ncomp: int = 1,
        family: Family = "gauss",
        *,
        device: DeviceLike = None,
    ) -> None:
        super().__init__(mesh, order, ncomp, family, device)
        self._check_order()

    def _lowest_order(self, family: Family) -> int:
        return 0 if family == "gauss" else 1

    def _restriction(self) -> ElementRestriction:
        ne, n = self.mesh.num_elements, self.p1d**self.dim
        return ElementRestriction(np.arange(ne * n).reshape(ne, n), ne * n)

    def _rank_numbering(self, mesh: DistributedMesh) -> RankNumbering:
        return l2_rank_numbering(mesh.part, self.order, mesh.comm)

    def file_dofs(self) -> Ints:
        """Number of each node in the file: element by element in the file's order.

        `H1.file_dofs` says which file that is, of refined meshes too. On many ranks, each has
        the numbers of its own nodes.
        """
        n = self.p1d**self.dim
        return np.asarray(np.add.outer(self.mesh.file_elements * n, np.arange(n)).ravel())

    def boundary_dofs(
        self,
        attributes: BoundaryPart = None,
        components: int | Iterable[int] | None = None,
        where: Predicate | None = None,
    ) -> Ints:
        """Raise `SpaceError`: no dof of this space lies on the boundary."""
        del attributes, components, where
        raise SpaceError(
            "the dofs of an L2 space belong to its elements, none to the boundary: impose "
            "essential conditions on an H1 space"
        )
