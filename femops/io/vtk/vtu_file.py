"""Layout of VTU files: cells, and fields at their nodes, in one piece or several."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from femops.errors import FileError
from femops_meshes.formats.temporary import unlinked

Array = NDArray[Any]
Ints = NDArray[np.int64]

_TYPES = {"f4": "Float32", "f8": "Float64", "i4": "Int32", "i8": "Int64", "u1": "UInt8"}

_VERSION = "1.0"  # has UInt64, and meshio reads it

TAIL = b"\n</AppendedData>\n</VTKFile>\n"
"""End of a file, after the data of its pieces."""


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_name(name: str, what: str) -> None:
    """Raise if XML cannot hold a name."""
    unfit = _NO_XML.search(name)
    if not name or unfit:
        reason = f"XML cannot hold {unfit[0]!r}" if unfit else "it is empty"
        raise FileError(f"{what} {name!r} cannot be written ({reason}): choose another name")


@final
@dataclass(frozen=True, eq=False)
class Piece:
    """Piece of a VTU file: cells with their nodes and fields."""

    # points and cells: number of points and of cells
    points: int
    cells: int
    # arrays (n,) or (n, components) by name, for each of PointData, CellData, Points and Cells
    sections: dict[str, dict[str, Array]]

    @property
    def arrays(self) -> list[Array]:
        """All arrays, in the file's order."""
        return [array for arrays in self.sections.values() for array in arrays.values()]

    @property
    def sizes(self) -> Ints:
        """Number of points, number of cells, and the bytes of each array, (k,)."""
        return np.array([self.points, self.cells, *(array.nbytes for array in self.arrays)])

    def write_data(self, file: BinaryIO) -> None:
        """Write the data of the arrays, which follow the head of a file."""
        for array in self.arrays:
            _append(file, array)


def head(piece: Piece, sizes: Sequence[Ints]) -> bytes:
    """Return the text before the data of a file.

    Shapes: `sizes` (k,).
    """
    version = _VERSION if len(sizes) == 1 else "2.2"
    lines, offset = [*_first_lines("UnstructuredGrid", version=version)], 0
    for points, cells, *nbytes in (row.tolist() for row in sizes):
        lines.append(f'<Piece NumberOfPoints="{points}" NumberOfCells="{cells}">')
        left = iter(nbytes)
        for section, arrays in piece.sections.items():
            lines.append(f"<{section}>")
            for name, array in arrays.items():
                place = f'format="appended" offset="{offset}"'
                lines.append(f"<DataArray {_kind(name, array)} {place}/>")
                offset += _encoded_size(next(left))
            lines.append(f"</{section}>")
        lines.append("</Piece>")
    lines += ["</UnstructuredGrid>", '<AppendedData encoding="base64">', "_"]
    return "\n".join(lines).encode()


def write_vtu(path: Path, piece: Piece) -> None:
    """Write a VTU file of one piece."""
    with open(path, "wb", opener=unlinked) as file:
        file.write(head(piece, [piece.sizes]))
        piece.write_data(file)
        file.write(TAIL)


def index(piece: Piece, files: Sequence[str]) -> str:
    """Return the text of a PVTU file, which lists the VTU files of all pieces."""
    lines = [*_first_lines("PUnstructuredGrid", ' GhostLevel="0"')]
    for section, arrays in piece.sections.items():
        if section != "Cells":  # they are alike in all files
            lines.append(f"<P{section}>")
            lines += [f"<PDataArray {_kind(name, array)}/>" for name, array in arrays.items()]
            lines.append(f"</P{section}>")
    lines += [f"<Piece Source={quoteattr(file)}/>" for file in files]
    return "\n".join([*lines, "</PUnstructuredGrid>", "</VTKFile>", ""])


def _first_lines(kind: str, more: str = "", version: str = _VERSION) -> list[str]:
    order = "LittleEndian" if sys.byteorder == "little" else "BigEndian"
    layout = f'byte_order="{order}" header_type="UInt64"'
    start = f'<VTKFile type="{kind}" version="{version}" {layout}>'
    return ['<?xml version="1.0"?>', start, f"<{kind}{more}>"]


def _kind(name: str, array: Array) -> str:
    kind = f'type="{_TYPES[array.dtype.str[1:]]}" Name={quoteattr(name)}'
    # meshio makes (n, 1) of one component that is told
    return kind if array.ndim == 1 else f'{kind} NumberOfComponents="{array.shape[1]}"'


def _encoded_size(nbytes: int) -> int:
    return 4 * ((8 + nbytes + 2) // 3)


def _append(file: BinaryIO, array: Array) -> None:
    """Write an array in base64: its length in bytes (UInt64) and its bytes, as one stream."""
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    header = np.array([content.nbytes], dtype=np.uint64).view(np.uint8)
    # Three bytes become four characters: pieces of a multiple of three join without padding.
    first = np.concatenate([header, content[:1]])
    file.write(base64.b64encode(first.tobytes()))
    step = 3 << 20
    for start in range(1, max(content.nbytes, 1), step):
        file.write(base64.b64encode(content[start : start + step].tobytes()))
