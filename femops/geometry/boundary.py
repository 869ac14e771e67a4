"""Boundary faces of a mesh, and the geometry at their quadrature points.

A point of a face is a point of the face's element, with one reference coordinate 0 or 1. So
positions, Jacobians and fields are evaluated in the element. The outer normal times the surface
element is, up to the sign, a row of the adjugate of the Jacobian J: the row of the fixed direction
(Nanson's formula, n ds = det J J^-T N dS).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Rule, grid_rule
from femops.element import Element, element_of_maps, turned_to
from femops.errors import GeometryError, SpaceError
from femops.geometry.domain import BATCH, Domain, DomainGeometry, FaceBlock, Nodal, size_of_groups
from femops.geometry.jacobians import oriented
from femops.numbering import ternary_codes
from femops.parallel.mesh import DistributedMesh
from femops_common.arguments import as_list, checked, number_of, shown
from femops_kernels.cpu.in_order import computed_once
from femops_meshes import MeshTopologyError
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import adjugates, determinants
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.names import with_numbers
from femops_meshes.side_checks import check_sides
from femops_meshes.topology.entities import Cell

Ints = NDArray[np.int64]


def are_inner(mesh: Mesh | DistributedMesh) -> NDArray[np.bool_]:
    """True for each face (nf,) of the mesh, or of this rank's part, that is between elements."""
    own = mesh if isinstance(mesh, Mesh) else mesh.mesh
    inner = own.topology.faces[:, 1] >= 0
    inner[own.topology.joined] = True
    if isinstance(mesh, DistributedMesh):
        inner[own.topology.entity[tuple(mesh.part.interface.T)]] = True
    return inner


def listed_are_inner(mesh: Mesh | DistributedMesh) -> NDArray[np.bool_]:
    """True for each face (nb,) that the mesh, or this rank's part, lists between elements."""
    topology = mesh.topology if isinstance(mesh, Mesh) else mesh.mesh.topology
    listed: NDArray[np.bool_] = are_inner(mesh)[topology.entity[tuple(topology.boundary_faces.T)]]
    return listed


def outer_faces(mesh: Mesh | DistributedMesh) -> Ints:
    """Element and ternary code (n, 2) of each outer face of the mesh, or of this rank's part."""
    topology = mesh.topology if isinstance(mesh, Mesh) else mesh.mesh.topology
    alone = (topology.faces[:, 0] >= 0) & ~are_inner(mesh)
    return np.stack([topology.faces[alone, 0], topology.face_codes[alone, 0]], axis=1)


def has_outer(mesh: Mesh | MixedMesh | DistributedMesh) -> bool:
    """True if the mesh has outer faces, on any rank."""
    if isinstance(mesh, DistributedMesh):
        return mesh.has_outer_faces
    return any(len(outer_faces(part)) > 0 for part in mesh.parts)


Floats = NDArray[np.float64]
Attributes = int | str | Iterable[int | str] | None

_FEWEST = 32
"""Fewest faces of a group, on average. In small groups many batches have faces of several codes."""


def chosen(
    wanted: Any,
    known: list[Any],
    what: str,
    owner: str,
    elsewhere: Iterable[str] = (),
    of: str = "",
) -> Ints:
    """Convert `wanted` numbers to an ascending array (n,). None stands for all in `known`."""
    have = [number for number in known if isinstance(number, int)]
    if wanted is None:
        return np.array(have, dtype=np.int64)
    numbers = as_list(wanted)
    missing = [n for n in numbers if number_of(n) is None or n not in have]
    if missing:
        listing = ", ".join(str(k) for k in known) or "none"
        first = shown(missing[0])
        hint = "; leave it out for all of them" if first == "'all'" else ""
        if missing[0] in list(elsewhere):
            hint = f"; {of} have this name"
        raise SpaceError(f"the {owner} has no {what} {first}: it has {listing}{hint}")
    return np.unique(np.array([int(n) for n in numbers], dtype=np.int64))


def boundary_attributes(mesh: Mesh | MixedMesh | DistributedMesh, attributes: Attributes) -> Ints:
    """Convert boundary attributes to ascending numbers (n,), which may be of any rank."""
    numbers = with_numbers(attributes, mesh.boundary_names)
    have = [*mesh.boundary_names, *_everywhere(mesh).tolist()]
    return chosen(numbers, have, "boundary attribute", "mesh", mesh.element_names, "elements")


def listed_faces(mesh: Mesh | DistributedMesh, numbers: Ints) -> Ints:
    """Element and code (n, 2) of the faces of attributes in the mesh, or this rank's part."""
    own = mesh if isinstance(mesh, Mesh) else mesh.mesh
    return own.topology.boundary_faces[np.isin(own.boundary_attributes, numbers)]


def outer_attributes(mesh: Mesh | MixedMesh | DistributedMesh, attributes: Attributes) -> list[int]:
    """Convert boundary attributes to ascending numbers, and check that their faces are outside.

    Collective on many ranks.
    """
    asked = boundary_attributes(mesh, attributes)
    own = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
    between = np.concatenate([listed_are_inner(part) for part in mesh.parts])
    kinds = np.array([np.isin(asked, own.boundary_attributes[k]) for k in (between, ~between)])
    if isinstance(mesh, DistributedMesh):
        kinds = mesh.comm.max(kinds.astype(np.int64)) > 0
    inside, outside = kinds
    if inside.any():
        first = int(np.argmax(inside))
        cure = (
            "give its faces of one element another attribute"
            if outside[first]
            else "leave it out of boundary="
        )
        raise SpaceError(
            f"boundary attribute {asked[first]} has faces between elements, where no solution can "
            f"be prescribed: {cure}"
        )
    return [int(number) for number in asked]


def asked_attributes(boundary: Any, names: Container[str]) -> Attributes:
    """Convert a user's argument ``boundary=`` to boundary attributes. None: all outer faces."""
    every = isinstance(boundary, str) and boundary == "all" and "all" not in names
    return None if boundary is True or every else boundary


def _everywhere(mesh: Mesh | MixedMesh | DistributedMesh) -> Ints:
    """Numbers of the boundary attributes of the mesh, on all ranks."""
    if isinstance(mesh, DistributedMesh):
        return mesh.whole_boundary_attributes
    return np.unique(mesh.boundary_attributes).astype(np.int64)


def face_digits(dim: int) -> list[tuple[int, tuple[int, ...]]]:
    """Ternary codes and digits (code, digits) of an element's faces; see `ternary_codes`."""
    return [(code, digits) for code, digits in ternary_codes(dim) if digits.count(1) == dim - 1]


def nodes_inwards(digits: tuple[int, ...], p1d: int) -> Ints:
    """Node numbers of an element, layer by layer from a face inwards; lexicographic in a layer."""
    grid = np.arange(p1d ** len(digits)).reshape((p1d,) * len(digits))  # the last axis is x
    fixed = next(d for d, digit in enumerate(digits) if digit != 1)
    layers = np.moveaxis(grid, len(digits) - 1 - fixed, 0)
    return (layers if digits[fixed] == 0 else layers[::-1]).reshape(-1)


def turned(codes: Ints, slopes: Floats) -> Floats:
    """Convert derivatives along an element's directions to derivatives along the face's directions.

    The directions of a face are the element's directions in the face, ascending. The last direction
    leads inwards.

    Shapes: `codes` (n,), `slopes` (n, ..., dim).
    """
    result, dim = np.empty_like(slopes), slopes.shape[-1]
    for code, digits in face_digits(dim):
        mine, fixed = codes == code, next(d for d in range(dim) if digits[d] != 1)
        along = [d for d in range(dim) if d != fixed]
        result[mine, ..., : dim - 1] = slopes[mine][..., along]
        result[mine, ..., dim - 1] = (1 - digits[fixed]) * slopes[mine][..., fixed]
    return result


def behind_faces(element: Element, codes: Ints) -> Ints:
    """Node numbers (n, size) of simplices or prisms that are turned to their faces."""
    cell, order = element.cell, element.order
    nodes = np.zeros((len(cell.entities), element.size), dtype=np.int64)
    for code in cell.face_codes:
        nodes[code] = simplices.turned(cell, order, code)
    return nodes[codes]


def values_on_faces(
    element: Element,
    face: Cell,
    rule: Rule,
    codes: Ints,
    e_vec: Floats,
    slope: int | None = None,
) -> Floats:
    """Evaluate element functions at a rule's points on one face of each element, of one shape.

    Derivatives of simplices and prisms are those of cells that are turned to the face.

    Shapes: `codes` (n,), `e_vec` (n, nodes[, ncomp]), returned (n, points[, ncomp]).
    """
    dim, points = element.dim, rule.places
    if not element.cell.cube:
        nodes = behind_faces(element, codes)
        e_vec = e_vec[np.arange(len(nodes))[:, np.newaxis], nodes]
        places = simplices.at_end(rule.listed(face.dim))
        return turned_to(element, face).values(places, e_vec, slope)
    result = np.empty((len(codes), len(points) ** (dim - 1), *e_vec.shape[2:]))
    for code, digits in face_digits(dim):
        mine = codes == code
        grids = [points if t == 1 else np.array([t / 2.0]) for t in digits]
        result[mine] = element.values(grids, e_vec[mine], slope)
    return result


@final
class BoundaryFaces(Domain):
    """Faces of boundary attributes of a mesh, or its outer boundary. Each occurs once.

    Groups of 128 to 1024 faces are ordered by element. In a group faces are ordered by code, then
    by element, as kernels are faster if the elements of all faces of a batch lie in the same way.
    On a reproducible mesh all faces are ordered by element, then by code.

    A mesh may list a face between two elements, for example if it is glued to be periodic. The
    order of the face's corners determines its element (`femops_meshes.topology.entities`). If both
    sides are listed, they count as two faces. On a mesh that ranks share, a rank has only the faces
    of its own elements.

    `elements` (nf,): element of each face. `codes` (nf,): ternary code of each face in its element.
    `group_elements`, `group_start` (k + 1,): first element, and first face, of each group; then the
    numbers of elements and faces. An element whose faces are in two groups belongs to the second.
    Groups begin with batches.
    """

    covers = has_maps = False
    has_normals = True

    def __init__(
        self,
        mesh: Mesh | DistributedMesh,
        attributes: Attributes = None,
        face: Cell | None = None,
    ) -> None:
        """Take the faces of one shape, ``face``, on a part of a mesh of several shapes.

        Then the attributes are known numbers, and there may be no faces.
        """
        if face is None:
            faces, self.attributes = _chosen_faces(mesh, attributes)
        else:
            assert not isinstance(attributes, int | str)
            numbers = None if attributes is None else tuple(int(n) for n in attributes)
            faces, self.attributes = _of_part(mesh, numbers, face), numbers
        reproducible = isinstance(mesh, DistributedMesh) and mesh.reproducible
        mesh, count = mesh if isinstance(mesh, Mesh) else mesh.mesh, len(faces)
        self._divide(faces[:, 0], mesh.num_elements, reproducible)
        if not reproducible:
            group = np.searchsorted(self.group_start[1:], np.arange(count), side="right")
            faces = faces[np.lexsort((faces[:, 1], group))]
        self.mesh, self.order, self.cell = mesh, mesh.order, face or mesh.cell.face
        self.elements, self.codes = (np.ascontiguousarray(column) for column in faces.T)
        self.num_elements = count

    def _divide(self, elements: Ints, count: int, reproducible: bool) -> None:
        """Set the groups, given the ascending elements (nf,) of the faces and their number.

        A group has the faces of a range of elements, up to whole batches. The last group has faces.
        """
        size = BATCH if reproducible else size_of_groups(count)
        while not reproducible and len(elements) * size < _FEWEST * count and size < count:
            size *= 2
        self.group_elements = np.append(np.arange(0, count, size), count)
        cuts = np.searchsorted(elements, self.group_elements[:-1])
        last = max(len(elements) - 1, 0) // BATCH * BATCH
        cuts = np.minimum((cuts + BATCH // 2) // BATCH * BATCH, last)
        cuts[:1] = 0
        self.group_start = np.append(cuts, len(elements))

    def geometry(self, rule: Rule) -> BoundaryGeometry:
        return BoundaryGeometry(self.mesh, rule, self)


def _chosen_faces(
    mesh: Mesh | DistributedMesh, attributes: Attributes
) -> tuple[Ints, tuple[int, ...] | None]:
    """Element and code (nf, 2) of the attributes' faces, ascending, and the attributes' numbers."""
    if attributes is None:
        if not has_outer(mesh):
            raise SpaceError(
                "the mesh has no boundary: every face is between two elements, as in a periodic "
                "mesh, so there is nothing to integrate over"
            )
        return np.unique(outer_faces(mesh), axis=0), None
    numbers = boundary_attributes(mesh, attributes)
    if not len(numbers):
        raise SpaceError("no boundary attribute was chosen: name one, or leave the attributes out")
    own = mesh if isinstance(mesh, Mesh) else mesh.mesh
    listed = np.isin(own.boundary_attributes, numbers)
    try:
        check_sides(own, listed)  # all ranks pass: parts of a mesh were checked when they were made
    except MeshTopologyError as error:
        text = f"an integral over these faces is not defined: {error}"
        raise SpaceError(text) from error.__cause__
    return np.unique(own.topology.boundary_faces[listed], axis=0), tuple(numbers.tolist())


def _of_part(mesh: Mesh | DistributedMesh, numbers: tuple[int, ...] | None, face: Cell) -> Ints:
    """Element and code (nf, 2), ascending, of the faces of a shape and of attributes."""
    faces = outer_faces(mesh) if numbers is None else listed_faces(mesh, np.array(numbers))
    return np.unique(faces[np.isin(faces[:, 1], mesh.cell.codes_of(face))], axis=0)


@final
@checked(GeometryError)
class BoundaryGeometry(DomainGeometry):
    """Positions, normals and surface elements at the points of a rule on boundary faces.

    Iteration yields blocks of faces that fit in the cache. Faces have the order of
    `BoundaryFaces`. Points are lexicographic in the directions along the face.  In 1-D a face is a
    point, and its surface element is 1. On a mesh that ranks share, a rank has only the faces of
    its own elements.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
    quadrature : Quadrature1D or PointRule
        On faces of tetrahedra the points of triangles.
    attributes : int, name, or several, optional
        Boundary attributes or their names. By default all outer faces: those of one element.

    Attributes
    ----------
    num_elements : int
        Number of faces, nf.
    num_points : int
        Number of points of a face, q1d**(dim - 1).

    Raises
    ------
    SpaceError
        If the mesh has no such attribute, or no boundary.

    Examples
    --------
    >>> import femops
    >>> square = femops.box((2, 2), upper=(2.0, 3.0))
    >>> sides = femops.geometry.BoundaryGeometry(square, femops.basis.gauss(2), attributes=[3, 4])
    >>> round(sum(float(block.weighted_det.sum()) for block in sides), 12)
    4.0
    """

    def __init__(
        self,
        mesh: Mesh | DistributedMesh,
        quadrature: Rule,
        attributes: Attributes | BoundaryFaces = None,
    ) -> None:
        given = attributes
        self.faces = given if isinstance(given, BoundaryFaces) else BoundaryFaces(mesh, given)
        self.domain, mesh = self.faces, self.faces.mesh
        quadrature.check_cell(self.faces.cell)
        if mesh.cell.cube:
            grid_rule(quadrature, "an integral over faces")
        self.mesh, self.dim, self.quadrature = mesh, mesh.dim, quadrature
        self.num_elements = self.faces.num_elements
        self.num_points = quadrature.count(mesh.dim - 1)
        self.weights = quadrature.cell_weights(mesh.dim - 1)

    def block(self, start: int, stop: int) -> BoundaryBlock:
        """Geometry of the faces start <= f < stop, computed when first used."""
        return BoundaryBlock(self, start, min(stop, self.num_elements))

    def points(self, start: int, stop: int) -> Floats:
        """Positions (n, nq, dim) of the quadrature points, in the mesh's unit of length."""
        return self._coordinates(start, stop)

    def jacobian(self, start: int, stop: int) -> Floats:
        """Jacobians (n, nq, dim, dim) of the elements: [..., i, j] = dx_i / dxi_j."""
        return np.stack([self._coordinates(start, stop, d) for d in range(self.dim)], axis=-1)

    def _coordinates(self, start: int, stop: int, slope: int | None = None) -> Floats:
        part, faces = slice(start, stop), self.faces
        nodes = self.mesh.coordinates[faces.elements[part]]
        element = element_of_maps(self.mesh.coordinates)
        face = faces.cell, self.quadrature, faces.codes[part]
        return values_on_faces(element, *face, nodes, slope)

    def __repr__(self) -> str:
        return f"BoundaryGeometry({self.num_elements} faces, {self.quadrature!r})"


@final
class BoundaryBlock(FaceBlock):
    """Geometry of a range of boundary faces. Each array is computed once, at first use.

    `points` (n, nq, dim): positions. `normals` (n, nq, dim): unit normals that point out of the
    element. `det`, `weighted_det` (n, nq): surface element, and surface element times quadrature
    weight. ``weighted_det`` sums to the area. `inverse` (n, nq, dim, dim): [..., a, i] = derivative
    of the face's reference coordinate a along x_i. The face's coordinates are the element's
    coordinates that vary on the face, ascending, then the coordinate inwards.
    """

    geometry: BoundaryGeometry

    def __init__(self, geometry: BoundaryGeometry, start: int, stop: int) -> None:
        self.geometry, self.start, self.stop = geometry, start, stop

    @computed_once
    def points(self) -> Floats:
        """Positions (n, nq, dim) of the quadrature points."""
        return self.geometry.points(self.start, self.stop)

    @computed_once
    def _jacobian(self) -> Floats:
        return self.geometry.jacobian(self.start, self.stop)

    @property
    def _codes(self) -> Ints:
        return self.geometry.faces.codes[self.start : self.stop]

    @computed_once
    def _vectors(self) -> Floats:
        """Outer normals times surface elements: (n, nq, dim)."""
        geometry, codes, jacobian = self.geometry, self._codes, self._jacobian
        rows, cell = adjugates(jacobian), geometry.mesh.cell
        result = np.empty(jacobian.shape[:-1])
        for code, digits in face_digits(geometry.dim) if cell.cube else ():
            fixed = next(d for d, digit in enumerate(digits) if digit != 1)
            mine = codes == code
            result[mine] = (digits[fixed] - 1) * rows[mine][:, :, fixed]
        if not cell.cube:
            result = -rows[:, :, -1] * np.sign(determinants(jacobian))[..., np.newaxis]
        bad = ~np.all(
            (oriented(jacobian, turned=not cell.cube) > 0.0) & np.any(result, axis=-1), axis=1
        )
        if bad.any():
            elements = geometry.faces.elements[self.start : self.stop][bad]
            names = ", ".join(str(e) for e in np.unique(elements)[:5])
            raise GeometryError(
                f"{np.count_nonzero(bad)} boundary faces have a point where their element is "
                f"inverted or the face has no area, of element(s) {names}: turn or repair them"
            )
        return result

    @computed_once
    def inverse(self) -> Floats:
        """Derivatives (n, nq, dim, dim) of the face's reference coordinates in space."""
        self._vectors  # noqa: B018  (refuses inverted elements)
        jacobian = self._jacobian
        inverse = adjugates(jacobian) / determinants(jacobian)[..., np.newaxis, np.newaxis]
        if not self.geometry.mesh.cell.cube:
            return inverse
        return turned(self._codes, inverse.swapaxes(-1, -2)).swapaxes(-1, -2)

    def values(self, element: Element, nodal: Nodal) -> Floats:
        """See `DomainBlock.values`. The values are limits from inside the faces' elements."""
        return self._values(element, nodal)

    def slopes(self, element: Element, nodal: Nodal) -> Floats:
        along = [self._values(element, nodal, d) for d in range(self.geometry.dim)]
        if not self.geometry.mesh.cell.cube:
            return np.stack(along, axis=-1)
        return turned(self._codes, np.stack(along, axis=-1))

    def _values(self, element: Element, nodal: Nodal, slope: int | None = None) -> Floats:
        geometry = self.geometry
        elements = geometry.faces.elements[self.start : self.stop]
        face = geometry.faces.cell, geometry.quadrature, self._codes
        return values_on_faces(element, *face, nodal(elements), slope)
