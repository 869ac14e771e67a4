"""Compiled kernels of contractions on a device; see ``product.cuh``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from femops_kernels.cuda.device.arguments import Layout, Place
from femops_kernels.cuda.device.sources import TYPES, constants_text, source_of
from femops_kernels.cuda.tensor.contraction import DeviceContraction, Image
from femops_kernels.cuda.tensor.shapes import ProductShape, choose, variants
from femops_kernels.device import Device, Function
from femops_kernels.tuning.database import TuningKey

Factor = tuple[float, float]
"""Real and imaginary part."""


@final
@dataclass(frozen=True)
class Batches:
    """Number of members of operands a, b and c, and their strides, counted in numbers."""

    members: int
    # stride from a group of members to the next; 0 for a tensor that all members share
    steps: tuple[int, int, int]
    products: int = 1  # number of products of a member
    distances: tuple[int, int, int] = (0, 0, 0)  # stride from a product to the next


@final
class DeviceContractionKernel:
    """Compiled kernel of a contraction on a device."""

    def __init__(
        self, contraction: DeviceContraction, device: Device, shape: ProductShape | None = None
    ) -> None:
        self._contraction, self._device, self._given = contraction, device, shape
        real = np.finfo(contraction.dtype).dtype
        pointer = "const long long*" if contraction.apart else "const T*"
        fields = {"a": pointer, "b": pointer, "c": pointer if contraction.apart else "T*"}
        for name in "abc":
            fields |= {f"step_{name}": "long long", f"next_{name}": "long long"}
        fields |= {"count": "long long", "products": "long long"}
        fields |= dict.fromkeys(("alpha", "alpha_imag", "beta", "beta_imag"), "T")
        self._layout, self._real = Layout(fields, real), real

    @cached_property
    def shape(self) -> ProductShape:
        """Launch shape."""
        if self._given is not None:
            return self._given
        return choose(self._contraction, self._device.shared_bytes, self.tuning_key())

    def tuning_key(self) -> TuningKey:
        """Key of the kernel's launch shape in the tuning database."""
        return TuningKey(self._device.name, self._contraction.words())

    def reshaped(self, shape: ProductShape) -> DeviceContractionKernel:
        """Kernel of the same contraction with another launch shape."""
        return DeviceContractionKernel(self._contraction, self._device, shape)

    def variants(self) -> list[ProductShape]:
        """Launch shapes that tuning tries, the model's choice first."""
        return variants(self._contraction, self._device.shared_bytes)

    @cached_property
    def function(self) -> Function:
        """The compiled kernel. The first use compiles it."""
        return self._device.function(self.text())

    def text(self) -> str:
        """Source of the kernel in CUDA C++, without ``device.cuh``."""
        one, shape = self._contraction, self.shape
        rows, columns = shape.blocks(one)
        numbers = dict(zip(("ROWS", "COLUMNS", "TERMS"), one.sizes, strict=True))
        numbers |= {"TILE_ROWS": shape.rows, "TILE_COLUMNS": shape.columns}
        numbers |= {"ROW_BLOCKS": rows, "COLUMN_BLOCKS": columns, "PARTS": one.parts}
        numbers |= {"MEMBERS": shape.members, "THREADS": shape.threads}
        numbers |= {"CHUNKS": shape.chunks(one)}
        numbers |= {"READS": one.reads, "INNER": one.products > 1, "APART": one.apart}
        first = 0
        for name, lanes in zip("abc", one.lanes, strict=True):
            staged = name in shape.staged
            image = one.images[name] if staged else Image(0, 1)
            big = name.upper()
            numbers |= {f"LANES_{big}": lanes, f"STAGED_{big}": staged, f"IMAGE_{big}": first}
            numbers |= {f"LOW_{big}": image.low, f"SPAN_{big}": image.span}
            numbers |= {f"PITCH_{big}": image.pitch}
            first += shape.members * image.pitch if staged else 0
        parts = [f"using T = {TYPES[self._real.name]};", constants_text(numbers)]
        way = "staged" if shape.staged else "interleaved"
        return "\n".join(
            [*parts, self._layout.text, one.offsets_text(), source_of("product"), source_of(way)]
        )

    def run(
        self, operands: tuple[Any, Any, Any], batches: Batches, alpha: Factor, beta: Factor
    ) -> None:
        """Launch c = alpha a b + beta c for all members.

        Shapes: `operands` (a, b, c).
        """
        values: dict[str, Any] = dict(zip("abc", operands, strict=True))
        for name, step, distance in zip("abc", batches.steps, batches.distances, strict=True):
            values |= {f"step_{name}": step, f"next_{name}": distance}
        values |= {"alpha": alpha[0], "alpha_imag": alpha[1]}
        values |= {"beta": beta[0], "beta_imag": beta[1]}
        count = batches.members * batches.products
        packed = self._layout.pack(self._device, **values, count=count, products=batches.products)
        shape = self.shape
        blocks = -(-count // shape.members) * shape.chunks(self._contraction)
        self.function.launch(blocks, shape.threads, shape.shared_bytes, packed)


__all__ = ["Batches", "DeviceContractionKernel", "Place"]
