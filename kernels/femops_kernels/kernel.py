"""A compiled operator kernel: sizes, 1-D matrices and pointwise program made into machine code."""

from __future__ import annotations

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
        Definition of ``pointwise(u, ux, uy, uz, q)`` in lane Python, decorated with ``@njit``.
        Each argument is a tuple of lane vectors: the field and its reference derivatives by
        component, and the numbers stored at the point.  It returns ``(v, vx, vy, vz)``, the
        factors of the test function and of its reference derivatives; what a kernel does not use
        is returned as it came.
    nqdata : int
        Numbers stored at a point.
    value_out : bool
        Whether ``v`` is used.
    gradient : bool
        Whether derivatives are read and written.
    """

    text: str
    nqdata: int
    value_out: bool
    gradient: bool


@final
@dataclass(frozen=True)
class Kernel:
    """Kernel of ``y = sum_e B^T D B x`` on segments, quadrilaterals or hexahedra.

    Attributes
    ----------
    dim, ncomp : int
    b1d : (q1d, p1d) float64
        Interpolation to the quadrature points.
    d1d : (q1d, q1d) float64
        Derivative at the quadrature points of the polynomial through them.
    step : PointStep
    dtype : numpy.dtype
        float64 or float32.
    width : int
        Slots of a lane.
    index_bytes : int
        2 or 4, the width of the plan's indices.

    Raises
    ------
    KernelValueError
        If there are fewer quadrature points than nodes: collocated derivatives would not be exact.
    """

    dim: int
    ncomp: int
    b1d: NDArray[np.float64]
    d1d: NDArray[np.float64]
    step: PointStep
    dtype: np.dtype[Any]
    width: int
    index_bytes: int

    def __post_init__(self) -> None:
        if self.q1d < self.p1d:
            raise KernelValueError(
                f"q1d = {self.q1d} is less than p1d = {self.p1d}: take more quadrature points"
            )

    @property
    def p1d(self) -> int:
        """Nodes per direction."""
        return int(self.b1d.shape[1])

    @property
    def q1d(self) -> int:
        """Quadrature points per direction."""
        return int(self.b1d.shape[0])

    @cached_property
    def module(self) -> ModuleType:
        """The compiled module; compiled, or read from the cache, when first asked for."""
        return specialize(("table", "batch", "chunk"), self.constants(), self.step.text)

    def constants(self) -> dict[str, object]:
        """Values of the names in ``skeletons/defaults.py``."""
        lane = Lane(self.width, self.dtype)
        return {
            "LANE": lane,
            "LANE_WIDTH": self.width,
            "LANE_BYTES": lane.nbytes,
            "REAL_BYTES": self.dtype.itemsize,
            "INDEX_BYTES": self.index_bytes,
            "DIM": self.dim,
            "NCOMP": self.ncomp,
            "P1D": self.p1d,
            "Q1D": self.q1d,
            "NODES": self.p1d**self.dim,
            "POINTS": self.q1d**self.dim,
            "NQDATA": self.step.nqdata,
            "VALUE_OUT": self.step.value_out,
            "GRAD_IN": self.step.gradient,
            "GRAD_OUT": self.step.gradient,
            "PREFETCH": True,
            "B": Matrix1D(self.b1d),
            "BT": Matrix1D(self.b1d.T),
            "D": Matrix1D(self.d1d),
            "DT": Matrix1D(self.d1d.T),
        }

    def work_bytes(self, local_size: int) -> int:
        """Bytes of work space that a thread needs, chunk-local vectors included."""
        local = 2 * self.ncomp * local_size * self.dtype.itemsize
        return local + int(self.module.WORK_LANES) * self.width * self.dtype.itemsize

    def contraction_flops(self) -> int:
        """Floating-point operations of all contractions of one element, as emitted."""
        b, bt = Matrix1D(self.b1d).flops(), Matrix1D(self.b1d.T).flops()
        d, dt = Matrix1D(self.d1d).flops(), Matrix1D(self.d1d.T).flops()
        p, q, dim = self.p1d, self.q1d, self.dim
        lines = sum(p ** (dim - 1 - k) * q**k for k in range(dim))
        flops: int = lines * (b + bt)
        if self.step.gradient:
            # the sum of the directions' results: one addition a point and direction, less where
            # nothing stands there yet
            adds = q**dim * (dim if self.step.value_out else dim - 1)
            flops += dim * q ** (dim - 1) * (d + dt) + adds
        return self.ncomp * flops
