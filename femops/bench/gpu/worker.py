"""The process that measures: it reads what to do from standard input, and prints its progress."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from typing import BinaryIO

from femops.bench.gpu.record import Record
from femops.bench.gpu.works import PHASES, run_gpu
from femops.errors import DeviceError
from femops_kernels.cuda.device.device import Device

REFUSED = 3
"""Exit code where there is nothing to measure with; the last line says why."""


def serve(requests: BinaryIO, device: Device | None = None) -> int:
    """Do all phases, on a device other than the one that is named, if given; the exit code."""
    file, settings = pickle.load(requests)  # of the process that has started this one
    if device is not None:
        settings = replace(settings, device=device)
    try:
        run_gpu(settings, _say, Record.of(file), PHASES)
    except DeviceError as error:
        _say(str(error))
        return REFUSED
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(serve(sys.stdin.buffer))
