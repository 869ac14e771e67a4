"""The finite element spaces H1 and L2 on a mesh.

Dofs are numbered by first touch in element order (`femops.numbering`). So if neighbouring elements
have near numbers, their dofs have near numbers too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Family
from femops.errors import SpaceError
from femops.geometry.boundary import (
    asked_attributes,
    boundary_attributes,
    chosen,
    listed_faces,
    outer_faces,
)
from femops.numbering import boundary_nodes, distinct, h1_numbering, l2_numbering
from femops.parallel.comm import check
from femops.parallel.mesh import DistributedMesh
from femops.parallel.numbering import RankNumbering, h1_rank_numbering, l2_rank_numbering
from femops.spaces.base import BoundaryPart, Space, SpaceMesh
from femops.spaces.functions import Predicate, selected
from femops.spaces.memory import DeviceLike
from femops.spaces.restriction import ElementRestriction
from femops_common.arguments import checked
from femops_meshes.formats.mfem import mfem_h1_dofs

__all__ = ["H1", "L2", "Space"]

Ints = NDArray[np.int64]


def _check_one_shape(space: Space) -> None:
    if space.mixed:
        raise SpaceError(
            "MFEM's numbers of the dofs are not known on elements of several shapes, or prisms: "
            "save fields to .vtu"
        )


@final
@checked(SpaceError)
class H1(Space):
    """Continuous functions that are polynomials of degree p per direction on each element.

    Parameters
    ----------
    mesh : Mesh, MixedMesh or DistributedMesh
    order : int
        p >= 1.
    ncomp : int
        Number of components.
    family : {"gll", "bernstein"}
        Basis; see `Basis1D`.
    device : str, optional
        Device of vectors and operators: ``"cuda"`` is a GPU, ``"cuda:1"`` the second GPU. By
        default the host.
    reproducible : bool
        Whether results on a device have the same bits in each run. Then a second launch sums the
        contributions to a dof in the order of the elements. On the host sums always have this
        order.

    Raises
    ------
    SpaceError
        If p < 1 or ncomp < 1, the family cannot be made continuous, or ``device`` names no device.
    DeviceError
        If there is no such device. The message says what to install.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4, 4)), order=3)
    >>> V.ndofs
    2197
    """

    def __init__(
        self,
        mesh: SpaceMesh,
        order: int,
        ncomp: int = 1,
        family: Literal["gll", "bernstein"] = "gll",
        *,
        device: DeviceLike = None,
        reproducible: bool = False,
    ) -> None:
        super().__init__(mesh, order, ncomp, family, device)
        self.reproducible = bool(reproducible)
        for part in self.parts:
            part.reproducible = self.reproducible
        self._check_order()

    continuous = True

    def _lowest_order(self, family: Family) -> int:  # noqa: ARG002  (the same for all)
        return 1

    def _restrictions(self) -> list[ElementRestriction]:
        meshes, parity = [part.mesh for part in self.parts], self.parts[0].element.parity
        return self._restricted(*h1_numbering(meshes, self.order, parity))

    def _rank_numbering(self, mesh: DistributedMesh) -> RankNumbering:
        return h1_rank_numbering(mesh.part, self.order, mesh.comm, self.parts[0].element.parity)

    def file_dofs(self) -> Ints:
        """Number (ndofs,) of each node in MFEM's numbering: by vertices, edges, faces, cells.

        The numbers belong to the file that `femops_meshes.write_mfem` writes for the mesh. The mesh
        may be refined, or come from Gmsh or a generator. If the mesh was read from an MFEM file,
        they also belong to that file. MFEM uses another numbering when it refines a mesh. So for a
        mesh that femops refined, write a file and load it in MFEM. If a file lists an element's
        corners in mirrored order, femops turns the element over. The numbers refer to the turned
        element. MFEM turns quadrilaterals in the same way, but no other elements.

        Raises
        ------
        SpaceError
            If many ranks share the space, because the numbers need the global mesh. If nodes hang,
            because MFEM also numbers these: `femops.save` writes files that have them.
        """
        _check_one_shape(self)
        if not self.mesh.conforming:
            raise SpaceError(
                "MFEM also numbers nodes that hang, and the space has no dofs there: write the "
                "field by femops.save(path + '.gf', V, u=u), or take femops_meshes.mfem_h1_dofs"
            )
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
        """Flat positions (k,) of the dofs on the boundary; see `Space.boundary_dofs`."""
        if callable(attributes):
            if where is not None:
                raise SpaceError("boundary_dofs was given two predicates: join them by & in one")
            attributes, where = None, attributes
        mesh: Any = self.distributed or self.mesh
        asked = asked_attributes(attributes, mesh.boundary_names)
        numbers = None if asked is None else boundary_attributes(mesh, asked)
        picked = chosen(components, list(range(self.ncomp)), "component", "space")
        found = []
        for part, own in zip(self.parts, mesh.parts, strict=True):
            faces = outer_faces(own) if numbers is None else listed_faces(own, numbers)
            at = faces, part.mesh.cell, self.order, part.restriction.indices
            found.append(boundary_nodes(*at))
        nodes = found[0] if len(found) == 1 else distinct(np.concatenate(found))
        if self.halo is not None:  # a rank may touch the boundary at an edge only
            nodes = self.halo.marked(nodes)
        if where is not None:
            nodes = self._nodes_where(where, nodes)
        return np.asarray(np.add.outer(nodes * self.ncomp, picked).ravel())

    def _nodes_where(self, where: Predicate, nodes: Ints) -> Ints:
        """Those of some nodes at which a predicate is true. Raise if no rank has one. Collective.

        A condition that holds nowhere would be left out of the problem silently.
        """
        with check(self.comm):
            found = nodes[selected(where, self.dof_coordinates()[nodes].T.copy())]
        asked, chosen = self.comm.max(np.array([len(nodes), len(found)]))
        if asked and not chosen:
            raise SpaceError(
                "the predicate is true at no node of these faces: correct it, or give it a "
                "tolerance, as abs(x[0] - 1) < 1e-9"
            )
        return found


@final
@checked(SpaceError)
class L2(Space):
    """Functions that may jump between elements: polynomials of degree p per direction.

    Parameters
    ----------
    mesh : Mesh, MixedMesh or DistributedMesh
    order : int
        p >= 0 with family "gauss", else p >= 1.
    ncomp : int
        Number of components.
    family : {"gauss", "gll", "bernstein", "hermite"}
        Basis; see `Basis1D`. Integrals over faces with derivatives, as those of
        `femops.interior_penalty`, are fastest with "hermite".
    device : str, optional
        Device of vectors and operators: ``"cuda"`` is a GPU, ``"cuda:1"`` the second GPU. By
        default the host.

    Raises
    ------
    SpaceError
        If p or ncomp is too low, the family is unknown, or ``device`` names no device.
    DeviceError
        If there is no such device. The message says what to install.
    """

    def __init__(
        self,
        mesh: SpaceMesh,
        order: int,
        ncomp: int = 1,
        family: Family = "gauss",
        *,
        device: DeviceLike = None,
    ) -> None:
        super().__init__(mesh, order, ncomp, family, device)
        self._check_order()

    continuous = False

    def _lowest_order(self, family: Family) -> int:
        return 0 if family == "gauss" else 1

    def _restrictions(self) -> list[ElementRestriction]:
        return self._restricted(*l2_numbering([part.mesh for part in self.parts], self.order))

    def _rank_numbering(self, mesh: DistributedMesh) -> RankNumbering:
        return l2_rank_numbering(mesh.part, self.order, mesh.comm)

    def file_dofs(self) -> Ints:
        """Number (ndofs,) of each node in MFEM's numbering: element by element in file order.

        For the file see `H1.file_dofs`. On many ranks each rank gets the numbers of its own nodes.
        """
        _check_one_shape(self)
        n = self.element.size
        return np.asarray(np.add.outer(self.mesh.file_elements * n, np.arange(n)).ravel())

    def boundary_dofs(
        self,
        attributes: BoundaryPart = None,
        components: int | Iterable[int] | None = None,
        where: Predicate | None = None,
    ) -> Ints:
        """Raise `SpaceError`, because no dof of this space lies on the boundary."""
        del attributes, components, where
        raise SpaceError(
            "the dofs of an L2 space belong to its elements, none to the boundary: impose "
            "essential conditions on an H1 space"
        )
