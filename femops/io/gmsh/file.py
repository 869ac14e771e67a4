"""Reading of Gmsh's files, versions 2.2 and 4.1, into arrays.

femops reads them itself. Gmsh's own reader runs any file that is no mesh as a script, and reads a
damaged file as another mesh, without a word.

Source: the Gmsh reference manual, "MSH file format".
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.io.gmsh.nodes import KINDS, Kind
from femops.io.gmsh.periodic import Link, new_links, old_links
from femops.io.gmsh.sections import Binary, Cursor, Section, Text, decoded, sections_of
from femops_meshes import MeshFileError, MeshFormatError
from femops_meshes.formats.files import content_of
from femops_meshes.formats.scanner import printable
from femops_meshes.formats.temporary import regular

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BEGINS = re.compile(rb"\s*\$(MeshFormat|Comments)\b")
_FORMAT = re.compile(rb"\s*(\d{1,4}(?:\.\d{1,16})?)[ \t]+([01])[ \t]+(\d{1,2})[ \t]*(?:\r?\n|$)")
_NAME = re.compile(rb'\s*([0-3])\s+([+-]?[0-9]{1,10})\s+"(.*)"\s*')
_OLD_NAME = re.compile(rb'\s*()([+-]?[0-9]{1,10})\s*"(.*)"\s*')
"""Names of version 2.0 have no dimension."""
_ONE = {b"\x01\0\0\0": "<", b"\0\0\0\x01": ">"}
_FIX = "it is damaged, or made by a program that Gmsh does not understand: write it again"


@final
@dataclass(frozen=True, eq=False)
class Side:
    """Elements of one type on an entity of a periodic mesh. The entity has dimension 0 to 2."""

    # dim and entity: dimension and Gmsh's number of the entity
    dim: int
    entity: int
    kind: int  # type number
    nodes: NDArray[np.int64]  # shape (n, k): numbers of the elements' nodes


@final
@dataclass(frozen=True)
class GmshArrays:
    """Contents of a Gmsh file."""

    # tags and positions: number (n,) and position (n, 3) of each node
    tags: NDArray[np.int64]
    positions: NDArray[np.float64]
    blocks: NDArray[np.int64]  # (nb, 3) int64: dimension, type and number of elements of each block
    # node numbers of all elements, in Gmsh's order, concatenated block by block
    nodes: NDArray[np.int64]
    # (ng, 2) int64: a block, and the tag of a physical group that has the block
    groups: NDArray[np.int64]
    # names of physical groups by dimension and tag. Groups without a name are left out.
    names: dict[tuple[int, int], str]
    links: list[Link]  # pairs of nodes that a periodic mesh identifies
    # nodes of a periodic mesh, by dimension and number of the entity with their elements
    sides: list[Side]
    kinds: dict[int, Kind] = field(default_factory=lambda: KINDS)  # meaning of each type number
    # number in errors of each element, block by block (None: its place), and how they are counted
    numbers: NDArray[np.int64] | None = None
    counted: str = "counted from 0"

    def numbers_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers (n,) in errors of the elements at some places (n,) among all."""
        return places if self.numbers is None else self.numbers[places]

    def rows(self) -> list[NDArray[np.int64]]:
        """Nodes (n, k) of the elements of each block."""
        shapes = [(count, self.kinds[kind].size) for _, kind, count in self.blocks.tolist()]
        stops = np.cumsum([0, *(a * b for a, b in shapes)]).tolist()
        parts = (self.nodes[start:stop] for start, stop in pairwise(stops))
        return [part.reshape(*shape) for part, shape in zip(parts, shapes, strict=True)]

    def side_nodes(self, dim: int, entity: int) -> NDArray[np.int64]:
        """Return the numbers (n,) of all nodes of a geometric entity's elements, ascending."""
        return self._side_nodes.get((dim, entity), np.zeros(0, dtype=np.int64))

    @cached_property
    def _side_nodes(self) -> dict[tuple[int, int], NDArray[np.int64]]:
        """Nodes of each geometric entity, by its dimension and number."""
        found: dict[tuple[int, int], list[NDArray[np.int64]]] = defaultdict(list)
        for side in self.sides:
            found[side.dim, side.entity].append(side.nodes.ravel())
        return {key: np.unique(np.concatenate(parts)) for key, parts in found.items()}


def node_places(tags: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index (n,) in `tags` of each node number (n,). If a tag is repeated, the first index."""
    known, first = np.unique(tags, return_index=True)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    unknown = numbers[known[places] != numbers] if len(known) else numbers.ravel()
    if len(unknown):
        raise MeshFormatError(
            f"{len(unknown)} node(s) of elements are not in the file, number {unknown[0]} the "
            "first: it is damaged, write it again"
        )
    return np.asarray(first[places])


def begins_like_gmsh(path: str | os.PathLike[str]) -> bool:
    """True if the file starts as Gmsh files do. False if it cannot be opened."""
    try:
        with open(path, "rb", opener=regular) as file:
            return bool(_BEGINS.match(file.read(64)))
    except (OSError, ValueError):
        return False


def read_arrays(path: str | os.PathLike[str], name: str = "") -> GmshArrays:
    """Read a file. `name` stands for its path in errors."""
    file = name or printable(os.fspath(path))
    try:
        data = content_of(path)
    except (OSError, ValueError) as error:
        raise MeshFileError(
            f"{file} can't be read ({printable(str(error))}): check path and rights"
        ) from error
    sections = sections_of(data, file)
    del data
    version, order = _format(sections, file)
    old = version < 4
    nodes = "ParametricNodes" if old and "ParametricNodes" in sections else "Nodes"
    for missing in (nodes, "Elements"):
        if missing not in sections:
            raise MeshFormatError(
                f"{file} has no ${missing}: let Gmsh generate the mesh before it saves; if it did, "
                "the file is truncated, write it again"
            )
    named = sections.get("PhysicalNames")
    names = _names(named, _OLD_NAME if version < 2.1 else _NAME) if named else {}
    links: list[Link] = []
    if "Periodic" in sections:
        periodic = sections["Periodic"]
        # version 2 writes it as text in binary files too
        links = old_links(Text(periodic)) if old else new_links(periodic.numbers(order))
    if old:
        tags, positions = _old_nodes(sections[nodes], order)
        cells = _old_elements(sections["Elements"], order, by_entity=bool(links))
    else:
        tags, positions = _new_nodes(sections[nodes].numbers(order))
        groups = _entity_groups(sections, order)
        cells = _new_elements(sections["Elements"].numbers(order), groups)
    _check_repeated(tags, positions, sections[nodes])
    return arrays_of(tags, positions, cells, names, links, "numbers of the file")


@final
@dataclass(frozen=True, eq=False)
class Cells:
    """Elements (n, k) of one type on one entity, and the tags of their physical groups."""

    kind: int
    entity: int
    groups: tuple[int, ...]
    nodes: Ints
    numbers: Ints | None = None  # (n,): None to count them


def arrays_of(
    tags: Ints,
    positions: Floats,
    cells: Iterable[Cells],
    names: dict[tuple[int, int], str],
    links: list[Link],
    counted: str = "counted from 0",
) -> GmshArrays:
    """Join blocks of elements. The tag 0 of a group means, as in version 2, no group."""
    cells = [*cells]
    numbers = [each.numbers for each in cells if each.numbers is not None]
    blocks = [(KINDS[each.kind].dim, each.kind, len(each.nodes)) for each in cells]
    groups = [(k, abs(tag)) for k, each in enumerate(cells) for tag in each.groups if tag]
    return GmshArrays(
        tags=tags,
        positions=positions,
        blocks=np.array(blocks, dtype=np.int64).reshape(-1, 3),
        nodes=np.concatenate(
            [np.zeros(0, dtype=np.int64), *(each.nodes.ravel() for each in cells)]
        ),
        groups=np.array(groups, dtype=np.int64).reshape(-1, 2),
        names=names,
        links=links,
        sides=[
            Side(KINDS[each.kind].dim, each.entity, each.kind, each.nodes)
            for each in cells
            if links and KINDS[each.kind].dim < 3
        ],
        numbers=np.concatenate(numbers) if numbers else None,
        counted=counted,
    )


def _format(sections: dict[str, Section], file: str) -> tuple[float, str]:
    """Version of the file, and NumPy's sign of its byte order, empty for ASCII."""
    content = sections["MeshFormat"].content if "MeshFormat" in sections else b""
    found = _FORMAT.match(content)
    if not found:
        raise MeshFormatError(f"{file}: after $MeshFormat stand no version and file type: {_FIX}")
    version, binary, rest = float(found[1]), found[2] == b"1", content[found.end() :]
    if not 2 <= version <= 2.2 and version != 4.1:
        raise MeshFormatError(
            f"{file} is of Gmsh's version {version:g}; versions 2.2 and 4.1 are read: let Gmsh "
            "save it again with Mesh.MshFileVersion = 4.1"
        )
    if int(found[3]) != 8:
        raise MeshFormatError(
            f"{file}: its numbers have {int(found[3])} bytes, those of 8 are read"
        )
    if binary:
        if rest[:4] not in _ONE or rest[4:].strip():
            raise sections["MeshFormat"].fail("it has no number 1 that tells the order of bytes")
        return version, _ONE[rest[:4]]
    if rest.strip():
        raise sections["MeshFormat"].fail("more than version, file type and size")
    return version, ""


def _names(section: Section, pattern: re.Pattern[bytes]) -> dict[tuple[int, int], str]:
    """Names of physical groups by dimension and tag."""
    lines = [line for line in section.content.split(b"\n") if line.strip()]
    count = lines[0].strip() if lines else b""
    if not re.fullmatch(rb"[0-9]{1,18}", count) or int(count) != len(lines) - 1:
        raise section.fail(f"its first line should be the number of names, {len(lines) - 1}")
    names: dict[tuple[int, int], str] = {}
    for number, line in enumerate(lines[1:], 1):
        found = pattern.fullmatch(line) or _NAME.fullmatch(line)
        if not found:
            raise section.fail('a name should come as: 2 7 "plate"', number)
        tag, name = abs(int(found[2])), decoded(found[3])
        for dim in [int(found[1])] if found[1] else range(4):
            if names.setdefault((dim, tag), name) != name:
                raise section.fail(f"group {tag} of dimension {dim} has two names", number)
    return {key: name for key, name in names.items() if name}


def _check_repeated(tags: Ints, positions: Floats, section: Section) -> None:
    """Raise if a node number has two positions."""
    known, first, place = np.unique(tags, return_index=True, return_inverse=True)
    if len(known) < len(tags):
        again = (positions[first][place.ravel()] != positions).any(axis=1)
        if again.any():
            raise section.fail(f"node {tags[again][0]} has two positions")


# --- version 2 ------------------------------------------------------------------------------------


def _old_nodes(section: Section, order: str) -> tuple[Ints, Floats]:
    """Numbers (n,) and positions (n, 3) of all nodes."""
    parametric = section.name == "ParametricNodes"
    if order:
        cursor = Binary(section, order)
        count = cursor.count_line()
        head = [("tag", "i4", 1), ("x", "f8", 3)]
        if not parametric:
            found = cursor.records(head, count)
            cursor.end()
            return found["tag"].astype(np.int64).ravel(), found["x"].astype(np.float64)
        records = [cursor.records([*head, ("entity", "i4", 2)], 0)]
        for _ in range(cursor.checked_count(count)):
            one = cursor.records([*head, ("entity", "i4", 2)], 1)
            cursor.floats(_parameters(cursor, int(one["entity"][0, 0])))
            records.append(one)
        cursor.end()
        table = np.concatenate(records)
        return table["tag"].astype(np.int64).ravel(), table["x"].astype(np.float64).reshape(-1, 3)
    text = Text(section)
    (count,) = text.row("n")
    words = text.rows(count)
    for number, row in enumerate(words):
        wanted = 4
        if parametric and len(row) > 4:
            wanted = 6 + _parameters(text, int(text.as_whole(row[4:5])[0]))
        if len(row) != wanted or (parametric and len(row) == 4):
            raise text.fail(f"{len(row)} numbers where {wanted} should be", number + 1)
    tags = text.as_whole([row[0] for row in words])
    positions = text.as_floats([word for row in words for word in row[1:4]])
    if parametric:
        text.as_whole([word for row in words for word in row[4:6]])
        text.as_floats([word for row in words for word in row[6:]])
    text.end()
    return tags, positions.reshape(-1, 3)


def _parameters(cursor: Cursor, dim: int) -> int:
    """Number of parameters of a node on an entity of a dimension."""
    if not 0 <= dim <= 3:
        raise cursor.fail(f"there is no entity of dimension {dim}")
    return dim % 3


def _size(cursor: Cursor, kind: int) -> int:
    if kind not in KINDS:
        raise cursor.fail(f"elements of Gmsh's type {kind} are unknown")
    return KINDS[kind].size


def _old_elements(section: Section, order: str, *, by_entity: bool) -> list[Cells]:
    """Elements by dimension, group and type, as Gmsh would list them, and by entity if asked."""
    found: dict[int, list[Ints]] = defaultdict(list)
    for kind, size, table in (_old_binary if order else _old_text)(section, order):
        # number, tags, nodes
        tags = np.zeros((len(table), 2), dtype=np.int64)
        given = table[:, 1:-size][:, :2]
        tags[:, : given.shape[1]] = given
        # with Mesh.SaveAll an element that is a ghost in -partition comes again on another entity
        tags[:, 1] *= by_entity | (table[:, 4:-size] < 0).any(axis=1)
        found[kind].append(np.hstack([abs(tags), table[:, :1], table[:, -size:]]))
    cells = []
    for kind, tables in found.items():
        rows = np.concatenate(tables)
        pairs, place = np.unique(rows[:, :2], axis=0, return_inverse=True)
        order_of = np.argsort(place.ravel(), kind="stable")
        stops = np.cumsum(np.bincount(place.ravel(), minlength=len(pairs)))
        for (group, entity), mine in zip(
            pairs.tolist(), np.split(order_of, stops[:-1]), strict=True
        ):
            cells.append(Cells(kind, entity, (group,), rows[mine, 3:], rows[mine, 2]))
    return sorted(cells, key=lambda each: (KINDS[each.kind].dim, each.groups, each.kind))


def _old_text(section: Section, _: str) -> Iterable[tuple[int, int, Ints]]:
    """Tables (n, 1 + tags + nodes) of elements of a type with equally many tags."""
    text = Text(section)
    (count,) = text.row("n")
    words = text.rows(count)
    text.end()
    lengths = np.array([len(row) for row in words], dtype=np.int64)
    if (lengths < 3).any():
        raise text.fail("an element has fewer than 3 numbers", 1 + int((lengths < 3).argmax()))
    flat = text.as_whole([word for row in words for word in row])
    starts = np.cumsum(lengths) - lengths
    kinds, tags = flat[starts + 1], flat[starts + 2]
    for kind, number in np.unique(np.stack([kinds, tags], axis=1), axis=0).tolist():
        mine = np.flatnonzero((kinds == kind) & (tags == number))
        row = 1 + int(mine[0])
        if kind not in KINDS:
            raise text.fail(f"elements of Gmsh's type {kind} are unknown", row)
        size = KINDS[kind].size
        wrong = mine[lengths[mine] != 3 + number + size]
        if number < 0 or len(wrong):
            row = 1 + int(wrong[0]) if len(wrong) else row
            raise text.fail(
                f"an element of type {kind} with {number} tags has {3 + number + size} numbers", row
            )
        table = flat[starts[mine][:, np.newaxis] + np.arange(3 + number + size)]
        _check_tags(text, table[:, 3 : 3 + number], mine + 1)
        yield kind, size, np.delete(table, [1, 2], axis=1)


def _check_tags(cursor: Text, tags: Ints, rows: Ints) -> None:
    """Raise if a tag is too large, or the third is not the number of partition tags behind it."""
    wide = (tags != tags.astype(np.int32)).any(axis=1)
    if wide.any():
        raise cursor.fail("a tag is no number of 4 bytes", int(rows[wide][0]))
    if tags.shape[1] > 3 and (tags[:, 2] != tags.shape[1] - 3).any():
        wrong = rows[tags[:, 2] != tags.shape[1] - 3][0]
        raise cursor.fail("its third tag is not the number of partitions", int(wrong))


def _old_binary(section: Section, order: str) -> Iterable[tuple[int, int, Ints]]:
    cursor = Binary(section, order)
    left = cursor.count_line()
    while left > 0:
        kind, count, tags = cursor.row("iii")
        size = _size(cursor, kind)
        if not 0 < count <= left or tags < 0:
            raise cursor.fail(f"{count} elements with {tags} tags, where {left} elements are left")
        yield kind, size, cursor.whole_table("i", count, 1 + tags + size)
        left -= count
    cursor.end()


# --- version 4.1 ----------------------------------------------------------------------------------


def _entity_groups(
    sections: dict[str, Section], order: str
) -> dict[tuple[int, int], tuple[int, ...]] | None:
    """Tags of the physical groups of each entity; None if the file lists no entities."""
    if "Entities" not in sections:
        return None
    groups: dict[tuple[int, int], tuple[int, ...]] = {}
    for name in ("Entities", "PartitionedEntities"):
        if name not in sections:
            continue
        cursor, partitioned = sections[name].numbers(order), name != "Entities"
        if partitioned:
            cursor.row("n")  # the number of partitions
            (ghosts,) = cursor.row("n")
            cursor.whole_table("i", ghosts, 2)
        seen = set()
        for dim, count in enumerate(cursor.row("nnnn")):
            for _ in range(cursor.checked_count(count)):
                cursor.begin_row()
                tag = int(cursor.whole("i", 1)[0])
                if (dim, tag) in seen:
                    raise cursor.fail(f"entity {tag} of dimension {dim} comes twice")
                seen.add((dim, tag))
                if partitioned:
                    cursor.whole("i", 2)
                    cursor.whole("i", int(cursor.whole("n", 1)[0]))
                cursor.floats(6 if dim else 3)
                groups[dim, tag] = tuple(cursor.whole("i", int(cursor.whole("n", 1)[0])).tolist())
                if dim:
                    cursor.whole("i", int(cursor.whole("n", 1)[0]))
                cursor.end_row()
        cursor.end()
    return groups


def _new_nodes(cursor: Cursor) -> tuple[Ints, Floats]:
    """Numbers (n,) and positions (n, 3) of all nodes."""
    blocks, total, _, _ = cursor.row("nnnn")
    tags, positions = [np.zeros((0, 1), dtype=np.int64)], [np.zeros((0, 3))]
    for _ in range(cursor.checked_count(blocks)):
        dim, _, parametric, count = cursor.row("iiin")
        if parametric not in (0, 1) or not 0 <= dim <= 3:
            raise cursor.fail(f"a block of nodes of dimension {dim}, parametric {parametric}")
        tags.append(cursor.whole_table("n", count, 1))
        positions.append(cursor.float_table(count, 3 + parametric * dim)[:, :3])
    cursor.end()
    result = np.concatenate(tags).ravel()
    if len(result) != total:
        raise cursor.fail(f"its blocks have {len(result)} nodes, and it announces {total}")
    return result, np.concatenate(positions)


def _new_elements(
    cursor: Cursor, groups: dict[tuple[int, int], tuple[int, ...]] | None
) -> list[Cells]:
    blocks, total, _, _ = cursor.row("nnnn")
    # an entity's groups stand once in the file, whatever the number of its blocks
    found: dict[tuple[int, int], list[Ints]] = defaultdict(list)
    for _ in range(cursor.checked_count(blocks)):
        dim, entity, kind, count = cursor.row("iiin")
        size = _size(cursor, kind)
        if KINDS[kind].dim != dim:
            raise cursor.fail(f"elements of type {kind} have no dimension {dim}")
        if groups is not None and (dim, entity) not in groups:
            raise cursor.fail(
                f"$Entities has no entity {entity} of dimension {dim}, as in one of several files "
                "of a partitioned mesh, which Gmsh saves as one with PartitionSplitMeshFiles = 0"
            )
        table = cursor.whole_table("n", count, 1 + size)
        if count:
            found[kind, entity].append(table)
    cursor.end()
    cells = []
    for (kind, entity), some in found.items():
        own, table = (groups or {}).get((KINDS[kind].dim, entity), ()), np.concatenate(some)
        cells.append(Cells(kind, entity, own, table[:, 1:], table[:, 0]))
    if sum(len(each.nodes) for each in cells) != total:
        raise cursor.fail(f"its blocks do not have the {total} elements that it announces")
    return cells
