"""Checks of input from users and files. Each failed check raises one error."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_common.arguments import array_of, number_of, numbers_of, refusal, shown
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import determinants, gauss_legendre, jacobians
from femops_meshes.errors import MeshArgumentError, MeshGeometryError, MeshTopologyError
from femops_meshes.topology.entities import (
    CUBES,
    MOST_SIMPLEX_DEGREE,
    SIMPLICES,
    Cell,
    cell_and_degree,
    looks_out,
    outward_corners,
)
from femops_meshes.topology.topology import Topology, check_dangling, listed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST = 1e100
"""Largest coordinate: its cube, a determinant, is still a finite number."""

_AXES = {
    "elements": 2,
    "coordinates": 3,
    "element_attributes": 1,
    "boundary": 2,
    "boundary_attributes": 1,
    "file_elements": 1,
}
"""Numbers of axes of a mesh's arrays."""

_ROUND_OFF = 4 * np.finfo(np.float64).eps  # of a determinant, relative to Hadamard's bound

_POINTS = 2**15  # at once: 2 MiB of Jacobians, which stay in a second-level cache


def array(values: ArrayLike, name: str, dtype: type | None = None) -> NDArray[Any]:
    """Copy values into an array of the same shape."""
    if dtype is np.float64:
        return numbers_of(values, name, MeshArgumentError).copy()
    return array_of(values, name, MeshArgumentError).copy()


def whole(value: object, name: str, least: int = 1) -> int:
    """Check that a value is a whole number >= least, and return it as int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise MeshArgumentError(f"{name} is a whole number >= {least}, got {shown(value)}")
    return int(value)


def positive(value: object, name: str) -> float:
    """Check that a value is a positive, finite number, and return it as float."""
    number = number_of(value)
    if number is None or not 0 < number <= LARGEST:
        raise MeshArgumentError(f"{name} is a positive number, got {shown(value)}")
    return number


def element_ranges(num_elements: int, points: int) -> Iterator[slice]:
    """Slices of elements, short enough to keep data at `points` points of each element small."""
    step = max(1, _POINTS // points)
    return (slice(start, start + step) for start in range(0, num_elements, step))


def corner_array(values: ArrayLike, name: str, widths: tuple[int, ...]) -> Ints:
    """Copy vertex numbers into an int64 array (n, width)."""
    rows = array(values, name)
    if rows.size == 0 and name == "boundary":
        return np.zeros((0, widths[0]), dtype=np.int64)
    if rows.ndim != 2 or rows.shape[1] not in widths or len(rows) == 0:
        allowed = " or ".join(str(width) for width in widths)
        raise MeshTopologyError(
            f"{name} has shape {rows.shape}: it must be (n, {allowed}), n >= 1, one row of vertex "
            "numbers per entry (2 corners for a segment, 3 for a triangle, 4 for a quadrilateral "
            "or tetrahedron, 6 for a prism, 8 for a hexahedron)"
        )
    if rows.dtype.kind not in "iu":
        raise MeshTopologyError(f"{name} holds {rows.dtype}: vertex numbers must be integers")
    return rows.astype(np.int64)


def permutation(given: ArrayLike, count: int) -> Ints:
    """Check a permutation of all elements."""
    order = np.asarray(given)
    if order.shape != (count,) or not np.array_equal(np.sort(order), np.arange(count)):
        raise MeshArgumentError(
            f"permutation has shape {order.shape}; it must hold each of the {count} element "
            "numbers once"
        )
    return order


def simplex_degree(degree: int) -> int:
    """Return the degree of a simplex's coordinates, or raise if there is none such."""
    if degree > MOST_SIMPLEX_DEGREE:
        raise MeshArgumentError(
            f"coordinates of simplices and prisms have degree {MOST_SIMPLEX_DEGREE} at most, "
            f"got {degree}"
        )
    return degree


def attribute_array(values: ArrayLike | None, count: int, name: str) -> NDArray[np.int32]:
    """Copy attributes into an int32 array (count,); None for all 1."""
    if values is None:
        return np.ones(count, dtype=np.int32)
    tags = array(values, name)
    if tags.shape != (count,):
        raise MeshTopologyError(f"{name} has shape {tags.shape}, it must be ({count},): one each")
    if count == 0:
        return np.zeros(0, dtype=np.int32)
    if tags.dtype.kind not in "iu" or tags.min() < 1 or tags.max() > 2**31 - 1:
        raise MeshTopologyError(
            f"{name} must be integers from 1 to 2**31 - 1, got {tags.dtype} from {tags.min()} "
            f"to {tags.max()}"
        )
    return tags.astype(np.int32)


def node_coordinates(
    vertices: ArrayLike | None, coordinates: ArrayLike | None, elements: Ints, dim: int
) -> Floats:
    """Copy coordinates (ne, m, dim) of the elements' nodes, or take them from the vertices."""
    if vertices is not None:
        points = array(vertices, "vertices", np.float64)
        if points.ndim != 2 or points.shape[1] != dim:
            raise MeshGeometryError(
                f"vertices have shape {points.shape}, elements with {elements.shape[1]} corners "
                f"need (nv, {dim}): surfaces in a higher dimension are not supported"
                + "; tetrahedra need cell='tetrahedron'"
                * (elements.shape[1] == 4 and dim == 2)
            )
        check_dangling(elements, len(points))
        if coordinates is None:
            return points[elements]
    if coordinates is None:
        raise MeshArgumentError("neither vertices nor coordinates are given: give one of them")
    nodes = array(coordinates, "coordinates", np.float64)
    if nodes.ndim != 3 or nodes.shape[0] != len(elements) or nodes.shape[2] != dim:
        raise MeshGeometryError(
            f"coordinates have shape {nodes.shape}, it must be ({len(elements)}, (g + 1)**{dim}, "
            f"{dim}), g >= 1"
        )
    cell = cell_and_degree(nodes.shape[1], dim)[0]
    if cell.num_corners != elements.shape[1]:
        raise MeshGeometryError(
            f"coordinates have the {nodes.shape[1]} nodes of {cell.plural}, but elements "
            f"{elements.shape[1]} corners"
        )
    return nodes


def compress_vertices(elements: Ints) -> tuple[Ints, Ints]:
    """Number the vertices anew, without vertices that no element uses, in the same order."""
    used, compressed = np.unique(elements, return_inverse=True)
    if used.min(initial=0) < 0:
        check_dangling(elements, int(used[-1]) + 1)
    return compressed.reshape(elements.shape).astype(np.int64, copy=False), used


def compress_boundary(boundary: Ints, used: Ints) -> Ints:
    """Renumber the vertices of the boundary (nb, 2**(dim-1)) like `compress_vertices`.

    -1 stands for no vertex.
    """
    place = np.minimum(np.searchsorted(used, boundary), len(used) - 1).astype(np.int64)
    place[boundary == -1] = -1
    bad = np.flatnonzero(((used[place] != boundary) & (place >= 0)).any(axis=1))
    if len(bad):
        raise MeshTopologyError(
            f"{len(bad)} boundary element(s) name vertices of no element: number(s) {listed(bad)} "
            f"(counted from 0; {bad[0]} has vertices {boundary[bad[0]].tolist()}): correct them"
        )
    return place


def magnitude(coordinates: Floats) -> None:
    """Check that coordinates (ne, m, dim) are finite and not absurdly large."""
    if max(coordinates.max(initial=0.0), -coordinates.min(initial=0.0)) <= LARGEST:
        return  # not if one is NaN
    bad = np.flatnonzero(~np.isfinite(coordinates).all(axis=(1, 2)))
    if len(bad):
        raise MeshGeometryError(
            f"{len(bad)} element(s) have coordinates that are not finite (NaN or infinite): "
            f"number(s) {listed(bad)} (counted from 0): give every node a position"
        )
    bad = np.flatnonzero(np.abs(coordinates).max(axis=(1, 2)) > LARGEST)
    if len(bad):
        raise MeshGeometryError(
            f"{len(bad)} element(s) have coordinates beyond {LARGEST:g}: number(s) {listed(bad)} "
            "(counted from 0): correct them, or choose another unit"
        )


def cell_of_corners(width: int, name: str | None) -> Cell:
    """Cell with a number of corners. Four corners are those of a tetrahedron if its name is given.

    A surface of quadrilaterals in space has the same arrays as tetrahedra.
    """
    if name not in (None, "tetrahedron") or (name and width != 4):
        raise MeshArgumentError(
            f"cell is {name!r} and elements have {width} corners: give cell='tetrahedron' for four "
            "corners, else leave it out"
        )
    if name:
        return SIMPLICES[3]
    return SIMPLICES[2] if width == 3 else CUBES[width.bit_length() - 1]


def _least(coordinates: Floats) -> Floats:
    """Smallest determinant (ne,) at the points of a rule; of a mirrored simplex times -1.

    Its round-off is subtracted: flat elements have no other determinant.
    """
    cell, degree = cell_and_degree(*coordinates.shape[1:])
    least = np.empty(len(coordinates))
    points = gauss_legendre(degree + 2)[0]
    if not cell.cube:
        points = np.concatenate(
            [simplices.rule(cell, 2 * degree)[0], simplices.nodes(cell, degree)]
        )
    count = len(points) ** cell.dim if cell.cube else len(points)
    for some in element_ranges(len(coordinates), count):
        x = coordinates[some]
        J = jacobians(x - x[:, :1], points)  # zero in a direction in which an element is flat
        found = determinants(J)
        if cell.simplex:
            found *= np.sign(found[:, :1])
        found -= _ROUND_OFF * np.sqrt(np.einsum("eqij,eqij->eqi", J, J)).prod(axis=-1)
        least[some] = found.min(axis=1)
    return least


def geometry(coordinates: Floats, cure: str = "") -> None:
    """Check that coordinates (ne, m, dim) are finite and no element is inverted.

    An element counts as inverted if det J <= 0, up to round-off, at a point of the (g + 2)**dim
    Gauss points, and a simplex if det J is zero or changes its sign. The message about it ends with
    ``cure``.
    """
    magnitude(coordinates)
    least = _least(coordinates)
    bad = np.flatnonzero(least <= 0)
    if not len(bad):
        return
    of, numbers = f"{len(bad)} of {len(coordinates)} element(s) are", f"number(s) {listed(bad)}"
    if cell_and_degree(*coordinates.shape[1:])[0].simplex:
        raise MeshGeometryError(
            f"{of} flat, or inverted somewhere (det J is zero or changes its sign): {numbers} "
            "(counted from 0): move their nodes, or mesh anew with a lower degree or smaller "
            "elements"
        )
    raise MeshGeometryError(
        f"{of} inverted (det J <= 0 somewhere): {numbers} (counted from 0; the first has det J = "
        f"{least[bad[0]]:.3g}): turn the order of their corners, or move their nodes{cure}"
    )


def turned_over(turned: NDArray[np.bool_]) -> None:
    """Check that moved simplices are mirrored, (ne,), all or none."""
    few = np.flatnonzero(turned if 2 * turned.sum() <= len(turned) else ~turned)
    if len(few):
        raise MeshGeometryError(
            f"{len(few)} of {len(turned)} element(s) were inverted by the move: number(s) "
            f"{listed(few)} (counted from 0): move their nodes less far"
        )


def folds(*parts: tuple[Ints, Floats, Topology]) -> None:
    """Check that elements do not overlap at the faces and vertices that they share.

    The elements are not inverted, and have the same positions on common faces. Each part has
    elements (ne, corners) of one shape, with their coordinates; several parts share vertex numbers.
    """
    for elements, coordinates, topology in parts:
        if topology.cell.simplex:
            faces, codes = topology.faces[topology.pairs], topology.face_codes[topology.pairs]
            # All see a face in the same way: what tells is the vertex opposite, and the determinant
            _differ(simplices.mirrored(coordinates)[faces] ^ (codes % 2 == 1), faces)
        else:
            folded_faces(elements, topology)
    count, pair = _overlaps(parts)
    if count:
        of = [f"{parts[k][2].cell.name} " * (len(parts) > 1) + str(e) for k, e in pair]
        raise MeshGeometryError(
            f"elements overlap at {count} vertex(es), elements {of[0]} and {of[1]} the "
            "first (counted from 0): correct the numbers of their corners"
        )


def folded_faces(elements: Ints, topology: Topology) -> None:
    """Check that elements do not lie on the same side of a face that they share as a whole.

    A face that looks out of both elements has both on one side, where they overlap.
    """
    two = topology.pairs
    if topology.carriers is not None:
        two = np.setdiff1d(two, topology.parts[:, 2])
    faces, codes = topology.faces[two], topology.face_codes[two]
    cell = topology.cell
    first = outward_corners(elements, np.stack([faces[:, 0], codes[:, 0]], axis=1), cell)
    _differ(looks_out(elements, first, faces, codes, cell), faces)


def _differ(sides: NDArray[np.bool_], faces: Ints) -> None:
    """Check that both elements of faces (n, 2) lie on different sides (n, 2) of them."""
    bad = faces[sides[:, 0] == sides[:, 1]]
    if len(bad):
        raise MeshGeometryError(
            f"elements overlap: both elements of {len(bad)} face(s) lie on the same side of it, "
            f"elements {bad[0, 0]} and {bad[0, 1]} the first (counted from 0): correct the numbers "
            "of their corners"
        )


def _overlaps(
    parts: Sequence[tuple[Ints, Floats, Topology]],
) -> tuple[int, list[tuple[int, int]]]:
    """Count the vertices of the exterior at which elements overlap.

    Returned are also two such elements: the part and the number of each.

    The tangents of the edges at a corner span a cone. A direction well inside one cone is in no
    other cone of the vertex, because these meet along common tangents at most. Around a vertex
    without exterior faces, elements on both sides of each face leave no room for an overlap.
    """
    outside = _of_exterior(parts)
    found = [_cones(elements, x, topology, outside) for elements, x, topology in parts]
    owner = np.repeat(np.arange(len(parts)), [len(each[0]) for each in found])
    vertices, numbers, tangents = (np.concatenate([each[k] for each in found]) for k in range(3))
    order = np.argsort(vertices, kind="stable")
    vertices, numbers, tangents, owner = (a[order] for a in (vertices, numbers, tangents, owner))
    dim = tangents.shape[-1]
    inside = tangents @ np.column_stack([np.eye(dim) + 0.1, np.ones(dim)])
    inverses = np.linalg.inv(tangents)
    for step in range(1, len(vertices)):
        first = np.flatnonzero(vertices[:-step] == vertices[step:])
        if len(first) == 0:
            break
        for one, other in ((first, first + step), (first + step, first)):
            within = np.all(inverses[one] @ inside[other] >= -1e-12, axis=1).any(axis=1)
            if within.any():
                pair = [int(which[within][0]) for which in (one, other)]
                count = len(np.unique(vertices[one[within]]))
                return count, [(int(owner[k]), int(numbers[k])) for k in pair]
    return 0, []


def _of_exterior(parts: Sequence[tuple[Ints, Floats, Topology]]) -> NDArray[np.bool_]:
    """True (vertices,) for the vertices of outer faces, of all parts together."""
    outside = np.zeros(max(t.num_entities[0] for *_, t in parts), dtype=np.bool_)
    for elements, _, topology in parts:
        faces = topology.faces
        outer = (faces[:, 0] >= 0) & (faces[:, 1] < 0)
        outer[topology.joined] = False
        for code in np.unique(topology.face_codes[outer, 0]):
            some = faces[outer & (topology.face_codes[:, 0] == code), 0]
            outside[elements[some][:, list(topology.cell.entities[int(code)][1])]] = True
    return outside


def _cones(
    elements: Ints, coordinates: Floats, topology: Topology, outside: NDArray[np.bool_]
) -> tuple[Ints, Ints, Floats]:
    """Vertex (n,) and element (n,) of corners outside, and tangents (n, dim, dim) of their edges.

    The tangents are columns of length 1. Flat corners, of angles of 0 or 180 degrees, are left out.
    """
    cell = topology.cell
    corners = np.flatnonzero(outside[elements])
    some, place = np.unique(corners // cell.num_corners, return_inverse=True)
    at = corners % cell.num_corners
    tangents = jacobians(coordinates[some], cell.corners)[place, at] @ _edges(cell)[at]
    lengths = np.linalg.norm(tangents, axis=1, keepdims=True)
    tangents /= np.where(lengths > 0, lengths, 1)
    proper = np.abs(determinants(tangents)) > 1e-8
    corners, tangents = corners[proper], tangents[proper]
    return elements.ravel()[corners], corners // cell.num_corners, tangents


def _edges(cell: Cell) -> Floats:
    """Edges at each corner, as columns (corners, dim, dim) that lead away from it."""
    edges = [cell.entities[code][1] for code in cell.codes(1)]
    ends = [[b if a == k else a for a, b in edges if k in (a, b)] for k in range(cell.num_corners)]
    away = cell.corners[ends] - cell.corners[:, np.newaxis]
    return np.ascontiguousarray(away.swapaxes(1, 2))


def gaps(
    coordinates: Floats, topology: Topology, hanging: tuple[Floats, Floats] | None = None
) -> NDArray[np.bool_]:
    """True (ne,) for elements whose position of a shared node differs from a neighbour's.

    ``hanging``: the coordinates with the nodes of larger entities in the places of hanging ones,
    and those that are interpolated from these nodes. None if nothing hangs.
    """
    n = cell_and_degree(coordinates.shape[1], topology.dim)[1]
    numbers = topology.carried_lattice(n)
    larger, interpolated = hanging or (coordinates, coordinates)
    shared = np.empty((topology.lattice_size(n), topology.dim))
    shared[numbers] = larger
    gaps = apart(coordinates, shared[numbers], larger)
    if hanging is not None:
        gaps |= apart(coordinates, interpolated, coordinates)
    return gaps


def apart(coordinates: Floats, shared: Floats, own: Floats | None = None) -> NDArray[np.bool_]:
    """True (ne,) for elements whose positions (ne, nodes, dim) of shared nodes are other ones."""
    gap = np.abs(shared - (coordinates if own is None else own))
    # relative to the element's extent in each direction: one period may be far shorter than another
    size = np.ptp(coordinates, axis=1, keepdims=True)
    round_off = 8 * np.finfo(np.float64).eps * np.abs(coordinates)
    return np.asarray((gap > 1e-10 * size + round_off).any(axis=(1, 2)))


def shapes(mesh: Any) -> None:
    """Check that the arrays of a mesh fit each other."""
    for name, axes in _AXES.items():
        _check_array(getattr(mesh, name), name, axes)
    ne, corners = mesh.elements.shape
    cell = mesh.cell
    dim, nb = cell.dim, len(mesh.boundary)
    expected: dict[str, tuple[int, ...]] = {
        "elements": (ne, corners),
        "coordinates": (ne, mesh.coordinates.shape[1], dim),
        "element_attributes": (ne,),
        "boundary": (nb, cell.most_face_corners),
        "boundary_attributes": (nb,),
        "file_elements": (ne,),
    }
    for name, shape in expected.items():
        got = getattr(mesh, name).shape
        if got != shape:
            raise MeshTopologyError(
                f"{name} has shape {got}, it must be {shape} with {ne} elements"
            )
    if cell.simplex and not (np.diff(mesh.elements) > 0).all():
        raise MeshTopologyError(
            f"vertices of {cell.plural} must ascend in each element: Mesh.from_arrays sorts them"
        )


def _check_array(given: Any, name: str, axes: int) -> None:
    """Raise unless an attribute of a mesh is an array with the right number of axes."""
    if not isinstance(given, np.ndarray) or given.ndim != axes:
        raise MeshTopologyError(refusal(name, given, f"an array of {axes} axes"))
