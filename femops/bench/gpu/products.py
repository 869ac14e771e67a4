"""Products of small matrices in batches on a GPU, C = A B, beside cuBLAS and what it allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from femops.bench.bounds import longest
from femops.bench.gpu.record import Row
from femops.bench.gpu.run import Run, relative_difference
from femops.bench.tensor.products import ProductCase, layout_of
from femops.bench.timing import batch_times
from femops.tensor import Batch, gemm
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Rates

_CUBLAS = "cublas", "contiguous"  # library and layout of the rows to compare with


def product_rows(case: ProductCase, run: Run) -> None:
    """Measure a case in each layout, and by cuBLAS."""
    if run.rates is not None:
        run.measure("products", case.name, partial(_rows, case, run, run.rates))


def _least(case: ProductCase, rates: Rates) -> tuple[float, str]:
    """Least seconds that a product can take, and the resource that limits it.

    Single precision is taken to be twice as fast as double.
    """
    single = case.dtype in ("float32", "complex64")
    seconds = {
        "memory": case.nbytes * (2 / rates.copied_bytes + 1 / rates.read_bytes),
        "arithmetic": case.flops / (rates.flops * (2 if single else 1)),
    }
    return seconds[longest(seconds)], longest(seconds)


def _rows(case: ProductCase, run: Run, rates: Rates) -> list[Row]:
    """Rows of what can be timed: where cuBLAS fails, femops is measured all the same."""
    least, bound = _least(case, rates)
    calls, timed = _calls(run.device, case), {}
    for way, (call, _) in calls.items():
        what = f"{case.name}, {', '.join(way)}"
        times = run.found.attempt(what, partial(batch_times, run.device, call, run.seconds))
        if times is not None:
            timed[way] = times
    peer = timed[_CUBLAS].median if _CUBLAS in timed else None
    expected: Any = None if peer is None else run.device.download(calls[_CUBLAS][1])
    rows = []
    for way, times in timed.items():
        library, layout = way
        compared = library == "femops" and peer is not None
        off = relative_difference(calls[way][1].numpy(), expected) if compared else None
        row = {"name": f"{case.name}, {library}, {layout}"} | case.facts
        row |= {"threads": 0, "limit_gflops": case.flops / least * 1e-9, "bound": bound}
        row |= {"implementation": library, "layout": layout}
        row |= {"seconds": times.median, "seconds_launch": times.launch}
        row |= {
            "gflops": case.flops / times.median * 1e-9,
            "fraction_of_limit": least / times.median,
            "over_best_peer": peer / times.median if compared and peer else None,
            "off_peer": off,
        }
        rows.append(row)
    return rows


def _calls(
    device: Device, case: ProductCase
) -> dict[tuple[str, str], tuple[Callable[[], object], Any]]:
    """Calls to be timed, and what they set, by library and layout."""
    here = [Batch.wrap(array) for array in case.operands()]
    a, b = (device.upload(one.numpy()) for one in here)
    shape = case.n, case.n
    c = device.xp.empty((case.members, *shape), np.dtype(case.dtype))
    calls: dict[tuple[str, str], tuple[Callable[[], object], Any]]
    calls = {_CUBLAS: (partial(device.xp.matmul, a, b, out=c), c)}
    for name in case.layouts:
        layout = layout_of(name, on_device=True)
        x, y = (one.copy(layout).to(device) for one in here)
        out = Batch(shape, case.members, case.dtype, layout, device)
        calls["femops", name] = partial(gemm, x, y, out), out
    return calls
