"""Format of checkpoint files, which `docs/checkpoints.md` describes."""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from reprlib import repr as shown
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import CheckpointError

Array = NDArray[Any]
Sums = NDArray[np.uint32]

MAGIC, VERSION = b"\x89FEMOPS\n", 1
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
class Field:
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
        _expect(
            isinstance(given, dict) and cls.__dataclass_fields__.keys() <= given.keys(),
            shown(given),
        )
        found = cls(**{key: given[key] for key in cls.__dataclass_fields__})
        for key, least in _LEAST.items():
            number = getattr(found, key)
            _expect(type(number) is int and least <= number < 2**63, f"{key} {shown(number)}")
        for key, pattern in _TEXTS.items():
            text = getattr(found, key)
            _expect(isinstance(text, str) and re.fullmatch(pattern, text), f"{key} {shown(text)}")
        return found

    @property
    def row(self) -> int:
        """Number of bytes of a row."""
        return self.ncomp * np.dtype(self.dtype).itemsize

    @property
    def blocks(self) -> int:
        """Number of blocks. The last block may be shorter."""
        return -(-self.dofs // self.rows)

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
    text: bytes  # fields and values as JSON

    @classmethod
    def of(cls, fields: Mapping[str, Field], values: Mapping[str, Any]) -> Contents:
        """Make the contents of a new file from vector descriptions and values."""
        offsets = _offsets(fields)
        rows = {name: asdict(entry) | {"offset": offsets[name]} for name, entry in fields.items()}
        return cls(fields, values, json.dumps({"vectors": rows, "values": values}).encode())

    @classmethod
    def parsed(cls, text: bytes) -> Contents:
        """Make the contents from the JSON text of a file."""
        try:
            tree = json.loads(text.decode())
        except RecursionError as error:
            raise ValueError("too many brackets") from error
        _expect(isinstance(tree, dict), shown(tree))
        parts = tree.get("vectors"), tree.get("values")
        _expect(all(isinstance(part, dict) for part in parts), "no vectors or values")
        _expect(len(parts[0]) > 0, "no vectors")
        fields = {name: Field.parsed(row) for name, row in parts[0].items()}
        offsets = {name: row.get("offset") for name, row in parts[0].items()}
        _expect(offsets == _offsets(fields), "offsets that do not follow each other")
        return cls(fields, parts[1], text)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Positions of the data of each vector in the file."""
        blocks = sum(entry.blocks for entry in self.fields.values())
        start = _whole_pages(_FIXED + len(self.text) + 4 * blocks)
        return {name: start + offset for name, offset in _offsets(self.fields).items()}

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        name, entry = list(self.fields.items())[-1]
        return self.offsets[name] + entry.dofs * entry.row

    def head(self, sums: Sequence[Sums]) -> bytes:
        """Bytes that precede the data."""
        table = b"".join(part.astype("<u4").tobytes() for part in sums)
        rest = _REST.pack(VERSION, len(self.text), zlib.crc32(table)) + self.text
        return _PREFIX.pack(MAGIC, zlib.crc32(rest)) + rest + table


def _expect(holds: object, found: str) -> None:
    """Raise a ValueError that shows ``found`` unless ``holds`` is true."""
    if not holds:
        raise ValueError(f"it has {found}")


def _offsets(fields: Mapping[str, Field]) -> dict[str, int]:
    """Positions of the data of each vector, relative to the first vector's data."""
    found, end = {}, 0
    for name, entry in fields.items():
        found[name], end = end, _whole_pages(end + entry.dofs * entry.row)
    return found


def block_rows(ncomp: int, dtype: np.dtype[Any]) -> int:
    """Number of rows of a block, at least one."""
    return max(1, BLOCK // (ncomp * dtype.itemsize))


def write_rows(file: BinaryIO, contents: Contents, name: str, first: int, rows: Array) -> Sums:
    """Write rows (n, ncomp) of a vector from the start of a block. Return the blocks' checksums."""
    entry = contents.fields[name]
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
        if version != VERSION:
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
            self.contents = Contents.parsed(text)
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
        """Read the text. A file with holes stops it early, before these take memory."""
        parts = []
        for part in self._blocks(length):
            if b"\0" in part:
                raise self._damaged("its head")
            parts.append(part)
        return b"".join(parts)

    def _check_table(self, checksum: int) -> None:
        """Check the checksums of blocks. They stay in the file: a vector reads its own."""
        found = 0
        for part in self._blocks(4 * sum(entry.blocks for entry in self.contents.fields.values())):
            found = zlib.crc32(part, found)
        if found != checksum:
            raise self._damaged("the table of checksums")

    def _check_gaps(self) -> None:
        """Check that the bytes before each vector, behind the one before, are zeros."""
        end = self._file.tell()
        for name, entry in self.contents.fields.items():
            start = self.contents.offsets[name]
            self._file.seek(end)
            if any(self._file.read(start - end)):
                raise CheckpointError(
                    f"'{self._path}' is damaged: bytes {end} to {start - 1} before '{name}' are "
                    "not zeros; take another checkpoint"
                )
            end = start + entry.dofs * entry.row

    def _blocks(self, length: int) -> Iterator[bytes]:
        """Read some bytes of the file in blocks."""
        for start in range(0, length, BLOCK):
            yield self._file.read(min(BLOCK, length - start))

    def _sums(self, name: str, first: int, count: int) -> Sums:
        """Checksums (count,) of blocks of a vector."""
        before = 0
        for other, entry in self.contents.fields.items():
            if other == name:
                break
            before += entry.blocks
        self._file.seek(_FIXED + len(self.contents.text) + 4 * (before + first))
        return np.frombuffer(self._file.read(4 * count), dtype="<u4")

    def rows(self, name: str, first: int, count: int) -> Array:
        """Read rows (count, ncomp) of a vector. ``first`` is the start of a block."""
        entry = self.contents.fields[name]
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
                    f"bytes {start + at} to {start + at + len(block) - 1}, of '{name}',"
                )
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)

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
