"""Factors, solves and eigenvalues of small matrices. Each slot of a lane vector is a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.tensor.numbers import ComplexLane

Array = NDArray[Any]
Shape = tuple[int, ...]

# Least bytes of matrices for several threads. Least bytes of operands and results for results that
# are written past the caches, which could not hold them.
_SHARED, _STREAMED = 2**17, 2**24

# Least bytes of a result that begins on a cache line, so that few stores cross lines.
_ALIGNED = 2**20

# Most rows of a Cholesky factorisation that is compiled without loops. More rows would take too
# long to compile.
_UNROLLED = 16

# Bytes after which addresses have the same sets of a processor's first cache.
_WAY = 4096

METHODS: dict[str, tuple[str, ...]] = {
    "cholesky": ("tiles", "cholesky"),
    "lu": ("tiles", "lu"),
    "triangle": ("tiles", "triangular", "triangle"),
    "cholesky solve": ("tiles", "cholesky", "triangular", "cholesky_solve"),
    "lu solve": ("tiles", "triangular", "lu", "lu_solve"),
    "lu solve many": ("tiles", "triangular", "lu", "lu_solve_many"),
    "eigenvalues": ("eigen",),
}
"""Skeletons of each method."""

# For each method: flags of the operands that it reads, and of the operands that it writes.
_USES = {
    "cholesky": ((True, False), (True, False)),
    "lu": ((True, False), (True, True)),
    "triangle": ((True, True), (False, True)),
    "cholesky solve": ((True, True), (False, True)),
    "lu solve": ((True, True), (False, True)),
    "eigenvalues": ((True, False), (False, True)),
}


@final
@dataclass(frozen=True)
class Matrices:
    """Size and strides of the matrices of a batch."""

    rows: int
    columns: int
    # row_bytes and column_bytes: bytes from a row, and from a column, to the next
    row_bytes: int
    column_bytes: int

    @staticmethod
    def by_rows(shape: Shape, size: int) -> Matrices:
        """C-contiguous matrices of numbers of ``size`` bytes. Vectors count as one column."""
        columns = prod(shape[1:])
        return Matrices(shape[0], columns, columns * size, size)

    def whole(self, size: int) -> bool:
        """True if a matrix of numbers of ``size`` bytes is C-contiguous."""
        rows = self.rows == 1 or self.row_bytes == self.columns * size
        return rows and (self.columns == 1 or self.column_bytes == size)


@final
@dataclass(frozen=True)
class LinearKernel:
    """Description of a method for matrices of one size, from which the method is compiled."""

    method: str  # one of `METHODS`
    dtype: str  # float64, float32, complex128 or complex64
    # first and second: matrices and right-hand sides, or the operands that the method's skeleton
    # names
    first: Matrices
    second: Matrices
    # for the method "triangle": lower, transposed, unit diagonal, conjugated
    triangle: tuple[bool, bool, bool, bool] = (True, False, False, False)
    # True if results are written past the caches.  Their memory begins on a cache line.
    streams: bool = False


@final
class LinearCall:
    """A method of linear algebra for arrays of fixed shapes and strides.

    Shapes: `sources` (members, rows, columns), `shapes` (members, rows, columns).
    """

    def __init__(
        self,
        method: str,
        sources: tuple[Array, Array | None],
        shapes: tuple[Shape | None, Shape | None],
        triangle: tuple[bool, bool, bool, bool] = (True, False, False, False),
    ) -> None:
        first, second = sources
        self._members, self._shapes, self._dtype = first.shape[0], shapes, first.dtype
        size = first.itemsize
        results = [None if one is None else Matrices.by_rows(one[1:], size) for one in shapes]
        a = Matrices(*first.shape[1:], *first.strides[1:])
        x = Matrices.by_rows((1,), size) if results[1] is None else results[1]
        if second is not None:
            x = Matrices(*second.shape[1:], *second.strides[1:])
        steps = [0 if one is None else one.strides[0] for one in sources]
        written = [0 if one is None else one.rows * one.row_bytes for one in results]
        self._steps = *steps, *written
        moved = sum(one.nbytes for one in sources if one is not None) + sum(written) * self._members
        self._streams = moved > _STREAMED and not any(step % ALIGNMENT for step in written)
        kernel = LinearKernel(method, first.dtype.name, a, x, triangle, self._streams)
        self._module, width, self._work_bytes = _compiled(kernel)
        self._slots, self._real = -(-self._members // width) * width, first.real.dtype
        self._shared = self._members * a.rows**2 * size > _SHARED

    def run(
        self, first: Array, second: Array | None
    ) -> tuple[list[Array | None], NDArray[np.float64] | None]:
        """Do the method for arrays with the shapes and strides of ``sources``.

        Shapes: `failed` (members,).
        """
        threads = machine.get_threads() if self._shared else 1
        targets = [None if shape is None else self._new(shape) for shape in self._shapes]
        status_bytes = self._slots * self._real.itemsize
        memory = np.empty(threads * self._work_bytes + status_bytes + ALIGNMENT, np.uint8)
        at = [0 if one is None else _address(one) for one in (first, second, *targets)]
        begin = _address(memory)
        start = -begin % ALIGNMENT
        rest = begin + start, self._members, begin + start + status_bytes
        with LAUNCH:
            team = machine.team_of(threads)
            failed = self._module.run_groups(team, *at, *self._steps, *rest)
        if not failed:
            return targets, None
        status = memory[start : start + status_bytes].view(self._real)
        return targets, status[: self._members].astype(np.float64)

    def _new(self, shape: Shape) -> Array:
        count, size = prod(shape), self._dtype.itemsize
        if count * size < _ALIGNED and not self._streams:
            return np.empty(shape, self._dtype)
        memory = np.empty(count + ALIGNMENT // size, self._dtype)
        start = -_address(memory) % ALIGNMENT // size
        return memory[start : start + count].reshape(shape)


def _address(array: Array) -> int:
    # ctypes.data takes several times as long
    address: int = array.__array_interface__["data"][0]
    return address


@lru_cache(maxsize=512)
def _compiled(kernel: LinearKernel) -> tuple[CompiledKernel, int, int]:
    """Compiled module, slots of a lane vector, and bytes of work space for each thread."""
    real = np.finfo(kernel.dtype).dtype
    width, pair = machine.lane_width(real), (kernel.first, kernel.second)
    lane = Lane(width, real)
    number = lane if real == kernel.dtype else ComplexLane(lane)
    steps = [one.columns for one in pair]
    if kernel.method != "eigenvalues":
        steps = [_step(one, number.nbytes, width) for one in pair]
    lanes = sum(one.rows * step for one, step in zip(pair, steps, strict=True))
    lanes += 3 * kernel.first.rows  # inverse pivots and two permutations
    work_bytes = -(-(lanes * number.nbytes + 24 * width + lane.nbytes) // 128) * 128
    constants: dict[str, object] = {
        "LANE": lane,
        "BYTES": number.nbytes,
        "WIDTH": width,
        "WORK_BYTES": work_bytes,
        "LANE_BYTES": lane.nbytes,
        "TILE": 4 if number is lane else 2,
        "STEP": steps[0],
        "RIGHT_STEP": steps[1],
    }
    constants |= _operands(kernel) | _runs(kernel, number.nbytes // lane.nbytes, steps)
    if kernel.method == "triangle":
        constants |= {"TRIANGLE": kernel.triangle}
    if kernel.method == "eigenvalues":
        double = real == np.float64
        constants |= {"TINY": 1e-31 if double else 1e-13, "LEAST": 1e-17 if double else 1e-8}
        constants |= {"SWEEPS": 30}
    text = (
        "from femops_kernels.simd.tensor.factors import *\n"
        "from femops_kernels.simd.tensor.members import *\n"
        "from femops_kernels.simd.tensor.numbers import *\n\n"
        f"NUMBER = {number!r}\n"
    )
    return specialize(_skeletons(kernel, steps[0]), constants, text), width, work_bytes


def _operands(kernel: LinearKernel) -> dict[str, object]:
    """Constants: sizes and strides of both operands, and their use by the method."""
    pair = kernel.first, kernel.second
    read, written = _USES[kernel.method]
    return {
        "N": kernel.first.rows,
        "RIGHT": kernel.second.columns,
        "ROWS": tuple(one.rows for one in pair),
        "COLUMNS": tuple(one.columns for one in pair),
        "ENTRY_ROWS": tuple(one.row_bytes for one in pair),
        "ENTRY_COLUMNS": tuple(one.column_bytes for one in pair),
        "READ": read,
        "WRITTEN": written,
        "STREAMS": kernel.streams,
        "LATER": _reads_later(kernel),
        "LOWER": kernel.first.rows if kernel.method.startswith("cholesky") else 0,
    }


def _skeletons(kernel: LinearKernel, step: int) -> tuple[str, ...]:
    """Names of the kernel's skeletons, in the order in which they are compiled.

    ``step`` is the distance of the matrices' rows in lanes, in numbers.
    """
    methods = METHODS["lu solve many" if _reads_later(kernel) else kernel.method]
    if kernel.method == "cholesky" and kernel.first.rows == step <= _UNROLLED:
        methods = ("cholesky_unrolled",)
    return "lanes_of_members", *methods, "members_table"


def _step(one: Matrices, nbytes: int, width: int) -> int:
    """Numbers from a row to the next in lanes, where a number has ``nbytes``.

    One number is left out behind each row if many rows would begin in the same sets of the first
    cache, and if pieces of runs end with rows.
    """
    crowded = one.rows * gcd(one.columns * nbytes, _WAY) > 4 * _WAY
    return one.columns + int(crowded and one.columns % width == 0)


def _reads_later(kernel: LinearKernel) -> bool:
    """True if right-hand sides are read when the matrix is factored, in the order of its pivots."""
    return kernel.method == "lu solve" and 2 * kernel.second.columns >= kernel.first.rows > 8


def _runs(kernel: LinearKernel, parts: int, steps: list[int]) -> dict[str, object]:
    """Constants of a kernel that count the real numbers of its operands.

    A number has ``parts`` real numbers. ``REALS`` counts those of a member. ``RUN`` is the same
    count, or 0 if a member has gaps. ``ROW`` counts those of a row, and those from the beginning of
    a row to the next one in lanes.
    """
    constants: dict[str, object] = {}
    size = np.dtype(kernel.dtype).itemsize
    operands = (kernel.first, kernel.second)
    for name, one, step in zip(("FIRST", "SECOND"), operands, steps, strict=True):
        reals = parts * one.rows * one.columns
        constants |= {f"{name}_REALS": reals, f"{name}_RUN": reals if one.whole(size) else 0}
        constants[f"{name}_ROW"] = (parts * one.columns, parts * step)
    return constants
