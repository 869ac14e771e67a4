"""Meshes of elements of several shapes: a sum of meshes of one shape, which share vertices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_common import html
from femops_common.arguments import Degree, checked
from femops_meshes import checks, refinement
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import (
    equispaced_grid,
    face_centers,
    positions,
    shared_lattice,
)
from femops_meshes.errors import MeshArgumentError, MeshGeometryError, MeshTopologyError
from femops_meshes.mesh import Mesh, PointMap
from femops_meshes.names import Named, Names, listing, named_parts, names_of
from femops_meshes.shared_faces import (
    corner_keys,
    equal_rows,
    faces_between,
    faces_of_one,
    sides_of,
)
from femops_meshes.topology.entities import (
    HEXAHEDRON,
    PRISM,
    QUADRILATERAL,
    TETRAHEDRON,
    TRIANGLE,
    VTK_CORNERS,
    outward_corners,
    quad_orientation,
    swaps,
)
from femops_meshes.topology.topology import (
    Topology,
    check_dangling,
    exterior_boundary,
    group_rows,
    listed,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Attributes = NDArray[np.int32]

SHAPES = {cell.plural: cell for cell in (QUADRILATERAL, TRIANGLE, HEXAHEDRON, PRISM, TETRAHEDRON)}
"""Cells of the parts, by name, in the order of the parts."""

FACES = {"segments": 2, "triangles": 3, "quadrilaterals": 4}
"""Corners of the boundary's faces by their shape."""

Labels = tuple[Mapping[str, Ints], str]
"""Numbers (n,) of the elements of each shape in errors, and how they are counted."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class MixedMesh:
    """An immutable mesh that conforms, of elements of several shapes, or of prisms.

    Spaces and forms take it as they take a `Mesh`. Vectors of a space belong to the whole mesh.

    Attributes
    ----------
    parts
        A `Mesh` for each shape: of quadrilaterals and triangles, or of hexahedra, prisms and
        tetrahedra. Their vertex numbers are those of the whole mesh; a part does not use all of
        them. A face between two parts is no boundary of either.

    See Also
    --------
    MixedMesh.from_arrays : Make a mesh, with checks.
    """

    parts: tuple[Mesh, ...]
    _given_as = "a mesh of several shapes, as femops.read_mesh(path) makes"
    _aside = (
        "meshes of several shapes, or of prisms, are not taken here yet: femops.read_mesh(path, "
        "split=True) makes one of hexahedra or quadrilaterals"
    )

    if not TYPE_CHECKING:  # for type checkers there are no other attributes

        def __getattr__(self, name: str) -> Any:
            """Raise an error that says where an attribute of meshes of one shape is."""
            if name in ("refined", "coarsened", "forest"):
                raise AttributeError(
                    f"a mesh of {self.plural} has no {name!r}: local refinement is for segments, "
                    "quadrilaterals and hexahedra; mesh.refine() halves all elements, and "
                    "femops.read_mesh(path, split=True) makes elements that mesh.refined takes"
                )
            if name[0] != "_" and (hasattr(Mesh, name) or name in Mesh.__dataclass_fields__):
                raise AttributeError(
                    f"a mesh of {self.plural} has no {name!r}: mesh.parts are meshes of one shape, "
                    f"which have it, and femops.read_mesh(path, split=True) makes hexahedra of all"
                )
            return object.__getattribute__(self, name)  # the error, also of a property

    @classmethod
    @checked(MeshArgumentError)
    def from_arrays(
        cls,
        vertices: ArrayLike | None,
        elements: Mapping[str, ArrayLike],
        element_attributes: Mapping[str, ArrayLike] | None = None,
        boundary: Mapping[str, ArrayLike] | None = None,
        boundary_attributes: Mapping[str, ArrayLike] | None = None,
        coordinates: Mapping[str, ArrayLike] | None = None,
        corner_order: Literal["lexicographic", "vtk"] = "lexicographic",
        element_names: Mapping[str, Named] | None = None,
        boundary_names: Mapping[str, Named] | None = None,
    ) -> "MixedMesh":
        """Make a mesh from arrays for each shape, which are copied and checked.

        Parameters
        ----------
        vertices
            Shape (nv, dim): positions of the vertices; may be None if `coordinates` are given.
        elements
            Vertex numbers, counted from 0, by shape: "quadrilaterals" (n, 4) and "triangles" (n,
            3), or "hexahedra" (n, 8), "prisms" (n, 6) and "tetrahedra" (n, 4). Corners of a prism
            are those of its triangle at the low end, then those above them.
        element_attributes, boundary_attributes
            Positive whole numbers, for each shape; by default 1. Those of the boundary need
            `boundary`.
        boundary
            Vertex numbers of faces by shape: "segments" (n, 2), or "quadrilaterals" (n, 4) and
            "triangles" (n, 3); None for all outer faces. A face between two parts belongs to the
            first of them.
        coordinates
            Nodes (n, nodes, dim) of the elements of each shape; None for straight elements.
        corner_order
            "lexicographic" (x fastest) or "vtk" for hexahedra and quadrilaterals; see
            `Mesh.from_arrays`.
        element_names, boundary_names
            Attributes by name, or predicates; see `MixedMesh.with_names`.

        Raises
        ------
        MeshTopologyError
            If shapes don't fit, vertex numbers dangle, or elements don't fit together, as a
            quadrilateral face at two triangles.
        MeshGeometryError
            If coordinates are not finite, or elements are inverted or overlap.
        MeshArgumentError
            If shapes have unknown names, or ones that the elements or the boundary do not have,
            vertices and coordinates are both missing, or a name stands for no attribute.
        """
        if corner_order not in ("lexicographic", "vtk"):
            raise MeshArgumentError(
                f'corner_order is "lexicographic" or "vtk", got {corner_order!r}'
            )
        _check_shapes(elements)
        _check_keys(elements, element_attributes=element_attributes, coordinates=coordinates)
        _check_keys(boundary or {}, boundary_attributes=boundary_attributes)
        corners: dict[str, Ints] = {}
        nodes: dict[str, Floats] = {}
        for name in sorted(elements, key=[*SHAPES].index):
            cell = SHAPES[name]
            rows = checks.corner_array(elements[name], name, (cell.num_corners,))
            if corner_order == "vtk" and cell.cube:
                rows = rows[:, VTK_CORNERS[cell.dim]]
            given = None if coordinates is None else coordinates.get(name)
            nodes[name] = checks.node_coordinates(vertices, given, rows, cell.dim)
            corners[name] = rows
        used = np.unique(np.concatenate([rows.ravel() for rows in corners.values()]))
        check_dangling(used[:1, np.newaxis], int(used[-1]) + 1)
        corners = {name: np.searchsorted(used, rows) for name, rows in corners.items()}
        mesh = cls.assemble(
            corners,
            nodes,
            len(used),
            dict(element_attributes or {}),
            None if boundary is None else _faces(boundary, used, corner_order == "vtk"),
            dict(boundary_attributes or {}),
            {},
            {},
        ).with_names(element_names, boundary_names)
        if coordinates is None:
            mesh.check_folds()
        return mesh

    @classmethod
    def assemble(
        cls,
        corners: Mapping[str, Ints],
        nodes: Mapping[str, Floats],
        num_vertices: int,
        attributes: Mapping[str, ArrayLike],
        boundary: Mapping[str, Ints] | None,
        boundary_attributes: Mapping[str, ArrayLike],
        element_names: Names,
        boundary_names: Names,
        file_elements: Mapping[str, Ints] | None = None,
        exterior: int = 0,
        labels: Labels | None = None,
    ) -> "MixedMesh":
        """Make a mesh from valid arrays; see `from_arrays`. Check that elements fit together.

        Outer faces that the boundary does not list get the attribute ``exterior``, unless it is 0.
        """
        parts, first = [], 0
        for name, rows in corners.items():
            x, places = nodes[name], np.arange(first, first + len(rows))
            if SHAPES[name].simplex:
                rows, x = simplices.ascending(rows, x)  # noqa: PLW2901
            try:
                checks.geometry(x)
            except MeshGeometryError as error:
                raise MeshGeometryError(f"of the {name} {error}") from error.__cause__
            tags = checks.attribute_array(attributes.get(name), len(rows), f"attributes of {name}")
            none = np.zeros((0, SHAPES[name].most_face_corners), dtype=np.int64)
            own = _or(file_elements, name, places)
            try:
                mesh = Mesh.assemble(rows, x, num_vertices, tags, none, file_elements=own)
            except MeshTopologyError as error:
                raise MeshTopologyError(f"of the {name} {error}") from error.__cause__
            parts.append(mesh)
            first += len(rows)
        rest = exterior, labels
        names = element_names, boundary_names
        return cls(_joined(parts, boundary, boundary_attributes, names, *rest))

    @classmethod
    def of_parts(cls, parts: Sequence[Mesh]) -> "MixedMesh":
        """Make a mesh of parts that have their boundary entries, and vertices of the whole mesh."""
        found = []
        for part, joined in zip(parts, _interfaces(parts), strict=True):
            mesh = replace(part)
            mesh.__dict__["topology"] = replace(part.topology, joined=joined)
            found.append(mesh)
        return cls(tuple(found))

    @property
    def dim(self) -> int:
        """Dimension of the elements and of space, 2 or 3."""
        return self.parts[0].dim

    @property
    def plural(self) -> str:
        """Words for the elements, as "prisms and tetrahedra"."""
        names = [part.cell.plural for part in self.parts]
        return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)

    @property
    def num_elements(self) -> int:
        """Number of elements of all parts."""
        return sum(part.num_elements for part in self.parts)

    @property
    def num_boundary(self) -> int:
        """Number of boundary entries of all parts."""
        return sum(part.num_boundary for part in self.parts)

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self.parts[0].num_vertices

    @property
    def order(self) -> int:
        """Highest degree of the coordinates of a part."""
        return max(part.order for part in self.parts)

    @property
    def whole_coarser(self) -> None:
        """None: a mesh of several shapes does not keep the one from which it was refined."""
        return None

    @property
    def conforming(self) -> bool:
        """True: no mesh of several shapes is refined locally."""
        return True

    @cached_property
    def element_attributes(self) -> Attributes:
        """Attributes (ne,) of the elements, part by part."""
        return np.concatenate([part.element_attributes for part in self.parts])

    @cached_property
    def boundary_attributes(self) -> Attributes:
        """Attributes (nb,) of the boundary entries, part by part."""
        return np.concatenate([part.boundary_attributes for part in self.parts])

    @property
    def element_names(self) -> Names:
        """Element attributes by name."""
        return self.parts[0].element_names

    @property
    def boundary_names(self) -> Names:
        """Boundary attributes by name."""
        return self.parts[0].boundary_names

    @cached_property
    def continuous(self) -> bool:
        """True if neighbours have the same positions on shared faces, edges and vertices."""
        if any(checks.gaps(part.coordinates, part.topology).any() for part in self.parts):
            return False
        count = np.zeros(self.num_vertices, dtype=np.int64)
        for part in self.parts:
            count[np.unique(part.elements)] += 1
        beside = [(count[part.elements] > 1).any(axis=1) for part in self.parts]
        degree, pairs = self.order, [*zip(self.parts, beside, strict=True)]
        shapes = [(part.cell, part.elements[some]) for part, some in pairs]
        numbers, size = shared_lattice(shapes, degree)
        found = [
            positions(part.coordinates[some], equispaced_grid(part.cell, degree))
            for part, some in pairs
        ]
        shared = np.zeros((size, self.dim))
        for mine, x in zip(numbers, found, strict=True):
            shared[mine] = x
        return not any(
            checks.apart(x, shared[mine]).any() for mine, x in zip(numbers, found, strict=True)
        )

    def lattice(self, degree: int) -> tuple[list[Ints], int]:
        """Numbers (ne, nodes) of equispaced nodes in the elements of each part, and their count.

        Elements that share a face, an edge or a vertex share the nodes there.
        """
        return shared_lattice([(part.cell, part.elements) for part in self.parts], degree)

    @checked(MeshArgumentError)
    def reordered(self, permutation: ArrayLike) -> "MixedMesh":
        """Return the mesh with the elements of each part in another order.

        The permutation (ne,) is of all elements, which are counted part by part. The elements of a
        part come in the order in which the permutation has them: parts stay together.

        Raises
        ------
        MeshArgumentError
            If `permutation` is no permutation of all elements.
        """
        order = checks.permutation(permutation, self.num_elements)
        made, first = [], 0
        for part in self.parts:
            last = first + part.num_elements
            made.append(part.reordered(order[(order >= first) & (order < last)] - first))
            first = last
        return MixedMesh.of_parts(made)

    def bounding_box(self) -> tuple[Floats, Floats]:
        """Smallest and largest coordinates (dim,) of the nodes. Curved sides may bulge further."""
        lows, highs = zip(*(part.bounding_box() for part in self.parts), strict=True)
        return np.min(lows, axis=0), np.max(highs, axis=0)

    def volume(self) -> float:
        """Area or volume. The quadrature is exact for the polynomial geometry."""
        return sum(part.volume() for part in self.parts)

    def element_centers(self) -> Floats:
        """Physical position (ne, dim) of the middle of each reference element, part by part."""
        return np.concatenate([part.element_centers() for part in self.parts])

    @checked(MeshArgumentError)
    def curved(self, order: Degree) -> "MixedMesh":
        """Return the same mesh with coordinates of a degree not below the present degree.

        Raises
        ------
        MeshArgumentError
            If `order` is below the present degree: geometry would be lost.
        """
        return MixedMesh(tuple(part.curved(order) for part in self.parts))

    @checked(MeshArgumentError)
    def mapped(self, function: PointMap, order: Degree | None = None) -> "MixedMesh":
        """Move every node x to function(x); see `Mesh.mapped`.

        Raises
        ------
        MeshGeometryError
            If the function returns another shape, or positions that invert elements.
        """
        return MixedMesh(tuple(part.mapped(function, order) for part in self.parts))

    def with_nodes(self, coordinates: Mapping[str, ArrayLike]) -> "MixedMesh":
        """Return the mesh with other coordinates of the elements of some shapes; see `from_arrays`.

        Raises
        ------
        MeshGeometryError
            If elements are inverted.
        MeshArgumentError
            If the mesh has no elements of a shape, or coordinates are not real numbers.
        """
        known = [part.cell.plural for part in self.parts]
        unknown = [name for name in coordinates if name not in known]
        if unknown:
            raise MeshArgumentError(
                f"coordinates of {unknown[0]!r}: the mesh has {self.plural}, whose names are "
                f"{', '.join(known)}"
            )
        found = [
            part.with_nodes(coordinates[name]) if name in coordinates else part
            for name, part in zip(known, self.parts, strict=True)
        ]
        return MixedMesh(tuple(found))

    def with_attributes(
        self, elements: ArrayLike | None = None, boundary: ArrayLike | None = None
    ) -> "MixedMesh":
        """Return the mesh with other attributes of elements, of boundary entries, or both.

        Parameters
        ----------
        elements, boundary
            Shapes (ne,) and (nb,), part by part: positive whole numbers, without names; None for
            no change.

        Raises
        ------
        MeshTopologyError
            If their number is wrong or one is not positive.
        """
        changes: dict[str, Any] = {}
        if elements is not None:
            inside = checks.attribute_array(elements, self.num_elements, "elements")
            changes |= {"element_attributes": inside, "element_names": {}}
        if boundary is not None:
            outside = checks.attribute_array(boundary, self.num_boundary, "boundary")
            changes |= {"boundary_attributes": outside, "boundary_names": {}}
        return self._marked(changes)

    @checked(MeshArgumentError)
    def with_names(
        self,
        elements: Mapping[str, Named] | None = None,
        boundary: Mapping[str, Named] | None = None,
    ) -> "MixedMesh":
        """Return the mesh with other names for parts of its elements, or of its boundary, or both.

        See `Mesh.with_names`.

        Each name stands for one or several attributes, as in ``{"walls": (1, 4)}``. None keeps the
        names that there are.

        Raises
        ------
        MeshArgumentError
            If a name refers to an attribute that the mesh does not have, or a predicate returns
            something else, chooses nothing, or is true at outer faces that the mesh does not list.
        """
        changes: dict[str, Any] = {}
        if elements is not None:
            inside = named_parts(elements, self.element_attributes, self.element_centers)
            changes |= zip(("element_attributes", "element_names"), inside, strict=True)
        if boundary is not None:
            outside = named_parts(
                boundary,
                self.boundary_attributes,
                partial(self._face_centers, lambda topology: topology.boundary_faces),
                partial(self._face_centers, lambda topology: topology.unlisted_faces()),
            )
            changes |= zip(("boundary_attributes", "boundary_names"), outside, strict=True)
        return self._marked(changes)

    def _face_centers(self, faces: Callable[[Topology], Ints]) -> Floats:
        """Middles (n, dim) of some faces of each part."""
        return np.concatenate(
            [face_centers(part.coordinates, faces(part.topology)) for part in self.parts]
        )

    def _marked(self, changes: Mapping[str, Any]) -> "MixedMesh":
        """Return the mesh with other attributes, part by part, and other names."""
        made, first, beside = [], 0, 0
        for part in self.parts:
            mine = dict(changes)
            last, end = first + part.num_elements, beside + part.num_boundary
            for name, some in (
                ("element_attributes", slice(first, last)),
                ("boundary_attributes", slice(beside, end)),
            ):
                if name in mine:
                    mine[name] = mine[name][some]
            made.append(part._replaced(**mine))
            first, beside = last, end
        return MixedMesh(tuple(made))

    @checked(MeshArgumentError)
    def refine(self, times: int = 1) -> "MixedMesh":
        """Split every triangle and quadrilateral into 4, every element of 3-D into 8.

        Children of an element are consecutive. Attributes are inherited.

        Raises
        ------
        MeshArgumentError
            If `times` is no whole number >= 0, or the result would not fit into memory.
        """
        shapes = [part.coordinates.shape for part in self.parts]
        made: MixedMesh = refinement.refined(self, times, shapes, _refined)
        return made

    def check_folds(self) -> None:
        """Check that elements do not overlap at the faces and vertices that they share."""
        checks.folds(*((p.elements, p.coordinates, p.topology) for p in self.parts))

    def validate(self) -> None:
        """Check vertex numbers, that elements fit together, and that no element is inverted.

        Raises
        ------
        MeshTopologyError
            If vertex numbers dangle, or elements don't fit together.
        MeshGeometryError
            If coordinates are not finite, or elements are inverted or overlap.
        """
        for part in self.parts:
            part.validate()
        _interfaces(self.parts)

    def __repr__(self) -> str:
        rows = "\n".join(f"  {name:<9} {value}" for name, value in _contents(self))
        return f"MixedMesh\n{rows}"

    def _repr_html_(self) -> str:
        return html.table("MixedMesh", _contents(self))


def _contents(mesh: MixedMesh) -> list[tuple[str, str]]:
    """Names and values of a small table of the mesh's contents."""
    lower, upper = mesh.bounding_box()
    spans = " x ".join(f"[{a:.6g}, {b:.6g}]" for a, b in zip(lower, upper, strict=True))
    counts = ", ".join(f"{part.num_elements} {part.cell.plural}" for part in mesh.parts)
    inside = listing(mesh.element_attributes, mesh.element_names)
    outside = listing(mesh.boundary_attributes, mesh.boundary_names)
    return [
        ("elements", f"{counts}, attributes {inside}"),
        ("boundary", f"{mesh.num_boundary} faces, attributes {outside}"),
        ("vertices", f"{mesh.num_vertices}"),
        ("geometry", f"degree {mesh.order}, in {spans}"),
    ]


def _or(given: Mapping[str, Ints] | None, name: str, other: Ints) -> Ints:
    return other if given is None else given[name]


def _check_shapes(elements: Mapping[str, Any]) -> None:
    unknown = [name for name in elements if name not in SHAPES]
    if unknown or not elements:
        what = f"elements of the shape {unknown[0]!r}" if unknown else "no elements"
        cure = (
            "; pyramids are not taken: mesh without them, or split all into hexahedra by "
            "femops.read_mesh(path, split=True)"
            if unknown and "pyramid" in str(unknown[0])
            else ""
        )
        raise MeshArgumentError(f"{what}: give them by name, of {', '.join(SHAPES)}{cure}")
    if len({SHAPES[name].dim for name in elements}) > 1:
        raise MeshArgumentError(f"elements of several dimensions: {', '.join(elements)}")


def _check_keys(shapes: Mapping[str, Any], **given: Mapping[str, Any] | None) -> None:
    """Raise if arrays are given for a shape that is not there, which would be left out."""
    for what, arrays in given.items():
        unknown = [name for name in arrays or () if name not in shapes]
        if unknown:
            raise MeshArgumentError(
                f"{what} have the shape {unknown[0]!r}: there are {', '.join(shapes) or 'none'}"
            )


def _faces(boundary: Mapping[str, ArrayLike], used: Ints, around: bool) -> dict[str, Ints]:
    """Vertex numbers (n, corners) of faces by shape, counted among the used ones."""
    found = {}
    for name, given in boundary.items():
        if name not in FACES:
            raise MeshArgumentError(f"faces of the shape {name!r}: give {', '.join(FACES)}")
        rows = checks.corner_array(given, "boundary", (FACES[name],))
        if around and name == "quadrilaterals":
            rows = rows[:, VTK_CORNERS[2]]
        found[name] = checks.compress_boundary(rows, used) if len(rows) else rows
    return found


# --- faces between parts --------------------------------------------------------------------------


def _outward(part: Mesh, sides: Ints) -> Flags:
    """True (n,) if the corners of a face, from its lowest to its next, turn outwards."""
    rows = outward_corners(part.elements, sides, part.cell)
    if part.cell.simplex:
        opposite = sides[:, 1] - part.cell.face_codes[0]
        turns = opposite + simplices.mirrored(part.coordinates[sides[:, 0]])
        return np.asarray(turns % 2 == 0)
    found = swaps(rows[:, :3] if part.dim == 3 else rows) % 2 == 0
    quads = np.flatnonzero(rows[:, -1] >= 0) if part.dim == 3 else np.zeros(0, dtype=np.int64)
    some = rows[quads]
    place = some.argmin(axis=1)
    at = np.arange(len(some))
    turn = quad_orientation(
        some, some.min(axis=1), np.minimum(some[at, place ^ 1], some[at, place ^ 2])
    )
    found[quads] = np.array([code.bit_count() % 2 == 0 for code in range(8)])[turn]
    return np.asarray(found)


def _interfaces(parts: Sequence[Mesh], labels: Labels | None = None) -> list[Ints]:
    """Ascending numbers of the faces of each part at which another part has an element."""
    labels = labels or _labels(parts)
    alone = [faces_of_one(part) for part in parts]
    sides = [sides_of(part, faces) for part, faces in zip(parts, alone, strict=True)]
    keys = corner_keys(parts, sides)
    owner = np.repeat(np.arange(len(parts)), [len(faces) for faces in alone])
    first, second = equal_rows(keys)
    if len(np.unique(np.append(first, second))) < 2 * len(first):
        raise MeshTopologyError(
            "faces belong to more than two elements: a face joins at most two; remove elements"
        )
    where = np.concatenate(sides)
    out = np.concatenate([_outward(p, s) for p, s in zip(parts, sides, strict=True)])
    bad = np.flatnonzero(out[first] == out[second])
    if len(bad):
        pair = [_named(parts, owner[k], where[k], labels) for k in (first[bad[0]], second[bad[0]])]
        raise MeshGeometryError(
            f"elements overlap: both elements of {len(bad)} face(s) lie on the same side of it, "
            f"{pair[0]} and {pair[1]} ({labels[1]}) the first: correct the numbers of their corners"
        )
    paired = np.zeros(len(keys), dtype=np.bool_)
    paired[first] = paired[second] = True
    if parts[0].dim == 3:
        _check_matching(parts, keys, paired, owner, where, labels)
    ends = np.cumsum([len(faces) for faces in alone])[:-1]
    return [
        np.sort(faces[flags]) for faces, flags in zip(alone, np.split(paired, ends), strict=True)
    ]


def _labels(parts: Sequence[Mesh]) -> Labels:
    numbers = {part.cell.plural: part.file_elements for part in parts}
    return numbers, "counted from 0 in the file"


def _named(parts: Sequence[Mesh], part: int, side: Ints, labels: Labels) -> str:
    cell = parts[part].cell
    return f"{cell.name} {int(labels[0][cell.plural][side[0]])}"


def _check_matching(
    parts: Sequence[Mesh], keys: Ints, paired: Flags, owner: Ints, where: Ints, labels: Labels
) -> None:
    """Raise if a triangle is half of a quadrilateral that is no face of the element beside it."""
    three = keys[:, 0] < 0
    quads, flat = np.flatnonzero(~three & ~paired), np.flatnonzero(three & ~paired)
    if not len(quads) or not len(flat):
        return
    halves = [np.delete(keys[quads], k, axis=1) for k in range(4)]
    rows = np.concatenate([keys[flat, 1:], *halves])
    number, count = group_rows(rows, int(rows.max()) + 1)
    at = np.full(count, -1)
    at[number[: len(flat)]] = flat
    found = at[number[len(flat) :]].reshape(4, -1)
    bad = np.flatnonzero((found >= 0).any(axis=0))
    if len(bad):
        quad = quads[bad[0]]
        other = found[:, bad[0]].max()
        raise MeshTopologyError(
            f"{len(bad)} quadrilateral face(s) lie at triangles: that of "
            f"{_named(parts, owner[quad], where[quad], labels)} at a triangle of "
            f"{_named(parts, owner[other], where[other], labels)} ({labels[1]}), the first. Faces "
            "of neighbours must have one shape: prisms meet tetrahedra at triangles, and hexahedra "
            "at quadrilaterals; mesh anew, or split all elements into hexahedra by "
            "femops.read_mesh(path, split=True)"
        )


def _joined(
    parts: Sequence[Mesh],
    boundary: Mapping[str, Ints] | None,
    attributes: Mapping[str, ArrayLike],
    names: tuple[Names, Names],
    exterior: int = 0,
    labels: Labels | None = None,
) -> tuple[Mesh, ...]:
    """Parts with their interfaces and boundary entries; see `MixedMesh.assemble`."""
    interfaces = _interfaces(parts, labels)
    tags = np.concatenate([part.element_attributes for part in parts])
    if boundary is None:
        listed_faces = [
            sides_of(part, np.setdiff1d(faces_of_one(part), joined))
            for part, joined in zip(parts, interfaces, strict=True)
        ]
        entries = [_exterior(p, s) for p, s in zip(parts, listed_faces, strict=True)]
        numbers = [np.ones(len(rows), dtype=np.int32) for rows in entries]
    else:
        given = {
            name: checks.attribute_array(attributes.get(name), len(rows), f"attributes of {name}")
            for name, rows in boundary.items()
        }
        entries, numbers = _shared_out(parts, boundary, given)
        for k, (part, joined) in enumerate(zip(parts, interfaces, strict=True) if exterior else ()):
            more = _exterior(part, _unlisted(part, entries[k], joined))
            entries[k] = np.concatenate([entries[k], more])
            numbers[k] = np.append(numbers[k], np.full(len(more), exterior, dtype=np.int32))
    inside = names_of(names[0], tags)
    outside = names_of(names[1], np.concatenate(numbers))
    made = []
    for part, joined, rows, own in zip(parts, interfaces, entries, numbers, strict=True):
        topology = Topology.build(part.elements, part.num_vertices, rows, part.cell)
        if part.cell.simplex:
            topology = simplices.with_sides(topology, rows, part.coordinates)
        mesh = replace(
            part,
            boundary=rows,
            boundary_attributes=own,
            element_names=inside,
            boundary_names=outside,
        )
        mesh.__dict__["topology"] = replace(topology, joined=joined)
        made.append(mesh)
    return tuple(made)


def _unlisted(part: Mesh, entries: Ints, joined: Ints) -> Ints:
    """Element and code (n, 2) of the outer faces that no boundary entry lists."""
    at = Topology.build(part.elements, part.num_vertices, entries, part.cell).boundary_faces
    known = part.topology.entity[at[:, 0], at[:, 1]]
    return sides_of(part, np.setdiff1d(faces_of_one(part), np.concatenate([joined, known])))


def _exterior(part: Mesh, sides: Ints) -> Ints:
    """Corners of faces (n, 2), elements and codes, as boundary entries that look outwards."""
    topology = replace(part.topology, boundary_faces=sides)
    rows = exterior_boundary(part.elements, topology)
    if part.cell.simplex:
        inwards = ~_outward(part, sides)
        rows[inwards, :2] = rows[inwards, 1::-1]
    return rows


def _shared_out(
    parts: Sequence[Mesh], boundary: Mapping[str, Ints], attributes: Mapping[str, Attributes]
) -> tuple[list[Ints], list[Attributes]]:
    """Boundary entries, and their attributes, of each part: the first one that has the face."""
    entries: list[list[Ints]] = [[] for _ in parts]
    numbers: list[list[Attributes]] = [[] for _ in parts]
    for name, rows in boundary.items():
        left = np.arange(len(rows))
        for k, part in enumerate(parts):
            codes = [
                c for c in part.cell.face_codes if len(part.cell.entities[c][1]) == FACES[name]
            ]
            if not codes:
                continue
            corners = part.elements[:, [part.cell.entities[c][1] for c in codes]]
            flat = corners.reshape(-1, FACES[name])
            number, count = group_rows(np.concatenate([flat, rows[left]]), part.num_vertices)
            known = np.zeros(count, dtype=np.bool_)
            known[number[: len(flat)]] = True
            mine = known[number[len(flat) :]]
            width = part.cell.most_face_corners
            some = np.pad(rows[left[mine]], [(0, 0), (0, width - FACES[name])], constant_values=-1)
            entries[k].append(some)
            numbers[k].append(attributes[name][left[mine]])
            left = left[~mine]
        if len(left):
            raise MeshTopologyError(
                f"{len(left)} boundary element(s) are not faces of any element: number(s) "
                f"{listed(left)} of the {name} (counted from 0; {left[0]} has vertices "
                f"{rows[left[0]].tolist()}): remove them, or correct their vertex numbers"
            )
    return (
        [
            np.concatenate([np.zeros((0, part.cell.most_face_corners), dtype=np.int64), *each])
            for part, each in zip(parts, entries, strict=True)
        ],
        [np.concatenate([np.zeros(0, dtype=np.int32), *each]) for each in numbers],
    )


def _refined(mesh: MixedMesh) -> MixedMesh:
    """Mesh whose edges are all halved."""
    parts, (shared, first), maps = mesh.parts, mesh.lattice(2), list[Ints]()
    for part, mine in zip(parts, shared, strict=True):
        maps.append(np.full(part.topology.lattice_size(2), -1))
        maps[-1][part.topology.lattice(2)] = mine
    made = []
    for part, numbers in zip(parts, maps, strict=True):
        changes = _halves(part)
        for name in ("elements", "boundary"):
            rows = changes[name]
            changes[name] = np.where(rows < 0, -1, numbers[rows])
        if part.cell.simplex:
            changes["elements"], changes["coordinates"] = simplices.ascending(
                changes["elements"], changes["coordinates"]
            )
        changes["num_vertices"] = first
        made.append(replace(part, **changes, coarser=None))
    return MixedMesh.of_parts(made)


def joined_parts(parts: Sequence[Mesh]) -> MixedMesh:
    """Mesh of parts that have their boundary entries, and fit together."""
    joined: list[list[Ints]] = [[np.zeros(0, dtype=np.int64)] for _ in parts]
    for i, j, one, other in faces_between(parts):
        for k, (elements, codes) in ((i, one.T), (j, other.T)):
            joined[k].append(parts[k].topology.entity[elements, codes])
    found = []
    for part, faces in zip(parts, joined, strict=True):
        mesh = replace(part)
        topology = replace(part.topology, joined=np.sort(np.concatenate(faces)))
        mesh.__dict__["topology"] = topology
        found.append(mesh)
    return MixedMesh(tuple(found))


def _halves(part: Mesh) -> dict[str, Any]:
    """Arrays of a part whose edges are halved, with numbers of its own lattice."""
    if part.cell.simplex:
        return refinement.halved_simplices(part)
    if part.cell.cube:
        mesh = part.refine()
        return {
            "elements": refinement.split_elements(part.topology, 2),
            "coordinates": mesh.coordinates,
            "element_attributes": mesh.element_attributes,
            "boundary": refinement.split_boundary(part.topology, 2)[0],
            "boundary_attributes": mesh.boundary_attributes,
            "file_elements": mesh.file_elements,
        }
    return refinement.halved_prisms(part)
