"""MFEM's own numbering of H1 degrees of freedom, and its named sets of attributes.

Vertices come first, then the dofs inside edges, faces and cells. Edges and faces are numbered in
the order in which the elements first touch them: elements in the file's order, and in each element
MFEM's local order. An edge runs from its lower to its higher vertex. A face has the corners v0, v1,
v2, v3 in the first element that touches it, with dofs i along v0 v1 (fastest) and j along v0 v3.
Cells are lexicographic.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshArgumentError
from femops_meshes.formats.scanner import Scanner, printable, shorten
from femops_meshes.mesh import Mesh, check_cubes
from femops_meshes.names import Names
from femops_meshes.topology.entities import CUBES, VTK_CORNERS
from femops_meshes.topology.topology import (
    Topology,
    entity_codes,
    entity_corners,
    entity_dimension,
    lattice_numbers,
    quad_orientation,
)

Ints = NDArray[np.int64]

# pairs and fours of MFEM's corners
CORNERS_OF_EDGES = {
    2: ((0, 1), (1, 2), (2, 3), (3, 0)),
    3: (
        *((0, 1), (1, 2), (3, 2), (0, 3), (4, 5), (5, 6)),
        *((7, 6), (4, 7), (0, 4), (1, 5), (2, 6), (3, 7)),
    ),
}
CORNERS_OF_FACES = (
    (3, 2, 1, 0),
    (0, 1, 5, 4),
    (1, 2, 6, 5),
    (2, 3, 7, 6),
    (3, 0, 4, 7),
    (4, 5, 6, 7),
)


def _code(dim: int, corners: tuple[int, ...]) -> int:
    """Ternary code of the entity whose corners MFEM gives these numbers."""
    local = {VTK_CORNERS[dim][corner] for corner in corners}
    return next(code for code in range(3**dim) if set(entity_corners(dim, code)) == local)


def first_met(number: Ints, count: int) -> tuple[Ints, Ints]:
    """Rank (count,) of each number by first appearance, and its first position (count,)."""
    place = np.full(count, number.size, dtype=np.int64)
    # of several writes to one entry the last one stays: go backwards to keep the first
    place[number[::-1]] = np.arange(number.size - 1, -1, -1)
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(place, kind="stable")] = np.arange(count)
    return rank, place


def h1_numbers(elements: Ints, topology: Topology, file_elements: Ints, p: int) -> tuple[Ints, int]:
    """Return MFEM's number of each lexicographic local node, and the count of numbers."""
    dim = topology.dim
    order = np.argsort(file_elements, kind="stable")
    entity, orientation = topology.entity.copy(), topology.orientation.copy()
    entity[order, entity_codes(dim, dim)[0]] = np.arange(len(elements))
    if dim > 1:
        codes = [_code(dim, pair) for pair in CORNERS_OF_EDGES[dim]]
        rank, _ = first_met(entity[order][:, codes].ravel(), topology.num_entities[1])
        entity[:, codes] = rank[entity[:, codes]]
    if dim == 3:
        codes = [_code(dim, corners) for corners in CORNERS_OF_FACES]
        rank, place = first_met(entity[order][:, codes].ravel(), topology.num_entities[2])
        base = np.array(
            [[VTK_CORNERS[3][corner] for corner in corners] for corners in CORNERS_OF_FACES]
        )
        owner, face = order[place // len(codes)], place % len(codes)
        origin, toward = elements[owner, base[face, 0]], elements[owner, base[face, 1]]
        corners = elements[:, [entity_corners(dim, code) for code in codes]]
        orientation[:, codes] = quad_orientation(
            corners, origin[entity[:, codes]], toward[entity[:, codes]]
        )
        entity[:, codes] = rank[entity[:, codes]]
    sizes = [count * (p - 1) ** kind for kind, count in enumerate(topology.num_entities)]
    offsets = [sum(sizes[:kind]) for kind in entity_dimension(dim)]
    return lattice_numbers(p, entity, orientation, offsets, CUBES[dim]), sum(sizes)


def tree_vertices(mesh: Mesh) -> Ints:
    """MFEM's number (nv,) of each vertex of a mesh of trees: those of the roots are the first."""
    order = np.argsort(mesh.file_elements, kind="stable")
    corners = mesh.elements[order][:, VTK_CORNERS[mesh.dim]].ravel()
    _, place = first_met(corners, mesh.num_vertices)
    roots = mesh.trees.num_vertices
    numbers = np.empty(mesh.num_vertices, dtype=np.int64)
    numbers[:roots] = np.arange(roots)
    numbers[roots + np.argsort(place[roots:])] = np.arange(roots, mesh.num_vertices)
    return numbers


def nodes_of_elements(mesh: Mesh, p: int) -> tuple[Ints, int]:
    """MFEM's number of each node of the H1 space of degree p in each element, and their count."""
    elements, topology = mesh.elements, mesh.topology
    if mesh.forest is not None:  # MFEM numbers hanging entities as others
        elements = tree_vertices(mesh)[elements]
        topology = Topology.build(elements, mesh.num_vertices)
    return h1_numbers(elements, topology, mesh.file_elements, p)


def mfem_h1_dofs(mesh: Mesh, p: int) -> Ints:
    """MFEM's number of each node of the H1 space of degree p on the mesh in its file.

    The file is the one that `write_mfem` writes of the mesh, refined or not. MFEM gives other
    numbers to a mesh that it refines itself. On locally refined meshes it also numbers nodes that
    hang, whose values follow from others.
    """
    if isinstance(p, bool) or not isinstance(p, int | np.integer) or p < 1:
        raise MeshArgumentError(f"an H1 space has a whole degree p >= 1, got {p!r}")
    check_cubes(mesh, "MFEM's numbering of dofs")
    return nodes_of_elements(mesh, int(p))[0]


INSIDE, OUTSIDE = "attribute_sets", "bdr_attribute_sets"
"""The sections of elements and of the boundary."""


def read_sets(scanner: Scanner, section: str) -> dict[str, tuple[int, ...]]:
    """Read {name: attributes} from a section. Return {} if another section comes next."""
    if scanner.peek() != section:
        return {}
    scanner.keyword(section)
    what = f"the number of sets in {section}"
    count = scanner.integer(scanner.read(what), what, 0)
    scanner.room(2 * count, f"{count} sets")
    sets: dict[str, tuple[int, ...]] = {}
    for number in range(count):
        name, words = _name(scanner, f"set {number + 1} of {count} in {section}")
        if not name or name in sets:
            raise scanner.fail(f'"{shorten(name)}" names two sets, or none: name each once')
        sets[name] = _attributes(scanner, words, f'the set "{shorten(name)}"')
    return sets


def _name(scanner: Scanner, what: str) -> tuple[str, list[str]]:
    """Name of a set, and the words that follow it on its line."""
    text = scanner.read(what)
    first, last = text.find('"'), text.rfind('"')
    if first < 0:
        name, _, rest = text.partition(" ")
        return printable(name), rest.split()
    if first > 0 or last == first:
        raise scanner.fail(
            f'{what} should begin with a name in double quotes, got "{shorten(text)}"'
        )
    return printable(text[1:last]), text[last + 1 :].split()


def _attributes(scanner: Scanner, words: list[str], what: str) -> tuple[int, ...]:
    size = f"the number of attributes in {what}"
    words = words or scanner.integer_row(size)
    count = scanner.integer(words[0], size, 0)
    scanner.room(count - len(words) + 1, f"{count} attributes of {what}")
    while len(words) <= count:
        words += scanner.integer_row(f"attribute {len(words)} of {count} of {what}")
    if len(words) > count + 1:
        raise scanner.fail(f"{what} has more attributes than the {count} that it announces")
    return tuple(scanner.integer(word, f"an attribute of {what}", 1) for word in words[1:])


def check_writable_names(*names: Names) -> None:
    """Raise if a name cannot be written to a file."""
    for name in (name for group in names for name in group):
        if '"' in name or printable(name) != name:
            raise MeshArgumentError(
                f"the name {name!r} cannot be written to MFEM's format: it may hold no double "
                "quote and no character that cannot be printed; give another by mesh.with_names"
            )


def written_sets(section: str, names: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield the text of a section, with line ends as MFEM writes them."""
    yield f"\n{section}\n{len(names)}\n"
    for name, numbers in names.items():
        yield f'"{name}"\n{len(numbers)}\n{" ".join(map(str, numbers))}\n'
