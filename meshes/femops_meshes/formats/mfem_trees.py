"""MFEM's nonconforming formats: "MFEM NC mesh v1.0", and the older "MFEM mesh v1.1".

A file has the elements of all levels, the vertices of those that are leaves, and the positions of
the roots' vertices, or all nodes. MFEM orders the leaves along a curve in each tree
(`femops_meshes.topology.tree_order`), and numbers the vertices that are not the roots' in the order
in which the leaves meet them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates.hanging import halved_along
from femops_meshes.errors import MeshFormatError
from femops_meshes.forest import Entities, Forest
from femops_meshes.formats.mfem_numbering import (
    INSIDE,
    OUTSIDE,
    read_sets,
    tree_vertices,
    written_sets,
)
from femops_meshes.formats.scanner import Scanner, shorten
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import (
    VTK_CORNERS,
    code_digits,
    entity_codes,
    entity_dimension,
    looks_out,
    outward_corners,
)
from femops_meshes.topology.topology import Topology
from femops_meshes.topology.tree_order import curve_states, leaf_order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GEOMETRY = {0: 0, 1: 1, 2: 3, 3: 5}
"""MFEM's number of the reference cube of each dimension."""
MOST_BALANCED = 64
"""Most elements of a mesh for each element of its file. One small element can divide all."""
_NAMES = "#: "
"""Beginning of lines with the names of attributes. MFEM's format has none, and skips them."""


def named_lines(mesh: Mesh) -> Iterator[str]:
    """Yield the names of attributes as comments."""
    if mesh.element_names or mesh.boundary_names:
        for section, names in ((INSIDE, mesh.element_names), (OUTSIDE, mesh.boundary_names)):
            for text in written_sets(section, names):
                yield "".join(f"{_NAMES}{line}\n" for line in text.split("\n") if line)


def read_names(text: str, name: str) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Names of elements and of the boundary in the comments of a file."""
    lines = [line[len(_NAMES) :] for line in text.splitlines() if line.startswith(_NAMES)]
    scanner = Scanner("\n".join(lines), f"{name} (names in comments)")
    return read_sets(scanner, INSIDE), read_sets(scanner, OUTSIDE)


def tree_sections(mesh: Mesh) -> Iterator[str]:
    """Yield the sections of a locally refined mesh up to the positions."""
    forest, dim = mesh.trees, mesh.dim
    corners = tree_vertices(mesh)[mesh.elements][:, VTK_CORNERS[dim]]
    levels, count = forest.levels, 2**dim
    yield "MFEM NC mesh v1.0\n\n"
    yield from named_lines(mesh)
    yield f"\ndimension\n{dim}\n\n# rank attr geom ref_type nodes/children\nelements\n"
    starts = np.cumsum([0, *(len(level.leaf) for level in levels)])
    yield f"{starts[-1]}\n"
    attributes = _cell_attributes(mesh)
    split = count - 1
    for level, start, known in zip(levels, starts[1:], attributes, strict=True):
        rank = np.cumsum(level.leaf < 0) - 1
        table = np.empty((len(level.leaf), count), dtype=np.int64)
        some = level.leaf >= 0
        table[some] = corners[level.leaf[some]]
        table[~some] = start + rank[~some, np.newaxis] * count + np.array(VTK_CORNERS[dim])
        head = np.stack(
            [
                np.where(some, 0, -1),
                known,
                np.full(len(known), GEOMETRY[dim]),
                np.where(some, 0, split),
            ],
            axis=1,
        )
        yield from _rows(np.hstack([head, table]))
    boundary, marks = _written_boundary(mesh)
    if len(boundary):
        boundary = tree_vertices(mesh)[boundary]
        boundary = boundary[:, VTK_CORNERS[dim - 1]] if dim > 1 else boundary
        kind = np.full(len(boundary), GEOMETRY[dim - 1])
        yield f"\n# attr geom nodes\nboundary\n{len(boundary)}\n"
        yield from _rows(np.column_stack([marks, kind, boundary]))
    parents = _vertex_parents(forest)
    if len(parents):
        yield f"\n# vert_id p1 p2\nvertex_parents\n{len(parents)}\n"
        yield from _rows(tree_vertices(mesh)[parents])


def root_coordinates(mesh: Mesh) -> Floats | None:
    """Positions (n, dim) of the roots' vertices; None unless these give all positions."""
    forest, dim = mesh.trees, mesh.dim
    if mesh.order > 1 or not mesh.continuous:
        return None
    found = np.full((forest.num_vertices, dim), np.nan)
    of_roots = mesh.elements < forest.num_vertices
    found[mesh.elements[of_roots]] = mesh.coordinates[of_roots]
    x = halved_along(found[forest.roots[forest.root]], forest.path, forest.level)
    round_off = 8 * np.finfo(np.float64).eps * np.abs(x).max(initial=0.0)
    return found if (np.abs(x - mesh.coordinates) <= round_off).all() else None


def _rows(table: NDArray[np.int64]) -> Iterator[str]:
    for start in range(0, len(table), 65536):
        rows = table[start : start + 65536].tolist()
        yield "".join(" ".join(map(str, row)) + "\n" for row in rows)


def _cell_attributes(mesh: Mesh) -> list[Ints]:
    """Attribute of each cell of each level; that of a refined cell is its first half's."""
    result: list[Ints] = []
    below = np.zeros(0, dtype=np.int64)
    for level in reversed(mesh.trees.levels):
        some = level.leaf >= 0
        found = np.empty(len(level.leaf), dtype=np.int64)
        found[some] = mesh.element_attributes[level.leaf[some]]
        found[~some] = below[:: 2**mesh.dim]
        result.insert(0, found)
        below = found
    return result


def _turned_over(dim: int) -> list[int]:
    """Permutation of a face's corners after which they look to the other side."""
    return [1, 0] if dim == 2 else [0, 2, 1, 3]


def _written_boundary(mesh: Mesh) -> tuple[Ints, Ints]:
    """Corners of the boundary entries, and their attributes.

    MFEM knows no entries on divided faces. So the parts of such a face are written instead, with
    corners that look out of the larger element.
    """
    topology, parts = mesh.topology, mesh.topology.parts
    number = topology.entity[tuple(topology.boundary_faces.T)]
    whole = ~np.isin(number, topology.divided)
    corners, marks = [mesh.boundary[whole]], [mesh.boundary_attributes[whole]]
    for entry in np.flatnonzero(~whole):
        mine = parts[parts[:, 3] == number[entry]]
        small = outward_corners(mesh.elements, mine[:, :2])
        corners.append(small[:, _turned_over(mesh.dim)])
        marks.append(np.full(len(mine), mesh.boundary_attributes[entry]))
    return np.concatenate(corners), np.concatenate(marks).astype(np.int64)


def read_boundary(topology: Topology, elements: Ints, boundary: Ints, marks: Ints) -> Ints:
    """Element, code and attribute (n, 3) of the boundary entries of a file.

    MFEM marks faces, not sides: it lists a face between two elements once for each. The last entry
    counts. A divided face is listed beside its parts. It counts if its parts are not all listed, or
    if they look out of the larger element.
    """
    faces = topology.boundary_faces
    number = topology.entity[tuple(faces.T)]
    last = len(number) - 1 - np.unique(number[::-1], return_index=True)[1]
    kept = np.zeros(len(number), dtype=np.bool_)
    kept[last] = True
    rows = np.column_stack([faces, marks])
    more = [np.zeros((0, 3), dtype=np.int64)]
    at = np.full(len(topology.faces), -1, dtype=np.int64)
    at[number[last]] = last
    parts = topology.parts
    for face in topology.divided:
        mine = parts[parts[:, 3] == face]
        entries = at[mine[:, 2]]
        if (entries < 0).any():
            continue
        kept[at[face]] &= at[face] < 0  # its parts are listed
        of = mine[:, :2]
        out = looks_out(elements, boundary[entries], of[:, [0, 0]], of[:, [1, 1]].astype(np.int8))
        if not out.any() and len(np.unique(marks[entries])) == 1:
            kept[entries] = False
            sides = np.stack([topology.faces[face], topology.face_codes[face]], axis=1)
            larger = topology.entity[sides[:, 0], sides[:, 1]] == face
            more.append(np.column_stack([sides[larger], marks[entries[:1]]]))
    return np.concatenate([rows[kept], *more])


def _vertex_parents(forest: Forest) -> Ints:
    """Vertices that the roots do not have, and the two vertices between which each lies: (n, 3)."""
    dim = forest.dim
    found = [np.zeros((0, 3), dtype=np.int64)]
    kinds = entity_dimension(dim)
    for level, below in zip(forest.levels[:-1], forest.levels[1:], strict=True):
        cells = np.flatnonzero(level.leaf < 0)
        children = below.cells.corners.reshape(len(cells), 2**dim, 2**dim)
        lattice = np.empty((len(cells), 3**dim), dtype=np.int64)
        for half in range(2**dim):
            for corner in range(2**dim):
                code = sum(((half >> d & 1) + (corner >> d & 1)) * 3**d for d in range(dim))
                lattice[:, code] = children[:, half, corner]
        for code, kind in enumerate(kinds):
            if kind:
                along = [d for d, t in enumerate(code_digits(code, dim)) if t == 1]
                d = 1 if 1 in along else along[0]  # MFEM halves cells between their y faces
                ends = code - 3**d, code + 3**d
                found.append(lattice[:, [code, *ends]])
    rows = np.concatenate(found)
    return rows[np.unique(rows[:, 0], return_index=True)[1]]


@final
@dataclass(frozen=True)
class _Leaves:
    """Leaves of the trees of a file. One that is larger in some directions is halved in these."""

    # root, level, path, and the number of the element in the file: (ne,) each
    root: Ints
    level: Ints
    path: Ints
    cell: Ints
    corners: NDArray[np.bool_]  # (ne, 2**dim): True where a corner is that of the file's element
    inside: Ints  # (ne, dim): place in the file's element, counted in leaves

    def taken(self, order: Ints) -> _Leaves:
        """The leaves in another order."""
        return _Leaves(*(getattr(self, field.name)[order] for field in fields(self)))


def _halved_in_file(content: TreeContent) -> _Leaves:
    """Leaves of a file, in any order. Raise unless its elements are those of trees."""
    dim, children = content.dim, content.children
    inner = children[:, 0] >= 0
    octants = np.arange(2**dim)
    # a child that is halved in some directions only stands at several octants: the first counts
    first = inner[:, np.newaxis] & (octants & ~content.kinds[:, np.newaxis] == 0)
    every = children[first]
    bad = every[every >= len(children)]
    if len(bad):
        raise MeshFormatError(
            f"{content.where}: element {bad[0]} is a child, but elements are 0 to "
            f"{len(children) - 1}"
        )
    used = (children[:, 0] >= 0) | (content.nodes[:, 0] >= 0)
    if not used.any():
        raise MeshFormatError(f"{content.where}: no element has vertices")
    holes = every[~used[every]]
    if len(holes):
        raise MeshFormatError(
            f"{content.where}: element {holes[0]} is a child, but has no vertices and no children"
        )
    parent = np.full(len(children), -1, dtype=np.int64)
    parent[every] = np.nonzero(first)[0]
    several = len(every) != np.count_nonzero(parent >= 0)  # then trees may grow at each level
    cell = np.flatnonzero((parent < 0) & used)
    root, place = np.arange(len(cell)), np.zeros((len(cell), dim), dtype=np.int64)
    level = np.zeros((len(cell), dim), dtype=np.int64)
    found: list[list[Ints]] = []
    seen = 0
    while len(cell) and not several:
        seen += len(cell)
        leaf = children[cell, 0] < 0
        found.append([each[leaf] for each in (root, level, place, cell)])
        row, octant = np.nonzero(first[cell])
        halved = content.kinds[cell[row], np.newaxis] >> np.arange(dim) & 1
        root, level = root[row], level[row] + halved
        if level.max(initial=0) > 62 // dim:
            raise MeshFormatError(
                f"{content.where}: a tree has more than {62 // dim} levels, or children that are "
                "their own parents"
            )
        place = place[row] << halved | (octant[:, np.newaxis] >> np.arange(dim) & halved)
        cell = children[cell[row], octant]
    if several or seen != int(used.sum()):
        raise MeshFormatError(
            f"{content.where}: {len(every)} children of {int(used.sum())} elements: each element "
            "must be the child of one other at most, and no element its own parent"
        )
    root, level, place, cell = (np.concatenate(each) for each in zip(*found, strict=True))
    return _halved_alike(content, root, level, place, cell)


def _halved_alike(
    content: TreeContent, root: Ints, level: Ints, place: Ints, cell: Ints
) -> _Leaves:
    """Leaves that are halved as often in all directions, from levels and places (ne, dim)."""
    dim, depth = content.dim, level.max(axis=1)
    more = depth[:, np.newaxis] - level
    sizes = np.int64(1) << np.minimum(more, 62 // dim)
    most = MOST_BALANCED * len(cell)
    if sizes.prod(axis=1, dtype=np.float64).sum() > most:
        raise MeshFormatError(
            f"{content.where}: elements that are refined in some directions only would become more "
            f"than {most} that are halved in all directions: refine the mesh so in MFEM"
        )
    counts = sizes.prod(axis=1)
    of = np.repeat(np.arange(len(cell)), counts)
    number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    inside = np.empty((len(of), dim), dtype=np.int64)
    for d in range(dim):
        number, inside[:, d] = np.divmod(number, sizes[of, d])
    place = (place << more)[of] + inside
    path = np.zeros(len(of), dtype=np.int64)
    for k in range(int(depth.max(initial=0))):
        for d in range(dim):
            path |= (place[:, d] >> k & 1) << (k * dim + d)
    corners = np.ones((len(of), 2**dim), dtype=np.bool_)
    for corner in range(2**dim):
        high = corner >> np.arange(dim) & 1
        corners[:, corner] = (inside == high * (sizes[of] - 1)).all(axis=1)
    if len(of) > len(cell):
        warnings.warn(
            f"{content.where}: some elements of the file are halved in some directions only; they "
            f"were halved in the others too, so the mesh has {len(of) - len(cell)} elements more "
            "than the file",
            stacklevel=7,
        )
    return _Leaves(root[of], depth[of], path, cell[of], corners, inside)


def _root_corners(content: TreeContent) -> Ints:
    """Vertices (nr, 2**dim) of the roots: the corners of the corner children."""
    nodes, children = content.nodes.copy(), content.children
    inner = np.flatnonzero(children[:, 0] >= 0)
    while len(inner):  # in each round, those whose children have vertices
        ready = (nodes[children[inner], 0] >= 0).all(axis=1)
        some = children[inner[ready]]
        nodes[inner[ready]] = np.diagonal(nodes[some], axis1=1, axis2=2)
        inner = inner[~ready]
    is_child = np.zeros(len(children), dtype=np.bool_)
    is_child[children[children >= 0]] = True
    return nodes[~is_child & (nodes[:, 0] >= 0)]


@final
@dataclass(frozen=True)
class Trees:
    """A mesh of trees from a file, before the positions are known."""

    forest: Forest
    roots: Topology
    elements: Ints  # shape (ne, 2**dim): vertices of the leaves, in the order of `forest`
    num_vertices: int
    attributes: Ints  # shape (ne,)
    boundary: Ints
    boundary_attributes: Ints
    tops: Ints  # numbers in the file of the roots' vertices
    numbers: Ints  # shape (num_vertices,): MFEM's number of each vertex


def trees_of(content: TreeContent) -> Trees:
    """Leaves in MFEM's order, with vertices of their own, and the boundary at these."""
    leaves = _halved_in_file(content)
    corners = _root_corners(content)
    tops, roots = np.unique(corners, return_inverse=True)
    if content.legacy:
        order = np.lexsort((leaves.path, leaves.cell))
    else:
        order = leaf_order(content.dim, leaves.root, leaves.level, leaves.path, content.states)
    leaves = leaves.taken(order)
    cell, known_at = leaves.cell, leaves.corners
    roots = roots.reshape(corners.shape)
    topology = Topology.build(roots, len(tops))
    whole = Entities.of(roots, topology)
    forest = Forest(whole, leaves.root, leaves.level.astype(np.int8), leaves.path)
    elements, count = forest.elements
    in_file, given = np.full(count, -1, dtype=np.int64), content.nodes[cell][known_at]
    in_file[elements[known_at]] = given
    numbered = np.flatnonzero(in_file >= 0)
    known, first = np.unique(in_file[numbered], return_index=True)
    if not np.array_equal(in_file[elements[known_at]], given) or len(known) != len(numbered):
        raise MeshFormatError(
            f"{content.where}: the leaves do not have the vertices that their trees give them: "
            "halves of an element follow the order of its corners, and share their vertices"
        )
    place = np.searchsorted(known, content.boundary)
    ends = np.append(known, -1)
    bad = np.flatnonzero((ends[np.minimum(place, len(known))] != content.boundary).any(axis=1))
    if len(bad):
        raise MeshFormatError(
            f"{content.where}: boundary element {bad[0]} (counted from 0) has vertices "
            f"{content.boundary[bad[0]].tolist()}, which are not all of elements"
        )
    boundary, marks = (
        numbered[first[np.minimum(place, len(first) - 1)]],
        content.boundary_attributes,
    )
    if not known_at.all():
        boundary, marks = _parts_of_boundary(content, leaves, elements)
    if content.legacy:
        numbers = in_file
    else:
        numbers = np.full(count, -1, dtype=np.int64)
        numbers[: len(tops)] = np.arange(len(tops))
        met = elements[:, VTK_CORNERS[content.dim]].ravel()
        met = met[met >= len(tops)]
        new = met[np.sort(np.unique(met, return_index=True)[1])]
        numbers[new] = np.arange(len(tops), count)
    _check_parents(content, in_file)
    return Trees(
        forest,
        topology,
        elements,
        count,
        content.attributes[cell],
        boundary,
        marks,
        tops,
        numbers,
    )


def _parts_of_boundary(content: TreeContent, leaves: _Leaves, elements: Ints) -> tuple[Ints, Ints]:
    """Corners and attributes of a file's boundary, on the leaves that its elements became."""
    dim, cells = content.dim, np.unique(leaves.cell)
    codes = entity_codes(dim, dim - 1)
    sides = np.array([(cell, code) for cell in cells for code in codes])
    rows = np.sort(outward_corners(content.nodes, sides), axis=1)
    asked = np.sort(content.boundary, axis=1)
    every, same = np.unique(np.concatenate([rows, asked]), axis=0, return_inverse=True)
    same = same.reshape(-1)
    entry = np.full(len(every), -1, dtype=np.int64)
    entry[same[len(rows) :]] = np.arange(len(asked))
    missing = np.flatnonzero(~np.isin(same[len(rows) :], same[: len(rows)]))
    if len(missing):
        raise MeshFormatError(
            f"{content.where}: boundary element {missing[0]} (counted from 0) is no face of an "
            "element"
        )
    mine = np.flatnonzero(entry[same[: len(rows)]] >= 0)
    entries, sides = entry[same[mine]], sides[mine]
    pair = sides[:, [0, 0]], sides[:, [1, 1]].astype(np.int8)
    out = looks_out(content.nodes, content.boundary[entries], *pair)[:, 0]
    best = np.lexsort((~out, entries))  # of two elements that from which the entry looks out
    best = best[np.unique(entries[best], return_index=True)[1]]
    last = np.zeros((len(content.nodes), dim), dtype=np.int64)
    np.maximum.at(last, leaves.cell, leaves.inside)
    corners, marks = (
        [np.zeros((0, 2 ** (dim - 1)), dtype=np.int64)],
        [content.boundary_attributes[:0]],
    )
    order = np.argsort(leaves.cell, kind="stable")
    starts = np.searchsorted(leaves.cell[order], sides[best, 0])
    stops = np.searchsorted(leaves.cell[order], sides[best, 0], side="right")
    for (cell, code), number, start, stop in zip(
        sides[best], entries[best], starts, stops, strict=True
    ):
        some = order[start:stop]
        [(d, digit)] = [(d, t) for d, t in enumerate(code_digits(code, dim)) if t != 1]
        some = some[leaves.inside[some, d] == (last[cell, d] if digit == 2 else 0)]
        corners.append(outward_corners(elements, np.column_stack([some, np.full(len(some), code)])))
        marks.append(np.full(len(some), content.boundary_attributes[number]))
    return np.concatenate(corners), np.concatenate(marks)


def _check_parents(content: TreeContent, in_file: Ints) -> None:
    """Raise if a vertex with parents is none of the leaves'."""
    bad = content.parents[~np.isin(content.parents, in_file)]
    if len(bad):
        raise MeshFormatError(
            f"{content.where}: vertex {bad[0]} of vertex_parents is no vertex of an element"
        )


@final
@dataclass(frozen=True)
class TreeContent:
    """Trees of a file, before the positions are known."""

    dim: int
    # per element of the file: attribute, children (-1 of leaves), vertices (-1 of refined ones),
    # both lexicographic
    attributes: Ints
    children: Ints
    nodes: Ints
    kinds: Ints  # bits of the directions in which an element is halved
    boundary: Ints
    boundary_attributes: Ints
    states: Ints  # shape (number of roots,)
    legacy: bool
    names: tuple[dict[str, tuple[int, ...]], ...]
    where: str
    parents: Ints  # shape (n, 3): vertices and their parents


def read_trees(scanner: Scanner, names: tuple[dict[str, tuple[int, ...]], ...]) -> TreeContent:
    """Read all sections up to the positions. The header was read."""
    scanner.keyword("dimension")
    dim = scanner.integer(scanner.read("the dimension"), "the dimension", 1, 3)
    if scanner.peek() == "rank":
        raise scanner.fail("the file is a part of a mesh of several ranks: save the mesh as one")
    if scanner.peek() == "sfc_version":
        scanner.read("")
        text = scanner.read("the version")
        if scanner.integer(text, "sfc_version", 0) != 0:
            raise scanner.fail(f"sfc_version {shorten(text)} is not known")
    attributes, children, nodes, kinds = _elements(scanner, dim)
    where = f"{scanner.name} (elements end at line {scanner.line})"
    boundary, marks = _boundary(scanner, dim)
    parents = np.zeros((0, 3), dtype=np.int64)
    if scanner.peek() == "vertex_parents":
        scanner.read("")
        parents = _table(scanner, "vertex with parents", 3)
    if scanner.peek() == "vertex_to_knotspan":
        scanner.read("")
        raise scanner.fail("NURBS meshes are not supported")
    halvings = np.bitwise_count(kinds[children[:, 0] >= 0]).astype(np.int64)
    roots = len(children) - int((1 << halvings).sum())
    states = np.zeros(max(roots, 0), dtype=np.int64)
    if scanner.peek() == "root_state":
        scanner.read("")
        found = _table(scanner, "root state", 1)[:, 0]
        highest = len(curve_states(dim)[0]) - 1
        if len(found) > len(states) or found.min(initial=0) < 0 or found.max(initial=0) > highest:
            raise scanner.fail(
                f"{len(found)} root states up to {found.max(initial=0)}: there are {len(states)} "
                f"roots, and states are 0 to {highest}"
            )
        states[: len(found)] = found
    given = attributes, children, nodes, kinds, boundary, marks, states
    return TreeContent(dim, *given, False, names, where, parents)


def read_legacy_trees(scanner: Scanner) -> TreeContent:
    """Read all sections up to the positions of the older format. The header was read."""
    scanner.keyword("dimension")
    dim = scanner.integer(scanner.read("the dimension"), "the dimension", 1, 3)
    scanner.keyword("elements")
    table = _table(scanner, "element", 2**dim + 2)
    _check_geometry(scanner, table[:, 1], dim, "element")
    attributes, nodes = table[:, 0], table[:, 2:][:, VTK_CORNERS[dim]]
    _check_numbers(scanner, nodes.ravel().tolist())
    where = f"{scanner.name} (elements end at line {scanner.line})"
    boundary, marks = _boundary(scanner, dim)
    parents = np.zeros((0, 3), dtype=np.int64)
    if scanner.peek() == "vertex_parents":
        scanner.read("")
        parents = _table(scanner, "vertex with parents", 3)
    count = len(nodes)
    children, kinds = np.full((count, 2**dim), -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    if scanner.peek() == "coarse_elements":
        scanner.read("")
        rows, more = _coarse(scanner, dim)
        children, kinds = np.concatenate([children, rows]), np.concatenate([kinds, more])
        nodes = np.concatenate([nodes, np.full((len(rows), 2**dim), -1)])
        above = np.zeros(len(rows), dtype=np.int64)
        every = np.concatenate([attributes, above])
        for row in range(len(rows)):  # a coarse element has the attribute of its first half
            at = int(rows[row, 0])
            every[count + row] = every[at] if 0 <= at < count + row else 1
        attributes = every
    states = np.zeros(len(children), dtype=np.int64)
    given = attributes, children, nodes, kinds, boundary, marks, states
    return TreeContent(dim, *given, True, ({}, {}), where, parents)


def _table(scanner: Scanner, what: str, width: int) -> Ints:
    """Read the number of rows, then rows (n, width) of whole numbers."""
    count = scanner.integer(scanner.read(f"the number of {what}s"), f"the number of {what}s", 0)
    scanner.room(count * width, f"{count} {what}s")
    rows = np.empty((count, width), dtype=np.int64)
    for number in range(count):
        row = scanner.integer_row(f"{what} {number + 1} of {count}")
        if len(row) != width:
            raise scanner.fail(f"{what} of {len(row)} numbers: there should be {width}")
        rows[number] = [int(word) for word in row]
    return rows


def _check_geometry(scanner: Scanner, kinds: Ints, dim: int, what: str) -> None:
    bad = np.flatnonzero(kinds != GEOMETRY[dim])
    if len(bad):
        raise scanner.fail(
            f"{what} {bad[0] + 1} has geometry {kinds[bad[0]]}: in this mesh it must be "
            f"{GEOMETRY[dim]}; supported are meshes of segments, squares or cubes alone"
        )


def _check_numbers(scanner: Scanner, numbers: list[int]) -> None:
    if min(numbers, default=0) < 0:
        raise scanner.fail(f"number {min(numbers)} of a vertex or child: numbers begin at 0")


def _at_octants(kind: int, dim: int) -> list[int]:
    """Number of the child at each octant, lexicographic, in MFEM's order of children.

    ``kind`` has a bit for each direction in which the element is halved. Four children go round the
    element, but those of y and z are in rows.
    """
    along = [d for d in range(dim) if kind >> d & 1]
    places = range(4) if along == [1, 2] else VTK_CORNERS[len(along)]
    of_place = {place: number for number, place in enumerate(places)}
    return [
        of_place[sum((octant >> d & 1) << k for k, d in enumerate(along))]
        for octant in range(2**dim)
    ]


def _elements(scanner: Scanner, dim: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Attributes (n,), children and vertices (n, 2**dim) of the elements of all levels, kinds."""
    scanner.keyword("elements")
    count = scanner.integer(scanner.read("the number of elements"), "the number of elements", 1)
    scanner.room(3 * count, f"{count} elements")
    attributes = np.ones(count, dtype=np.int64)
    children = np.full((count, 2**dim), -1, dtype=np.int64)
    nodes = np.full((count, 2**dim), -1, dtype=np.int64)
    kinds = np.zeros(count, dtype=np.int64)
    order = VTK_CORNERS[dim]
    for number in range(count):
        row = [int(w) for w in scanner.integer_row(f"element {number + 1} of {count}")]
        if len(row) == 3 and row[2] < 0:  # a number that no element has
            continue
        if len(row) < 4 or row[2] != GEOMETRY[dim]:
            kind = row[2] if len(row) > 2 else "none"
            raise scanner.fail(
                f"element of geometry {kind}: in this mesh it must be {GEOMETRY[dim]}; supported "
                "are meshes of segments, squares or cubes alone"
            )
        below = 2 ** _halvings(scanner, row[3], dim) if row[3] else 2**dim
        if len(row) != below + 4:
            raise scanner.fail(
                f"element of {len(row)} numbers: there should be {below + 4}: rank, attribute, "
                f"geometry, type of refinement, and {below} vertices or children"
            )
        _check_numbers(scanner, row[4:])
        if not row[3] and row[0] != 0:
            raise scanner.fail(
                f"an element belongs to rank {row[0]}: the file is a part of a mesh of several "
                "ranks; save the mesh as one"
            )
        attributes[number], kinds[number] = row[1], row[3]
        if row[3]:
            children[number] = np.array(row[4:])[_at_octants(row[3], dim)]
        else:
            nodes[number, order] = row[4:]
    return attributes, children, nodes, kinds


def _halvings(scanner: Scanner, kind: int, dim: int) -> int:
    """Number of directions in which an element is halved."""
    if not 0 < kind < 2**dim:
        raise scanner.fail(f"an element is refined by type {kind}: types are 1 to {2**dim - 1}")
    return kind.bit_count()


def _coarse(scanner: Scanner, dim: int) -> tuple[Ints, Ints]:
    """Children (n, 2**dim) of coarse elements at their octants, and kinds (n,)."""
    what = "the number of coarse elements"
    count = scanner.integer(scanner.read(what), what, 0)
    scanner.room(2 * count, f"{count} coarse elements")
    rows, kinds = np.empty((count, 2**dim), dtype=np.int64), np.empty(count, dtype=np.int64)
    for number in range(count):
        kind, *below = [
            int(w) for w in scanner.integer_row(f"coarse element {number + 1} of {count}")
        ]
        due = 2 ** _halvings(scanner, kind, dim)
        if len(below) != due:
            raise scanner.fail(f"coarse element of {len(below) + 1} numbers: give {due + 1}")
        _check_numbers(scanner, below)
        rows[number], kinds[number] = np.array(below)[_at_octants(kind, dim)], kind
    return rows, kinds


def _boundary(scanner: Scanner, dim: int) -> tuple[Ints, Ints]:
    """Corners (n, 2**(dim - 1)) and attributes (n,) of the boundary entries."""
    if scanner.peek() != "boundary":
        return np.zeros((0, 2 ** (dim - 1)), dtype=np.int64), np.zeros(0, dtype=np.int64)
    scanner.read("")
    table = _table(scanner, "boundary element", 2 ** (dim - 1) + 2)
    _check_geometry(scanner, table[:, 1], dim - 1, "boundary element")
    order = VTK_CORNERS[dim - 1] if dim > 1 else [0]
    return table[:, 2:][:, order], table[:, 0]
