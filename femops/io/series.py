"""Fields in time: one .vtu file a step, and a .pvd file that tells the time of each."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from femops.errors import FileError
from femops.io.atomic import checked_path, replacing, to_disk
from femops.io.vtu import save
from femops.space import Space

Existing = Literal["refuse", "continue", "replace"]


@final
class TimeSeries:
    """A series of fields in time, for ParaView, VisIt and PyVista: open the .pvd file.

    Each step is a .vtu file (see `save`) in a folder of the series' name beside the index:
    ``run.pvd`` and ``run/run_000000.vtu``, ``run/run_000001.vtu``, .... The index is replaced in
    one piece after each step, when the step's file is complete and on the disk: whatever stops
    the program, the series can be opened, and continued.

    >>> import femops, tempfile
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> with femops.TimeSeries(tempfile.mkdtemp() + "/run.pvd") as series:
    ...     for time in (0.0, 0.5):
    ...         file = series.save(time, V, u=V.interpolate(lambda x: x[0] * time))
    >>> series.times
    (0.0, 0.5)

    Parameters
    ----------
    path : path ending in .pvd
        The index; its folder must exist.
    existing : {"refuse", "continue", "replace"}
        What to do where there is such a series: raise an error; append to it; remove its index and
        the files of its steps, and start anew.

    Raises
    ------
    FileError
        There is such a series and `existing` is "refuse"; it cannot be read, or was not written by
        femops; a file cannot be written; `path` does not end in .pvd.
    """

    def __init__(self, path: str | os.PathLike[str], existing: Existing = "refuse") -> None:
        if existing not in ("refuse", "continue", "replace"):
            raise FileError(
                f"existing = {existing!r} is unknown: take 'refuse', 'continue' or 'replace'"
            )
        self.path = checked_path(path, ".pvd")
        self._folder = self.path.with_suffix("")
        self._times: list[float] = []
        self._fields: set[str] | None = None
        self._closed = False
        if self.path.exists() and existing == "refuse":
            raise FileError(
                f"'{self.path}' exists: choose another name, or existing='continue' or 'replace'"
            )
        old = self._read_index() if self.path.exists() else []
        if existing == "continue":
            self._times = old
            self._check_files()
        elif existing == "refuse" and self._file(0).exists():
            raise FileError(
                f"'{self._file(0)}' exists, of a series without index: choose another name, or "
                "existing='replace'"
            )
        _make_folder(self._folder)
        self._write_index()
        if existing == "replace":
            _remove(self._file(step) for step in range(len(old)))

    @property
    def times(self) -> tuple[float, ...]:
        """Times of the steps, ascending."""
        return tuple(self._times)

    def save(self, time: float, space: Space, /, **fields: Any) -> Path:
        """Add a step.

        Parameters
        ----------
        time : float
            Later than that of the last step.
        space : Space
            The space of the fields; its mesh may differ from step to step.
        **fields : l_vec or GridFunction
            As for `femops.save`, with the same names at each step.

        Returns
        -------
        pathlib.Path
            The step's .vtu file.

        Raises
        ------
        FileError
            The time is not finite or not later than the last; fields have other names than before;
            the series is closed; a file cannot be written. The series is as it was.
        SpaceError, VectorError
            See `femops.save`.
        """
        moment = self._checked_time(time)
        if self._closed:
            raise FileError(f"'{self.path}' is closed: open it with existing='continue'")
        if self._fields is not None and self._fields != set(fields):
            raise FileError(
                f"fields {sorted(fields)} differ from {sorted(self._fields)}, those of the steps "
                f"before, in '{self.path}': save the same at each step"
            )
        target = save(self._file(len(self._times)), space, **fields)
        to_disk(target)
        self._times.append(moment)
        try:
            self._write_index()
        except BaseException:
            self._times.pop()
            raise
        self._fields = set(fields)
        return target

    def close(self) -> None:
        """Take no more steps; nothing is left to be written."""
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
        steps = f"{len(self._times)} steps"
        if self._times:
            steps += f", time {self._times[0]:g} to {self._times[-1]:g}"
        return f"TimeSeries('{self.path}': {steps})"

    def _file(self, step: int) -> Path:
        return self._folder / f"{self._folder.name}_{step:06}.vtu"

    def _checked_time(self, time: Any) -> float:
        try:
            moment = float(time)
        except (TypeError, ValueError) as error:
            raise FileError(f"time {time!r} is no number: give one, in any unit") from error
        if not math.isfinite(moment):
            raise FileError(f"time {moment} is not finite: did the computation diverge?")
        if self._times and moment <= self._times[-1]:
            raise FileError(
                f"time {moment!r} is not later than {self._times[-1]!r}, the last in "
                f"'{self.path}': save steps in their order"
            )
        return moment

    def _write_index(self) -> None:
        lines = ['<?xml version="1.0"?>', '<VTKFile type="Collection" version="0.1">']
        lines.append("<Collection>")
        for step, time in enumerate(self._times):
            name = quoteattr(f"{self._folder.name}/{self._file(step).name}")
            lines.append(f'<DataSet timestep="{time!r}" part="0" file={name}/>')
        lines += ["</Collection>", "</VTKFile>", ""]
        with replacing(self.path) as temporary:
            temporary.write_text("\n".join(lines), encoding="utf-8")
            to_disk(temporary)

    def _check_files(self) -> None:
        for step in range(len(self._times)):
            if not self._file(step).is_file():
                raise FileError(
                    f"'{self.path}' names '{self._file(step)}', which is missing: bring it back, "
                    "or use existing='replace'"
                )

    def _read_index(self) -> list[float]:
        """Times of the series that stands there."""
        try:
            steps = ET.parse(self.path).getroot().findall("./Collection/DataSet")
            times = [float(step.attrib["timestep"]) for step in steps]
            files = [self.path.parent / step.attrib["file"] for step in steps]
        except (OSError, ET.ParseError, KeyError, ValueError) as error:
            raise FileError(
                f"'{self.path}' is no series that can be read ({error}): choose another name"
            ) from error
        for step, file in enumerate(files):
            if file != self._file(step):
                raise FileError(
                    f"'{self.path}' was not written by femops (it names '{file.name}' where "
                    f"'{self._file(step).name}' is due): choose another name"
                )
        return times


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder '{folder}': {error.strerror}") from error


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"cannot remove '{file}': {error.strerror}") from error
