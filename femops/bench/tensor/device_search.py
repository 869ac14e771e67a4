"""The search for the fastest launch shape of small products on a GPU, the model's choice first.

The best go to the database of tuned settings, where later runs find them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from femops.bench.gpu.products import LAYOUTS, ProductCase
from femops.bench.problems import Progress
from femops.bench.timing import batch_times
from femops.tensor import Batch
from femops.tensor.lowering import Term, device_launches_of, launches_on_device
from femops.tensor.memory import DeviceName, find_device
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.tensor.kernel import DeviceContractionKernel
from femops_kernels.cuda.tensor.shapes import ProductShape, settings_of
from femops_kernels.errors import KernelValueError
from femops_kernels.tuning import database
from femops_kernels.tuning.search import fastest

_ONE, _NONE = (1.0, 0.0), (0.0, 0.0)  # alpha and beta


def search_on_device(
    name: DeviceName,
    cases: Sequence[ProductCase],
    seconds: float,
    rounds: int = 5,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Try launch shapes of C = A B on a GPU, and keep the best of each case and layout.

    Parameters
    ----------
    name : str
        Of the GPU, "cuda".
    cases : sequence of ProductCase
    seconds : float
        About how long a shape is timed in its turn.
    rounds : int
        Turns of each shape.

    Returns
    -------
    dict
        ``device``, ``rows`` with the median speed of each variant, ``table``, the path of the
        database.

    Raises
    ------
    KernelValueError
        A name that is no GPU's.
    """
    device = find_device(name)
    if device is None:
        raise KernelValueError(f"no launch shapes on {name!r}: give 'cuda'")
    rows: list[dict[str, Any]] = []
    best: dict[database.TuningKey, database.Settings] = {}
    for case in cases:
        for layout in case.layouts:
            kernel, run = _runner(device, case, layout)
            shapes = kernel.variants()
            progress(f"{case.name}, {layout}: {len(shapes)} variants")
            times: dict[ProductShape, list[float]] = {shape: [] for shape in shapes}
            timed = {one: partial(_timed, device, run(one), seconds, times[one]) for one in shapes}
            found = fastest(timed, rounds)
            best[kernel.tuning_key()] = settings_of(found.best)
            rows += _rows(case, layout, times, found.best)
    table = database.record(best)
    device_launches_of.cache_clear()  # kernels made from now on have the shapes found
    return {"device": device.name, "rows": rows, "table": str(table)}


def _rows(
    case: ProductCase, layout: str, times: dict[ProductShape, list[float]], best: ProductShape
) -> list[dict[str, Any]]:
    return [
        {"n": case.n, "layout": layout, "variant": number, **settings_of(shape)}
        | {"gflops": case.flops / float(np.median(taken)) * 1e-9, "chosen": shape == best}
        for number, (shape, taken) in enumerate(times.items(), 1)
    ]


def _runner(
    device: Device, case: ProductCase, layout: str
) -> tuple[DeviceContractionKernel, Callable[[ProductShape], Callable[[], None]]]:
    """The kernel of a case, and a function that makes the call of a launch shape."""
    shape, form = (case.n, case.n), LAYOUTS[layout]
    a, b, c = (Batch(shape, case.members, case.dtype, form, device) for _ in range(3))
    for one in (a, b):
        one.assign(0.5)
    terms = Term(a.view, "ik"), Term(b.view, "kj"), Term(c.view, "ij")
    kernel, launches = launches_on_device(terms, case.members, False, device)

    def call_of(shape: ProductShape) -> Callable[[], None]:
        tried = kernel.reshaped(shape)

        def call() -> None:
            for places, batches in launches:
                tried.run(places, batches, _ONE, _NONE)

        return call

    return kernel, call_of


def _timed(device: Device, call: Callable[[], None], seconds: float, times: list[float]) -> float:
    times.append(batch_times(device, call, seconds).median)
    return times[-1]
