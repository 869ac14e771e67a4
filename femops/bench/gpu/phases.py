"""A benchmark of a GPU in separate processes. After a stop, the benchmark can continue.

If a kernel does an invalid access, every later call in the same process fails. So the benchmark
starts a new process, which skips the case that killed the last process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copyfile
from time import perf_counter
from typing import Any

from femops.bench.child import send
from femops.bench.gpu.run import Record, write_json
from femops.bench.gpu.works import PHASES, GpuSettings, result_of, run_gpu
from femops.bench.problems import Progress
from femops.errors import DeviceError
from femops_kernels.codegen.ahead import same_imports
from femops_kernels.device import Device
from femops_kernels.tuning.database import users_table

WORKER = (sys.executable, "-c", "from femops.bench.gpu.phases import serve; serve()")
"""Command of the process that measures."""

REFUSED = 3
"""Exit code of `WORKER` if there is no usable GPU; its last line has the reason."""

RECORD, RESULT, TABLE = "record.json", "result.json", "tuning.json"
"""Files in the folder: the record so far, the result, and the launch shapes."""

_GRACE = 20.0  # seconds that a process has beyond its budget
_LEAST = 5.0  # seconds that a process takes to start


def run_phases(
    settings: GpuSettings,
    folder: Path,
    progress: Progress | None = None,
    command: Sequence[str] = WORKER,
) -> dict[str, Any]:
    """Measure as many of `works.PHASES` as the budget allows, and keep the results in a folder.

    Called again with the same folder, the benchmark continues.
    """
    settings.check()
    show, end = progress or (lambda _: None), perf_counter() + settings.budget
    while not (found := Record.of(folder / RECORD)).complete:
        left = end - perf_counter()
        if left < _LEAST:
            show("no time is left, call again to go on")
            break
        show(f"a process begins, {left:.0f} s")
        request = pickle.dumps((folder / RECORD, replace(settings, budget=left)))
        code = _run(command, request, left + _GRACE, show)
        now = Record.of(folder / RECORD)
        if not now.complete and now.amount == found.amount:
            show(f"a process ended with code {code} and found nothing new")
            break
    if not found.facts:
        raise DeviceError("nothing was measured: the lines above say why")
    result = result_of(found)
    if not found.complete:
        result["notes"].append("not complete: the same command goes on with it")
    write_json(folder / RESULT, result)
    if users_table().exists():
        copyfile(users_table(), folder / TABLE)
    return result


def serve(device: Device | None = None) -> None:
    """Run the benchmark with settings from standard input. ``device`` replaces their device."""
    file, settings = pickle.load(sys.stdin.buffer)  # of the process that has started this one
    if device is not None:
        settings = replace(settings, device=device)
    show = partial(print, flush=True)
    try:
        run_gpu(settings, show, Record.of(file), PHASES)
    except DeviceError as error:
        show(error)
        sys.exit(REFUSED)


def _run(command: Sequence[str], request: bytes, seconds: float, show: Progress) -> int:
    """Run a process for at most ``seconds``, show its lines, and return its exit code."""
    lines = [""]
    with subprocess.Popen(
        command,
        env=os.environ | same_imports(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        timer = threading.Timer(seconds, send, [process, "SIGKILL"])
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # it has ended already
                process.stdin.write(request)
                process.stdin.close()
            for line in process.stdout:
                lines.append(line.decode(errors="replace").rstrip())
                show(lines[-1])
            code = process.wait()
        except BaseException:  # an interrupt reaches this process alone
            send(process, "SIGKILL")
            raise
        finally:
            timer.cancel()
    if code == REFUSED:
        raise DeviceError(lines[-1])
    return code
