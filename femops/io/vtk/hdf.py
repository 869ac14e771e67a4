"""Series in one VTKHDF file: HDF5 with the mesh, its fields, and the times of the steps.

All steps append to the same arrays. The group Steps has, for each step, where its numbers begin.
A step on the mesh of the step before refers to that mesh.
"""

from __future__ import annotations

import hashlib
from operator import index
from pathlib import Path
from typing import Any, final

import numpy as np

from femops.errors import FileError
from femops.io.atomic import replacing, to_disk
from femops.io.vtk.hdf_file import (
    ATTRIBUTES,
    PLACES,
    ROOT,
    append_fields,
    append_piece,
    check_counts,
    check_hdf_names,
    check_layout,
    check_rows,
    growing,
    h5py,
    in_turns,
    opened,
    write_empty,
)
from femops.io.vtk.journal import recover
from femops.io.vtk.store import Existing, Store, check_steps, check_times
from femops.io.vtk.vtu import Owner, lagrange_piece, same_fields
from femops.io.vtk.vtu_file import Piece
from femops.parallel.collective_checks import check
from femops.parallel.comm import Communicator

_MESH = "femops_mesh"
"""Attribute with the hash of the last step's mesh. Empty while a step on another mesh is added."""


@final
class HdfFile(Store):
    """Series in one file, to which ranks write one after the other."""

    def __init__(self, path: Path, comm: Communicator) -> None:
        with check(comm):
            h5py()
        self.path, self._comm = path, comm
        self._times: tuple[float, ...] = ()
        self._mesh = ""
        self._fields: set[str] | None = None

    @property
    def times(self) -> tuple[float, ...]:
        return self._times

    @property
    def fields(self) -> set[str] | None:
        return self._fields

    def begin(self, existing: Existing, until: float) -> None:
        """See `Store.begin`. Rank 0 reads and writes."""
        with check(self._comm):
            if self._comm.rank == 0:
                recover(self.path)
            if self._comm.rank == 0 and existing == "continue" and self.path.exists():
                self._read()
                self._keep(until)
            if self._comm.rank == 0 and not self._times:
                with replacing(self.path) as temporary:
                    write_empty(temporary, {_MESH: ""}, series=True)
                    to_disk(temporary)
        found = self._times, self._mesh, self._fields
        self._times, self._mesh, self._fields = self._comm.broadcast(found)

    def _read(self) -> None:
        """Read the times and fields of an existing series, and the hash of its last mesh."""
        try:
            with h5py().File(self.path, "r") as file:
                if _MESH not in file[ROOT].attrs:
                    raise FileError(f"'{self.path}' was not written by femops: choose another name")
                check_layout(file)
                self._times = _times(file[ROOT])
                check_times(self._times)
                check_counts(file[ROOT], len(self._times))
                self._mesh = str(file[ROOT].attrs[_MESH])
                self._fields = {*file[ROOT]["Steps/PointDataOffsets"]} if self._times else None
        except FileError:
            raise
        except (OSError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise FileError(
                f"'{self.path}' is not a series that can be read ({error}): choose another name"
            ) from error

    def _keep(self, until: float) -> None:
        """Remove the steps later than ``until``. Their numbers stay in the file, without a step."""
        kept = sum(time <= until for time in self._times)
        if 0 < kept < len(self._times):
            with opened(self.path) as root:
                steps, last = root["Steps"], len(self._times) - 1
                if any((steps[name][kept - 1] != steps[name][last]).any() for name in PLACES):
                    self._mesh = root.attrs[_MESH] = ""
                steps.attrs["NSteps"] = kept
        self._times = self._times[:kept]
        self._fields = self._fields if kept else None

    def add(self, time: float, space: Owner, fields: dict[str, Any]) -> Path:
        """See `Store.add`. The step is counted last, so a file of a program that stopped is whole.

        The last rank counts it. Each change of the file takes place at once, by a journal. Numbers
        that a stopped program left are overwritten, or stay without a step.
        """
        with check(self._comm):
            check_hdf_names(fields)
        first, found = same_fields(space, fields, "TimeSeries.save")
        piece = lagrange_piece(first, found, in_memory=True, warn=self._comm.rank == 0)
        mesh = self._fingerprint(piece)
        same = bool(self._times) and mesh == self._mesh
        self._mesh = mesh if same else ""

        def append(root: Any) -> None:
            if self._comm.rank == 0:
                check_steps(self.path, _times(root) == self._times)
                check_rows(root, piece, self.path)
            if not same:
                root.attrs[_MESH] = ""
                places = append_piece(root, piece, self._comm.rank > 0)
            else:
                places = append_fields(root, piece)
            if self._comm.rank == 0:
                self._place(root["Steps"], time, places)
            if self._comm.rank == self._comm.size - 1:
                root["Steps"].attrs["NSteps"] = len(self._times) + 1
                root.attrs[_MESH] = mesh

        in_turns(self.path, self._comm, piece, append)
        self._times, self._mesh = (*self._times, time), mesh
        return self.path

    def _place(self, steps: Any, time: float, places: dict[str, Any]) -> None:
        """Store where a step begins: the places of the first rank, before the step is counted."""
        count = len(self._times)
        if PLACES[0] not in places:  # the mesh is that of the step before
            places |= {name: steps[name][count - 1] for name in (*PLACES, ATTRIBUTES)}
        for name, place in places.items():
            _put(steps, name, count, place)
        _put(steps, "NumberOfParts", count, 1)
        _put(steps, "Values", count, time)

    def _fingerprint(self, piece: Piece) -> str:
        """Hash of the cells of all ranks and of their attributes. Collective."""
        found = hashlib.blake2b(digest_size=16)
        for section in ("Points", "Cells", "CellData"):
            for array in piece.sections[section].values():
                found.update(np.ascontiguousarray(array).view(np.uint8).data)
        of_ranks = self._comm.gather_all(np.frombuffer(found.digest(), dtype=np.int64))
        return hashlib.blake2b(of_ranks.tobytes(), digest_size=16).hexdigest()


def _times(root: Any) -> tuple[float, ...]:
    """Times of the steps that are complete."""
    steps = root["Steps"]
    values, count = steps["Values"], index(steps.attrs["NSteps"])
    stored = values.id.get_storage_size() // values.dtype.itemsize
    if not 0 <= count <= min(len(values), stored):
        raise ValueError(f"it has {count} steps")
    return tuple(values[:count].tolist())


def _put(steps: Any, name: str, step: int, value: Any) -> None:
    """Store the number of a step."""
    array = steps.get(name)
    if array is None:
        array = growing(steps, name, (), np.dtype(np.int64))
    array.resize(step + 1, axis=0)
    array[step] = value
