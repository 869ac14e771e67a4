"""Series in one VTKHDF file: HDF5 with the mesh, its fields, and the times of the steps.

Source: VTK's documentation of the format, "VTKHDF file format", version 2.0, unstructured grids
with transient data. All steps append to the same arrays. The group Steps has, for each step, where
its numbers begin. A step on the mesh of the step before refers to that mesh.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import FileError, MissingExtraError
from femops.io.atomic import refused, replacing, to_disk
from femops.io.vtk.store import Existing, Store
from femops.io.vtk.vtu import Owner, checked_fields, first_space, lagrange_piece
from femops.io.vtk.vtu_file import Piece
from femops.parallel.comm import Communicator

_ROOT, _MESH = "VTKHDF", "femops_mesh"
_CHUNK = 1 << 16  # bytes of a chunk, in which HDF5 stores arrays that grow

_PARTS = ("NumberOfPoints", "NumberOfCells", "NumberOfConnectivityIds")
"""Arrays with a number for each mesh."""

_PLACES = ("PartOffsets", "PointOffsets", "CellOffsets", "ConnectivityIdOffsets")
"""Arrays with the place of each step's mesh. The last two have a column for each kind of cell."""

_ATTRIBUTES = "CellDataOffsets/attribute"


def h5py() -> ModuleType:
    """Import h5py.

    Raises
    ------
    MissingExtraError
        h5py is missing.
    """
    try:
        import h5py as module
    except ImportError as error:
        raise MissingExtraError(
            f".vtkhdf files need h5py ({error}): pip install h5py, or take a .pvd file"
        ) from error
    return module  # type: ignore[no-any-return]


@final
class HdfFile(Store):
    """Series in one file, for one process.

    Parameters
    ----------
    path : Path
        Path that ends in .vtkhdf.
    comm : Communicator

    Raises
    ------
    FileError
        There are several ranks.
    MissingExtraError
        h5py is missing.
    """

    def __init__(self, path: Path, comm: Communicator) -> None:
        if comm.size > 1:
            raise FileError(
                f"'{path}' is for one process, there are {comm.size} ranks: take a .pvd file"
            )
        self.path, self._h5py = path, h5py()
        self._times: tuple[float, ...] = ()

    @property
    def times(self) -> tuple[float, ...]:
        """See `Store.times`."""
        return self._times

    def begin(self, existing: Existing) -> None:
        """See `Store.begin`."""
        if existing == "continue" and self.path.exists():
            self._times = self._read_times()
            return
        empty = io.BytesIO()
        with self._h5py.File(empty, "w") as file:
            _make_layout(file)
        with replacing(self.path) as temporary:
            temporary.write_bytes(empty.getvalue())
            to_disk(temporary)

    def _read_times(self) -> tuple[float, ...]:
        try:
            with self._h5py.File(self.path, "r") as file:
                if _MESH not in file[_ROOT].attrs:
                    raise FileError(f"'{self.path}' was not written by femops: choose another name")
                steps = file[_ROOT]["Steps"]
                return tuple(steps["Values"][: steps.attrs["NSteps"]].tolist())
        except (OSError, KeyError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(
                f"'{self.path}' is not a series that can be read ({error}): choose another name"
            ) from error

    def add(self, time: float, space: Owner, fields: dict[str, Any]) -> Path:
        """See `Store.add`. The step is counted last, so a file of a program that stopped is whole.

        Numbers that such a program left are overwritten, or stay without a step.
        """
        first = first_space(space, fields, "TimeSeries.save")
        piece = lagrange_piece(first, checked_fields(first, space, fields), in_memory=True)
        with refused(self.path):
            with self._h5py.File(self.path, "r+") as file:
                self._add(file[_ROOT], time, piece)
            to_disk(self.path)
        self._times = *self._times, time
        return self.path

    def _add(self, root: Any, time: float, piece: Piece) -> None:
        steps, count, mesh = root["Steps"], len(self._times), _fingerprint(piece)
        if count and root.attrs[_MESH] == mesh:
            places = {name: steps[name][count - 1] for name in (*_PLACES, _ATTRIBUTES)}
        else:
            places = _append_mesh(root, piece)
            root.attrs[_MESH] = mesh
        for name, values in piece.sections["PointData"].items():
            places[f"PointDataOffsets/{name}"] = _append(root, f"PointData/{name}", values)
        for name, place in places.items():
            _put(steps, name, count, place)
        _put(steps, "NumberOfParts", count, 1)
        _put(steps, "Values", count, time)
        steps.attrs["NSteps"] = count + 1


def _make_layout(file: Any) -> None:
    """Make the groups and arrays of a series without steps."""
    root = file.create_group(_ROOT)
    root.attrs["Version"] = np.array([2, 0])
    kind = np.bytes_("UnstructuredGrid")
    root.attrs.create("Type", kind, dtype=f"S{len(kind)}")  # VTK reads no other kind of text
    root.attrs[_MESH] = ""
    for name in (*_PARTS, "Connectivity", "Offsets", "CellData/attribute"):
        _growing(root, name, (), np.dtype(np.int64))
    _growing(root, "Types", (), np.dtype(np.uint8))
    _growing(root, "Points", (3,), np.dtype(np.float64))
    root.create_group("PointData")
    steps = root.create_group("Steps")
    steps.create_group("PointDataOffsets")
    steps.attrs["NSteps"] = 0
    _growing(steps, "Values", (), np.dtype(np.float64))
    for name in (*_PLACES, "NumberOfParts", _ATTRIBUTES):
        kinds = (1,) if name in _PLACES[2:] else ()
        _growing(steps, name, kinds, np.dtype(np.int64))


def _append_mesh(root: Any, piece: Piece) -> dict[str, Any]:
    """Append the cells of a piece. Return the places of the mesh, by the names of their arrays."""
    cells = piece.sections["Cells"]
    sizes = piece.points, piece.cells, len(cells["connectivity"])
    starts = [
        _append(root, name, np.array([size])) for name, size in zip(_PARTS, sizes, strict=True)
    ]
    points = _append(root, "Points", piece.sections["Points"]["Points"])
    ids = _append(root, "Connectivity", cells["connectivity"])
    _append(root, "Offsets", np.concatenate([[0], cells["offsets"]]))
    first_cell = _append(root, "Types", cells["types"])
    attributes = _append(root, "CellData/attribute", piece.sections["CellData"]["attribute"])
    places = dict(zip(_PLACES, (starts[0], points, first_cell, ids), strict=True))
    return places | {_ATTRIBUTES: attributes}


def _fingerprint(piece: Piece) -> str:
    """Hash of the cells of a piece and of their attributes."""
    found = hashlib.blake2b(digest_size=16)
    for section in ("Points", "Cells", "CellData"):
        for array in piece.sections[section].values():
            found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()


def _growing(group: Any, name: str, row: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Make an array without rows, to which rows of a shape can be appended."""
    rows = max(1, _CHUNK // (dtype.itemsize * max(1, int(np.prod(row)))))
    if group.name.endswith("Steps"):
        rows = 64
    group.create_dataset(name, (0, *row), dtype, maxshape=(None, *row), chunks=(rows, *row))


def _append(group: Any, name: str, values: NDArray[Any]) -> int:
    """Append rows to an array, and return the number of its rows before."""
    if name not in group:
        _growing(group, name, values.shape[1:], values.dtype)
    array = group[name]
    start = len(array)
    array.resize(start + len(values), axis=0)
    array[start:] = values
    return start


def _put(steps: Any, name: str, step: int, value: Any) -> None:
    """Store the number of a step."""
    if name not in steps:
        _growing(steps, name, (), np.dtype(np.int64))
    array = steps[name]
    array.resize(step + 1, axis=0)
    array[step] = value
