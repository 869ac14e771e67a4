"""The mesh that a checkpoint keeps, as tables: trees, nodes, attributes and boundary."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from reprlib import repr as shown
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.parallel.mesh import whole_checksum
from femops_meshes import Mesh, checks
from femops_meshes.errors import MeshTopologyError
from femops_meshes.forest import Entities, Forest, whole_trees
from femops_meshes.formats.scanner import printable
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
        expect([*parts[0]] == [*TYPES], "other tables of a mesh")
        tables = {}
        for name, facts in parts[0].items():
            expect(isinstance(facts, dict), shown(facts))
            numbers = [facts.get(key) for key in ("dofs", "ncomp", "rows")]
            least = (0 if name == "boundary" else 1), 1, 1
            for number, smallest in zip(numbers, least, strict=True):
                good = type(number) is int and smallest <= number < 2**63
                expect(good, f"a table of the mesh with {shown(number)}")
            table = tables[name] = Table(numbers[0], numbers[1], TYPES[name], numbers[2])
            expect(table.rows * table.row <= _LARGEST_BLOCK, "a table of the mesh in large blocks")
        checksum, local = given.get("checksum"), given.get("local")
        expect(
            isinstance(checksum, str) and re.fullmatch("[0-9a-f]{16}", checksum),
            f"the checksum {shown(checksum)}",
        )
        expect(isinstance(local, bool), f"local {shown(local)}")
        inside, outside = (_names(part) for part in parts[1:])
        found = cls(checksum, local, (inside, outside), tables)
        known = tables["roots"].ncomp in _CELLS
        expect(known and found.degree, "a mesh with rows of other lengths")
        expect(not (local and found.cell.simplex), "halves of simplices")
        side = 3 + len(found.cell.entities[found.cell.face_codes[0]][1])
        expect(tables["leaves"].ncomp == 4 and tables["boundary"].ncomp == side, "other rows")
        expect(tables["leaves"].dofs == tables["nodes"].dofs, "elements without nodes")
        return found

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
    def cell(self) -> Cell:
        """Reference cell of the elements."""
        return _CELLS[self.tables["roots"].ncomp]

    @cached_property
    def degree(self) -> int:
        """Degree of the coordinates; 0 if the rows have another length."""
        wanted = self.tables["nodes"].ncomp
        cell = self.cell
        degrees = range(1, (LARGEST_DEGREE if cell.cube else MOST_SIMPLEX_DEGREE) + 1)
        return next((g for g in degrees if cell.size(g) * cell.dim == wanted), 0)

    def mesh(self, tables: Mapping[str, Array]) -> Mesh:
        """Make the mesh from its tables. Raise a MeshError if they are not those of a mesh."""
        cell, (root, level, path, attributes) = self.cell, tables["leaves"].T.copy()
        base = _base(cell, tables["roots"])
        _check_leaves(cell.dim, len(base.corners), root, level, path)
        forest = None if cell.simplex else Forest(base, root, level.astype(np.int8), path)
        if forest is None:
            if level.any() or (np.diff(base.corners, axis=1) <= 0).any():
                raise MeshTopologyError(f"{cell.plural} are halves, or vertices do not ascend")
        elif forest.unbalanced().any():
            raise MeshTopologyError("elements that touch each other differ by more than one level")
        sides, marks = tables["boundary"][:, :2].copy(), tables["boundary"][:, 2]
        count = len(root)
        if not (
            np.isin(sides[:, 1], cell.face_codes) & (sides[:, 0] >= 0) & (sides[:, 0] < count)
        ).all():
            raise MeshTopologyError("boundary entries are at no faces of elements")
        elements, num_vertices = base.corners, base.num_entities[0]
        if forest is not None:
            elements, num_vertices = forest.elements
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
            root if forest is None else forest.file_elements,
            *self.names,
            forest=forest if self.local else None,
        )
        if self.local:
            mesh.__dict__["_sides"] = sides  # cached_property keeps its value here
        found = f"{whole_checksum(mesh):016x}"
        if found != self.checksum:
            raise MeshTopologyError(f"the mesh has the checksum {found}, {self.checksum} is due")
        return mesh


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


def tables_of(mesh: Mesh) -> dict[str, Array]:
    """Tables of a whole mesh; see `TYPES`. Boundary entries are sorted by element and face."""
    forest, sides = mesh.forest, mesh.topology.boundary_faces
    zeros = np.zeros(mesh.num_elements, dtype=np.int64)
    roots: Ints = mesh.topology.entity
    columns: tuple[Array, ...] = mesh.file_elements, zeros, zeros
    if not mesh.cell.simplex:
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
