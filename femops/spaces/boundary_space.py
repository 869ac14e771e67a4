"""Functions of a space on boundary faces, which count as elements."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Basis1D
from femops.errors import SpaceError
from femops.geometry.boundary import (
    Attributes,
    BoundaryFaces,
    are_inner,
    asked_attributes,
    boundary_attributes,
    face_digits,
    nodes_inwards,
)
from femops.geometry.boundary import (
    behind_faces as behind_nodes,
)
from femops.numbering import distinct, local_nodes
from femops.spaces.base import Space
from femops.spaces.face_space import FaceSpace, Ints
from femops.spaces.hanging import behind_faces, on_faces
from femops.spaces.restriction import ElementRestriction
from femops_kernels.exclusive import Derived
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import Cell

_faces = Derived[Mesh, BoundaryFaces](weak=True)


@final
class BoundarySpace(FaceSpace):
    """Functions of a space on boundary faces. Each face counts as an element.

    Functions with derivatives need all nodes of the mesh element behind the face. This element is
    turned so that its last direction leads inwards from the face. The quadrature points are on the
    face. Functions without derivatives need only the nodes on the face, if the basis has nodes
    there. The element then has one dimension less, with the same 1-D basis. In 1-D it is a segment
    of one node and one point.

    Use `boundary_spaces` to make it. For the same faces that function returns the same object, so
    that operators can compare spaces by identity.
    """

    domain: BoundaryFaces

    def __init__(self, volume: Space, faces: BoundaryFaces, *, slopes: bool) -> None:
        super().__init__(volume, faces.cell, slopes=slopes)
        self.domain = faces
        whole = volume.restriction
        indices = whole.indices[faces.elements[:, np.newaxis], self.turned_nodes()]
        hanging = whole.hanging
        if hanging is not None and slopes:
            strides = self.turns()[:, [*range(1, volume.dim), 3]]
            hanging = behind_faces(hanging, faces.elements, strides)
        elif hanging is not None:
            hanging = on_faces(hanging, faces.elements, faces.codes)
        self.restriction = ElementRestriction(indices, whole.ndofs, whole.owned, hanging=hanging)

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(_made, slopes=self._slopes, face=self._face)
        return made, (self._volume, self.domain.attributes)

    @property
    def _face(self) -> Cell | None:
        """Shape of the faces on a part of a mesh of several shapes; else None."""
        return None if self._volume.whole is self._volume else self.domain.cell

    @cached_property
    def touched(self) -> int:
        return len(distinct(self.restriction.indices.reshape(-1)))

    @property
    def behind(self) -> Ints:
        return self.domain.elements

    def turned_nodes(self, layers: int | None = None) -> Ints:
        """See `FaceSpace.turned_nodes`. Functions without derivatives have the nodes on the face.

        They are lexicographic along the face, then layer by layer.
        """
        volume, faces = self.volume, self.domain
        cell = volume.mesh.cell
        if not cell.cube:
            if self.have_slopes:
                return behind_nodes(self.element, faces.codes)
            found = np.empty((faces.num_elements, self.element.size), dtype=np.int64)
            for code in cell.codes_of(faces.cell):
                found[faces.codes == code] = cell.closed_lattice(code, volume.order)
            return found
        result = np.empty((faces.num_elements, self.p1d**self.dim), dtype=np.int64)
        for code, digits in face_digits(volume.dim):
            result[faces.codes == code] = (
                nodes_inwards(digits, volume.p1d)
                if self.have_slopes
                else local_nodes(digits, volume.order, closed=True)
            )
        return result[:, : (layers or self.p1d) * self.p1d ** (self.dim - 1)]

    def on(self, volume: Space) -> BoundarySpace:
        """Return the functions of another space of the mesh on the same faces."""
        volume = self._volume.on(volume)
        return _made(volume, self.domain.attributes, slopes=self.have_slopes, face=self._face)

    def with_slopes(self, slopes: bool) -> BoundarySpace:
        """Return the functions on the faces with or without derivatives; see `boundary_spaces`."""
        return _made(self.volume, self.domain.attributes, slopes=slopes, face=self._face)


_spaces = Derived[Space, BoundarySpace](weak=True)


def boundary_spaces(space: Any, attributes: Attributes, *, slopes: bool) -> list[BoundarySpace]:
    """Return the functions of a space on the faces of boundary attributes.

    There is one list entry for each part of a mesh of several shapes, and for each shape of faces,
    that a rank has. Collective on such a mesh that ranks share.
    """
    if not isinstance(space, Space):
        raise SpaceError(f"boundary integrals need a Space, got {space!r}: take one of its spaces")
    if not space.mixed:
        return [_made(space, attributes, slopes=slopes)]
    mesh = space.distributed or space.mesh
    asked = asked_attributes(attributes, mesh.boundary_names)
    numbers = None if asked is None else tuple(boundary_attributes(mesh, asked).tolist())
    made = [
        _made(part, numbers, slopes=slopes, face=face)
        for part in space.parts
        for face in part.mesh.cell.faces
    ]
    sizes = space.comm.max(np.array([each.domain.num_elements for each in made]))
    found = [each for each, size in zip(made, sizes, strict=True) if size]
    if not found:
        raise SpaceError("the mesh has no such boundary, so there is nothing to integrate over")
    return found


def _made(
    space: Space, attributes: Attributes, *, slopes: bool, face: Cell | None = None
) -> BoundarySpace:
    """Return the space of `boundary_spaces` on a mesh of one shape, or a part and a shape."""
    slopes = slopes or not space.has_ends
    if face is not None:
        numbers = None if attributes is None else tuple(attributes)  # type: ignore[arg-type]
        part = space.distributed or space.mesh
        faces = _faces.get(space.mesh, lambda: BoundaryFaces(part, numbers, face), numbers, face)
        made = partial(BoundarySpace, space, faces, slopes=slopes)
        return _spaces.get(space, made, numbers, slopes, face)
    mesh = space.distributed or space.mesh
    asked = asked_attributes(attributes, mesh.boundary_names)
    chosen = None if asked is None else tuple(boundary_attributes(mesh, asked).tolist())
    faces = _faces.get(space.mesh, lambda: BoundaryFaces(mesh, chosen), chosen)
    if space.hangs and not slopes:
        # a node of an inner face may hang in another face of its element, whose dofs lie off it
        numbers = space.mesh.topology.entity[faces.elements, faces.codes]
        slopes = bool(space.comm.max(int(are_inner(mesh)[numbers].any())))
    made = partial(BoundarySpace, space, faces, slopes=slopes)
    return _spaces.get(space, made, chosen, slopes)


def end_of(basis: Basis1D) -> NDArray[np.float64]:
    """Value and derivative (2, p1d) of the basis functions at the low end of a direction."""
    low = np.zeros(1)
    return np.concatenate([basis.interpolation(low), basis.gradient(low)])
