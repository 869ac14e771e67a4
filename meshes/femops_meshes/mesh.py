"""The mesh: elements, their coordinates, attributes and boundary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_common import html
from femops_common.arguments import Degree, call_with_arrays, check_takes, checked
from femops_common.hints import OF_MESHES
from femops_meshes import checks, refinement
from femops_meshes.coarsening import Coarsening, halved
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.hanging import HangingNodes, nodal_halves, with_larger_nodes
from femops_meshes.coordinates.mapping import (
    determinants,
    face_centers,
    gauss_legendre,
    gauss_lobatto,
    geometry_degree,
    jacobians,
    lagrange_matrix,
    positions,
    tensor_apply,
)
from femops_meshes.errors import MeshArgumentError, MeshGeometryError, MeshTopologyError
from femops_meshes.forest import CoarserLeaves, Forest, whole_trees
from femops_meshes.names import Chosen, Named, Names, Parts, chosen_elements, listing, named_parts
from femops_meshes.topology.entities import (
    CUBES,
    VTK_CORNERS,
    Cell,
    Cells,
    cell_and_degree,
    cell_of,
    outward_corners,
)
from femops_meshes.topology.topology import Topology, exterior_boundary

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Attributes = NDArray[np.int32]
PointMap = Callable[[Floats], ArrayLike]

SPLITS: dict[str, Callable[["Mesh"], Any]] = {}
"""Ways to split a mesh by modules that import this one, by the shape of the parts."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Mesh:
    """An immutable mesh of segments, quadrilaterals, hexahedra, triangles or tetrahedra.

    It conforms, unless elements were refined locally, by `refined`: then elements may be half as
    large as their neighbours.

    Every vertex number from 0 to num_vertices - 1 is used by an element. The physical dimension is
    that of the elements. Coordinates are stored element by element, so neighbours may have
    different positions for shared vertices, as in periodic meshes. A mesh may be empty.

    Attributes
    ----------
    elements
        Shape (ne, corners) int64: vertex numbers, of lexicographic corners (x fastest), or of a
        simplex ascending.
    coordinates
        Shape (ne, nodes, dim) float64: nodal at the (g + 1)**dim Gauss-Lobatto points of degree g,
        lexicographic; of a simplex at the nodes of `femops_meshes.coordinates.simplices`. Any unit
        of length.
    element_attributes
        Shape (ne,) int32, positive.
    boundary
        Shape (nb, corners) int64: vertex numbers of boundary faces, lexicographic corners.
    boundary_attributes
        Shape (nb,) int32, positive.
    num_vertices
        Number of vertices.
    file_elements
        Shape (ne,) int64: position of each element in the order of its file (or generator). After a
        refinement, child c (lexicographic) of the element at position k has position
        k * 2**dim + c. Once elements were refined locally, the elements of each tree follow a
        Hilbert curve, as MFEM orders them.
    element_names, boundary_names
        Attributes by name, {name: (number, ...)}; empty if the file has no names.
    coarser
        Coarsening of a refined mesh or a generated grid, which multigrid methods use; else None.
        After local refinement it is that of `coarsened`, whose elements may hang, and `forest`
        determines it.
    forest
        Trees of a mesh that was refined locally; else None.

    See Also
    --------
    Mesh.from_arrays : Make a mesh, with checks.
    """

    elements: Ints
    coordinates: Floats
    element_attributes: Attributes
    boundary: Ints
    boundary_attributes: Attributes
    num_vertices: int
    file_elements: Ints
    element_names: Names = field(default_factory=dict)
    boundary_names: Names = field(default_factory=dict)
    coarser: Coarsening | CoarserLeaves | None = None
    forest: Forest | None = None
    _given_as = "a mesh, as femops.box(counts) or femops.read_mesh(path)"

    def __post_init__(self) -> None:
        """Check that the arrays fit each other, and make them read-only."""
        checks.shapes(self)
        if isinstance(self.forest, Forest):
            object.__setattr__(self, "coarser", self.forest.coarser)
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    if not TYPE_CHECKING:  # for type checkers there are no other attributes

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the replacement for an attribute of other libraries."""
            if name in OF_MESHES:
                raise AttributeError(f"a Mesh has no attribute {name!r}: write {OF_MESHES[name]}")
            return object.__getattribute__(self, name)  # the error, also of a property

    @classmethod
    @checked(MeshArgumentError)
    def from_arrays(
        cls,
        vertices: ArrayLike | None,
        elements: ArrayLike,
        element_attributes: ArrayLike | None = None,
        boundary: ArrayLike | None = None,
        boundary_attributes: ArrayLike | None = None,
        coordinates: ArrayLike | None = None,
        corner_order: Literal["lexicographic", "vtk"] = "lexicographic",
        cell: Literal["tetrahedron"] | None = None,
    ) -> "Mesh":
        """Make a mesh from arrays, which are copied and checked.

        Parameters
        ----------
        vertices
            Shape (nv, dim): positions of the vertices; may be None if `coordinates` are given.
        elements
            Shape (ne, 2**dim), or (ne, dim + 1) of triangles and tetrahedra: vertex numbers,
            counted from 0. Vertices of no element are dropped; the others keep their order. Rows
            of simplices are sorted.
        element_attributes, boundary_attributes
            Positive whole numbers, one per element and one per boundary entry; None for all 1.
        boundary
            Shape (nb, 2**(dim-1)), or (nb, dim) of simplices: vertex numbers; None for all exterior
            faces. An entry between two elements belongs to the element that its corners look out
            of.
        coordinates
            Shape (ne, nodes, dim), see `Mesh`; None for straight elements.
        corner_order
            "lexicographic" (x fastest) or "vtk" (around the quadrilateral, bottom before top), for
            elements and boundary.
        cell
            "tetrahedron" if elements with four corners are tetrahedra. By default they are
            quadrilaterals.

        Raises
        ------
        MeshTopologyError
            If shapes don't fit, vertex numbers dangle, or elements don't fit together.
        MeshGeometryError
            If coordinates are not finite or elements are inverted.
        MeshArgumentError
            If `corner_order` or `cell` is unknown, `vertices` and `coordinates` are both None, or
            rows differ in length.
        """
        cells = checks.corner_array(elements, "elements", (2, 3, 4, 8))
        shape = checks.cell_of_corners(cells.shape[1], cell)
        dim = shape.dim
        if corner_order not in ("lexicographic", "vtk"):
            raise MeshArgumentError(
                f'corner_order is "lexicographic" or "vtk", got {corner_order!r}'
            )
        faces = None
        if boundary is not None:
            width = len(shape.entities[shape.face_codes[0]][1])
            faces = checks.corner_array(boundary, "boundary", (width,))
        if corner_order == "vtk" and shape.cube:
            cells = cells[:, VTK_CORNERS[dim]]
            faces = faces if faces is None or dim == 1 else faces[:, VTK_CORNERS[dim - 1]]
        nodes = checks.node_coordinates(vertices, coordinates, cells, dim)
        cells, used = checks.compress_vertices(cells)
        if shape.simplex:
            cells, nodes = simplices.ascending(cells, nodes)
        faces = None if faces is None else checks.compress_boundary(faces, used)
        mesh = cls.assemble(cells, nodes, len(used), element_attributes, faces, boundary_attributes)
        around = "; corners that go around a quadrilateral need corner_order='vtk'"
        plain = corner_order == "lexicographic" and dim > 1 and shape.cube
        checks.geometry(mesh.coordinates, around * plain)
        if coordinates is None:
            checks.folds((mesh.elements, mesh.coordinates, mesh.topology))
        return mesh

    @classmethod
    def assemble(
        cls,
        elements: Ints,
        coordinates: Floats,
        num_vertices: int,
        element_attributes: ArrayLike | None = None,
        boundary: Ints | None = None,
        boundary_attributes: ArrayLike | None = None,
        topology: Topology | None = None,
        file_elements: Ints | None = None,
    ) -> "Mesh":
        """Make a mesh from valid arrays, without copying; find its topology and boundary.

        Parameters are as in `from_arrays`. Pass the topology of elements and boundary if it is
        known. Pass `file_elements` (ne,) if the elements have another order in the file.

        Raises
        ------
        MeshTopologyError
            If elements don't fit together or the attributes' shapes are wrong.
        """
        if topology is None:
            topology = _topology(elements, coordinates, num_vertices, boundary)
        if boundary is None:
            boundary = exterior_boundary(elements, topology)
        mesh = cls(
            elements,
            coordinates,
            checks.attribute_array(element_attributes, len(elements), "element_attributes"),
            boundary,
            checks.attribute_array(boundary_attributes, len(boundary), "boundary_attributes"),
            num_vertices,
            np.arange(len(elements), dtype=np.int64) if file_elements is None else file_elements,
        )
        mesh.__dict__["topology"] = topology  # cached_property keeps its value here
        return mesh

    @property
    def dim(self) -> int:
        """Dimension of the elements and of space, 1 to 3."""
        return int(self.coordinates.shape[2])

    @property
    def parts(self) -> tuple["Mesh"]:
        """The mesh itself; a `MixedMesh` has a part for each shape."""
        return (self,)

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return len(self.elements)

    @property
    def num_boundary(self) -> int:
        """Number of boundary entries."""
        return len(self.boundary)

    @property
    def order(self) -> int:
        """Degree g of the coordinates."""
        return cell_and_degree(self.coordinates.shape[1], self.dim)[1]

    @property
    def cell(self) -> Cell:
        """Reference cell of the elements: its name and its entities."""
        return cell_of(self.elements.shape[1], self.dim)

    @cached_property
    def topology(self) -> Topology:
        """Edges and faces, their orientations, and the elements at each face."""
        if self.forest is not None:
            known = self.__dict__.get("_sides")
            return self.forest.topology(self.elements, self.num_vertices, self.boundary, known)
        return _topology(self.elements, self.coordinates, self.num_vertices, self.boundary)

    @cached_property
    def _sides(self) -> Ints:
        """Element and code (nb, 2) of each boundary entry."""
        return self.topology.boundary_faces

    @cached_property
    def continuous(self) -> bool:
        """True if neighbours have the same positions on shared faces; False for periodic meshes."""
        hanging = None
        if not self.conforming:
            larger = self.larger_nodes()
            hanging = larger, self._interpolated(larger)
        return not checks.gaps(self.coordinates, self.topology, hanging).any()

    def _check_trees(self) -> None:
        """Raise if elements have no trees: simplices, and parts of locally refined meshes."""
        if not self.cell.cube:
            raise MeshArgumentError(
                f"{self.cell.plural} are not refined locally yet: mesh.refine() splits all, and "
                "femops.read_mesh(path, split=True) makes meshes that can be"
            )
        self._check_whole_trees()

    def _check_whole_trees(self) -> None:
        """Raise on parts of locally refined meshes."""
        known = self.__dict__.get("topology")
        if self.forest is None and known is not None and known.carriers is not None:
            raise MeshArgumentError(
                "a part of a locally refined mesh has no whole trees: change the mesh of all ranks"
            )

    def larger_nodes(self) -> Floats:
        """Coordinates with the nodes of larger entities in the places of hanging ones."""
        carriers = self.topology.carriers
        if carriers is None or self.conforming:
            return self.coordinates
        return with_larger_nodes(self.coordinates, carriers.hanging, self.trees.siblings)

    def _interpolated(self, larger: Floats) -> Floats:
        """Coordinates of hanging entities from those of the larger ones in their places."""
        carriers = self.topology.carriers
        if carriers is None or self.conforming:
            return larger
        halves = nodal_halves(geometry_degree(larger.shape[1], self.dim))
        hanging = HangingNodes(self.dim, self.num_elements, carriers.hanging, halves)
        return hanging.interpolated(larger, slice(None))

    @property
    def conforming(self) -> bool:
        """False if smaller elements share part of a face or edge of a larger one; see `refined`."""
        carriers = self.topology.carriers
        return carriers is None or not len(carriers.hanging)

    @property
    def whole_coarser(self) -> Coarsening | None:
        """`coarser` if its elements conform, as after `refine`; None after local refinement."""
        return None if isinstance(self.coarser, CoarserLeaves) else self.coarser

    def bounding_box(self) -> tuple[Floats, Floats]:
        """Smallest and largest coordinates (dim,) of the nodes. Curved sides may bulge further.

        An empty mesh has inf and -inf.
        """
        nodes = self.coordinates.reshape(-1, self.dim)
        return nodes.min(axis=0, initial=np.inf), nodes.max(axis=0, initial=-np.inf)

    def volume(self) -> float:
        """Length, area or volume. The quadrature is exact for the polynomial geometry."""
        if not self.cell.cube:
            prism = self.cell.shape == "prism"  # det J has the degree 3g - 1 along its segment
            points, product = simplices.rule(self.cell, self.dim * (self.order - 1) + 2 * prism)
            product = product * self.cell.volume
        else:
            points, weights = gauss_legendre((self.dim * self.order + 1) // 2)
            product = weights
            for _ in range(self.dim - 1):
                product = np.multiply.outer(weights, product).ravel()
        total = 0.0
        for some in checks.element_ranges(self.num_elements, len(product)):
            J = jacobians(self.coordinates[some], points)
            total += float(np.abs(determinants(J) @ product).sum())
        return total

    def element_centers(self) -> Floats:
        """Physical position (ne, dim) of the middle of each reference element."""
        return positions(self.coordinates, self.cell.middle)[:, 0]

    @checked(MeshArgumentError)
    def refine(self, times: int = 1) -> "Mesh":
        """Split every element into 2**dim, `times` times, without changing the geometry.

        Children of an element are consecutive. Attributes are inherited.

        Raises
        ------
        MeshArgumentError
            If `times` is no whole number >= 0, or the result would not fit into memory.
        """
        shapes = (self.coordinates.shape,)
        return cast(Mesh, refinement.refined(self, times, shapes, Mesh._refined_once))

    def simplices(self) -> "Mesh":
        """Split quadrilaterals into two triangles, or hexahedra into six tetrahedra.

        No vertices are added. The vertex with the lowest number of each face is on its diagonal.
        Coordinates keep their degree: on curved elements the interpolant at the new nodes takes the
        place of the map. Parts of an element follow each other, and inherit its attribute.

        Raises
        ------
        MeshArgumentError
            If the mesh has segments or simplices, is refined locally, or its degree is above 6.
        """
        if self.dim == 1 or not self.cell.cube or not self.conforming:
            raise MeshArgumentError(
                "simplices() takes meshes of quadrilaterals or hexahedra that conform"
            )
        checks.simplex_degree(self.order)
        mesh = replace(self, **refinement.into_simplices(self))
        checks.geometry(mesh.coordinates)
        return mesh

    def prisms(self) -> Any:
        """Split hexahedra into two prisms each, along the third direction: a `MixedMesh`.

        No vertices are added. The parts of an element follow each other, and inherit its attribute.
        Curved elements keep their degree, as by `simplices`.

        Raises
        ------
        MeshArgumentError
            If the mesh has no hexahedra, is refined locally, or its degree is above 6.
        MeshTopologyError
            If the hexahedra form no columns along their third direction, with one diagonal in each.
        """
        return SPLITS["prisms"](self)

    def split(self, cells: Cells | None) -> "Mesh":
        """Split elements as generators do, into ``cells``; None for no split.

        Type checkers take a mesh of prisms for a `Mesh`.
        """
        if cells == "prisms":
            return self.prisms()  # type: ignore[no-any-return]
        return self if cells in (None, self.cell.plural) else self.simplices()

    def _refined_once(self) -> "Mesh":
        if self.cell.simplex:
            return replace(self, **refinement.halved_simplices(self))
        self._check_trees()
        if self.forest is not None:
            return self._halved(np.ones(self.num_elements, dtype=np.bool_))
        count = 2**self.dim
        boundary, parents = refinement.split_boundary(self.topology, 2)
        return replace(
            self,
            elements=refinement.split_elements(self.topology, 2),
            coordinates=refinement.split_coordinates(self.coordinates, 2),
            element_attributes=np.repeat(self.element_attributes, count),
            boundary=boundary,
            boundary_attributes=self.boundary_attributes[parents],
            num_vertices=self.topology.lattice_size(2),
            file_elements=(self.file_elements[:, None] * count + np.arange(count)).ravel(),
            coarser=halved(
                self.elements, self.num_vertices, self.num_elements, self.dim, self.whole_coarser
            ),
        )

    @checked(MeshArgumentError)
    def refined(self, elements: Chosen | None = None, *, attributes: Parts = None) -> "Mesh":
        """Halve some elements in all directions, without changing the geometry.

        Elements that touch a new one, even at a vertex, and are more than one level above it are
        halved too; ``mesh.forest.level`` has the level of each element. So the mesh no longer
        conforms, but spaces on it do: functions of `H1` are continuous, and no dofs hang. The
        halves of an element take its place one after the other. Attributes and names are inherited.

        Parameters
        ----------
        elements
            Numbers of elements, a mask (ne,), or a predicate of the middles x (dim, n) of all
            elements that returns n booleans. None, without `attributes`, for all elements.
        attributes
            Attributes or names of elements, or several: elements that have one are halved, too.

        Returns
        -------
        Mesh
            The mesh itself if nothing is chosen.

        Raises
        ------
        MeshArgumentError
            If there are no such elements or attributes, or a tree would have too many levels.
        """
        chosen = chosen_elements(self, elements, attributes)
        if chosen.all() and self.forest is None:
            return self.refine(1 if len(chosen) else 0)
        return self._halved(chosen).balanced() if chosen.any() else self

    def balanced(self, most: int | None = None) -> "Mesh":
        """Refine elements of trees that are more than one level above an element that touches them.

        `refined` does so by itself. It is an error if the mesh would have more elements than
        ``most``.
        """
        mesh, chosen = self, self.trees.unbalanced()
        while chosen.any():
            count = mesh.num_elements + int(chosen.sum()) * (2**self.dim - 1)
            if most is not None and count > most:
                raise MeshArgumentError(
                    f"more than {most} elements would be needed so that those that touch each "
                    "other differ by one level at most: refine more evenly"
                )
            mesh = mesh._halved(chosen)
            chosen = mesh.trees.unbalanced()
        return mesh

    @checked(MeshArgumentError)
    def coarsened(self, elements: Chosen | None = None, *, attributes: Parts = None) -> "Mesh":
        """Undo refinements: give way to the parents of some elements.

        A parent comes back if all its halves are elements, and are chosen, and if it is not more
        than one level above an element that touches it. Its nodes are where its halves have them:
        the geometry is the same, unless the mesh was moved after the refinement. Then smaller
        neighbours take the faces of the parent. The parent has the attribute of its first half, its
        faces those of the first halves with boundary entries, and it takes the place of its first
        half.

        Parameters
        ----------
        elements, attributes
            As for `refined`.

        Returns
        -------
        Mesh
            The mesh itself if no parent can come back.

        Raises
        ------
        MeshArgumentError
            If there are no such elements or attributes, or the mesh was never refined.
        MeshGeometryError
            If a mesh that was moved after its refinement would have inverted elements.
        """
        chosen = chosen_elements(self, elements, attributes)
        forest = self.trees
        if not forest.depth and self.forest is None:
            raise MeshArgumentError(
                "the mesh was never refined, so nothing can be coarsened: `refine` and `refined` "
                "make meshes that remember their parents; files and generators do not"
            )
        found = forest.coarsened(chosen)
        return self if found is None else self._merged(*found)

    @property
    def trees(self) -> Forest:
        """Trees of the mesh; those of a mesh that was refined as a whole are made anew."""
        self._check_trees()
        if self.forest is not None:
            return self.forest
        return whole_trees(self.elements, self.topology, self.whole_coarser, self.file_elements)

    def _halved(self, chosen: NDArray[np.bool_]) -> "Mesh":
        """Mesh in which the chosen elements (ne,) are halved, whatever their neighbours are."""
        forest = self.trees.split(chosen)
        shape = len(forest.root), *self.coordinates.shape[1:]
        refinement.check_fits(shape, f"refining {chosen.sum()} elements", "refine less")
        count = np.where(chosen, 2**self.dim, 1)
        source, start = np.repeat(np.arange(len(count)), count), np.cumsum(count) - count
        coordinates = self.coordinates[source]
        coordinates[chosen[source]] = refinement.split_coordinates(self.coordinates[chosen], 2)
        faces, parents = refinement.split_faces(self.dim, self._sides, chosen, start)
        return self._on_trees(
            forest,
            faces,
            coordinates=coordinates,
            element_attributes=self.element_attributes[source],
            boundary_attributes=self.boundary_attributes[parents],
        )

    def _merged(self, forest: Forest, source: Ints, families: Ints) -> "Mesh":
        """Mesh in which families (n, 2**dim) of elements give way to their parents."""
        coordinates = self.coordinates[source]
        at = np.searchsorted(source, families.min(axis=1))
        coordinates[at] = refinement.joined_coordinates(self.coordinates[families])
        new = np.searchsorted(source, np.arange(self.num_elements), side="right") - 1
        new[families] = at[:, np.newaxis]
        faces = self._sides
        numbers = np.stack([new[faces[:, 0]], faces[:, 1], self.boundary_attributes], axis=1)
        kept = np.sort(np.unique(numbers[:, :2], axis=0, return_index=True)[1])
        mesh = self._on_trees(
            forest,
            numbers[kept, :2],
            coordinates=coordinates,
            element_attributes=self.element_attributes[source],
            boundary_attributes=self.boundary_attributes[kept],
        )
        # smaller neighbours take the faces of parents: their own may have been moved apart
        mesh = mesh._replaced(coordinates=mesh._interpolated(mesh.larger_nodes()))
        changed = np.flatnonzero((mesh.coordinates != self.coordinates[source]).any(axis=(1, 2)))
        checks.geometry(
            mesh.coordinates[changed],
            "; coarsening moved them, as the mesh was moved after its refinement",
        )
        return mesh

    def _on_trees(self, forest: Forest, faces: Ints, **changes: Any) -> "Mesh":
        """Mesh of the leaves of trees, with boundary entries at faces (nb, 2)."""
        elements, num_vertices = forest.elements
        mesh = replace(
            self,
            elements=elements,
            boundary=outward_corners(elements, faces),
            num_vertices=num_vertices,
            file_elements=forest.file_elements,
            forest=forest,
            **changes,
        )
        # cached_property keeps its value here; halves and parents lie where the elements did
        mesh.__dict__["_sides"] = faces
        if "continuous" in self.__dict__:
            mesh.__dict__["continuous"] = self.continuous
        return mesh

    @checked(MeshArgumentError)
    def reordered(self, permutation: ArrayLike) -> "Mesh":
        """Return the mesh with its elements in another order.

        New element i is old element permutation[i]; the permutation has shape (ne,).

        Raises
        ------
        MeshArgumentError
            If `permutation` is no permutation of all elements.
        """
        self._check_whole_trees()
        order = checks.permutation(permutation, self.num_elements)
        mesh = replace(
            self,
            elements=self.elements[order],
            coordinates=self.coordinates[order],
            element_attributes=self.element_attributes[order],
            file_elements=self.file_elements[order],
            coarser=None if self.coarser is None else self.coarser.reordered(order),
            forest=None if self.forest is None else self.forest.reordered(order),
        )
        if self.forest is not None and "_sides" in self.__dict__:
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
            element, code = self._sides.T
            mesh.__dict__["_sides"] = np.stack([place[element], code], axis=1)
        return mesh

    @checked(MeshArgumentError)
    def curved(self, order: Degree) -> "Mesh":
        """Return the same mesh with coordinates of a degree not below the present degree.

        Raises
        ------
        MeshArgumentError
            If `order` is below the present degree: geometry would be lost.
        """
        if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < self.order:
            raise MeshArgumentError(
                f"order {order!r} is no whole number >= {self.order}, the mesh's own: "
                "lowering it would change the geometry"
            )
        if order == self.order:
            return self._replaced(coordinates=self.coordinates)
        if not self.cell.cube:
            places = simplices.nodes(self.cell, checks.simplex_degree(int(order)))
            return self._replaced(coordinates=positions(self.coordinates, places))
        raised = lagrange_matrix(gauss_lobatto(self.order + 1)[0], gauss_lobatto(int(order) + 1)[0])
        nodes = tensor_apply([raised] * self.dim, self.coordinates)
        return self._replaced(coordinates=nodes)

    @checked(MeshArgumentError)
    def mapped(self, function: PointMap, order: Degree | None = None) -> "Mesh":
        """Move every node x to function(x).

        A locally refined mesh stays without gaps: where elements are smaller than a neighbour, they
        take its new face or edge.

        Parameters
        ----------
        function
            Function that maps positions (dim, n) to new positions of the same shape.
        order
            Degree of the new coordinates; None for the present degree.

        Raises
        ------
        MeshGeometryError
            If the function returns another shape, or positions that invert elements.
        """
        mesh = self if order is None else self.curved(order)
        nodes = mesh.larger_nodes()
        flat = nodes.reshape(-1, self.dim).T.copy()
        check_takes(function, (flat,), lambda why: MeshArgumentError(f"function takes x: {why}"))
        result = call_with_arrays(
            function,
            (flat,),
            lambda _: MeshArgumentError(
                "the function is called with all nodes at once, x of shape (dim, n): write "
                "np.where(x[0] > 0, a, b) in place of a Python `if`, and numpy's functions"
            ),
        )
        moved = checks.array(result, "what the function returned", np.float64)
        if moved.shape != flat.shape:
            raise MeshGeometryError(
                f"the function returned shape {moved.shape} for positions of shape {flat.shape}: "
                "return one row per coordinate, of the same length"
            )
        moved = np.ascontiguousarray(moved.T).reshape(mesh.coordinates.shape)
        coordinates = mesh._interpolated(moved)
        checks.geometry(coordinates)
        return self._moved(coordinates)

    def with_nodes(self, coordinates: ArrayLike) -> "Mesh":
        """Return the mesh with other coordinates, of the shape of `coordinates`, which are copied.

        Raises
        ------
        MeshGeometryError
            If elements are inverted, or smaller elements do not lie on the faces of larger ones.
        MeshArgumentError
            If the coordinates are not real numbers.
        """
        nodes = checks.array(coordinates, "coordinates", np.float64)
        mesh = self._replaced(coordinates=nodes)  # checks the shape
        if not mesh.conforming and self.continuous and not mesh.continuous:
            raise MeshGeometryError(
                "smaller elements do not lie on the faces and edges of larger ones: give positions "
                "of a continuous function, or move the mesh by mesh.mapped(function)"
            )
        checks.geometry(nodes)
        return self._moved(nodes)

    def with_attributes(
        self, elements: ArrayLike | None = None, boundary: ArrayLike | None = None
    ) -> "Mesh":
        """Return the mesh with other attributes of elements, of boundary entries, or both.

        Parameters
        ----------
        elements, boundary
            Shapes (ne,) and (nb,), positive whole numbers, without names; None for no change.

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
        return self._replaced(**changes)

    @checked(MeshArgumentError)
    def with_names(
        self,
        elements: Mapping[str, Named] | None = None,
        boundary: Mapping[str, Named] | None = None,
    ) -> "Mesh":
        """Return the mesh with other names for parts of its elements, or of its boundary, or both.

        Each name stands for one or several attributes, as in ``{"walls": (1, 4)}``, or for a
        predicate, as in ``{"left": lambda x: x[0] < 1e-9}``. None keeps the names that there are.
        To add to these write ``{**mesh.boundary_names, "left": 1}``.

        A predicate takes the middles x (dim, n) of all elements or boundary faces, and returns n
        booleans. If it divides the elements or faces of an attribute, those that it chooses get a
        new attribute.

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
                lambda: face_centers(self.coordinates, self.topology.boundary_faces),
                lambda: face_centers(self.coordinates, self.topology.unlisted_faces()),
            )
            changes |= zip(("boundary_attributes", "boundary_names"), outside, strict=True)
        return self._replaced(**changes)

    def with_coarser(self, coarser: Coarsening | None) -> "Mesh":
        """Return a copy of the mesh that remembers the coarser mesh it refines."""
        return self._replaced(coarser=coarser)

    def _moved(self, coordinates: Floats) -> "Mesh":
        """Return the mesh with other coordinates, which invert no element by itself."""
        if not self.cell.simplex or not self.num_elements:
            return self._replaced(coordinates=coordinates)
        turned = simplices.mirrored(coordinates) != simplices.mirrored(self.coordinates)
        checks.turned_over(turned)
        if not turned.all():
            return self._replaced(coordinates=coordinates)
        # a reflection: what looked out looks in
        boundary = self.boundary.copy()
        boundary[:, :2] = boundary[:, 1::-1]
        return self._replaced(coordinates=coordinates, boundary=boundary)

    def _replaced(self, **changes: Any) -> "Mesh":
        """Return a copy of the mesh with some attributes replaced, and the same topology."""
        mesh = replace(self, **changes)
        for name in ("topology", "_sides"):
            if name in self.__dict__:
                mesh.__dict__[name] = self.__dict__[name]
        return mesh

    def validate(self) -> None:
        """Check vertex numbers, that elements fit together, and that no element is inverted.

        Raises
        ------
        MeshTopologyError
            If vertex numbers dangle, or elements don't fit together.
        MeshGeometryError
            If coordinates are not finite, or elements are inverted; the message lists them.
        """
        Topology.build(self.elements, self.num_vertices, self.boundary, self.cell)
        checks.geometry(self.coordinates)
        if self.forest is not None:
            elements, count = self.forest.elements
            same = count == self.num_vertices and np.array_equal(elements, self.elements)
            if not same or self.forest.unbalanced().any():
                raise MeshTopologyError(
                    "the elements are not the leaves of the mesh's trees, or neighbours differ by "
                    "more than one level: leave `elements` and `forest` as `refined` made them"
                )

    def __repr__(self) -> str:
        rows = "\n".join(f"  {name:<9} {value}" for name, value in _contents(self))
        return f"Mesh\n{rows}"

    def _repr_html_(self) -> str:
        return html.table("Mesh", _contents(self))


def _topology(
    elements: Ints, coordinates: Floats, num_vertices: int, boundary: Ints | None
) -> Topology:
    """Topology of elements that belong to no trees."""
    cell = cell_of(elements.shape[1], coordinates.shape[2])
    topology = Topology.build(elements, num_vertices, boundary, cell)
    if boundary is None or not cell.simplex:
        return topology
    return simplices.with_sides(topology, boundary, coordinates)


def check_conforming(mesh: Any, what: str, error: type[Exception] = MeshArgumentError) -> None:
    """Raise if elements of two sizes meet. ``what`` begins the message.

    Collective if ranks share the mesh.
    """
    if not mesh.conforming:
        raise error(
            f"{what}: smaller elements of this mesh share part of a face or edge of a larger one; "
            "take a mesh whose elements are all split, by mesh.refine()"
        )


def check_cubes(mesh: Any, what: str, error: type[Exception] = MeshArgumentError) -> None:
    """Raise unless elements are cubes, as quadrilaterals are. ``what`` begins the message."""
    cell = getattr(mesh, "cell", None)  # a mesh of several shapes has none
    if cell is None or not cell.cube:
        cure = SIMPLEX_CURE.format(CUBES[mesh.dim].plural)
        plural = mesh.plural if cell is None else cell.plural
        raise error(f"{what} does not take {plural} yet: {cure}")


SIMPLEX_CURE = "take a mesh of {}, as femops.read_mesh(path, split=True) makes"


def _levels(forest: Forest) -> str:
    """Levels of the elements of trees, and whether nodes hang."""
    least, most = int(forest.level.min(initial=forest.depth)), forest.depth
    if least == most:
        return f"all refined {most} times"
    return f"{least} to {most}" + (", with hanging nodes" if forest.dim > 1 else "")


def _contents(mesh: Mesh) -> list[tuple[str, str]]:
    """Names and values of a small table of the mesh's contents."""
    lower, upper = mesh.bounding_box()
    shape = mesh.cell.plural
    spans = " x ".join(f"[{a:.6g}, {b:.6g}]" for a, b in zip(lower, upper, strict=True))
    if not mesh.num_elements:
        spans = "nothing"
    inside = listing(mesh.element_attributes, mesh.element_names)
    outside = listing(mesh.boundary_attributes, mesh.boundary_names)
    return [
        ("elements", f"{mesh.num_elements} {shape}, attributes {inside}"),
        *([("levels", _levels(mesh.forest))] if mesh.forest is not None else []),
        ("boundary", f"{mesh.num_boundary} faces, attributes {outside}"),
        ("vertices", f"{mesh.num_vertices}"),
        ("geometry", f"degree {mesh.order}, in {spans}"),
    ]
