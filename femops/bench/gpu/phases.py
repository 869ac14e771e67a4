"""A benchmark of a GPU in phases, each in processes of its own, that goes on where it stopped.

A kernel that reads where nothing is makes everything fail that its process does afterwards. So a
phase that dies is started again, without the case that killed it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import copyfile
from time import perf_counter
from typing import Any, final

from femops.bench.gpu.products import Products
from femops.bench.gpu.record import REFUSED, Record, write_json
from femops.bench.gpu.run import GpuSettings, result_of
from femops.bench.problems import Progress
from femops.errors import DeviceError
from femops_kernels.tuning.database import users_table

WORKER = (sys.executable, "-m", "femops.bench.gpu.worker")
"""Command of the process that does a phase."""

RESULT, TABLE = "result.json", "tuning.json"
"""Files of a folder besides those of phases: all results, and the launch shapes."""

FIRST_PROBLEMS, FIRST_MESH = ("bp3", "bp1"), "multilinear"
"""Problems and mesh of the rows that are measured first."""

SOLVED_ORDERS = (4, 6)
"""Orders of the solves with multigrid and with Jacobi."""

_NOTHING: dict[str, Any] = dict.fromkeys(("orders", "forms", "gas", "vectors"), ())
_NOTHING["products"] = Products(())
_TUNED_PROBLEMS = ("bp3", "bp5", "bp1")
_MOST_ALONE = 10
_GRACE = 20.0  # seconds that a process has beyond its budget
_LEAST = 5.0  # seconds that a process takes to start


@final
@dataclass(frozen=True)
class Phase:
    """Work of one process, and by when it is to be done.

    Attributes
    ----------
    name : str
        Also of its file.
    settings : GpuSettings
    until : float
        The part of all seconds after which the next phase begins.
    work : {"rows", "solves", "products", "gas", "vectors", "shapes"}
        What is measured: operators, whole solves, products of small matrices, gas dynamics,
        operators on many vectors, or launch shapes.
    after : str
        Name of the phase that must be complete before.
    """

    name: str
    settings: GpuSettings
    until: float
    work: str = "rows"
    after: str = ""

    def request(self, file: Path, seconds: float) -> str:
        """Text that its process is given."""
        settings = asdict(replace(self.settings, budget=seconds))
        return json.dumps({"file": str(file), "work": self.work, "settings": settings})


def phases(settings: GpuSettings) -> list[Phase]:
    """Phases of a benchmark that have something to measure, what matters most first."""
    rows = _only(settings, "orders")
    first = _chosen(rows, FIRST_PROBLEMS, (FIRST_MESH,))
    found = [
        Phase("forms", _only(settings, "forms"), 0.2),
        Phase("first", first, 0.45),
        Phase("solves", _solves(first), 0.55, "solves"),
        Phase("products", _only(settings, "products"), 0.6, "products"),
        Phase("gas", _only(settings, "gas"), 0.65, "gas"),
        Phase("vectors", _only(settings, "vectors"), 0.7, "vectors"),
        Phase("others", rows, 0.8),
        Phase("shapes", _chosen(rows, _TUNED_PROBLEMS, (FIRST_MESH,)), 0.9, "shapes"),
        Phase("tuned", first, 1.0, after="shapes"),
    ]
    return [phase for phase in found if phase.settings.has_cases]


def _only(settings: GpuSettings, *names: str) -> GpuSettings:
    """Settings with these alone of what they have to be measured."""
    nothing = {name: value for name, value in _NOTHING.items() if name not in names}
    return replace(settings, **nothing)


def _solves(settings: GpuSettings) -> GpuSettings:
    """Settings with those of `SOLVED_ORDERS` that they have."""
    return replace(settings, orders=tuple(p for p in SOLVED_ORDERS if p in settings.orders))


def _alone(folder: Path, settings: GpuSettings) -> list[Phase]:
    """Phases of the forms that have no result, one by one: the first may have killed the others."""
    failed = [row for row in Record.of(folder / "forms.json").validation if row["error"] is None]
    return [
        Phase(
            f"form-{k}",
            replace(_only(settings), forms=(row["form"],), dims=(row["dim"],)),
            0.25,
        )
        for k, row in enumerate(failed[:_MOST_ALONE])
        if len(failed) > 1
    ]


def _chosen(settings: GpuSettings, problems: Sequence[str], meshes: Sequence[str]) -> GpuSettings:
    """Settings with those of some problems and meshes that they have."""
    return replace(
        settings,
        problems=tuple(name for name in problems if name in settings.problems),
        meshes=tuple(name for name in meshes if name in settings.meshes),
    )


def run_phases(
    settings: GpuSettings,
    folder: Path,
    progress: Progress | None = None,
    command: Sequence[str] = WORKER,
) -> dict[str, Any]:
    """Do what there is time for of all phases, and keep everything in a folder.

    Called again with the same folder, it goes on where it stopped.

    Parameters
    ----------
    settings : GpuSettings
        ``device`` is a name, ``budget`` the seconds for this call.
    folder : Path
        Has a file of each phase, written after each row; `RESULT`; and `TABLE`, the launch shapes.
    progress : callable, optional
        Called with each line that a process prints.
    command : sequence of str
        Starts a process that does a phase.

    Returns
    -------
    dict
        As `run_gpu`; rows with launch shapes that were tried take the place of those without.

    Raises
    ------
    OperatorError
        Settings with unknown names, or nothing to measure.
    DeviceError
        There is no GPU, or something that it needs is not installed.
    """
    settings.check()
    show, begin = progress or (lambda _: None), perf_counter()

    def finish(phase: Phase) -> None:
        until = begin + phase.until * settings.budget
        _finish(phase, _file(folder, phase), until, command, show)
        _collect(folder, settings)

    for phase in phases(settings):
        if phase.name == "others":
            _leave_out(folder)
        if not phase.after or Record.of(folder / f"{phase.after}.json").complete:
            finish(phase)
        if phase.name == "forms":
            for form in _alone(folder, settings):
                finish(form)
    return _collect(folder, settings)


def _file(folder: Path, phase: Phase) -> Path:
    return folder / f"{phase.name}.json"


def _leave_out(folder: Path) -> None:
    """Begin the record of the other rows with the names of those that were measured first."""
    first, others = Record.of(folder / "first.json"), Record.of(folder / "others.json")
    if more := [name for name in first.done if name not in others.done]:
        others.done += more
        others.keep()


def _finish(phase: Phase, file: Path, until: float, command: Sequence[str], show: Progress) -> None:
    """Run a phase until it is complete, or late, or dies without having found anything new."""
    while not (found := Record.of(file)).complete:
        left = until - perf_counter()
        if left < _LEAST:
            show(f"{phase.name}: no time is left, call again to go on")
            return
        show(f"{phase.name}: begins, {left:.0f} s")
        code = _run(command, phase.request(file, left), left + _GRACE, show)
        now = Record.of(file)
        if not now.complete and _amount(now) == _amount(found):
            show(f"{phase.name}: a process ended with code {code} and found nothing new")
            return


def _amount(found: Record) -> tuple[int, ...]:
    """Counts that grow with each step."""
    measured = found.rows, found.cg, found.solves, found.products, found.gas, found.vectors
    told = found.shapes, found.validation, found.failures, found.done
    return tuple(len(each) for each in (*measured, *told))


def _run(command: Sequence[str], request: str, seconds: float, show: Progress) -> int:
    """Run a process for so long at most, and show its lines; its exit code.

    Raises
    ------
    DeviceError
        It says that there is nothing to measure with.
    """
    lines = [""]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        timer = threading.Timer(seconds, _kill, [process])
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it has ended already
                process.stdin.write(request)
                process.stdin.close()
            for line in process.stdout:
                lines.append(line.rstrip())
                show(lines[-1])
            code = process.wait()
        except BaseException:  # an interrupt reaches this process alone
            _kill(process)
            raise
        finally:
            timer.cancel()
    if code == REFUSED:
        raise DeviceError(lines[-1])
    return code


def _kill(process: subprocess.Popen[str]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _collect(folder: Path, settings: GpuSettings) -> dict[str, Any]:
    """Join what all phases have found, and write it.

    Raises
    ------
    DeviceError
        None has begun.
    """
    whole = Record()
    for phase in [*phases(settings), *_alone(folder, settings)]:
        found = Record.of(_file(folder, phase))
        whole.facts |= found.facts
        # later ones take the place of earlier ones
        for rows in ("rows", "cg", "solves", "products", "gas", "vectors", "validation"):
            later = getattr(found, rows)
            names = {_key(row) for row in later}
            kept = [row for row in getattr(whole, rows) if _key(row) not in names]
            setattr(whole, rows, kept + later)
        whole.rates += found.rates
        whole.shapes += found.shapes
        whole.failures += found.failures
        whole.seconds += found.seconds
        if not found.complete:
            whole.notes.append(f"{phase.name}: not complete; the same command goes on with it")
    if not whole.facts:
        raise DeviceError("nothing was measured: the lines above say why")
    result = result_of(whole)
    write_json(folder / RESULT, result)
    if users_table().exists():
        copyfile(users_table(), folder / TABLE)
    return result


def _key(row: dict[str, Any]) -> Any:
    """Name that rows of the same case have in common."""
    return row.get("name") or (row["form"], row["dim"])
