"""Functions of a space on faces: base class for boundary faces and faces between elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Basis1D, Rule, gauss, grid_rule
from femops.element import Element, LagrangeElement, TensorElement, turned_to
from femops.errors import SpaceError
from femops.spaces.base import Space, simplex_rule_for
from femops.spaces.domain_space import DomainSpace
from femops_kernels.device import Device
from femops_meshes.coordinates.hanging import HangingNodes
from femops_meshes.topology.entities import Cell

Ints = NDArray[np.int64]


class FaceSpace(DomainSpace, ABC):
    """Functions of a space on faces, which count as elements.

    Functions with derivatives need all nodes of an element behind the face. Functions without need
    only the nodes on the face; the element then has one dimension less, with the same 1-D basis. In
    1-D it is a segment of one node and one point.
    """

    def __init__(self, volume: Space, face: Cell, *, slopes: bool) -> None:
        """``face``: cell of the faces."""
        if volume.signed:
            raise SpaceError("elements with signs have no integrals over faces yet")
        self._volume, self._slopes, self.ncomp = volume, slopes, volume.ncomp
        self.memory, self.order = volume.memory, volume.order
        self.ndofs, self.size, self.shape = volume.ndofs, volume.size, volume.shape
        self.numbering, self.halo = volume.numbering, volume.halo
        self.dim = volume.dim if slopes else max(volume.dim - 1, 1)
        self.element = _behind(volume, face, slopes)

    @property
    def device(self) -> Device | None:
        return self.memory.device

    @property
    def volume(self) -> Space:
        return self._volume

    @property
    def have_slopes(self) -> bool:
        return self._slopes

    @property
    @abstractmethod
    def behind(self) -> Ints:
        """Numbers (nf,) of the elements behind the faces."""

    @abstractmethod
    def turned_nodes(self, layers: int | None = None) -> Ints:
        """Node numbers (nf, p1d**dim) of the element at each face, layer by layer from the face.

        Only for functions with derivatives. The restriction has the nodes in this order. With
        ``layers`` only the nodes of the first layers are returned.
        """

    @property
    def hanging_behind(self) -> HangingNodes | None:
        """Hanging nodes of all elements that `behind` numbers."""
        return self.volume.restriction.hanging

    def own_parts(self) -> Ints:
        """Rows (n, 3) of `HangingNodes.parts` in the order of the elements' nodes."""
        return np.zeros((0, 3), dtype=np.int64)

    def turns(self) -> Ints:
        """Return how the element at each face lies, (nf, 4), in the element's order of nodes.

        The first number is the first node on the face. The others are the strides along the face's
        two directions and inwards. A direction that the face does not have has the stride zero.
        """
        nodes, p, dim = self.turned_nodes(layers=2), self.p1d, self.dim
        first = nodes[:, 0]
        places = [p ** (dim - 1), 1, p] if dim > 1 else [1]  # inwards, along the face
        steps = [nodes[:, k] - first if p > 1 else 0 * first for k in places[:dim]]
        none = [0 * first] * (3 - dim)
        return np.stack([first, *steps[1:], *none, steps[0]], axis=1)

    def element_indices(self, layers: int = 0) -> Ints:
        """Dofs (nf, n) of the elements behind the faces, in the order of their nodes.

        They are those of some layers next to the face, or by default all of them.
        """
        if not layers and self.numbering is None:
            return self.volume.restriction.indices[self.behind]
        if layers:
            order = np.argsort(self.turned_nodes(layers), axis=1)
            return np.take_along_axis(self.restriction.indices, order, axis=1)
        indices = np.empty_like(self.restriction.indices)
        np.put_along_axis(indices, self.turned_nodes(), self.restriction.indices, 1)
        return indices

    def quadrature(self, q1d: int | Rule | None = None) -> Rule:
        """Return a rule for the faces. In 1-D: one point of weight 1."""
        mesh = self.volume.mesh
        if not mesh.cell.cube:
            return self._of_simplices(q1d)
        rule = grid_rule(self.volume.quadrature(q1d), "an integral over faces")
        return rule if self.volume.dim > 1 else gauss(1)

    def _of_simplices(self, q1d: int | Rule | None) -> Rule:
        cell = self.volume.mesh.cell
        cell, count = self.domain.cell, self.order + 2 if q1d is None else q1d
        if isinstance(count, Rule):
            count.count(cell.dim)  # raises if the points have another dimension
        return simplex_rule_for(cell, count, self.order)

    def zeros(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return a new vector (size,) of zeros; see `Space.zeros`."""
        return self.volume.zeros(dtype)


def _behind(volume: Space, face: Cell, slopes: bool) -> Element:
    """Element of the functions on faces; the dofs on a face are shared by the element's others."""
    cell = volume.mesh.cell
    if not cell.cube and not slopes:
        if not face.cube:
            return LagrangeElement(face, volume.order, closed=True)
        return TensorElement((Basis1D("gll", volume.order),) * face.dim, (True,) * face.dim)
    if slopes:
        return turned_to(volume.element, face)
    if volume.dim == 1:
        return TensorElement((Basis1D("gauss", 0),), (False,))
    return TensorElement(volume.tensor.bases[:-1], (True,) * (volume.dim - 1))
