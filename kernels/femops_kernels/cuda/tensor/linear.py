"""Factors, solves and eigenvalues of small matrices on a device. Each thread has a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from femops_kernels.cuda.device.arguments import Layout, Place
from femops_kernels.cuda.device.sources import TYPES, constants_text, source_of
from femops_kernels.cuda.tensor.contraction import Image, image_of
from femops_kernels.device import Device, Function

MOST_ROWS = 32
"""Most rows of a matrix. A larger matrix does not fit a thread's local memory."""

_REGISTERS = 192  # registers for a thread's matrices; larger matrices are in local memory
_THREADS = (128, 64, 32)
_SHARED = 48 * 1024  # bytes of shared memory that a block has without a request
_SWEEPS = 30

_WORK_HEAD = """__device__ __forceinline__ void work(Matrix<First>& a, Matrix<Second>& x,
                                     int& status) {"""

_WORK: dict[str, tuple[tuple[str, ...], str]] = {
    "cholesky": (("cholesky",), "factor_positive(a, status);"),
    "lu": (
        ("lu",),
        """UNROLL
    for (int i = 0; i < N; ++i) x[i] = entry(i);
    factor_any<false, 1>(a, x, status);""",
    ),
    "triangle": (
        ("triangular",),
        """check_rows<LOWER, UNIT>(a, status);
    substitute<LOWER, TRANSPOSED, UNIT, CONJUGATED>(a, x, status);""",
    ),
    "cholesky solve": (
        ("cholesky", "triangular"),
        """factor_positive(a, status);
    substitute<true, false, false, false>(a, x, status);
    substitute<true, true, false, true>(a, x, status);""",
    ),
    "lu solve": (
        ("lu", "triangular"),
        """factor_any<true, Second::COLUMNS>(a, x, status);
    substitute<false, false, false, false>(a, x, status);""",
    ),
    "eigenvalues": (("eigen",), "find_eigenvalues(a, x, status);"),
}
"""For each method the names of its sources, and the C++ statements that work on its operands."""


@final
@dataclass(frozen=True)
class DeviceMatrices:
    """Size and strides, counted in numbers, of the matrices of a batch."""

    rows: int
    columns: int
    # row and column: stride from a row, and from a column, to the next
    row: int
    column: int
    lanes: int = 1  # number of members that are interleaved, entry by entry

    def image(self, *, written: bool) -> Image | None:
        """Image of a member, see `image_of`; None, too, if members are interleaved."""
        rows = tuple(self.row * i for i in range(self.rows))
        columns = tuple(self.column * j for j in range(self.columns))
        return image_of(rows, columns, written=written) if self.lanes == 1 else None


@final
@dataclass(frozen=True)
class Matrices:
    """Layouts of the operands of a method; None for an operand that the method does not have."""

    # first, second, first_out and second_out: the two operands as they are read, and as they are
    # written
    first: DeviceMatrices
    second: DeviceMatrices | None
    first_out: DeviceMatrices | None
    second_out: DeviceMatrices | None

    def items(self) -> list[tuple[str, DeviceMatrices | None]]:
        """Pairs of name and layout of the four operands."""
        return [
            ("first", self.first),
            ("second", self.second),
            ("first_out", self.first_out),
            ("second_out", self.second_out),
        ]


@final
class DeviceLinearKernel:
    """Compiled kernel of a method for matrices of one size."""

    def __init__(
        self,
        method: str,
        dtype: str,
        matrices: Matrices,
        triangle: tuple[bool, bool, bool, bool],
        device: Device,
    ) -> None:
        self._method, self._matrices, self._device = method, matrices, device
        self._dtype, self._triangle = np.dtype(dtype), triangle
        fields = {name: "T*" if "out" in name else "const T*" for name, _ in matrices.items()}
        steps = {f"step_{name}": "long long" for name, _ in matrices.items()}
        counts = {"status": "int*", "count": "long long"}
        self._real = np.finfo(self._dtype).dtype
        self._layout = Layout(fields | steps | counts, self._real)
        self._images = {
            name: None if one is None else one.image(written="out" in name)
            for name, one in matrices.items()
        }
        self.threads, self.shared_bytes = self._shape()
        self._function: Function = device.function(self._text())

    def _shape(self) -> tuple[int, int]:
        """Threads and shared bytes of a block. Operands are not staged if they do not fit."""
        pitches = [image.pitch for image in self._images.values() if image is not None]
        each = max(pitches, default=0) * self._dtype.itemsize
        most = min(_SHARED, self._device.shared_bytes)
        for threads in _THREADS:
            if threads * each <= most:
                return threads, threads * each
        self._images = dict.fromkeys(self._images)
        return _THREADS[0], 0

    def _text(self) -> str:
        n, matrices = self._matrices.first.rows, self._matrices
        numbers = n * n * (2 if self._method == "eigenvalues" else 1)
        fits = numbers * self._dtype.itemsize // 4 <= _REGISTERS
        names = "LOWER", "TRANSPOSED", "UNIT", "CONJUGATED"
        # "unroll" without a number: the compiler unrolls inner loops after the loops around them
        unroll = f'#define UNROLL _Pragma("unroll{"" if fits else " 1"}")'
        constants = {"N": n, "THREADS": self.threads}
        constants |= {"SWEEPS": _SWEEPS, "COMPLEX": self._dtype.kind == "c"}
        constants |= dict(zip(names, self._triangle, strict=True))
        constants |= {"READS_SECOND": matrices.second is not None}
        constants |= {"WRITES_FIRST": matrices.first_out is not None}
        constants |= {"WRITES_SECOND": matrices.second_out is not None}
        sources, work = _WORK[self._method]
        other = matrices.second or matrices.second_out or DeviceMatrices(1, 1, 1, 1)
        shapes = {"First": matrices.first, "Second": matrices.second or other}
        shapes |= {"FirstOut": matrices.first_out or matrices.first}
        shapes |= {"SecondOut": matrices.second_out or other}
        images = zip(shapes.items(), self._images.values(), strict=True)
        types = [_type_text(name, one, image) for (name, one), image in images]
        parts = [f"using T = {TYPES[self._real.name]};", constants_text(constants), unroll, *types]
        parts += [self._layout.text, *map(source_of, ("entries", "matrices", *sources))]
        return "\n".join([*parts, _WORK_HEAD, f"    {work}\n}}\n", source_of("run")])

    def run(self, places: dict[str, Place], steps: dict[str, int], members: int) -> Any:
        """Launch the method for all members.

        Shapes: returned (members,).
        """
        status = self._device.xp.zeros(members, np.int32)
        names = [name for name, _ in self._matrices.items()]
        values: dict[str, Any] = {name: places.get(name) for name in names}
        values |= {f"step_{name}": steps.get(name, 0) for name in names}
        packed = self._layout.pack(self._device, **values, status=status, count=members)
        blocks = -(-members // self.threads)
        self._function.launch(blocks, self.threads, self.shared_bytes, packed)
        return status


def _type_text(name: str, one: DeviceMatrices, image: Image | None) -> str:
    """C++ type of an operand: its sizes, strides and image."""
    fields = {"ROWS": one.rows, "COLUMNS": one.columns, "LANES": one.lanes}
    fields |= {"STAGED": int(image is not None)}
    image = image or Image(0, 1)
    fields |= {"LOW": image.low, "SPAN": image.span, "PITCH": image.pitch}
    numbers = ", ".join(f"{key} = {value}" for key, value in fields.items())
    strides = f"ROW = {one.row}, COLUMN = {one.column}"
    return (
        f"struct {name} {{ static constexpr int {numbers}; "
        f"static constexpr long long {strides}; }};"
    )


@lru_cache(maxsize=512)
def linear_kernel(
    method: str,
    dtype: str,
    matrices: Matrices,
    triangle: tuple[bool, bool, bool, bool],
    device: Device,
) -> DeviceLinearKernel:
    """Make a `DeviceLinearKernel`, or return the same kernel of an earlier call."""
    return DeviceLinearKernel(method, dtype, matrices, triangle, device)
