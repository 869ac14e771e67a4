"""Fields in time, in a .pvd file with one .vtu file per step, or in one .vtkhdf file."""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import numpy as np

from femops.errors import FileError
from femops.io.atomic import (
    alone_in,
    checked_path,
    make_folder,
    refused,
    remove,
    replacing,
    to_disk,
    writing,
)
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
    file_of,
    growing,
    h5py,
    in_turns,
    item_of,
    opened,
    readable,
    set_mesh,
    stored_count,
    stored_mesh,
    write_empty,
)
from femops.io.vtk.journal import discard_journal, recover
from femops.io.vtk.pieces import piece_files
from femops.io.vtk.vtu import Owner, file_names, first_space, lagrange_piece, same_fields, save
from femops.io.vtk.vtu_file import Piece, check_name
from femops.parallel.comm import Communicator, check, check_same, communicator
from femops_common.arguments import checked, names_checked, number_of, shown
from femops_meshes.formats.temporary import regular

Existing = Literal["refuse", "continue", "replace"]


class Store(ABC):
    """Files of a series in one format. All methods are collective."""

    @property
    @abstractmethod
    def times(self) -> tuple[float, ...]:
        """Times of the steps, ascending."""

    @property
    @abstractmethod
    def fields(self) -> set[str] | None:
        """Names of the fields of each step; None if the format does not have them all in one place.

        It is None before the first step, too.
        """

    @abstractmethod
    def begin(self, existing: Existing, until: float) -> None:
        """Read the steps of an existing series or remove them, and write the series without more.

        Steps later than the time ``until`` are removed.
        """

    @abstractmethod
    def add(self, time: float, space: Owner, fields: dict[str, Any]) -> Path:
        """Add a step. Return the file that has it."""


def check_steps(path: Path, same: bool) -> None:
    """Raise unless the file has the ``same`` steps as after the last step of this program."""
    if not same:
        raise FileError(
            f"'{path}' has other steps than this series has saved: another program, or another "
            "TimeSeries, writes to it; take another name, or open it again with "
            "existing='continue'"
        )


def check_times(times: Sequence[float]) -> None:
    """Raise unless the times of a file ascend: steps after a time are the last ones of the file."""
    if not all(map(math.isfinite, times)) or any(a >= b for a, b in pairwise(times)):
        raise ValueError("the times of its steps do not ascend")


@final
class PvdFiles(Store):
    """Series of a .vtu or .pvtu file per step, with an index."""

    def __init__(self, path: Path, comm: Communicator) -> None:
        self.path, self._comm = path, comm
        self._folder = path.with_suffix("")
        self._steps: list[tuple[float, Path]] = []

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(time for time, _ in self._steps)

    @property
    def fields(self) -> None:
        return None

    def begin(self, existing: Existing, until: float) -> None:
        """See `Store.begin`. Rank 0 reads and writes."""
        with check(self._comm):
            if self._comm.rank == 0:
                self._begin(existing, until)
        self._steps = self._comm.broadcast(self._steps)

    def _begin(self, existing: Existing, until: float) -> None:
        """Read an existing series, and write the index."""
        old = self._read_index() if self.path.exists() else []
        if existing == "continue":
            self._steps = [step for step in old if step[0] <= until]
            self._check_files()
        elif existing == "refuse":
            for file in self._names(0):
                if file.exists():
                    raise FileError(
                        f"'{file}' exists, of a series without index: choose another name, or "
                        "existing='replace'"
                    )
        make_folder(self._folder)
        try:
            self._write_index()
        except BaseException:
            with suppress(OSError):
                self._folder.rmdir()  # unless it has files
            raise
        for _, file in old[len(self._steps) :]:
            _remove_step(file)

    def add(self, time: float, space: Owner, fields: dict[str, Any]) -> Path:
        step = self._names(len(self._steps))[self._comm.size > 1]
        with check(self._comm), refused(self.path):
            if self._comm.rank == 0:
                check_steps(self.path, self._is_written())
        save(step, space, **fields)
        before = self._steps
        try:
            self._steps = [*before, (time, step)]
            with check(self._comm):
                if self._comm.rank == 0:
                    to_disk(step)
                    self._write_index()
        except BaseException:
            written = False
            with suppress(OSError):  # an interrupt may come when the index is written
                written = self._is_written()
            if not written:
                self._steps = before
            raise
        return step

    def _is_written(self) -> bool:
        """True if the index has the steps of this series."""
        with open(self.path, "rb", opener=regular) as file:
            return file.read() == self._index().encode()

    def _names(self, step: int) -> tuple[Path, Path]:
        """Return both possible names of a step's file: for one process, and for many ranks."""
        file = self._folder / f"{self._folder.name}_{step:06}.vtu"
        return file, file.with_suffix(".pvtu")

    def _index(self) -> str:
        """Text of the index."""
        lines = ['<?xml version="1.0"?>', '<VTKFile type="Collection" version="0.1">']
        lines.append("<Collection>")
        for time, file in self._steps:
            name = quoteattr(f"{self._folder.name}/{file.name}")
            lines.append(f'<DataSet timestep="{time!r}" part="0" file={name}/>')
        return "\n".join([*lines, "</Collection>", "</VTKFile>", ""])

    def _write_index(self) -> None:
        with writing(self.path, durable=True) as file:
            file.write(self._index().encode())

    def _check_files(self) -> None:
        for _, file in self._steps:
            if not file.is_file():
                raise FileError(
                    f"'{self.path}' names '{file}', which is missing: bring it back, "
                    "or use existing='replace'"
                )

    def _read_index(self) -> list[tuple[float, Path]]:
        """Times and files of an existing series."""
        try:
            with open(self.path, "rb", opener=regular) as index_file:
                steps = _entries(ET.parse(index_file).getroot())
            times = [float(step.attrib["timestep"]) for step in steps]
            files = [self.path.parent / step.attrib["file"] for step in steps]
            check_times(times)
        except (OSError, ET.ParseError, LookupError, ValueError) as error:
            raise FileError(
                f"'{self.path}' is not a series that can be read ({error}): choose another name"
            ) from error
        for step, file in enumerate(files):
            if file not in self._names(step):
                raise FileError(
                    f"'{self.path}' was not written by femops (it names {file.name!r} where "
                    f"'{self._names(step)[0].name}' is due): choose another name"
                )
        return list(zip(times, files, strict=True))


def _entries(root: ET.Element) -> list[ET.Element]:
    """Entries of the steps of an index. Raise if it has others, which would be lost."""
    steps = [step for collection in root for step in collection]
    tags = [root.tag, *(part.tag for part in root), *(step.tag for step in steps)]
    due, text = ["VTKFile", "Collection"] + ["DataSet"] * len(steps), "".join(root.itertext())
    if tags != due or any(map(len, steps)) or text.strip():
        raise ValueError("it is no VTKFile of one Collection of DataSets")
    return steps


def _remove_step(file: Path) -> None:
    remove([file])
    if file.suffix == ".pvtu":
        remove(piece_files(file))
        with suppress(OSError):  # the folder may hold other files
            file.with_suffix("").rmdir()


@final
class HdfFile(Store):
    """Series in one file. The ranks write to it in turns."""

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
                self._begin(existing, until)
        found = self._times, self._mesh, self._fields
        self._times, self._mesh, self._fields = self._comm.broadcast(found)

    def _begin(self, existing: Existing, until: float) -> None:
        """Read an existing series, or replace it."""
        if existing == "continue" and self.path.exists():
            recover(self.path)
            self._read()
            self._keep(until)
        if not self._times:
            with replacing(self.path) as temporary:
                write_empty(temporary, series=True)
                to_disk(temporary)
            discard_journal(self.path)

    def _read(self) -> None:
        """Read the times and fields of an existing series, and the hash of its last mesh."""
        with (
            readable(self.path),
            open(self.path, "rb", opener=regular) as raw,
            file_of(raw, self.path, "r") as file,
        ):
            mesh = stored_mesh(item_of(file, ROOT))
            if mesh is None:
                raise FileError(f"'{self.path}' was not written by femops: choose another name")
            check_layout(file)
            self._times = _times(file[ROOT])
            check_times(self._times)
            check_counts(file[ROOT], len(self._times))
            self._mesh = mesh
            self._fields = {*file[ROOT]["Steps/PointDataOffsets"]} if self._times else None

    def _keep(self, until: float) -> None:
        """Remove the steps later than ``until``. Their numbers stay in the file, without a step."""
        kept = sum(time <= until for time in self._times)
        if 0 < kept < len(self._times):
            with opened(self.path) as root:
                steps, last = root["Steps"], len(self._times) - 1
                if any((steps[name][kept - 1] != steps[name][last]).any() for name in PLACES):
                    self._mesh = ""
                    set_mesh(root, "")
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
                set_mesh(root, "")
                places = append_piece(root, piece, self._comm.rank > 0)
            else:
                places = append_fields(root, piece)
            if self._comm.rank == 0:
                self._place(root["Steps"], time, places)
            if self._comm.rank == self._comm.size - 1:
                root["Steps"].attrs["NSteps"] = len(self._times) + 1
                set_mesh(root, mesh)

        try:
            in_turns(self.path, self._comm, piece, append)
            self._times, self._mesh = (*self._times, time), mesh
        except KeyboardInterrupt:  # it may come when the step is complete
            with suppress(FileError, OSError):
                recover(self.path)
                self._read()
            raise
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
    values, count = steps["Values"], stored_count(steps)
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


_STORES: dict[str, type[PvdFiles | HdfFile]] = {".pvd": PvdFiles, ".vtkhdf": HdfFile}


@final
@checked(FileError)
class TimeSeries:
    """Series of fields in time, for ParaView, VisIt and PyVista. Open the file at `path` there.

    The suffix of `path` chooses the format. In a .pvd series each step is a .vtu file (see `save`)
    in a folder with the name of the series: ``run.pvd`` and ``run/run_000000.vtu``,
    ``run/run_000001.vtu``, .... The index is replaced after each step, when the step's file is
    complete and on the disk. So if the program stops, the series can be opened and continued.

    A .vtkhdf series is one file in the format VTKHDF. It needs h5py (extra ``hdf``). The mesh is
    stored again only where it changes. It was read by VTK 9.7. Each step is first written to a
    journal, ``.run.vtkhdf-femops-journal``, which is there for a moment. If the program is killed
    in this moment, the journal stays. Open the series with ``existing="continue"`` to end the step.

    Several ranks of `comm` write a .pvtu file per step, and a .vtu file per step and rank. To a
    .vtkhdf file they write one after the other. They may continue a series from another number of
    ranks. Then all methods are collective.

    Programs that write to series in the same folder do so one after the other, but not on Windows.

    >>> import femops, tempfile
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> with femops.io.TimeSeries(tempfile.mkdtemp() + "/run.pvd") as series:
    ...     for time in (0.0, 0.5):
    ...         file = series.save(time, V, u=V.interpolate(lambda x: x[0] * time))
    >>> series.times
    (0.0, 0.5)

    Parameters
    ----------
    path : path ending in .pvd or .vtkhdf
        Path of the index, or of the file. Its folder must exist.
    existing : {"refuse", "continue", "replace"}
        Treatment of an existing series: raise an error, append to the series, or remove the index
        and the files of all steps.
    until : float, optional
        Time of the last step that is kept of a series to continue, as that of a checkpoint. Later
        steps are removed. By default all are kept.
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Ranks that hold the spaces. By default this process alone.

    Raises
    ------
    FileError
        The series exists and `existing` is "refuse". The series cannot be read, or was not written
        by femops. A file cannot be written. `path` has another suffix.
    MissingExtraError
        `path` ends in .vtkhdf, and h5py is missing.
    CommunicatorError
        `comm` is no communicator, or its ranks disagree about the series.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        existing: Existing = "refuse",
        comm: Any = None,
        *,
        until: float | None = None,
    ) -> None:
        self._comm = communicator(comm)
        with check(self._comm):
            if existing not in ("refuse", "continue", "replace"):
                raise FileError(
                    f"existing = {existing!r} is unknown: take 'refuse', 'continue' or 'replace'"
                )
            if until is not None and existing != "continue":
                raise FileError("until is for a series to continue: give existing='continue' too")
            self.path = checked_path(path, *_STORES)
            check_name(self.path.stem, "the series")
        facts = {"the path": str(self.path.absolute()), "existing": existing, "until": until}
        check_same(self._comm, "a series", facts)
        self._closed = False
        self._store: Store = _STORES[self.path.suffix.lower()](self.path, self._comm)
        with check(self._comm), refused(self.path):
            if self._comm.rank == 0 and self.path.exists() and existing == "refuse":
                raise FileError(
                    f"'{self.path}' exists: choose another name, or existing='continue' or "
                    "'replace'"
                )
        with self._alone(), refused(self.path):
            self._store.begin(existing, math.inf if until is None else until)
        self._fields = self._store.fields

    @property
    def times(self) -> tuple[float, ...]:
        """Times of the steps, ascending."""
        return self._store.times

    @names_checked
    def save(self, time: float, space: Owner = None, /, **fields: Any) -> Path:
        """Add a step.

        Parameters
        ----------
        time : float
            Time of the step, later than the last step.
        space : Space, Product, Mesh or DistributedMesh, optional
            As for `femops.save`. The mesh may differ between steps.
        **fields : (size,) array or GridFunction
            As for `femops.save`, with the same names in each step. In a .vtkhdf series they also
            have the same number of components, and no wider type than in the first step.

        Returns
        -------
        pathlib.Path
            The step's .vtu or .pvtu file, or the .vtkhdf file.

        Raises
        ------
        FileError
            The time is not finite or not later than the last step, fields differ from earlier
            steps, the series is closed, the space is on other ranks, the format cannot hold a name,
            a file cannot be written, or another program has added steps. Then the series does not
            change.
        CommunicatorError
            Ranks disagree about the time or the fields.
        SpaceError, VectorError
            See `femops.save`.
        """
        with check(self._comm):
            moment = self._checked_time(time)
            self._check_step(space, fields)
        check_same(self._comm, "a step of a series", {"time": moment})
        with self._alone():
            file = self._store.add(moment, space, fields)
        self._fields = _names(fields)
        return file

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other programs from changing the series meanwhile. Collective."""
        with ExitStack() as stack:
            with check(self._comm):
                if self._comm.rank == 0:
                    stack.enter_context(alone_in(Path(os.path.realpath(self.path)).parent))
            yield

    def _check_step(self, owner: Any, fields: Mapping[str, Any]) -> None:
        if self._closed:
            raise FileError(f"'{self.path}' is closed: open it with existing='continue'")
        if self._fields is not None and self._fields != (names := _names(fields)):
            raise FileError(
                f"fields {sorted(names)} differ from {sorted(self._fields)}, those of the steps "
                f"before, in '{self.path}': save the same at each step"
            )
        ours, theirs = self._comm, first_space(owner, fields, "TimeSeries.save").comm
        if theirs is not ours and max(ours.size, theirs.size) > 1:
            raise FileError(
                f"'{self.path}' is a series of {ours.size} ranks, the space is of {theirs.size}: "
                "give the series the mesh's communicator, femops.io.TimeSeries(path, comm=comm)"
            )

    def close(self) -> None:
        """Close the series, so that `save` raises an error. All steps are already written."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        steps = f"{len(self.times)} steps"
        if self.times:
            steps += f", time {self.times[0]:g} to {self.times[-1]:g}"
        return f"TimeSeries('{self.path}': {steps})"

    def _checked_time(self, time: Any) -> float:
        moment = number_of(time)
        if moment is None:
            raise FileError(f"time {shown(time)} is not a number: give one, in any unit")
        if not math.isfinite(moment):
            raise FileError(f"time {moment} is not finite: did the computation diverge?")
        if self.times and moment <= self.times[-1]:
            raise FileError(
                f"time {moment!r} is not later than {self.times[-1]!r}, the last in "
                f"'{self.path}': save steps in their order; until= removes those after a checkpoint"
            )
        return moment


def _names(fields: Mapping[str, Any]) -> set[str]:
    return {name for key, field in fields.items() for name in file_names(key, field)}
