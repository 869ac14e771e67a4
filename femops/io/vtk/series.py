"""Fields in time, in a .pvd file with one .vtu file per step, or in one .vtkhdf file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from femops.errors import FileError
from femops.io.atomic import alone_in, checked_path, refused
from femops.io.vtk.hdf import HdfFile
from femops.io.vtk.pvd import PvdFiles
from femops.io.vtk.store import Existing, Store
from femops.io.vtk.vtu import Owner, file_names, first_space
from femops.io.vtk.vtu_file import check_name
from femops.parallel.collective_checks import check, check_same
from femops.parallel.comm import communicator
from femops_meshes.arguments import checked, names_checked, number_of, shown

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
