"""Factors, solves and eigenvalues of small matrices: each slot of a lane vector is a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import aligned_array
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.tensor.numbers import ComplexLane

# Bytes of matrices from which on several threads work on them.
_SHARED = 2**17

METHODS: dict[str, tuple[str, ...]] = {
    "cholesky": ("cholesky",),
    "lu": ("lu",),
    "triangle": ("triangular", "triangle"),
    "cholesky solve": ("triangular", "cholesky", "cholesky_solve"),
    "lu solve": ("triangular", "lu", "lu_solve"),
    "eigenvalues": ("eigen",),
}
"""Skeletons of each method."""

# Whether each operand is read, and written.
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
    """Matrices of a batch: where the entries of one are, and the batch's members.

    Attributes
    ----------
    rows, columns : int
    row_bytes, column_bytes : int
        From a row, and from a column, to the next.
    """

    rows: int
    columns: int
    row_bytes: int
    column_bytes: int

    def whole(self, size: int) -> bool:
        """True if a member's entries, of so many bytes, are a run by rows."""
        rows = self.rows == 1 or self.row_bytes == self.columns * size
        return rows and (self.columns == 1 or self.column_bytes == size)


@final
@dataclass(frozen=True)
class Members:
    """Place of the members of a batch: an address, and bytes from one to the next."""

    address: int
    stride: int


@final
@dataclass(frozen=True)
class LinearKernel:
    """Compiled kernel of a method for matrices of one size.

    Attributes
    ----------
    method : str
        One of `METHODS`.
    dtype : str
        float64, float32, complex128 or complex64.
    first, second : Matrices
        Matrices and right sides, or what else the method takes: see its skeleton.
    triangle : four of bool
        Of the method of that name: lower, transposed, unit diagonal, conjugated.
    """

    method: str
    dtype: str
    first: Matrices
    second: Matrices
    triangle: tuple[bool, bool, bool, bool] = (True, False, False, False)

    def run(
        self,
        sources: tuple[Members, Members],
        targets: tuple[Members, Members],
        members: int,
    ) -> NDArray[np.float64]:
        """Work on all members; 0 for those that succeeded, else where they failed, from 1.

        Parameters
        ----------
        sources, targets : pairs of Members
            Both operands where they are read, and where they are written, by rows without gaps.
        members : int
        """
        module, width, work_bytes = _compiled(self)
        groups = -(-members // width)
        moved = members * self.first.rows**2 * np.dtype(self.dtype).itemsize
        threads = machine.get_threads() if moved > _SHARED else 1
        status = aligned_array((groups * width,), np.finfo(self.dtype).dtype)
        work = aligned_array((threads, work_bytes), np.uint8)
        operands = [
            tuple((one.address, one.stride * width, one.stride) for one in pair)
            for pair in (sources, targets)
        ]
        with LAUNCH:
            team = machine.team_of(threads)
            module.run_groups(team, *operands, status.ctypes.data, members, work.ctypes.data)
        return status[:members].astype(np.float64)


@lru_cache(maxsize=512)
def _compiled(kernel: LinearKernel) -> tuple[ModuleType, int, int]:
    """Module, lanes and bytes of memory for each thread."""
    real = np.finfo(kernel.dtype).dtype
    width, pair = machine.lane_width(real), (kernel.first, kernel.second)
    lane = Lane(width, real)
    number = lane if real == kernel.dtype else ComplexLane(lane)
    read, written = _USES[kernel.method]
    lanes = sum(one.rows * one.columns for one in pair)
    work_bytes = -(-(lanes * number.nbytes + 8 * width + lane.nbytes) // 128) * 128
    constants = {
        "LANE": lane,
        "BYTES": number.nbytes,
        "WIDTH": width,
        "N": kernel.first.rows,
        "RIGHT": kernel.second.columns,
        "ROWS": tuple(one.rows for one in pair),
        "COLUMNS": tuple(one.columns for one in pair),
        "ENTRY_ROWS": tuple(one.row_bytes for one in pair),
        "ENTRY_COLUMNS": tuple(one.column_bytes for one in pair),
        "READ": read,
        "WRITTEN": written,
        "WORK_BYTES": work_bytes,
    }
    size, parts = np.dtype(kernel.dtype).itemsize, number.nbytes // lane.nbytes
    reals = [parts * one.rows * one.columns for one in pair]
    runs = [many if one.whole(size) else 0 for many, one in zip(reals, pair, strict=True)]
    constants |= dict(zip(("FIRST_RUN", "SECOND_RUN"), runs, strict=True))
    constants |= dict(zip(("FIRST_REALS", "SECOND_REALS"), reals, strict=True))
    if kernel.method == "triangle":
        constants |= {"TRIANGLE": kernel.triangle}
    if kernel.method == "eigenvalues":
        double = real == np.float64
        constants |= {"TINY": 1e-31 if double else 1e-13, "LEAST": 1e-17 if double else 1e-8}
        constants |= {"SWEEPS": 30}
    skeletons = ("lanes_of_members", *METHODS[kernel.method], "members_table")
    text = (
        "from femops_kernels.simd.tensor.members import *\n"
        "from femops_kernels.simd.tensor.numbers import *\n\n"
        f"NUMBER = {number!r}\n"
    )
    return specialize(skeletons, constants, text), width, work_bytes
