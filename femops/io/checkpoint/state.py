"""Checkpoints, from which a program can continue on any number of ranks."""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from reprlib import repr as shown
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import CheckpointError, FemopsError, FileError, SpaceError
from femops.io.atomic import checked_path, refused, replacing, to_disk
from femops.io.checkpoint.kept_mesh import (
    LARGEST_DEGREE,
    TYPES,
    KeptMesh,
    Rows,
    Table,
    expect,
    own_name,
    tables_of,
)
from femops.numbering import touch_order
from femops.parallel.comm import Communicator, Serial, check, check_same
from femops.parallel.mesh import whole_checksum
from femops.parallel.scattering import gathered_mesh
from femops.parallel.serial_order import SerialOrder, moved
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.restriction import Vector
from femops.spaces.vectors import any_vector, has_complex
from femops_common.arguments import checked, type_name
from femops_kernels.exclusive import Derived
from femops_meshes import Mesh, MixedMesh
from femops_meshes.errors import MeshError
from femops_meshes.formats.temporary import regular, unlinked

Array = NDArray[Any]
Sums = NDArray[np.uint32]

MAGIC, VERSION = b"\x89FEMOPS\n", 3
"""First bytes, and the highest format: 1 without a mesh, 2 with one of one shape, 3 with others."""

_PREFIX = struct.Struct("<8sI")
"""Magic; checksum of the bytes after this prefix, up to the end of the text."""

_REST = struct.Struct("<IQI")
"""Version; length of the text; checksum of the table of checksums. Then come text and table."""

_FIXED = _PREFIX.size + _REST.size

BLOCK = 2**20
"""Largest size of a block in bytes. A block has whole rows of a vector, and one checksum."""

_PAGE = 4096
"""Data of each vector begin at a multiple of this many bytes."""

_LEAST = {"order": 0, "ncomp": 1, "dofs": 1, "elements": 1, "rows": 1}
"""Least values of the numbers of a `Field`."""

_TEXTS = {"space": "H1|L2", "family": r"\w+", "dtype": "<f[48]|<c(8|16)", "mesh": "[0-9a-f]{16}"}
"""Patterns of the texts of a `Field`."""


@final
@dataclass(frozen=True)
class Field(Rows):
    """Description of a vector in the file. It decides whether a space fits the vector."""

    space: str
    order: int
    ncomp: int
    family: str
    dtype: str
    # number of nodes of the space on all ranks. The vector has a row of `ncomp` numbers per node.
    dofs: int
    elements: int  # number of elements of the global mesh
    mesh: str  # checksum of the global mesh, in hexadecimal digits
    rows: int = field(compare=False)  # number of rows in a block. It may differ between files.

    @classmethod
    def parsed(cls, given: Any) -> Field:
        """Make the description from its JSON object."""
        expect(
            isinstance(given, dict) and cls.__dataclass_fields__.keys() <= given.keys(),
            shown(given),
        )
        found = cls(**{key: given[key] for key in cls.__dataclass_fields__})
        for key, least in _LEAST.items():
            number = getattr(found, key)
            expect(type(number) is int and least <= number < 2**63, f"{key} {shown(number)}")
        for key, pattern in _TEXTS.items():
            text = getattr(found, key)
            expect(isinstance(text, str) and re.fullmatch(pattern, text), f"{key} {shown(text)}")
        return found

    @property
    def kind(self) -> str:
        """Description of the space, for messages."""
        return f"{self.space}(order={self.order}, ncomp={self.ncomp}, family={self.family!r})"


@final
@dataclass(frozen=True, eq=False)
class Contents:
    """Contents of a file, and the positions of its parts."""

    fields: Mapping[str, Field]  # descriptions of the vectors by name, in the order of the file
    values: Mapping[str, Any]  # values that JSON can hold
    mesh: KeptMesh | None
    text: bytes  # fields, values and mesh as JSON

    @classmethod
    def of(
        cls, fields: Mapping[str, Field], values: Mapping[str, Any], mesh: KeptMesh | None
    ) -> Contents:
        """Make the contents of a new file from vector descriptions, values and a mesh."""
        offsets = _offsets(_tables(fields, mesh))
        rows = {
            name: asdict(entry) | {"offset": offsets[_vector(name)]}
            for name, entry in fields.items()
        }
        tree: dict[str, Any] = {"vectors": rows, "values": values}
        if mesh is not None:
            tree["mesh"] = mesh.as_dict({name: offsets[_table(name)] for name in mesh.tables})
        return cls(fields, values, mesh, json.dumps(tree).encode())

    @classmethod
    def parsed(cls, text: bytes, version: int) -> Contents:
        """Make the contents from the JSON text of a file."""
        try:
            tree = json.loads(text.decode())
        except RecursionError as error:
            raise ValueError("too many brackets") from error
        expect(isinstance(tree, dict), shown(tree))
        parts = tree.get("vectors"), tree.get("values")
        expect(all(isinstance(part, dict) for part in parts), "no vectors or values")
        expect(len(parts[0]) > 0, "no vectors")
        fields = {name: Field.parsed(row) for name, row in parts[0].items()}
        offsets = {_vector(name): row.get("offset") for name, row in parts[0].items()}
        mesh = KeptMesh.parsed(tree.get("mesh")) if version > 1 else None
        if mesh is not None:
            rows = tree["mesh"]["tables"]
            offsets |= {_table(name): row.get("offset") for name, row in rows.items()}
        expect(offsets == _offsets(_tables(fields, mesh)), "offsets that do not follow each other")
        return cls(fields, parts[1], mesh, text)

    @cached_property
    def tables(self) -> dict[str, Rows]:
        """All tables, in the order of the file."""
        return _tables(self.fields, self.mesh)

    @property
    def blocks(self) -> int:
        """Number of blocks of all tables."""
        return sum(entry.blocks for entry in self.tables.values())

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Positions of the data of each table in the file."""
        start = _whole_pages(_FIXED + len(self.text) + 4 * self.blocks)
        return {name: start + offset for name, offset in _offsets(self.tables).items()}

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        name, entry = list(self.tables.items())[-1]
        return self.offsets[name] + entry.dofs * entry.row

    def head(self, sums: Sequence[Sums]) -> bytes:
        """Bytes that precede the data."""
        table = b"".join(part.astype("<u4").tobytes() for part in sums)
        version = 1 if self.mesh is None else self.mesh.version
        rest = _REST.pack(version, len(self.text), zlib.crc32(table)) + self.text
        return _PREFIX.pack(MAGIC, zlib.crc32(rest)) + rest + table


def _vector(name: str) -> str:
    """Key of a vector among the tables, and its name in errors: no terminal obeys it."""
    return repr(name)


def _table(name: str) -> str:
    """Key of a table of the mesh, which no vector's can be."""
    return f"the mesh's {name}"


def _tables(fields: Mapping[str, Field], mesh: KeptMesh | None) -> dict[str, Rows]:
    """All tables, in the order of the file: vectors, then the mesh."""
    found: dict[str, Rows] = {_vector(name): entry for name, entry in fields.items()}
    of_mesh = {} if mesh is None else mesh.tables
    return found | {_table(name): entry for name, entry in of_mesh.items()}


def _offsets(tables: Mapping[str, Rows]) -> dict[str, int]:
    """Positions of the data of each table, relative to those of the first."""
    found, end = {}, 0
    for name, entry in tables.items():
        found[name], end = end, _whole_pages(end + entry.dofs * entry.row)
    return found


def block_rows(ncomp: int, dtype: np.dtype[Any]) -> int:
    """Number of rows of a block, at least one."""
    return max(1, BLOCK // (ncomp * dtype.itemsize))


def _rows_of_block(table: Array) -> int:
    return block_rows(table.shape[1], table.dtype)


def write_rows(file: BinaryIO, contents: Contents, name: str, first: int, rows: Array) -> Sums:
    """Write rows (n, ncomp) of a table from the start of a block. Return the blocks' checksums."""
    entry = contents.tables[name]
    file.seek(contents.offsets[name] + first * entry.row)
    data = _as_bytes(np.ascontiguousarray(rows, dtype=entry.dtype))
    sums = []
    for at in range(0, len(data), entry.rows * entry.row):
        block = data[at : at + entry.rows * entry.row]
        file.write(block)
        sums.append(zlib.crc32(block))
    return np.array(sums, dtype=np.uint32)


@final
class StateReader:
    """Open checkpoint, to read from."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        size, prefix = os.fstat(file.fileno()).st_size, file.read(_FIXED)
        if not prefix or not MAGIC.startswith(prefix[: len(MAGIC)]):
            raise CheckpointError(f"'{path}' is not a checkpoint: give one of femops.io.save_state")
        if len(prefix) < _FIXED:
            raise self._not_whole(size, f"at least {_FIXED}")
        _, self.checksum = _PREFIX.unpack(prefix[: _PREFIX.size])
        version, length, of_table = _REST.unpack(prefix[_PREFIX.size :])
        if not 1 <= version <= VERSION:
            raise CheckpointError(
                f"'{path}' has format {version}, unless it is damaged; this femops reads up to "
                f"{VERSION}: use a newer one"
            )
        if length > size - _FIXED:
            raise self._not_whole(size, f"at least {_FIXED + length}")
        text = self._read_text(length)
        if zlib.crc32(prefix[_PREFIX.size :] + text) != self.checksum:
            raise self._damaged("its head")
        try:
            self.contents = Contents.parsed(text, version)
        except ValueError as error:
            raise CheckpointError(
                f"'{path}' has a checksum that is right, and a head that femops does not write "
                f"({error}): take another checkpoint"
            ) from error
        if size != self.contents.size:
            raise self._not_whole(size, f"{self.contents.size}")
        self._check_table(of_table)
        self._check_gaps()

    def _read_text(self, length: int) -> bytes:
        """Read the text. Stop early at holes of a sparse file, before they take memory."""
        parts = []
        for part in self._blocks(length):
            if b"\0" in part:
                raise self._damaged("its head")
            parts.append(part)
        return b"".join(parts)

    def _check_table(self, checksum: int) -> None:
        """Check the checksums of blocks. They stay in the file: a vector reads its own.

        Stop early at holes of a sparse file, which may be of any length.
        """
        found = 0
        for part in self._blocks(4 * self.contents.blocks):
            if part == bytes(BLOCK):
                raise self._damaged("the table of checksums")
            found = zlib.crc32(part, found)
        if found != checksum:
            raise self._damaged("the table of checksums")

    def _check_gaps(self) -> None:
        """Check that the padding between tables is zero."""
        end = self._file.tell()
        for name, entry in self.contents.tables.items():
            start = self.contents.offsets[name]
            self._file.seek(end)
            if any(self._file.read(start - end)):
                raise CheckpointError(
                    f"'{self._path}' is damaged: bytes {end} to {start - 1} before {name} are "
                    "not zeros; take another checkpoint"
                )
            end = start + entry.dofs * entry.row

    def _blocks(self, length: int) -> Iterator[bytes]:
        """Read some bytes of the file in blocks."""
        for start in range(0, length, BLOCK):
            yield self._file.read(min(BLOCK, length - start))

    def _sums(self, name: str, first: int, count: int) -> Sums:
        """Checksums (count,) of blocks of a table."""
        before = 0
        for other, entry in self.contents.tables.items():
            if other == name:
                break
            before += entry.blocks
        self._file.seek(_FIXED + len(self.contents.text) + 4 * (before + first))
        return np.frombuffer(self._file.read(4 * count), dtype="<u4")

    def rows(self, name: str, first: int, count: int) -> Array:
        """Read rows (count, ncomp) of a table. ``first`` is the start of a block."""
        entry = self.contents.tables[name]
        start = self.contents.offsets[name] + first * entry.row
        rows = np.empty((count, entry.ncomp), dtype=entry.dtype)
        data, length = _as_bytes(rows), entry.rows * entry.row
        sums = self._sums(name, first // entry.rows, -(-count // entry.rows))
        self._file.seek(start)
        for number, at in enumerate(range(0, len(data), length)):
            block = data[at : at + length]
            read = self._file.readinto(block)  # type: ignore[attr-defined]
            if read != len(block) or [zlib.crc32(block)] != [*sums[number : number + 1]]:
                raise self._damaged(
                    f"bytes {start + at} to {start + at + len(block) - 1}, of {name},"
                )
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)

    def whole_table(self, name: str) -> Array:
        """Read all rows of a table of the mesh. Stop early at holes of a sparse file."""
        entry, parts = self.contents.tables[name], []
        for first in range(0, entry.dofs, entry.rows):
            parts.append(self.rows(name, first, min(entry.rows, entry.dofs - first)))
            if not parts[-1].any():
                raise self._damaged(f"{name}, which has only zeros,")
        return np.concatenate([np.empty((0, entry.ncomp), dtype=entry.dtype), *parts])

    def _not_whole(self, size: int, due: str) -> CheckpointError:
        return CheckpointError(
            f"'{self._path}' is not whole: it has {size} bytes, {due} are due; take another "
            "checkpoint, and copy files whole"
        )

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"'{self._path}' is damaged: {what} has another checksum than when it was written; "
            "take another checkpoint"
        )


def _as_bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def ranks(given: object) -> Communicator:
    """Return the communicator of the first space or pair (space, vector)."""
    for entry in given.values() if isinstance(given, Mapping) else ():
        space = entry[0] if isinstance(entry, tuple | list) and entry else entry
        if isinstance(space, Space):
            return space.comm
    return Serial()


def checked_names(given: object, what: str) -> list[str]:
    """Check names, and return them in ascending order, which is the same on all ranks."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        got = list(given) if isinstance(given, Mapping) else type(given).__name__
        raise CheckpointError(f"{what} are {got}: give a dict, and texts for names")
    return sorted(given)


def checked_vectors(vectors: Any, comm: Communicator) -> dict[str, tuple[Space, Vector]]:
    """Check the vectors. Return the pairs (space, vector) by ascending names."""
    names = checked_names(vectors, "vectors")
    if not names:
        raise CheckpointError('there are no vectors to save: give {"u": (V, u)}, for instance')
    found = {}
    for name in names:
        pair = vectors[name]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise CheckpointError(
                f"{name!r} is {type_name(type(pair))}: give its space with it, (V, u)"
            )
        space, vector = pair
        check_space(space, name, comm)
        checked = any_vector if has_complex(vector) else type(space).check_vector
        found[name] = space, checked(space, vector, name)
    return found


def check_space(space: object, name: str, comm: Communicator) -> None:
    """Raise unless ``space`` is an H1 or L2 space on the ranks ``comm``."""
    if not isinstance(space, H1 | L2):
        raise SpaceError(
            f"the space of {name!r} is {type_name(type(space))}: give an H1 or L2 space; of a "
            "product, each of its spaces with its part of the vector"
        )
    if space.comm is not comm and max(space.comm.size, comm.size) > 1:
        raise SpaceError(
            f"the space of {name!r} is on a mesh of other ranks, {space.comm} instead of {comm}: "
            "make all meshes with the same communicator"
        )


def checked_values(values: Any) -> dict[str, Any]:
    """Check values. Return them by ascending names, in the types that JSON returns."""
    names = checked_names(values, "values")
    try:
        plain = {name: _plain(values[name], name) for name in names}
        json.dumps(plain)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:  # numbers too long, cycles
        raise CheckpointError(f"values cannot be written as JSON: {error}") from error
    return plain


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(entry, name) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry, name) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise CheckpointError(
        f"value {name!r} has {type_name(type(value))} in it: give numbers, texts, None, lists, and "
        "dicts by texts; of an array its .tolist()"
    )


def check_same_facts(comm: Communicator, path: Path, facts: Mapping[str, object]) -> None:
    """Raise if paths, names or values differ between ranks. Collective."""
    for some in ({"path": str(path), "names": list(facts)}, facts):
        check_same(comm, "the checkpoint", some, error=CheckpointError)


Ints = NDArray[np.int64]

SUFFIX = ".state"

_CHECKSUMS = Derived[Mesh, int]()
"""Checksums of meshes that are not distributed: programs save many states on one mesh."""

_ORDERS = Derived[Space, SerialOrder]()
"""Orders of the dofs of spaces that ranks share."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class State:
    """Contents of a checkpoint, as `load_state` returns them.

    Attributes
    ----------
    vectors : dict of (size,) arrays
        Vectors of the spaces, by name. They have the type in which they were saved.
    values : dict
        Numbers, texts, lists and dicts that were saved with the vectors.
    """

    vectors: dict[str, Vector]
    values: dict[str, Any]

    def __repr__(self) -> str:
        return f"State(vectors {', '.join(self.vectors) or 'none'}; values {self.values})"


@checked(CheckpointError)
def save_state(
    path: str | os.PathLike[str],
    vectors: Mapping[str, tuple[Space, Any]],
    values: Mapping[str, Any] | None = None,
    *,
    keep_mesh: bool | None = None,
) -> Path:
    """Write vectors and values into one file that any number of ranks can load. Collective.

    The file appears under its name only when it is complete and on the disk. So if the program
    stops, either the old or the new checkpoint exists. The bits of the file do not depend on the
    number of ranks or the partition. Each rank writes its share, so all ranks must see the folder.

    Parameters
    ----------
    path : path ending in .state
        Path of the file, the same on all ranks.
    vectors : mapping
        {name: (space, vector)}, at least one. Vectors are (space.size,), real or complex. Spaces
        are `H1` or `L2`, on meshes of the same ranks.
    values : mapping, optional
        {name: value}, the same on all ranks. Values are numbers, texts, True, False, None, and
        lists and dicts of these. NumPy numbers become Python numbers, and tuples become lists.
    keep_mesh : bool, optional
        Whether the file also has the mesh of the vectors, with its trees, for `femops.read_mesh`.
        By default it has it if the mesh was refined locally. Rank 0 gathers the mesh.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    CheckpointError
        There are no vectors, a name is no text, a value has an unsupported type, arguments differ
        between ranks, or the vectors are on several meshes to keep.
    FileError
        The file cannot be written, or does not end in .state.
    SpaceError
        An object is no H1 or L2 space, or a space is on a mesh of other ranks.
    VectorError
        A vector does not fit its space.
    RankError
        Another rank failed. After any error the file is the old or the complete new file.

    Examples
    --------
    >>> import femops, tempfile
    >>> V = femops.H1(femops.box((4, 4)), order=3)
    >>> u = V.interpolate(lambda x: x[0])
    >>> file = femops.io.save_state(tempfile.mkdtemp() + "/run.state", {"u": (V, u)}, {"time": 0.5})
    >>> state = femops.io.load_state(file, {"u": V})
    >>> bool((state.vectors["u"] == u).all()), state.values
    (True, {'time': 0.5})
    """
    comm = ranks(vectors)
    with check(comm):
        target = checked_path(path, SUFFIX)
        given = checked_vectors(vectors, comm)
        plain = checked_values({} if values is None else values)
    fields = {name: _field(V, u.dtype) for name, (V, u) in given.items()}
    facts: dict[str, object] = {f"vector {name!r}": field for name, field in fields.items()}
    facts["keep_mesh"] = keep_mesh
    texts = {f"value {key!r}": json.dumps(v, sort_keys=True) for key, v in sorted(plain.items())}
    check_same_facts(comm, target, {**facts, **texts})
    kept, tables = _kept_mesh([space for space, _ in given.values()], keep_mesh, comm)
    contents = Contents.of(fields, plain, kept)
    with ExitStack() as stack:
        file = _new_file(stack, target, contents.size, comm)
        sums = [
            _write(file, target, contents, name, space, vector)
            for name, (space, vector) in given.items()
        ]
        with check(comm), refused(target):
            for name, table in tables.items():  # of rank 0 alone
                sums.append(write_rows(file, contents, _table(name), 0, table))
        with check(comm), refused(target):
            _flush(file)
            if comm.rank > 0:
                file.close()
        with check(comm), refused(target):
            if comm.rank == 0:
                file.seek(0)
                file.write(contents.head(sums))
                _flush(file)
            stack.close()
            if comm.rank == 0:
                to_disk(target.parent)
    return target


@checked(CheckpointError)
def load_state(path: str | os.PathLike[str], spaces: Mapping[str, Space] | None = None) -> State:
    """Read vectors and values from a file of `save_state`. Collective.

    The number of ranks and the partition may differ from those of `save_state`. Checksums in the
    file verify all data that are read.

    Parameters
    ----------
    path : path
        Path of the file, the same on all ranks.
    spaces : mapping, optional
        {name: space} of the vectors to read, which may be some of the vectors in the file. Each
        space must have the kind, order, family, number of components and mesh with which the vector
        was saved. By default only the values are read, by each rank separately.

    Returns
    -------
    State

    Raises
    ------
    CheckpointError
        The file is no checkpoint, is damaged or incomplete, or does not have a vector. A space
        differs from the space of the saved vector. Arguments differ between ranks.
    FileError
        The file cannot be read.
    SpaceError
        An object is no H1 or L2 space, or a space is on a mesh of other ranks.
    RankError
        Another rank failed.
    """
    wanted: Mapping[str, Space] = {} if spaces is None else spaces
    comm = ranks(wanted)
    with check(comm):
        source = Path(os.fspath(path))
        names = checked_names(wanted, "spaces")
        for name in names:
            check_space(wanted[name], name, comm)
    check_same_facts(comm, source, {f"vector {name!r}": True for name in names})
    with ExitStack() as stack:
        with check(comm), _reading(source):
            file = stack.enter_context(open(source, "rb", opener=regular))
            reader = StateReader(file, source)
        check_same_facts(comm, source, {"the file's checksum": reader.checksum})
        with check(comm):
            for name in names:
                _check_fits(reader.contents, name, wanted[name], source)
        vectors = {name: _read(reader, name, wanted[name], source) for name in names}
    return State(vectors, dict(reader.contents.values))


def begins_like_state(path: str | os.PathLike[str]) -> bool:
    """True if the file starts as checkpoints do. False if it cannot be opened."""
    try:
        with open(path, "rb", opener=regular) as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def load_mesh(path: Path) -> Mesh | MixedMesh:
    """Read the mesh that a checkpoint keeps, for `femops.read_mesh`."""
    with ExitStack() as stack, _reading(path):
        file = stack.enter_context(open(path, "rb", opener=regular))
        reader = StateReader(file, path)
        kept = reader.contents.mesh
        if kept is None:
            raise CheckpointError(
                f"'{path}' has no mesh, as its vectors were on one that was not refined locally "
                "(or keep_mesh=False): make the mesh as when it was saved, or save with "
                "keep_mesh=True"
            )
        tables = {name: reader.whole_table(_table(name)) for name in kept.tables}
    try:
        return kept.mesh(tables)
    except MeshError as error:
        raise CheckpointError(
            f"'{path}' has checksums that are right, and no mesh that femops writes ({error}): "
            "take another checkpoint"
        ) from error


# --- writing --------------------------------------------------------------------------------------


def _field(space: Space, dtype: np.dtype[Any]) -> Field:
    """Description of a vector for the file."""
    mesh = space.distributed or space.mesh
    return Field(
        type(space).__name__,
        space.order,
        space.ncomp,
        space.family,
        dtype.newbyteorder("<").str,
        space.global_ndofs,
        mesh.num_elements,
        f"{_checksum(space):016x}",
        block_rows(space.ncomp, dtype),
    )


def _refined_locally(space: Space) -> bool:
    whole = space.distributed
    if space.mixed:
        return False
    return (space.mesh.forest if whole is None else whole.part.leaves) is not None


def _kept_mesh(
    spaces: Sequence[Space], keep: bool | None, comm: Communicator
) -> tuple[KeptMesh | None, dict[str, Array]]:
    """The mesh that the file has, and on rank 0 its tables. Collective."""
    if keep is not None and not keep:  # False, or NumPy's
        return None, {}
    meshes = {_checksum(V): V for V in spaces if keep or _refined_locally(V)}
    with check(comm):
        if len(meshes) > 1:
            raise CheckpointError(
                f"the vectors are on {len(meshes)} meshes, and a file keeps one: save the vectors "
                "of each mesh into a file of its own, or give keep_mesh=False"
            )
    if not meshes:
        return None, {}
    (number, V), *_ = meshes.items()
    whole = V.mesh if V.distributed is None else gathered_mesh(V.distributed.part, comm)
    found: tuple[KeptMesh | None, dict[str, Array]] = None, {}
    with check(comm):
        if whole is not None:
            if whole.order > LARGEST_DEGREE:
                raise CheckpointError(
                    f"the mesh has coordinates of degree {whole.order}, and a file keeps at most "
                    f"degree {LARGEST_DEGREE}: give keep_mesh=False"
                )
            tables = tables_of(whole)
            rows = {
                name: Table(len(one), one.shape[1], TYPES[own_name(name)], _rows_of_block(one))
                for name, one in tables.items()
            }
            names = whole.element_names, whole.boundary_names
            local = not V.mixed and whole.forest is not None
            found = KeptMesh(f"{number:016x}", local, names, rows), tables
    return comm.broadcast(found[0]), found[1]


def _checksum(space: Space) -> int:
    """Checksum of the global mesh."""
    if space.distributed is not None:
        return space.distributed.checksum
    mesh = space.mesh
    return _CHECKSUMS.get(mesh, lambda: whole_checksum(mesh))


def _order(space: Space) -> SerialOrder:
    """Serial order of the dofs of a space that ranks share."""

    def make() -> SerialOrder:
        assert space.numbering is not None
        assert space.distributed is not None
        nodes = np.arange(space.element.size)
        if isinstance(space, H1):
            nodes = touch_order(space.mesh.cell, space.order)
        return SerialOrder(space.numbering, nodes, space.distributed.part, space.halo, space.comm)

    return _ORDERS.get(space, make)


def _whole_blocks(cuts: Ints, rows: int) -> Ints:
    """Round cuts up to multiples of ``rows``, so that no block is split between ranks."""
    return np.asarray(np.minimum(-(-cuts // rows) * rows, cuts[-1]))


def _new_file(stack: ExitStack, target: Path, size: int, comm: Communicator) -> BinaryIO:
    """Open a new file on all ranks, which is renamed to `target` when rank 0 closes the stack."""
    made = None
    with check(comm), refused(target):
        if comm.rank == 0:
            made = stack.enter_context(replacing(target)).absolute()
            with open(made, "r+b", opener=unlinked) as file:
                file.truncate(size)
    temporary: Path = comm.broadcast(made)
    with check(comm):
        try:
            return stack.enter_context(open(temporary, "r+b", opener=unlinked))
        except OSError as error:
            raise FileError(
                f"rank {comm.rank} cannot open '{temporary}', which rank 0 has made "
                f"({error.strerror}): choose a folder that all ranks share"
            ) from error


def _write(
    file: BinaryIO, target: Path, contents: Contents, name: str, space: Space, vector: Vector
) -> Sums:
    """Write this rank's share of a vector. Rank 0 returns the checksums of all blocks."""
    comm, rows, cuts = space.comm, space.components(vector), np.array([0, space.ndofs])
    if comm.size > 1:
        order = _order(space)
        cuts = _whole_blocks(order.cuts, contents.fields[name].rows)
        rows = moved(order.forward(_as_real(rows)), order.cuts, cuts, comm).view(rows.dtype)
    with check(comm), refused(target):
        sums = write_rows(file, contents, _vector(name), int(cuts[comm.rank]), rows)
    arrived = comm.exchange({0: sums} if len(sums) else {})
    return np.concatenate([np.empty(0, dtype=np.uint32), *arrived.values()])


def _as_real(rows: NDArray[Any]) -> NDArray[Any]:
    """View complex rows (n, ncomp) as real ones (n, 2 ncomp), which ranks exchange."""
    return np.ascontiguousarray(rows).view(rows.real.dtype)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


# --- reading --------------------------------------------------------------------------------------


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert an error of the system inside the block to a FileError."""
    try:
        yield
    except FemopsError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"cannot read '{path}': {reason}; is this its name?") from error


def _check_fits(contents: Contents, name: str, space: Space, path: Path) -> None:
    """Raise if a vector in the file does not fit a space."""
    if name not in contents.fields:
        has = ", ".join(map(repr, contents.fields))
        raise CheckpointError(f"'{path}' has no vector {name!r}: it has {has}")
    saved = contents.fields[name]
    asked = _field(space, np.dtype(saved.dtype))
    if asked.kind != saved.kind:
        raise CheckpointError(
            f"{name!r} in '{path}' is a vector of {saved.kind}, the space given is {asked.kind}: "
            "load it into the same, and interpolate from there"
        )
    if asked != saved:
        raise CheckpointError(
            f"{name!r} in '{path}' is on another mesh, of {saved.elements} elements with the "
            f"checksum {saved.mesh}; the one given has {asked.elements}, and {asked.mesh}: make "
            "the mesh as when it was saved (files, order of elements, refinement, mapping)"
        )


def _read(reader: StateReader, name: str, space: Space, path: Path) -> Vector:
    """Read the vector's entries (size,) that this rank owns."""
    comm, cuts = space.comm, np.array([0, space.ndofs])
    order = _order(space) if comm.size > 1 else None
    if order is not None:
        cuts = _whole_blocks(order.cuts, reader.contents.fields[name].rows)
    first, end = int(cuts[comm.rank]), int(cuts[comm.rank + 1])
    with check(comm), _reading(path):
        rows = reader.rows(_vector(name), first, end - first)
    if order is not None:
        rows = order.backward(moved(_as_real(rows), cuts, order.cuts, comm)).view(rows.dtype)
    return rows.reshape(-1)
