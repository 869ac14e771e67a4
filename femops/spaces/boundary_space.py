"""Traces of H1 functions on boundary faces: a space whose elements are the faces."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Basis1D, Quadrature1D, gauss
from femops.errors import SpaceError
from femops.geometry.boundary import Attributes, BoundaryFaces, boundary_attributes, face_digits
from femops.numbering import local_nodes
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1
from femops.spaces.restriction import ElementRestriction
from femops_kernels.derived import Derived
from femops_meshes.mesh import Mesh

_faces = Derived[Mesh, BoundaryFaces](weak=True)


@final
class BoundarySpace:
    """The functions of an H1 space on some boundary faces; vectors are those of the whole space.

    It has what sweeps and forms use of a `Space`: the faces are its elements, of one dimension
    less, with the same 1-D basis.  In 1-D a face is a segment of one node and one point.  Make it
    by `boundary_space`, which gives one object for the same faces, so that operators can tell.

    Attributes
    ----------
    volume : Space
        The space itself.
    mesh : BoundaryFaces
    dim : int
        Of the faces as elements, at least 1.
    basis, order, p1d, ncomp, ndofs, size, shape, device, memory
        As of `Space`.
    restriction : ElementRestriction
        From the whole space to the faces.
    touched : int
        Number of nodes on the faces.
    """

    def __init__(self, volume: H1, faces: BoundaryFaces) -> None:
        self.volume, self.mesh, self.ncomp = volume, faces, volume.ncomp
        self.memory, self.device = volume.memory, volume.device
        self.ndofs, self.size, self.shape = volume.ndofs, volume.size, volume.shape
        self.order, self.dim = volume.order, max(volume.dim - 1, 1)
        self.basis = volume.basis if volume.dim > 1 else Basis1D("gauss", 0)
        self.p1d = self.basis.p1d
        whole = volume.restriction
        self.restriction = ElementRestriction(self._indices(), whole.ndofs, whole.owned)
        self.touched = len(np.unique(self.restriction.indices))

    def _indices(self) -> NDArray[np.int64]:
        """Dofs of each face, lexicographic in the directions along it."""
        volume, faces = self.volume, self.mesh
        result = np.empty((faces.num_elements, self.p1d**self.dim), dtype=np.int64)
        for code, digits in face_digits(volume.dim):
            mine = faces.codes == code
            nodes = local_nodes(digits, volume.order, closed=True)
            result[mine] = volume.restriction.indices[faces.elements[mine][:, np.newaxis], nodes]
        return result

    def quadrature(self, q1d: int | Quadrature1D | None = None) -> Quadrature1D:
        """Return a rule for the faces; see `Space.quadrature`. In 1-D it is one point of weight 1.

        Raises
        ------
        SpaceError
            Fewer than p + 1 points.
        """
        rule = self.volume.quadrature(q1d)
        return rule if self.volume.dim > 1 else gauss(1)

    def zeros(self, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """A new vector of zeros; see `Space.zeros`.

        Raises
        ------
        VectorError
            Another type than float64 or float32.
        """
        return self.volume.zeros(dtype)

    def element_vector(self, l_vec: NDArray[Any], start: int, stop: int) -> NDArray[np.float64]:
        """Dofs of the faces start <= f < stop, (n, p1d**dim[, ncomp]) float64.

        See `Space.element_vector`.
        """
        return np.asarray(l_vec[self.restriction.indices[start:stop]], dtype=np.float64)

    def sum_elements(self, e_vec: NDArray[Any]) -> NDArray[Any]:
        """The vector of sums over all faces of all ranks; see `Space.sum_elements`."""
        return self.volume.sum_elements(e_vec, self.restriction)


_spaces = Derived[Space, BoundarySpace](weak=True)


def boundary_space(space: Any, attributes: Attributes) -> BoundarySpace:
    """The functions of a space on the faces of some boundary attributes.

    Parameters
    ----------
    space : Space
    attributes : int, name, or several, optional
        All faces that the mesh lists if None.

    Raises
    ------
    SpaceError
        An L2 space, whose functions have no values on the boundary; a mesh without such an
        attribute, or without a boundary.
    """
    if not isinstance(space, H1):
        raise SpaceError(
            f"a boundary integral was asked for on {space!r}: its dofs belong to the elements, "
            "none to the boundary: take an H1 space"
        )
    mesh = space.distributed or space.mesh
    chosen = tuple(boundary_attributes(mesh, attributes).tolist())
    faces = _faces.get(space.mesh, lambda: BoundaryFaces(mesh, chosen), chosen)
    return _spaces.get(space, lambda: BoundarySpace(space, faces), chosen)


AnySpace = Space | BoundarySpace


def touched(space: AnySpace) -> int:
    """Number of nodes that the elements have."""
    return space.touched if isinstance(space, BoundarySpace) else space.ndofs


def volume_space(space: AnySpace) -> Space:
    """The space that vectors belong to."""
    return space.volume if isinstance(space, BoundarySpace) else space
