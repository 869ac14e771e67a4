"""Tuning of launch shapes: the fastest go into the user's table."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import product

from femops.bench.gpu.operators import GpuCase, Sizes, set_up
from femops.bench.gpu.run import Row, Run
from femops.bench.timing import batch_times
from femops_kernels.cuda.operator.kernel import CudaKernel, shape_of, staged_shapes
from femops_kernels.cuda.operator.shapes import SPILLED, Shape, record
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.device import Device
from femops_kernels.tuning.database import TuningKey

_THREADS = (64, 128, 192, 256)
_RESIDENT = (256, 384, 512, 640, 768, 1024)
_STAGED = (1152, 1536, 2048)
"""More threads of a multiprocessor, for staged shapes, whose registers hold no qdata on its way.

The compiler gives a loop over portions all registers that it may use. Without a loop, small
elements need only as many as these numbers of threads leave.
"""

_SECONDS = 0.02  # for each shape


def candidates(kernel: CudaKernel, device: Device) -> list[Shape]:
    """Launch shapes that are worth measuring.

    Blocks have 64 to 256 threads. A multiprocessor has few blocks with many registers, or many
    blocks with few. Qdata are staged in shared memory or not. Blocks with staged qdata work on one
    portion of the elements each, or are persistent.
    """
    shapes = [shape_of(kernel, device, *sizes) for sizes in product(_THREADS, _RESIDENT)]
    more = [shape_of(kernel, device, *sizes) for sizes in product(_THREADS, _STAGED)]
    staged = staged_shapes(kernel, device, [*shapes, *more])
    return list(dict.fromkeys([kernel.shape, *shapes, *staged]))


def tune(sizes: Sizes, run: Run) -> None:
    """Time launch shapes for the kernels of an order, and keep the fastest in the user's table.

    Each kernel has a row with its old shape (``elements_before``, ``blocks_before``,
    ``staged_before``, ``persistent_before``), the fastest shape, the times of both, and the number
    of shapes that were ``tried``. New shapes for which the compiler spills more than `SPILLED`
    bytes are not tried.
    """
    kernels: dict[TuningKey, GpuCase] = {}
    for case in set_up(run, sizes):
        kernels.setdefault(case.sweep.kernel.shape_key(run.device.name), case)
    for case in kernels.values():
        run.measure("shapes", case.name, partial(_tuned, run, case))


def _tuned(run: Run, case: GpuCase) -> list[Row]:
    sweep, device, times = case.sweep, run.device, dict[Shape, float]()
    before = sweep.kernel.shape
    for shape in _unspilled(sweep, candidates(sweep.kernel, device)):
        tried = sweep if shape == before else sweep.reshaped(shape)
        vectors = device.address(case.x), device.address(case.y)
        launch = partial(tried.launch, *vectors, 1.0, add=False)
        times[shape] = batch_times(device, launch, min(run.seconds, _SECONDS)).median
    fastest = min(times, key=lambda shape: times[shape])
    record({sweep.kernel.shape_key(device.name): fastest})
    row = case.facts | {f"{name}_before": value for name, value in asdict(before).items()}
    row |= {"seconds_before": times[before]} | asdict(fastest)
    return [row | {"seconds": times[fastest], "tried": len(times)}]


def _unspilled(sweep: DeviceSweep, shapes: Sequence[Shape]) -> list[Shape]:
    """Compile shapes in parallel. Return the shapes that spill little, and always the first."""
    device, kernel = sweep.device, sweep.kernel

    def spilt(shape: Shape) -> int:
        return device.function(replace(kernel, shape=shape).text).local_bytes

    with ThreadPoolExecutor() as pool:
        pairs = zip(shapes, pool.map(spilt, shapes), strict=True)
        return [shape for shape, local in pairs if local <= SPILLED or shape == shapes[0]]
