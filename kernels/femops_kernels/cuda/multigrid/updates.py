"""Updates of vectors in a multigrid cycle on a device. Each is one launch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.compiled import (
    CoarsestVectors,
    Directions,
    DType,
    Factors,
    Ints,
    Totals,
    VectorUpdates,
)
from femops_kernels.cuda.cg.cg import PIECE_BYTES, RESIDENT, blocks_of, memory_of_sums
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, TYPES, simple_text
from femops_kernels.device import Device, Function

_ROW = 32  # vectors are padded to a multiple of 32 numbers, which are full cache lines
_VECTORS = ("old", "product", "right", "scales", "current")
_PARTS = {"INNER": 0, "INNERS": 1, "MOVE": 2, "TURN": 3}


@final
class DeviceUpdates(VectorUpdates):
    """Vectors of a device and their updates in multigrid; see `VectorUpdates`.

    Each vector is a view of a longer one that is padded with zeros.
    """

    def __init__(self, device: Device) -> None:
        self._device, self.repeats = device, True
        self._steps: dict[str, tuple[Function, Layout]] = {}

    @property
    def xp(self) -> ModuleType:  # type: ignore[override]  # of the thread that asks
        return self._device.xp

    def put(self, values: NDArray[Any]) -> Any:
        return self._device.upload(values)

    def vector(self, size: int, dtype: DType) -> Any:
        return self._device.xp.zeros(max(-(-size // _ROW), 1) * _ROW, dtype)[:size]

    def coarsest(self, size: int, dtype: DType) -> DeviceCoarsestVectors:
        return DeviceCoarsestVectors(self._device, size, dtype)

    def step(
        self, old: Any, product: Any, right: Any, scales: Any, current: Any, factors: Factors
    ) -> None:
        function, layout = self._compiled(old.dtype)
        vectors = zip(_VECTORS, (old, product, right, scales, current), strict=True)
        numbers = zip("afbc", factors, strict=True)
        packed = layout.pack(self._device, count=old.size, **dict(vectors), **dict(numbers))
        pieces = -(-old.size * old.dtype.itemsize // PIECE_BYTES)
        function.launch(-(-pieces // SIMPLE_THREADS), SIMPLE_THREADS, 0, packed)

    def _compiled(self, dtype: DType) -> tuple[Function, Layout]:
        if dtype.name not in self._steps:
            layout = _step_layout(dtype)
            self._steps[dtype.name] = self._device.function(_step_text(layout, dtype)), layout
        return self._steps[dtype.name]

    def directions(self, edges: Ints, total: Totals, real: DType, other: DType) -> DeviceDirections:
        """See `VectorUpdates.directions`. A device sums each vector as one segment."""
        return DeviceDirections(self._device, int(edges[-1]), total, real, other)

    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        return self._device.repeatable(work)

    def wait(self) -> None:
        self._device.synchronize()


@final
class DeviceCoarsestVectors(CoarsestVectors):
    """Vectors of the coarsest level with copies in pinned host memory; see `CoarsestVectors`."""

    def __init__(self, device: Device, size: int, dtype: DType) -> None:
        self._out, self._into = (device.staging_buffer(size, dtype, direct=False) for _ in range(2))
        self.right, self.found = self._out.there, self._into.there

    def fetch(self) -> NDArray[np.float64]:
        self._out.depart()
        self._out.wait()
        right: NDArray[np.float64] = self._out.here.astype(np.float64)
        return right

    def give(self, solution: NDArray[np.float64]) -> None:
        self._into.here[:] = solution
        self._into.enter()


@final
class DeviceDirections(Directions):
    """Inner products and updates on a device; see `Directions` and ``directions.cuh``."""

    def __init__(
        self, device: Device, count: int, total: Totals, real: DType, other: DType
    ) -> None:
        self._device, self._total = device, total
        self._blocks = blocks_of(device, count, real)
        self._pieces = count * real.itemsize // PIECE_BYTES
        self._layout = _directions_layout(real, other)
        self._sums = device.xp.zeros(2, np.float64)
        self._kept = memory_of_sums(device, self._blocks, SIMPLE_THREADS, 2)
        none = dict.fromkeys(("x", "r", "p", "product", "z"))
        given = {**none, **self._kept, "sums": self._sums, "factor": 0.0, "scale": 0.0}
        self._packed = self._layout.pack(device, **given, count=count, pieces=0)
        self._real, self._functions = real, dict[str, Function]()

    def inner(self, a: Any, b: Any) -> float:
        self._launch("INNER", r=a, z=b)
        return self._summed(1)[0]

    def inners(self, a: Any, c: Any, b: Any) -> tuple[float, float]:
        self._launch("INNERS", product=a, r=c, z=b)
        first, second = self._summed(2)
        return first, second

    def move(self, vectors: tuple[Any, ...], alpha: float, scale: float) -> float:
        x, r, p, product, right = vectors
        self._launch("MOVE", x=x, r=r, p=p, product=product, z=right, factor=alpha, scale=scale)
        return self._summed(1)[0]

    def turn(self, p: Any, z: Any, beta: float, scale: float) -> None:
        self._launch("TURN", p=p, z=z, factor=beta, scale=scale)

    def _launch(self, part: str, **given: Any) -> None:
        if part not in self._functions:
            text = _directions_text(part, self._layout, self._real)
            self._functions[part] = self._device.function(text)
        packed = copied(self._packed)
        self._layout.set(packed, self._device, **given)
        vectors = (packed[name] for name in ("x", "r", "p", "product", "z"))
        if not any(int(address) % PIECE_BYTES for address in vectors):
            packed["pieces"] = self._pieces
        shared = 0 if part == "TURN" else 2 * SIMPLE_THREADS * 8
        self._functions[part].launch(self._blocks, SIMPLE_THREADS, shared, packed)

    def _summed(self, count: int) -> list[float]:
        totals = self._total(self._device.download(self._sums)[:count, np.newaxis])
        return [float(number) for number in totals]


def compile_updates_later(device: Device, outer: DType, dtype: DType) -> None:
    """Start to compile the updates of solvers with ``outer`` vectors and of ``dtype`` cycles."""
    layout = _directions_layout(outer, dtype)
    texts = [_directions_text(part, layout, outer) for part in _PARTS if part != "INNER"]
    alike = ((_directions_layout(kind, kind), kind) for kind in (dtype, outer))
    texts += [_directions_text("INNER", *each) for each in alike]
    texts.append(_step_text(_step_layout(dtype), dtype))
    for text in texts:
        device.compile_later(text)


def _step_layout(dtype: DType) -> Layout:
    vectors = dict.fromkeys(_VECTORS, "const T*") | {"old": "T*"}
    return Layout(vectors | dict.fromkeys("afbc", "T") | {"count": "long long"}, dtype)


def _step_text(layout: Layout, dtype: DType) -> str:
    return simple_text(layout, dtype, "relaxation")


def _directions_layout(real: DType, other: DType) -> Layout:
    fields = {"x": "T*", "r": "T*", "p": "T*", "product": "const T*"}
    fields |= {"z": f"{TYPES[other.name]}*", "sums": "double*", "partial": "double*"}
    numbers = {"counters": "unsigned*", "factor": "T", "scale": "T", "count": "long long"}
    numbers["pieces"] = "long long"  # number of 16-byte pieces; single entries follow
    return Layout(fields | numbers, real)


def _directions_text(part: str, layout: Layout, real: DType) -> str:
    constants = {**_PARTS, "PART": _PARTS[part], "BLOCKS": RESIDENT}
    return simple_text(layout, real, "reduce", "directions", **constants)
