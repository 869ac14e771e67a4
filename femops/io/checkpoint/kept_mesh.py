"""The mesh that a checkpoint keeps, as tables: trees, nodes, attributes and boundary."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.parallel.mesh import whole_checksum
from femops_meshes import Mesh, MixedMesh, checks
from femops_meshes.errors import MeshTopologyError
from femops_meshes.forest import Entities, Forest, whole_trees
from femops_meshes.formats.scanner import printable
from femops_meshes.mixed import SHAPES
from femops_meshes.names import Names
from femops_meshes.topology.entities import (
    CUBES,
    MOST_SIMPLEX_DEGREE,
    SIMPLICES,
    Cell,
    outward_corners,
)
from femops_meshes.topology.topology import Topology

Array = NDArray[Any]
Ints = NDArray[np.int64]

LARGEST_DEGREE = 32
"""Largest degree of coordinates, as in MFEM's files."""

_LARGEST_BLOCK = 2**24
"""Largest size in bytes of a block that is read: a block of zeros is found before the next one."""


class Rows(ABC):
    """Rows of numbers in a file, in blocks that each have a checksum."""

    dofs: int  # number of rows
    ncomp: int  # numbers in a row
    dtype: str
    rows: int  # number of rows in a block

    @property
    def row(self) -> int:
        """Number of bytes of a row."""
        return self.ncomp * np.dtype(self.dtype).itemsize

    @property
    def blocks(self) -> int:
        """Number of blocks. The last block may be shorter."""
        return -(-self.dofs // self.rows)


@final
@dataclass(frozen=True)
class Table(Rows):
    """A table of the mesh."""

    dofs: int
    ncomp: int
    dtype: str
    rows: int


def expect(holds: object, found: str) -> None:
    """Raise a ValueError that shows ``found`` unless ``holds`` is true."""
    if not holds:
        raise ValueError(f"it has {found}")


TYPES = {"roots": "<i8", "leaves": "<i8", "boundary": "<i8", "nodes": "<f8"}
"""Tables of a mesh, in the order of the file, and the types of their numbers.

- roots (nr, 3**dim): vertices, edges and faces of the elements that were never halved; for
  triangles and tetrahedra, of all elements, as many columns as `Cell.entities`;
- leaves (ne, 4): root, level, path (see `Forest`) and attribute of each element; for triangles and
  tetrahedra the place in the file, 0, 0 and the attribute;
- boundary (nb, 3 + corners): element, code of the face, attribute and vertices of each
  boundary entry: those of a file may begin at any corner, and look inwards;
- nodes (ne, nodes * dim): coordinates.

A mesh of several shapes has these tables for each part, whose names begin with the part's cells.
Roots are then the vertices of the elements, and leaves are as for triangles.
"""


@final
@dataclass(frozen=True, eq=False)
class KeptMesh:
    """Description of the mesh in a file."""

    checksum: str
    local: bool  # whether the mesh was refined locally. Else its elements are the roots.
    names: tuple[Names, Names]  # of elements, and of the boundary
    tables: Mapping[str, Table]

    @classmethod
    def parsed(cls, given: Any) -> KeptMesh:
        """Make the description from its JSON object."""
        expect(isinstance(given, dict), shown(given))
        parts = [given.get(key) for key in ("tables", "element_names", "boundary_names")]
        expect(all(isinstance(part, dict) for part in parts), "a mesh without tables or names")
        shapes = [name.removesuffix(" roots") for name in parts[0] if name.endswith(" roots")]
        expect([*parts[0]] == _names_of_tables(shapes), "other tables of a mesh")
        tables = {}
        for name, facts in parts[0].items():
            expect(isinstance(facts, dict), shown(facts))
            numbers, kind = [facts.get(key) for key in ("dofs", "ncomp", "rows")], own_name(name)
            least = (0 if kind == "boundary" else 1), 1, 1
            for number, smallest in zip(numbers, least, strict=True):
                good = type(number) is int and smallest <= number < 2**63
                expect(good, f"a table of the mesh with {shown(number)}")
            table = tables[name] = Table(numbers[0], numbers[1], TYPES[kind], numbers[2])
            expect(table.rows * table.row <= _LARGEST_BLOCK, "a table of the mesh in large blocks")
        checksum, local = given.get("checksum"), given.get("local")
        expect(
            isinstance(checksum, str) and re.fullmatch("[0-9a-f]{16}", checksum),
            f"the checksum {shown(checksum)}",
        )
        expect(isinstance(local, bool), f"local {shown(local)}")
        inside, outside = (_names(part) for part in parts[1:])
        found = cls(checksum, local, (inside, outside), tables)
        known = bool(shapes) or tables["roots"].ncomp in _CELLS
        expect(known and all(map(_degree, *found._cells())), "a mesh with rows of other lengths")
        for cell, rows in zip(*found._cells(), strict=True):
            expect(not local or (cell.cube and not shapes), f"halves of {cell.plural}")
            side, roots = 3 + cell.most_face_corners, len(cell.entities)
            widths = [cell.num_corners if shapes else roots, 4, side]
            expect(widths == [rows[n].ncomp for n in [*TYPES][:3]], "other rows")
            counts = {rows[n].dofs for n in (["roots"] if shapes else []) + ["leaves", "nodes"]}
            expect(len(counts) == 1, "elements without nodes")
        return found

    def _cells(self) -> tuple[list[Cell], list[Mapping[str, Any]]]:
        """Reference cell, and tables by their own names, of each part; see `of_parts`."""
        parts = of_parts(self.tables)
        if "roots" in self.tables:
            return [_CELLS[self.tables["roots"].ncomp]], [*parts.values()]
        return [SHAPES[shape] for shape in parts], [*parts.values()]

    def as_dict(self, offsets: Mapping[str, int]) -> dict[str, Any]:
        """The JSON object, with positions of the tables."""
        tables = {
            name: {"dofs": one.dofs, "ncomp": one.ncomp, "dtype": one.dtype, "rows": one.rows}
            | {"offset": offsets[name]}
            for name, one in self.tables.items()
        }
        names = dict(zip(("element_names", "boundary_names"), map(dict, self.names), strict=True))
        return {"checksum": self.checksum, "local": self.local, **names, "tables": tables}

    @property
    def mixed(self) -> bool:
        """True if the mesh has elements of several shapes, or prisms."""
        return "roots" not in self.tables

    @property
    def degree(self) -> int:
        """Highest degree of the coordinates of a part; 0 if rows have another length."""
        return max(map(_degree, *self._cells()))

    @property
    def version(self) -> int:
        """Format of a file with the mesh."""
        return 3 if self.mixed else 2

    def mesh(self, tables: Mapping[str, Array]) -> Mesh | MixedMesh:
        """Make the mesh from its tables. Raise a MeshError if they are not those of a mesh."""
        mesh: Mesh | MixedMesh
        if self.mixed:
            mesh = self._of_several_shapes(of_parts(tables))
        else:
            mesh = self._of_one_shape(tables)
        found = f"{whole_checksum(mesh):016x}"
        if found != self.checksum:
            raise MeshTopologyError(f"the mesh has the checksum {found}, {self.checksum} is due")
        return mesh

    def _of_several_shapes(self, parts: Mapping[str, Mapping[str, Array]]) -> MixedMesh:
        """Make a mesh of several shapes from the tables of its parts."""
        roots = [part["roots"] for part in parts.values()]
        used = np.unique(np.concatenate([rows.ravel() for rows in roots]))
        if used[0] < 0 or used[-1] != len(used) - 1:
            raise MeshTopologyError("vertices have numbers too small or too large")
        made = []
        for (shape, part), corners in zip(parts.items(), roots, strict=True):
            cell, (place, level, path, attributes) = SHAPES[shape], part["leaves"].T.copy()
            ascending = np.sort(corners, axis=1)
            if (cell.simplex and not np.array_equal(ascending, corners)) or (
                not np.diff(ascending, axis=1).all() or level.any() or path.any()
            ):
                raise MeshTopologyError(f"{shape} are halves, or have vertices of others")
            made.append(self._part(cell, corners, len(used), place, attributes, part))
        return MixedMesh.of_parts(made)

    def _part(
        self,
        cell: Cell,
        elements: Ints,
        num_vertices: int,
        places: Ints,
        attributes: Ints,
        tables: Mapping[str, Array],
        forest: Forest | None = None,
    ) -> Mesh:
        """Make a mesh of one shape from its elements, nodes and boundary entries."""
        sides, marks = tables["boundary"][:, :2].copy(), tables["boundary"][:, 2]
        count = len(elements)
        if not (
            np.isin(sides[:, 1], cell.face_codes) & (sides[:, 0] >= 0) & (sides[:, 0] < count)
        ).all():
            raise MeshTopologyError("boundary entries are at no faces of elements")
        coordinates = tables["nodes"].reshape(count, -1, cell.dim)
        checks.magnitude(coordinates)  # a halved element may be inverted, where its parent was not
        boundary = tables["boundary"][:, 3:].copy()
        due = np.sort(outward_corners(elements, sides, cell), axis=1)
        if not np.array_equal(np.sort(boundary, axis=1), due):
            raise MeshTopologyError("boundary entries have other vertices than their faces")
        mesh = Mesh(
            elements,
            coordinates,
            checks.attribute_array(attributes, count, "element_attributes"),
            boundary,
            checks.attribute_array(marks, len(marks), "boundary_attributes"),
            num_vertices,
            places,
            *self.names,
            forest=forest,
        )
        if forest is not None:
            mesh.__dict__["_sides"] = sides  # cached_property keeps its value here
        return mesh

    def _of_one_shape(self, tables: Mapping[str, Array]) -> Mesh:
        """Make a mesh of one shape from its tables."""
        (cell,), _ = self._cells()
        root, level, path, attributes = tables["leaves"].T.copy()
        base = _base(cell, tables["roots"])
        _check_leaves(cell.dim, len(base.corners), root, level, path)
        forest = None if cell.simplex else Forest(base, root, level.astype(np.int8), path)
        if forest is None:
            if level.any() or (np.diff(base.corners, axis=1) <= 0).any():
                raise MeshTopologyError(f"{cell.plural} are halves, or vertices do not ascend")
        elif forest.unbalanced().any():
            raise MeshTopologyError("elements that touch each other differ by more than one level")
        elements, num_vertices, places = base.corners, base.num_entities[0], root
        if forest is not None:
            (elements, num_vertices), places = forest.elements, forest.file_elements
        kept = forest if self.local else None
        return self._part(cell, elements, num_vertices, places, attributes, tables, kept)


def of_parts(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Tables by their own names, by the cells of each part; "" for a mesh of one shape."""
    found: dict[str, dict[str, Any]] = {}
    for name, table in tables.items():
        shape, _, own = name.rpartition(" ")
        found.setdefault(shape, {})[own] = table
    return found


def own_name(name: str) -> str:
    """Name of a table in `TYPES`."""
    return name.rpartition(" ")[2]


def _names_of_tables(shapes: Sequence[str]) -> list[str]:
    """Names of all tables of a mesh with some shapes, or with one."""
    if not shapes:
        return [*TYPES]
    good = [shape for shape in SHAPES if shape in shapes]
    dims = {SHAPES[shape].dim for shape in good}
    return [f"{shape} {name}" for shape in good for name in TYPES] if len(dims) == 1 else []


def _degree(cell: Cell, tables: Mapping[str, Any]) -> int:
    """Degree of the coordinates; 0 if the rows have another length."""
    wanted = tables["nodes"].ncomp
    degrees = range(1, (LARGEST_DEGREE if cell.cube else MOST_SIMPLEX_DEGREE) + 1)
    return next((g for g in degrees if cell.size(g) * cell.dim == wanted), 0)


_CELLS = {len(cell.entities): cell for cells in (CUBES, SIMPLICES) for cell in cells.values()}


def _names(given: Any) -> Names:
    """Names of attributes, with escapes for characters that a terminal obeys.

    A mesh that was coarsened may have names of attributes that none of its elements has any more.
    """
    found = {}
    for name, numbers in given.items():
        good = isinstance(numbers, list) and name and numbers
        good = good and all(type(one) is int and 0 < one < 2**31 for one in numbers)
        expect(good and numbers == sorted({*numbers}), f"a name of {shown(numbers)}")
        found[printable(name)] = tuple(numbers)
    return found


def tables_of(mesh: Mesh | MixedMesh) -> dict[str, Array]:
    """Tables of a whole mesh; see `TYPES`. Boundary entries are sorted by element and face."""
    if not isinstance(mesh, MixedMesh):
        return _tables_of_one(mesh, alone=True)
    parts = {part.cell.plural: _tables_of_one(part, alone=False) for part in mesh.parts}
    return {f"{shape} {n}": table for shape, tables in parts.items() for n, table in tables.items()}


def _tables_of_one(mesh: Mesh, *, alone: bool) -> dict[str, Array]:
    """Tables of a mesh of one shape, or of a part of a mesh."""
    forest, sides = mesh.forest, mesh.topology.boundary_faces
    zeros = np.zeros(mesh.num_elements, dtype=np.int64)
    roots: Ints = mesh.topology.entity if alone else mesh.elements
    columns: tuple[Array, ...] = mesh.file_elements, zeros, zeros
    if alone and not mesh.cell.simplex:
        if forest is None:
            forest = whole_trees(mesh.elements, mesh.topology, None, mesh.file_elements)
        roots, columns = forest.base.entity, (forest.root, forest.level, forest.path)
    order = np.lexsort((sides[:, 1], sides[:, 0]))
    entries = np.column_stack([sides, mesh.boundary_attributes, mesh.boundary])
    return {
        "roots": roots,
        "leaves": np.column_stack([*columns, mesh.element_attributes]).astype(np.int64),
        "boundary": entries[order].astype(np.int64),
        "nodes": mesh.coordinates.reshape(mesh.num_elements, -1),
    }


def _base(cell: Cell, entity: Ints) -> Entities:
    """Entities of the roots, which must be those of a mesh that conforms, in any numbering."""
    kinds = np.array([kind for kind, _ in cell.entities])
    if entity.min() < 0 or entity.max() >= entity.size:  # before a count takes memory
        raise MeshTopologyError("vertices, edges or faces of the roots have numbers too large")
    corners = np.ascontiguousarray(entity[:, kinds == 0])
    topology = Topology.build(corners, int(corners.max()) + 1, cell=cell)
    for kind, count in enumerate(topology.num_entities):
        numbers = entity[:, kinds == kind].ravel()
        due = topology.entity[:, kinds == kind].ravel()
        place = np.full(count, -1, dtype=np.int64)
        place[due] = numbers
        same = np.array_equal(place[due], numbers) and np.array_equal(
            np.sort(place), np.arange(count)
        )
        if not same:
            raise MeshTopologyError("roots do not share edges and faces as they share vertices")
    return Entities(corners, entity, topology.orientation, topology.num_entities)


def _check_leaves(dim: int, roots: int, root: Ints, level: Ints, path: Ints) -> None:
    """Raise unless leaves cover the roots once."""
    most = 62 // dim
    inside = (root >= 0) & (root < roots) & (level >= 0) & (level <= most) & (path >= 0)
    good = bool(inside.all()) and not (path >> dim * level).any()
    if good:
        order = np.lexsort((path << dim * (most - level), root))
        begins = (path << dim * (most - level))[order]
        ends = begins + (np.int64(1) << dim * (most - level[order]))
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = root[order][1:] != root[order][:-1]
        last = np.roll(first, -1)
        good = np.array_equal(root[order][first], np.arange(roots))
        good &= bool((begins[first] == 0).all() and (ends[last] == 1 << dim * most).all())
        good &= np.array_equal(begins[~first], ends[~last])
    if not good:
        raise MeshTopologyError("the elements are not the leaves of trees over the roots")
