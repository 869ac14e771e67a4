"""Files in VTK's HDF5 format, VTKHDF, to which the ranks of a mesh append their pieces in turn.

Source: VTK's documentation of the format, "VTKHDF file format", version 2.0, unstructured grids.
All grids append to the same arrays, and NumberOfPoints and the like have a row for each grid. The
pieces of ranks are one grid: the first rank begins it, and the others extend it.
"""

from __future__ import annotations

import io
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import index
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import FemopsError, FileError, MissingExtraError
from femops.io.atomic import fill, refused, replacing, to_disk
from femops.io.vtk.journal import discard_journal, journaled, recover
from femops.io.vtk.vtu_file import Piece
from femops.parallel.comm import Communicator, check
from femops_meshes.formats.temporary import unlinked

ROOT = "VTKHDF"
_CHUNK = 1 << 16  # bytes of a chunk, in which HDF5 stores arrays that grow
_HEADS = 1 << 19  # bytes that suffice for the heads of arrays, and for counts of steps

PARTS = ("NumberOfPoints", "NumberOfCells", "NumberOfConnectivityIds")
"""Arrays with a number for each grid."""

PLACES = ("PartOffsets", "PointOffsets", "CellOffsets", "ConnectivityIdOffsets")
"""Arrays with the place of each step's mesh. The last two have a column for each kind of cell."""

ATTRIBUTES = "CellDataOffsets/attribute"

_FORMAT = ("v110", "v110")
"""Format of HDF5 1.10, where all but the numbers of arrays has checksums.

HDF5 ends the process if it reads some damaged files without them.
"""


def h5py() -> ModuleType:
    """Import h5py."""
    try:
        import h5py as module
    except ImportError as error:
        raise MissingExtraError(
            f".vtkhdf files need h5py ({error}): pip install h5py, or take a .vtu or .pvd file"
        ) from error
    return module  # type: ignore[no-any-return]


def check_hdf_names(names: Iterable[str]) -> None:
    """Raise if HDF5 cannot name an array so: it takes a slash, or a lone dot, for a path."""
    for name in names:
        if "/" in name or name == ".":
            raise FileError(
                f"the field {name!r} cannot be written to a .vtkhdf file, where it is the path of "
                "a group: choose another name, or a .vtu or .pvd file"
            )


def check_rows(root: Any, piece: Piece, path: Path) -> None:
    """Raise if a field has other components than in the file, or a type that would be rounded."""
    for name, values in piece.sections["PointData"].items():
        array = root["PointData"].get(name)
        if array is None:
            continue
        if array.shape[1:] != values.shape[1:] or not np.can_cast(values.dtype, array.dtype):
            raise FileError(
                f"{name} has {values.dtype} numbers of shape {values.shape[1:]} at each point, in "
                f"'{path}' {array.dtype} numbers of shape {array.shape[1:]}: save the same at each "
                "step, or choose a .pvd file"
            )


def save_hdf(target: Path, piece: Piece, comm: Communicator) -> None:
    """Write one VTKHDF file with the pieces of all ranks. Collective.

    Rank 0 makes a hidden file in the target's folder. All ranks append to this file in turn. Then
    rank 0 renames it.
    """
    with ExitStack() as stack:
        with check(comm):
            hidden = stack.enter_context(replacing(target)) if comm.rank == 0 else target
            if comm.rank == 0:
                write_empty(hidden)
        file = Path(comm.broadcast(str(hidden.absolute())))

        def append(root: Any) -> dict[str, Any]:
            return append_piece(root, piece, comm.rank > 0)

        in_turns(file, comm, piece, append, locked=True)
        with check(comm), refused(target):
            if comm.rank == 0:
                to_disk(file)
        with check(comm), refused(target):
            stack.close()
            if comm.rank == 0:
                discard_journal(target)


def in_turns(
    path: Path,
    comm: Communicator,
    piece: Piece,
    append: Callable[[Any], Any],
    *,
    locked: bool = False,
) -> Any:
    """Let one rank after the other append to a file. Return the result on this rank. Collective."""
    result = None
    for rank in range(comm.size):
        with check(comm), refused(path):
            if comm.rank == rank:
                if not path.is_file():
                    raise FileError(
                        f"rank {rank} does not see '{path}': choose a folder that all ranks share"
                    )
                with _whole(path), (_opened_locked if locked else opened)(path, piece) as root:
                    result = append(root)
    return result


@contextmanager
def opened(path: Path, piece: Piece | None = None) -> Iterator[Any]:
    """Open the group of all arrays for a change, which the end of the block makes, or nothing.

    The layout is checked each time, as another user may have put another file in place meanwhile.
    """
    recover(path)
    room = partial(_make_room, piece=piece)
    with journaled(path, room) as raw, file_of(raw, path) as file:
        with readable(path):
            check_layout(file)
        yield file[ROOT]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Convert errors about a file that femops did not write so to a FileError."""
    try:
        yield
    except FileError:
        raise
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise FileError(
            f"'{path}' is not a series that can be read ({error}): choose another name"
        ) from error


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Convert an error of h5py about a file that is damaged, now or before, to a FileError."""
    try:
        yield
    except FemopsError:
        raise
    except (LookupError, ValueError, RuntimeError) as error:
        raise FileError(
            f"'{path}' is damaged, or another program changes it ({error}): choose another name"
        ) from error


@contextmanager
def _opened_locked(path: Path, piece: Piece) -> Iterator[Any]:
    """Open a temporary file, which may be lost without harm."""
    with open(path, "r+b", opener=unlinked) as raw:
        _make_room(raw, piece)
        with file_of(raw, path) as file:
            yield file[ROOT]


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block.

    If an interrupt ends a function that HDF5 has called to read or write, HDF5 may end the process.
    """
    known = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if known else None
    if not callable(handler):  # Python raises nothing here
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def file_of(raw: Any, path: Path, mode: str = "r+") -> Iterator[Any]:
    """Open a file of HDF5 whose format has checksums."""
    raw.seek(0)
    head = raw.read(9)
    if head[:8] != b"\x89HDF\r\n\x1a\n":  # HDF5 would look for its head further on
        raise OSError("it does not begin like files of HDF5")
    if head[8] < 3:
        raise FileError(
            f"'{path}' was not written by femops, or by a version without checksums: choose "
            "another name"
        )
    package = h5py()
    with _uninterrupted(), package.File(raw, mode, libver=_FORMAT) as file:
        yield file


def _make_room(file: IO[bytes], piece: Piece | None) -> None:
    """Reserve disk space at the end of a file for a piece, or for the counts of a step.

    HDF5 loses the file, and often the process, if the disk is full when it writes. So the file is
    not opened unless there is room. When HDF5 closes the file it gives unused space back.
    Does nothing where the system cannot reserve space: on macOS and Windows.
    """
    if sys.platform == "darwin" or sys.platform == "win32":
        return
    sections = [] if piece is None else [*piece.sections.values()]
    arrays = [array for section in sections for array in section.values()]
    size = sum(array.nbytes for array in arrays) + len(arrays) * _CHUNK  # last chunks are padded
    end = file.seek(0, os.SEEK_END)
    try:
        os.posix_fallocate(file.fileno(), end, size + size // 64 + _HEADS)
    except OSError:
        file.truncate(end)
        raise


def append_piece(root: Any, piece: Piece, extend: bool) -> dict[str, Any]:
    """Append the cells of a piece and its fields. Return their places by the names of arrays."""
    places = _extend_mesh(root, piece) if extend else _append_mesh(root, piece)
    return places | append_fields(root, piece)


def write_empty(path: Path, *, series: bool = False) -> None:
    """Write a file without grids. A series has no steps, and more arrays."""
    memory = io.BytesIO()
    with h5py().File(memory, "w", libver=_FORMAT) as file:
        _make_layout(file)
        if series:
            _make_steps(file[ROOT])
            set_mesh(file[ROOT], "")
    fill(path, memory.getvalue())


def item_of(group: Any, name: str) -> Any:
    """Item of a group. Raise if it is a link of HDF5, which may lead to a pipe, without end."""
    if not isinstance(group.get(name, getlink=True), h5py().HardLink):
        raise ValueError(f"{name!r} is a link")
    return group[name]


_MESH = "femops_mesh"
"""Attribute with the hash of the last step's mesh. Empty while a step on another mesh is added."""


def set_mesh(root: Any, digest: str) -> None:
    """Store the hash of the last step's mesh."""
    root.attrs.create(_MESH, np.bytes_(digest), dtype="S32")


def type_of(stored: Any) -> np.dtype[Any]:
    """Type of an array or attribute. Raise if it is of several parts.

    h5py takes minutes for a type of thousands of parts, one in the other. HDF5 ends the process if
    it reads a text of variable length from a damaged file.
    """
    found = stored.get_type()
    if found.get_class() not in (h5py().h5t.INTEGER, h5py().h5t.FLOAT, h5py().h5t.STRING):
        raise ValueError("it has numbers of another kind")
    dtype: np.dtype[Any] = found.dtype
    return dtype


def stored_mesh(root: Any) -> str | None:
    """Hash of the last step's mesh. None if femops did not write the file."""
    if _MESH not in root.attrs or type_of(root.attrs.get_id(_MESH)) != "S32":
        return None
    return str(root.attrs[_MESH].decode())


def stored_count(steps: Any) -> int:
    """Number of steps that the file announces."""
    if type_of(steps.attrs.get_id("NSteps")).kind not in "iu":
        raise ValueError("its number of steps is no whole number")
    return index(steps.attrs["NSteps"])


def check_layout(file: Any) -> None:
    """Raise unless femops can append to a file: it has the arrays of a series, and no links.

    Links of HDF5 lead to other files, and so may arrays that are not in chunks. HDF5 takes memory
    for a whole chunk, however few numbers it has or however small it is compressed.
    """
    with h5py().File(io.BytesIO(), "w", libver=_FORMAT) as model:
        _make_layout(model)
        _make_steps(model[ROOT])
        _check_group(file, model, None)


def _check_group(group: Any, model: Any, numbers: str | None) -> None:
    """Compare a group with that of a new file. It may have more arrays, of a kind of numbers."""
    for name in {*model, *(group if numbers else ())}:
        item, due = item_of(group, name), model.get(name)
        if not isinstance(item, h5py().Dataset if due is None else type(due)):
            raise ValueError(f"{name!r} is of another kind")
        if h5py().h5o.get_info(item.id).rc != 1:
            raise ValueError(f"{name!r} has another name too")
        if isinstance(item, h5py().Group):
            free = {"PointData": "f", "PointDataOffsets": "i"}
            _check_group(item, due, free.get(name))
            continue
        dtype = type_of(item.id)
        same = dtype.kind == numbers
        if due is not None:
            same = (dtype, item.shape[1:]) == (due.dtype, due.shape[1:])
        if not same or item.chunks is None or item.maxshape[0] is not None:
            raise ValueError(f"{name!r} is an array of another kind")
        rows, *row = item.chunks
        least = rows == 1 or dtype.itemsize * math.prod(item.chunks) <= _CHUNK
        # HDF5 goes through all chunks of an array that shrinks, also those that the file lacks
        least &= item.nbytes <= item.id.get_storage_size()
        if not least or (*row,) != item.shape[1:] or item.id.get_create_plist().get_nfilters():
            raise ValueError(f"{name!r} is stored in another way")


def check_counts(root: Any, steps: int) -> None:
    """Raise unless all arrays with a number for each step have as many numbers as steps."""
    group = root["Steps"]
    names = [*(f"PointDataOffsets/{name}" for name in group["PointDataOffsets"]), ATTRIBUTES]
    for name in (*PLACES, "NumberOfParts", *names):
        if len(group[name]) < steps:
            raise ValueError(f"{name!r} has {len(group[name])} numbers for {steps} steps")


def _make_layout(file: Any) -> None:
    """Make the groups and arrays of a file without grids."""
    root = file.create_group(ROOT)
    root.attrs["Version"] = np.array([2, 0])
    kind = np.bytes_("UnstructuredGrid")
    root.attrs.create("Type", kind, dtype=f"S{len(kind)}")  # VTK reads no other kind of text
    for name in (*PARTS, "Connectivity", "Offsets", "CellData/attribute"):
        growing(root, name, (), np.dtype(np.int64))
    growing(root, "Types", (), np.dtype(np.uint8))
    growing(root, "Points", (3,), np.dtype(np.float64))
    root.create_group("PointData")


def _make_steps(root: Any) -> None:
    """Make the groups and arrays of a series without steps."""
    steps = root.create_group("Steps")
    steps.create_group("PointDataOffsets")
    steps.attrs["NSteps"] = 0
    growing(steps, "Values", (), np.dtype(np.float64))
    for name in (*PLACES, "NumberOfParts", ATTRIBUTES):
        kinds = (1,) if name in PLACES[2:] else ()
        growing(steps, name, kinds, np.dtype(np.int64))


def _append_mesh(root: Any, piece: Piece) -> dict[str, Any]:
    """Append the cells of a piece. Return the places of the mesh, by the names of their arrays."""
    cells = piece.sections["Cells"]
    sizes = piece.points, piece.cells, len(cells["connectivity"])
    starts = [
        _append(root, name, np.array([size])) for name, size in zip(PARTS, sizes, strict=True)
    ]
    points = _append(root, "Points", piece.sections["Points"]["Points"])
    ids = _append(root, "Connectivity", cells["connectivity"])
    _append(root, "Offsets", np.concatenate([[0], cells["offsets"]]))
    first_cell = _append(root, "Types", cells["types"])
    attributes = _append(root, "CellData/attribute", piece.sections["CellData"]["attribute"])
    places = dict(zip(PLACES, (starts[0], points, first_cell, ids), strict=True))
    return places | {ATTRIBUTES: attributes}


def _extend_mesh(root: Any, piece: Piece) -> dict[str, Any]:
    """Append the cells of a piece to the last grid. No place is new."""
    cells = piece.sections["Cells"]
    sizes = piece.points, piece.cells, len(cells["connectivity"])
    before = [int(root[name][-1]) for name in PARTS]
    for name, size, old in zip(PARTS, sizes, before, strict=True):
        root[name][-1] = old + size
    _append(root, "Points", piece.sections["Points"]["Points"])
    _append(root, "Connectivity", cells["connectivity"] + before[0])
    _append(root, "Offsets", cells["offsets"] + before[2])
    _append(root, "Types", cells["types"])
    _append(root, "CellData/attribute", piece.sections["CellData"]["attribute"])
    return {}


def append_fields(root: Any, piece: Piece) -> dict[str, Any]:
    """Append the values at the points of a piece. Return their places by the names of arrays."""
    return {
        f"PointDataOffsets/{name}": _append(root, f"PointData/{name}", values)
        for name, values in piece.sections["PointData"].items()
    }


def growing(group: Any, name: str, row: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Make an array without rows, to which rows of a shape can be appended."""
    rows = max(1, _CHUNK // (dtype.itemsize * max(1, int(np.prod(row)))))
    if group.name.endswith("Steps"):
        rows = 64
    return group.create_dataset(name, (0, *row), dtype, maxshape=(None, *row), chunks=(rows, *row))


def _append(group: Any, name: str, values: NDArray[Any]) -> int:
    """Append rows to an array, and return the number of its rows before."""
    array = group.get(name)
    if array is None:
        array = growing(group, name, values.shape[1:], values.dtype)
    start = len(array)
    array.resize(start + len(values), axis=0)
    array[start:] = values
    return start
