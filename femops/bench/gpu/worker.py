"""The process of a phase: it reads what to do from standard input, and prints its progress."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO

from femops.bench.gpu.gas import GasCase
from femops.bench.gpu.products import Products
from femops.bench.gpu.record import REFUSED, Record
from femops.bench.gpu.run import (
    GpuSettings,
    run_gas,
    run_gpu,
    run_products,
    run_solves,
    run_tuning,
    run_vectors,
)
from femops.bench.gpu.vectors import VectorsCase
from femops.errors import DeviceError
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Amounts


def serve(requests: TextIO, device: Device | None = None) -> int:
    """Do one phase, on a device other than the one that is named, if given; the exit code."""
    request = json.load(requests)
    given: dict[str, Any] = request["settings"]
    given["amounts"] = Amounts(**given["amounts"])
    given["products"] = Products(**given["products"])
    given["gas"] = [GasCase(**case) for case in given["gas"]]
    given["vectors"] = [VectorsCase(**case) for case in given["vectors"]]
    given["device"] = device or given["device"]
    works = {
        "rows": run_gpu,
        "shapes": run_tuning,
        "solves": run_solves,
        "products": run_products,
        "gas": run_gas,
        "vectors": run_vectors,
    }
    measure = works[request["work"]]
    try:
        measure(GpuSettings(**given), _say, Record.of(Path(request["file"])))
    except DeviceError as error:
        _say(str(error))
        return REFUSED
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(serve(sys.stdin))
