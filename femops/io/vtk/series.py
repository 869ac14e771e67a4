"""Fields in time: one .vtu file per step, and a .pvd file with the times of the steps."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from femops.errors import FileError
from femops.io.atomic import checked_path, make_folder, refused, remove, replacing, to_disk
from femops.io.vtk.pieces import piece_files
from femops.io.vtk.vtu import Owner, first_space, save
from femops.io.vtk.vtu_file import check_name
from femops.parallel.collective_checks import check, check_same
from femops.parallel.comm import communicator
from femops_meshes.arguments import checked, names_checked, number_of, shown

Existing = Literal["refuse", "continue", "replace"]


@final
@checked(FileError)
class TimeSeries:
    """Series of fields in time, for ParaView, VisIt and PyVista. Open the .pvd file there.

    Each step is a .vtu file (see `save`) in a folder with the name of the series: ``run.pvd`` and
    ``run/run_000000.vtu``, ``run/run_000001.vtu``, .... The index is replaced after each step, when
    the step's file is complete and on the disk. So if the program stops, the series can be opened
    and continued.

    Several ranks of `comm` write a .pvtu file per step, and a .vtu file per step and rank. They may
    continue a series from another number of ranks. Then all methods are collective.

    >>> import femops, tempfile
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> with femops.io.TimeSeries(tempfile.mkdtemp() + "/run.pvd") as series:
    ...     for time in (0.0, 0.5):
    ...         file = series.save(time, V, u=V.interpolate(lambda x: x[0] * time))
    >>> series.times
    (0.0, 0.5)

    Parameters
    ----------
    path : path ending in .pvd
        Path of the index. Its folder must exist.
    existing : {"refuse", "continue", "replace"}
        Treatment of an existing series: raise an error, append to the series, or remove the index
        and the files of all steps.
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Ranks that hold the spaces. By default this process alone.

    Raises
    ------
    FileError
        The series exists and `existing` is "refuse". The series cannot be read, or was not written
        by femops. A file cannot be written. `path` does not end in .pvd.
    CommunicatorError
        `comm` is no communicator, or its ranks disagree about the series.
    """

    def __init__(
        self, path: str | os.PathLike[str], existing: Existing = "refuse", comm: Any = None
    ) -> None:
        self._comm = communicator(comm)
        with check(self._comm):
            if existing not in ("refuse", "continue", "replace"):
                raise FileError(
                    f"existing = {existing!r} is unknown: take 'refuse', 'continue' or 'replace'"
                )
            self.path = checked_path(path, ".pvd")
            check_name(self.path.stem, "the series")
        facts = {"the path": str(self.path.absolute()), "existing": existing}
        check_same(self._comm, "a series", facts)
        self._folder = self.path.with_suffix("")
        self._steps: list[tuple[float, Path]] = []
        self._fields: set[str] | None = None
        self._closed = False
        with check(self._comm), refused(self.path):
            if self._comm.rank == 0:
                self._begin(existing)
        self._steps = self._comm.broadcast(self._steps)

    def _begin(self, existing: Existing) -> None:
        """Read an existing series, and write the index."""
        if self.path.exists() and existing == "refuse":
            raise FileError(
                f"'{self.path}' exists: choose another name, or existing='continue' or 'replace'"
            )
        old = self._read_index() if self.path.exists() else []
        if existing == "continue":
            self._steps = old
            self._check_files()
        elif existing == "refuse":
            for file in self._names(0):
                if file.exists():
                    raise FileError(
                        f"'{file}' exists, of a series without index: choose another name, or "
                        "existing='replace'"
                    )
        make_folder(self._folder)
        self._write_index()
        if existing == "replace":
            for _, file in old:
                _remove_step(file)

    @property
    def times(self) -> tuple[float, ...]:
        """Times of the steps, ascending."""
        return tuple(time for time, _ in self._steps)

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
            As for `femops.save`, with the same names in each step.

        Returns
        -------
        pathlib.Path
            The step's .vtu or .pvtu file.

        Raises
        ------
        FileError
            The time is not finite or not later than the last step, names of fields differ from
            earlier steps, the series is closed, the space is on other ranks, or a file cannot be
            written. Then the series does not change.
        CommunicatorError
            Ranks disagree about the time or the fields.
        SpaceError, VectorError
            See `femops.save`.
        """
        with check(self._comm):
            moment = self._checked_time(time)
            self._check_step(space, fields)
        check_same(self._comm, "a step of a series", {"time": moment})
        file = self._names(len(self._steps))[self._comm.size > 1]
        save(file, space, **fields)
        self._steps.append((moment, file))
        try:
            with check(self._comm):
                if self._comm.rank == 0:
                    to_disk(file)
                    self._write_index()
        except BaseException:
            self._steps.pop()
            raise
        self._fields = set(fields)
        return file

    def _check_step(self, owner: Any, fields: Mapping[str, Any]) -> None:
        if self._closed:
            raise FileError(f"'{self.path}' is closed: open it with existing='continue'")
        if self._fields is not None and self._fields != set(fields):
            raise FileError(
                f"fields {sorted(fields)} differ from {sorted(self._fields)}, those of the steps "
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
        steps = f"{len(self._steps)} steps"
        if self._steps:
            steps += f", time {self.times[0]:g} to {self.times[-1]:g}"
        return f"TimeSeries('{self.path}': {steps})"

    def _names(self, step: int) -> tuple[Path, Path]:
        """Return both possible names of a step's file: for one process, and for many ranks."""
        file = self._folder / f"{self._folder.name}_{step:06}.vtu"
        return file, file.with_suffix(".pvtu")

    def _checked_time(self, time: Any) -> float:
        moment = number_of(time)
        if moment is None:
            raise FileError(f"time {shown(time)} is not a number: give one, in any unit")
        if not math.isfinite(moment):
            raise FileError(f"time {moment} is not finite: did the computation diverge?")
        if self._steps and moment <= self.times[-1]:
            raise FileError(
                f"time {moment!r} is not later than {self.times[-1]!r}, the last in "
                f"'{self.path}': save steps in their order"
            )
        return moment

    def _write_index(self) -> None:
        lines = ['<?xml version="1.0"?>', '<VTKFile type="Collection" version="0.1">']
        lines.append("<Collection>")
        for time, file in self._steps:
            name = quoteattr(f"{self._folder.name}/{file.name}")
            lines.append(f'<DataSet timestep="{time!r}" part="0" file={name}/>')
        lines += ["</Collection>", "</VTKFile>", ""]
        with replacing(self.path) as temporary:
            temporary.write_text("\n".join(lines), encoding="utf-8")
            to_disk(temporary)

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
            steps = ET.parse(self.path).getroot().findall("./Collection/DataSet")
            times = [float(step.attrib["timestep"]) for step in steps]
            files = [self.path.parent / step.attrib["file"] for step in steps]
        except (OSError, ET.ParseError, KeyError, ValueError) as error:
            raise FileError(
                f"'{self.path}' is not a series that can be read ({error}): choose another name"
            ) from error
        for step, file in enumerate(files):
            if file not in self._names(step):
                raise FileError(
                    f"'{self.path}' was not written by femops (it names '{file.name}' where "
                    f"'{self._names(step)[0].name}' is due): choose another name"
                )
        return list(zip(times, files, strict=True))


def _remove_step(file: Path) -> None:
    remove([file])
    if file.suffix == ".pvtu":
        remove(piece_files(file))
        with suppress(OSError):  # the folder may hold other files
            file.with_suffix("").rmdir()
