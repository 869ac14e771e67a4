"""Conversion of a Gmsh file to a mesh: nodes, physical groups, boundary."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import count as counting
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.io.gmsh.file import GmshArrays, node_places, read_arrays
from femops.io.gmsh.gluing import glued, vertex_links
from femops.io.gmsh.nodes import ELEMENTS, POINT, Kind, gmsh_order
from femops.io.gmsh.splitting import SPLIT, split_simplices
from femops_meshes import (
    Mesh,
    MeshError,
    MeshFormatError,
    MeshGeometryError,
    Topology,
    checks,
)
from femops_meshes.checks import compress_boundary, compress_vertices
from femops_meshes.coordinates.mapping import (
    equispaced,
    gauss_lobatto,
    lagrange_matrix,
    tensor_apply,
)
from femops_meshes.formats.repair import mended
from femops_meshes.formats.scanner import printable
from femops_meshes.names import names_of
from femops_meshes.topology.entities import VTK_CORNERS
from femops_meshes.topology.topology import exterior_boundary

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Numbering:
    """Attributes (n,) of n elements, the attribute of elements `without` group, and all names."""

    numbers: Ints
    without: int
    names: dict[str, tuple[int, ...]]


def attributes_of(which: Ints, sets: list[tuple[int, ...]], names: dict[int, str]) -> Numbering:
    """Give each element or boundary face (here: thing) one attribute.

    Shapes: `which` (n,), the index of each thing's tags in `sets`, which has ascending tags.
    """
    used = sorted({sets[k] for k in np.unique(which).tolist()})
    tags = dict.fromkeys(sorted(tag for one in used for tag in one))
    without = next(number for number in counting(1) if number not in tags)
    shared = {tag for one in used if len(one) > 1 for tag in one}
    numbers: dict[tuple[int, ...], int] = {(): without}
    number = max([*tags, without])
    meanings: dict[int, list[int]] = defaultdict(list)
    for one in filter(None, used):
        number += not shared.isdisjoint(one)
        numbers[one] = own = one[0] if shared.isdisjoint(one) else number
        for tag in one:
            meanings[tag].append(own)
    by_name: dict[str, list[int]] = defaultdict(list)
    for tag in tags:
        name = names.get(tag, str(tag) if tag in shared else "")
        if name:
            by_name[name] += meanings[tag]
    attributes = np.array([numbers.get(one, without) for one in sets], dtype=np.int64)[which]
    return Numbering(attributes, without, {name: (*group,) for name, group in by_name.items()})


Floats = NDArray[np.float64]

_SHAPES = ("Line", "Quadrilateral", "Hexahedron")
_SHARED = 16  # most tags, in the mean, of an element or face that several groups have
_FLAT = 1e-10  # largest distance of nodes from a plane, relative to the size of the mesh


def read_gmsh(path: str | os.PathLike[str], *, split: bool = False) -> Mesh:
    """Read a mesh of lines, quadrangles or hexahedra from a Gmsh file, version 2.2 or 4.1.

    The elements of the highest dimension in the file form the mesh. The boundary has all exterior
    faces, and the elements of one dimension less that are in a physical group. Coordinates have the
    degree of the elements. Attributes are the tags of the physical groups. `Mesh.element_names` and
    `Mesh.boundary_names` have the names of the groups. Elements and faces in no group have
    attribute 1, or the lowest number that is no tag. If groups overlap, each combination of groups
    gets a number above all tags. The name of a group (by default its tag) then stands for all its
    numbers. Elements listed clockwise are turned over.

    Vertices that $Periodic joins become one vertex, also through several sides. Each element keeps
    its coordinates. Glued sides are no boundary, even if they are in a group. A name that only
    glued sides have is removed.
    """
    return mesh_from(read_arrays(path), printable(os.fspath(path)), split=split)


def mesh_from(content: GmshArrays, name: str, *, split: bool) -> Mesh:
    """Make a mesh from the contents of a file or object, which errors call `name`."""
    try:
        return mesh_of(split_simplices(content) if split else content)
    except MeshError as error:
        raise type(error)(f"{name}: {error}") from error.__cause__  # it says the same


def mesh_of(content: GmshArrays) -> Mesh:
    """Make a mesh from the contents of a file; for errors see `read_gmsh`."""
    dim, degree = _checked_kinds(content)
    tags, first = np.unique(content.tags, return_index=True)
    cells = _entries(content, dim, tags, (degree + 1) ** dim)
    corners, coordinates = _geometry(content.positions[first], cells.nodes, dim, degree)
    corners, used = compress_vertices(corners)
    kept, inside = _attributes(content, dim, cells, corners, once=True)
    faces = _tagged(content, _entries(content, dim - 1, tags, 2 ** (dim - 1)))
    sides = faces.nodes[:, VTK_CORNERS[dim - 1]] if dim > 1 else faces.nodes
    sides = compress_boundary(sides, used)
    listed, outside = _attributes(content, dim - 1, faces, sides)
    corners, sides, tagged, vertices = corners[kept], sides[listed], outside.numbers, len(used)
    coordinates = coordinates[kept]
    checks.geometry(coordinates)
    boundary, topology = _with_exterior(corners, vertices, sides)
    _check_joined(coordinates, topology)
    checks.folds(corners, coordinates, topology)
    links = vertex_links(content, tags[used], content.positions[first[used]])
    if links:
        one = glued(corners, vertices, sides, links)
        corners, sides, vertices = one.elements, one.boundary, one.num_vertices
        tagged = tagged[one.kept]
        boundary, _ = _with_exterior(corners, vertices, sides)
    numbers = np.full(len(boundary), outside.without)
    numbers[: len(tagged)] = tagged
    mesh = Mesh.assemble(corners, coordinates, vertices, inside.numbers, boundary, numbers)
    return mesh.with_names(inside.names, names_of(outside.names, mesh.boundary_attributes))


def _check_joined(coordinates: Floats, topology: Topology) -> None:
    """Raise if elements that share a face or edge have different nodes on it."""
    apart = np.flatnonzero(checks.gaps(coordinates, topology))
    if len(apart):
        raise MeshGeometryError(
            f"{len(apart)} element(s) have other nodes on a common face or edge than the elements "
            f"beside them, number {apart[0]} the first (counted from 0): give them the same nodes"
        )


def _checked_kinds(content: GmshArrays) -> tuple[int, int]:
    """Return the mesh's dimension and degree. Raise if an element has another kind."""
    dim = max(content.blocks[content.blocks[:, 2] > 0, 0], default=0)
    if dim < 1:
        raise MeshFormatError(
            "it holds no elements that can be read: let Gmsh generate the mesh before it saves"
        )
    degrees = set()
    # those of the mesh before those of its boundary
    for block_dim, number, count in sorted(content.blocks.tolist(), reverse=True):
        kind = content.kinds[number]
        if block_dim < dim - 1 or count == 0:
            continue
        if number not in ELEMENTS.get(block_dim, {POINT: 0}):
            raise MeshFormatError(_refusal(kind, count, dim))
        if block_dim == dim:
            degrees.add(kind.degree)
    if len(degrees) > 1:
        raise MeshFormatError(
            f"it mixes elements of degrees {sorted(degrees)}: give all one, in Gmsh by SetOrder"
        )
    return int(dim), degrees.pop()


def _refusal(kind: Kind, count: int, dim: int) -> str:
    what = f"it holds {count} {kind.shape.lower()}(s) of degree {kind.degree}, {kind.size} nodes: "
    if kind.shape not in _SHAPES:
        # With RecombineAll on surfaces, Gmsh's subdivision of volumes inverts elements.
        advice = "only lines, quadrangles and hexahedra are supported; let Gmsh make " + (
            "all quadrangles by Mesh.RecombineAll = 1 and Mesh.SubdivisionAlgorithm = 1"
            if dim == 2
            else "all hexahedra by Mesh.SubdivisionAlgorithm = 2, or by transfinite volumes with "
            "Mesh.RecombineAll = 1"
        )
        if kind.shape in SPLIT:
            advice += (
                ", or split the elements: `femops mesh convert --split in.msh out.mesh`, "
                "femops.read_mesh(path, split=True)"
            )
        return what + advice
    if kind.size < (kind.degree + 1) ** kind.dim:
        return what + "these are incomplete elements; in Gmsh set Mesh.SecondOrderIncomplete = 0"
    return what + f"the highest degree is {max(ELEMENTS[kind.dim].values())}"


@final
@dataclass(frozen=True)
class _Entries:
    """Elements of one dimension: indices (n, k) of their first nodes, and their blocks (n,)."""

    nodes: Ints
    blocks: Ints


def _entries(content: GmshArrays, dim: int, tags: Ints, width: int) -> _Entries:
    chosen = np.flatnonzero(content.blocks[:, 0] == dim)
    all_rows = content.rows()
    rows = [all_rows[block][:, :width] for block in chosen]
    numbers = np.concatenate([np.zeros((0, width), dtype=np.int64), *rows])
    places = node_places(tags, numbers)
    return _Entries(places, np.repeat(chosen, content.blocks[chosen, 2]))


def _tagged(content: GmshArrays, entries: _Entries) -> _Entries:
    mine = np.isin(entries.blocks, content.groups[:, 0])
    return _Entries(entries.nodes[mine], entries.blocks[mine])


def _geometry(points: Floats, nodes: Ints, dim: int, degree: int) -> tuple[Ints, Floats]:
    """Corners (ne, 2**dim), and coordinates at GLL points. Mirrored elements are turned over."""
    nodes = nodes[:, gmsh_order(dim, degree)]
    lattice = points[nodes]
    checks.magnitude(lattice)
    size = np.ptp(lattice.reshape(-1, 3), axis=0)
    if size[dim:].max(initial=0.0) > _FLAT * size.max():
        raise MeshFormatError(
            f"its elements of dimension {dim} lie curved or tilted in space (size "
            f"{' x '.join(f'{length:.3g}' for length in size)}): surfaces and curves in a higher "
            "dimension are not supported; give the file the elements inside (if there are physical "
            "groups, Gmsh saves only what is in one), or lay a 2-D mesh into the plane z = 0"
        )
    to_gll = lagrange_matrix(equispaced(degree + 1), gauss_lobatto(degree + 1)[0])
    coordinates = tensor_apply([to_gll] * dim, np.ascontiguousarray(lattice[..., :dim]))
    ends = np.array([0, degree])
    grid = nodes.reshape(-1, *[degree + 1] * dim)[np.ix_(np.arange(len(nodes)), *[ends] * dim)]
    corners = grid.reshape(-1, 2**dim)
    return mended(corners, coordinates)[:2]


def _attributes(
    content: GmshArrays, dim: int, entries: _Entries, corners: Ints, *, once: bool = False
) -> tuple[Ints, Numbering]:
    """Entries to keep, and their attributes. Duplicates from several groups are removed.

    Raise if an entry comes twice in one group, if `once`.
    """
    names = {tag: name for (d, tag), name in content.names.items() if d == dim}
    if len(corners) == 0:
        return np.zeros(0, dtype=np.int64), attributes_of(np.zeros(0, dtype=np.int64), [()], {})
    _, first, place = np.unique(
        np.sort(corners, axis=1), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    thing = np.argsort(order)[place.ravel()]
    cells = np.unique(np.stack([thing, entries.blocks], axis=1), axis=0)
    if once and len(cells) < len(corners):
        raise MeshFormatError(
            f"it lists {len(corners) - len(cells)} element(s) of dimension {dim} twice in one "
            "group: it is damaged, write it again"
        )
    return first[order], attributes_of(*_tag_sets(content.groups, cells), names)


def _tag_sets(groups: Ints, cells: Ints) -> tuple[Ints, list[tuple[int, ...]]]:
    """Sets of tags, and for each of n things in blocks the index (n,) of its set.

    Shapes: `cells` (m, 2), ascending pairs of a thing and a block that has it.
    """
    tags: dict[int, set[int]] = defaultdict(set)
    for block, tag in groups.tolist():
        tags[block].add(tag)
    starts = np.flatnonzero(np.diff(cells[:, 0], prepend=-1))
    alone, which = np.unique(cells[starts, 1], return_inverse=True)
    which = which.ravel()
    several: dict[tuple[int, ...], int] = {}
    stops = np.append(starts[1:], len(cells))
    for thing in np.flatnonzero(stops - starts > 1).tolist():
        key = (*cells[starts[thing] : stops[thing], 1].tolist(),)
        which[thing] = several.setdefault(key, len(alone) + len(several))
    # a file lists a tag once for many elements, and a name has a number for each set
    count, most = sum(len(tags[block]) for key in several for block in key), _SHARED * len(cells)
    if count > most + len(groups):
        raise MeshFormatError(
            f"its groups overlap in {len(several)} ways with {count} tags in all, for {len(cells)} "
            "elements or faces: list each element once, on one entity"
        )
    blocks = [*((block,) for block in alone.tolist()), *several]
    return which, [tuple(sorted(set().union(*(tags[block] for block in key)))) for key in blocks]


def _with_exterior(elements: Ints, num_vertices: int, faces: Ints) -> tuple[Ints, Topology]:
    """Boundary with all exterior faces appended that are missing, and the topology before."""
    topology = Topology.build(elements, num_vertices, faces)
    exterior = (topology.faces[:, 0] >= 0) & (topology.faces[:, 1] < 0)
    where = np.stack([topology.faces[exterior, 0], topology.face_codes[exterior, 0]], axis=1)
    known = topology.boundary_faces @ [27, 1]
    rest = where[~np.isin(where @ [27, 1], known)]
    more = exterior_boundary(elements, replace(topology, boundary_faces=rest))
    return np.concatenate([faces, more]), topology
