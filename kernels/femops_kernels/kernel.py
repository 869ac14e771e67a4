"""A compiled operator kernel: sizes, 1-D matrices and pointwise program made into machine code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.errors import KernelValueError
from femops_kernels.lanes import Lane
from femops_kernels.matrix import Matrix1D
from femops_kernels.specialize import specialize


@final
@dataclass(frozen=True)
class PointStep:
    """The pointwise step of a kernel, as text.

    Attributes
    ----------
    text : str
        Definition of ``pointwise(u, ux, uy, uz, q)`` in lane Python, decorated with ``@inner``.
        Each argument is a tuple of lane vectors: the field and its reference derivatives by
        component, and the numbers stored at the point.  It returns ``(v, vx, vy, vz)``, the
        factors of the test function and of its reference derivatives; what a kernel does not use
        is returned as it came.
    nqdata : int
        Numbers stored at a point.
    value_in, gradient_in : bool
        Whether the field itself, and whether its derivatives are read.
    value_out, gradient_out : bool
        Whether ``v``, and whether ``vx, vy, vz`` are used.
    """

    text: str
    nqdata: int
    value_in: bool
    gradient_in: bool
    value_out: bool
    gradient_out: bool


@final
@dataclass(frozen=True, eq=False)
class Side:
    """What a kernel reads, or what it writes: components and interpolation.

    Attributes
    ----------
    ncomp : int
    b1d : (q1d, p1d) float64
        Interpolation to the quadrature points.
    index_bytes : int
        2 or 4, the width of the plan's indices.
    """

    ncomp: int
    b1d: NDArray[np.float64]
    index_bytes: int

    @property
    def p1d(self) -> int:
        """Nodes per direction."""
        return int(self.b1d.shape[1])


class SweepKernel(ABC):
    """What `femops_kernels.sweep.Sweep` runs: a compiled batch under ``skeletons/chunk.py``.

    Attributes
    ----------
    dim : int
    source, target : Side
        The field and the test function.
    dtype : numpy.dtype
        float64 or float32.
    width : int
        Slots of a lane.
    """

    dim: int
    source: Side
    target: Side
    dtype: np.dtype[Any]
    width: int

    @property
    @abstractmethod
    def module(self) -> ModuleType:
        """The compiled module; compiled, or read from the cache, when first asked for."""

    @abstractmethod
    def contraction_flops(self) -> int:
        """Floating-point operations of one element without its pointwise steps, as emitted."""

    def sizes(self) -> dict[str, object]:
        """Names of ``skeletons/defaults.py`` that every kernel has."""
        lane, source, target = Lane(self.width, self.dtype), self.source, self.target
        return {
            "LANE": lane,
            "LANE_WIDTH": self.width,
            "LANE_BYTES": lane.nbytes,
            "REAL_BYTES": self.dtype.itemsize,
            "INDEX_IN": source.index_bytes,
            "INDEX_OUT": target.index_bytes,
            "DIM": self.dim,
            "NCOMP_IN": source.ncomp,
            "NCOMP_OUT": target.ncomp,
            "P_IN": source.p1d,
            "P_OUT": target.p1d,
            "NODES_IN": source.p1d**self.dim,
            "NODES_OUT": target.p1d**self.dim,
        }

    def work_bytes(self, size_in: int, size_out: int) -> int:
        """Bytes of work space that a thread needs, for chunk-local vectors of these sizes."""
        numbers = self.source.ncomp * size_in + self.target.ncomp * size_out
        return (numbers + int(self.module.WORK_LANES) * self.width) * self.dtype.itemsize


@final
@dataclass(frozen=True, eq=False)
class Kernel(SweepKernel):
    """Kernel of ``y = sum_e B_out^T D B_in x`` on segments, quadrilaterals or hexahedra.

    Attributes
    ----------
    dim : int
    source, target : Side
        The field and the test function.
    d1d : (q1d, q1d) float64
        Derivative at the quadrature points of the polynomial through them.
    step : PointStep
    dtype : numpy.dtype
        float64 or float32.
    width : int
        Slots of a lane.

    Raises
    ------
    KernelValueError
        If there are fewer quadrature points than nodes: collocated derivatives would not be exact.
    """

    dim: int
    source: Side
    target: Side
    d1d: NDArray[np.float64]
    step: PointStep
    dtype: np.dtype[Any]
    width: int

    def __post_init__(self) -> None:
        most = max(self.source.p1d, self.target.p1d)
        if self.q1d < most:
            raise KernelValueError(
                f"q1d = {self.q1d} is less than p1d = {most}: take more quadrature points"
            )

    @property
    def q1d(self) -> int:
        """Quadrature points per direction."""
        return int(self.d1d.shape[0])

    @cached_property
    def module(self) -> ModuleType:
        """The compiled module; compiled, or read from the cache, when first asked for."""
        return specialize(("table", "batch", "chunk"), self.constants(), self.step.text)

    def constants(self) -> dict[str, object]:
        """Values of the names in ``skeletons/defaults.py``."""
        source, target = self.source, self.target
        return self.sizes() | {
            "Q1D": self.q1d,
            "POINTS": self.q1d**self.dim,
            "NQDATA": self.step.nqdata,
            "VALUE_IN": self.step.value_in,
            "VALUE_OUT": self.step.value_out,
            "GRAD_IN": self.step.gradient_in,
            "GRAD_OUT": self.step.gradient_out,
            "PREFETCH": True,
            "B": Matrix1D(source.b1d),
            "BT": Matrix1D(target.b1d.T),
            "D": Matrix1D(self.d1d),
            "DT": Matrix1D(self.d1d.T),
        }

    def contraction_flops(self) -> int:
        """Floating-point operations of all contractions of one element, as emitted."""
        q, dim, step = self.q1d, self.dim, self.step
        flops = 0
        for side, matrix in (
            (self.source, Matrix1D(self.source.b1d)),
            (self.target, Matrix1D(self.target.b1d.T)),
        ):
            lines = sum(side.p1d ** (dim - 1 - k) * q**k for k in range(dim))
            flops += side.ncomp * lines * matrix.flops()
        lines = dim * q ** (dim - 1)
        if step.gradient_in:
            flops += self.source.ncomp * lines * Matrix1D(self.d1d).flops()
        if step.gradient_out:
            # the sum of the directions' results: one addition a point and direction, less where
            # nothing stands there yet
            adds = q**dim * (dim if step.value_out else dim - 1)
            flops += self.target.ncomp * (lines * Matrix1D(self.d1d.T).flops() + adds)
        return flops
