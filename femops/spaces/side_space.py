"""Functions of a space on one side of the faces between elements, which count as elements."""

from __future__ import annotations

from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Basis1D, Quadrature1D, gauss
from femops.errors import SpaceError
from femops.geometry.interior import InteriorFaces, interior_faces
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.restriction import ElementRestriction
from femops_kernels.cuda.device.device import Device
from femops_kernels.derived import Derived


@final
class SideSpace(DomainSpace):
    """Functions of a space on one side of the faces between elements.

    Each face counts as an element. Functions with derivatives need all nodes of the side's mesh
    element, which is turned to the face; see `femops.geometry.interior`. The quadrature points are
    on the face. Functions without derivatives need only the nodes on the face, if the basis has
    nodes there. The element then has one dimension less; in 1-D it is a segment of one node.

    Use `side_space` to make it. For the same space and side that function returns the same object,
    so that operators can compare spaces by identity.

    Parameters
    ----------
    volume : Space
    faces : InteriorFaces
    side : int
        0 for the minus side, 1 for the plus side.
    slopes : bool
        Whether the functions have derivatives.
    """

    domain: InteriorFaces

    def __init__(self, volume: Space, faces: InteriorFaces, side: int, *, slopes: bool) -> None:
        self._volume, self.domain, self.side, self.ncomp = volume, faces, side, volume.ncomp
        self._slopes, self.memory, self.order = slopes, volume.memory, volume.order
        self.ndofs, self.size, self.shape = volume.ndofs, volume.size, volume.shape
        self.dim = volume.dim if slopes else max(volume.dim - 1, 1)
        self.basis = volume.basis if volume.dim > 1 or slopes else Basis1D("gauss", 0)
        self.p1d = self.basis.p1d
        whole, elements = volume.restriction, faces.elements[side]
        nodes = faces.nodes(side, volume.p1d)[:, : self.p1d**self.dim]  # the first layer, or all
        indices = whole.indices[elements[:, np.newaxis], nodes]
        self.restriction = ElementRestriction(indices, whole.ndofs, whole.owned)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(side_space, slopes=self._slopes), (self._volume, self.side)

    @property
    def have_slopes(self) -> bool:
        """See `DomainSpace.have_slopes`."""
        return self._slopes

    @property
    def device(self) -> Device | None:
        """See `DomainSpace.device`."""
        return self.memory.device

    @property
    def volume(self) -> Space:
        """See `DomainSpace.volume`."""
        return self._volume

    def quadrature(self, q1d: int | Quadrature1D | None = None) -> Quadrature1D:
        """Return a 1-D rule for the faces; see `Space.quadrature`. In 1-D: one point of weight 1.

        Raises
        ------
        SpaceError
            If there are fewer than p + 1 points.
        """
        rule = self.volume.quadrature(q1d)
        return rule if self.volume.dim > 1 else gauss(1)

    def zeros(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return a new vector (size,) of zeros; see `Space.zeros`.

        Raises
        ------
        VectorError
            If the type is not float64 or float32.
        """
        return self.volume.zeros(dtype)

    def sum_elements(self, e_vec: NDArray[Any]) -> NDArray[Any]:
        """Sum values (nf, nodes[, ncomp]) on faces to a vector; see `Space.sum_elements`."""
        return self.volume.sum_elements(e_vec, self.restriction)

    def on(self, volume: Space) -> SideSpace:
        """Return the functions of another space of the mesh on the same side of the faces."""
        return side_space(volume, self.side, slopes=self._slopes)

    def with_slopes(self, slopes: bool) -> SideSpace:
        """Return the functions with or without derivatives; see `side_space`."""
        return side_space(self._volume, self.side, slopes=slopes)


_spaces = Derived[Space, SideSpace](weak=True)


def side_space(space: Any, side: int, *, slopes: bool = True) -> SideSpace:
    """Return the functions of a space on one side of the faces between elements.

    Parameters
    ----------
    space : Space
    side : int
        0 for the minus side, 1 for the plus side.
    slopes : bool
        Whether the functions have derivatives. If the basis has no nodes on faces, as Gauss points
        have none, they always have, because their values there depend on all nodes.

    Raises
    ------
    SpaceError
        If ``space`` is not a space, the mesh has no faces between elements, or ranks share it.
    """
    if not isinstance(space, Space):
        raise SpaceError(f"an integral over faces was asked for on {space!r}: take a space")
    faces = interior_faces(space.distributed or space.mesh)
    slopes = slopes or space.basis.family == "gauss"
    return _spaces.get(space, partial(SideSpace, space, faces, side, slopes=slopes), side, slopes)
