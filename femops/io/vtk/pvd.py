"""Series of VTU files: one per step, and a .pvd file with the times of the steps."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from femops.errors import FileError
from femops.io.atomic import make_folder, refused, remove, replacing, to_disk
from femops.io.vtk.pieces import piece_files
from femops.io.vtk.store import Existing, Store, check_steps, check_times
from femops.io.vtk.vtu import Owner, save
from femops.parallel.collective_checks import check
from femops.parallel.comm import Communicator


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
        self._write_index()
        for _, file in old[len(self._steps) :]:
            _remove_step(file)

    def add(self, time: float, space: Owner, fields: dict[str, Any]) -> Path:
        file = self._names(len(self._steps))[self._comm.size > 1]
        with check(self._comm), refused(self.path):
            if self._comm.rank == 0:
                check_steps(self.path, self.path.read_text(encoding="utf-8") == self._index())
        save(file, space, **fields)
        self._steps.append((time, file))
        try:
            with check(self._comm):
                if self._comm.rank == 0:
                    to_disk(file)
                    self._write_index()
        except BaseException:
            self._steps.pop()
            raise
        return file

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
        with replacing(self.path) as temporary:
            temporary.write_text(self._index(), encoding="utf-8")
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


def _remove_step(file: Path) -> None:
    remove([file])
    if file.suffix == ".pvtu":
        remove(piece_files(file))
        with suppress(OSError):  # the folder may hold other files
            file.with_suffix("").rmdir()
