"""Sum factorisation on the host and on devices: interface of kernels, and counts of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.errors import KernelValueError
from femops_kernels.pointwise.qfunction import QFunctionCode
from femops_kernels.simd.matrix import Matrix1D


@final
@dataclass(frozen=True, eq=False)
class Map1D:
    """1-D matrices from the Legendre coefficients of an element's geometry to quadrature points."""

    # value and slope are (q1d, g1d): values and derivatives of the Legendre polynomials at the
    # quadrature points
    value: NDArray[np.float64]
    slope: NDArray[np.float64]

    @property
    def g1d(self) -> int:
        """Legendre coefficients per direction."""
        return int(self.value.shape[1])


class Interpolated(Protocol):
    """Interface of a field or a test function of a kernel."""

    @property
    def ncomp(self) -> int:
        """Number of components."""

    @property
    def bases(self) -> tuple[NDArray[np.float64], ...]:
        """Matrix (points, nodes) of each direction that interpolates to quadrature points."""

    @property
    def end(self) -> NDArray[np.float64] | None:
        """Values and derivatives (2, p1d) of the basis at the end where faces lie.

        None if elements are not faces, and on the host for faces without derivatives.
        """


class SumFactorised(Protocol):
    """Interface of a kernel that works on an element direction by direction."""

    @property
    def dim(self) -> int:
        """Dimension of the elements."""

    @property
    def q1d(self) -> int:
        """Quadrature points per direction."""

    @property
    def sources(self) -> Sequence[Interpolated]:
        """The fields."""

    @property
    def targets(self) -> Sequence[Interpolated]:
        """The test functions."""

    @property
    def d1d(self) -> NDArray[np.float64]:
        """Derivatives (q1d, q1d), at the quadrature points, of their Lagrange polynomials."""

    @property
    def qfunction(self) -> QFunctionCode:
        """The q-function."""

    @property
    def geometry(self) -> Map1D | None:
        """Matrices of the geometry; None unless the q-function takes Jacobians or positions."""


def check_points(q1d: int, *p1d: int) -> None:
    """Raise if a direction has fewer quadrature points ``q1d`` than nodes ``p1d``."""
    if q1d < max(p1d):
        raise KernelValueError(
            f"q1d = {q1d} is less than p1d = {max(p1d)}: take more quadrature points"
        )


def contraction_flops(kernel: SumFactorised) -> int:
    """Floating-point operations of all contractions of one element, without q-functions."""
    return _contractions(kernel, Matrix1D.flops) + _geometry_flops(kernel)


def contraction_operations(kernel: SumFactorised) -> int:
    """Number of instructions on lanes of all contractions, without q-functions and geometry.

    Each lane has one element, or one of many vectors.  A multiply-add is one instruction.
    """
    return _contractions(kernel, Matrix1D.operations)


def slopes_of(
    sides: Sequence[Interpolated], slopes: Sequence[int], values: Sequence[int]
) -> tuple[tuple[int, int, bool], ...]:
    """Ranges of components whose derivatives are used, each of one or more neighbouring fields."""
    found: list[tuple[int, int, bool]] = []
    for side, end in zip(sides, accumulate(side.ncomp for side in sides), strict=True):
        first = end - side.ncomp
        both = not set(range(first, end)).isdisjoint(values)
        if set(range(first, end)).isdisjoint(slopes):
            continue
        if found and found[-1][1:] == (first, both):
            first = found.pop()[0]
        found.append((first, end, both))
    return tuple(found)


def _contractions(kernel: SumFactorised, count: Callable[[Matrix1D], int]) -> int:
    if kernel.sources[0].end is not None:
        return _face_contractions(kernel, count)
    q, dim, qfunction = kernel.q1d, kernel.dim, kernel.qfunction
    flops = 0
    sides = [
        *((side, False) for side in kernel.sources),
        *((side, True) for side in kernel.targets),
    ]
    for side, turned in sides:
        nodes = 1
        for d, basis in enumerate(side.bases[:dim]):
            lines = nodes * q ** (dim - 1 - d)
            flops += side.ncomp * lines * count(Matrix1D(basis.T if turned else basis))
            nodes *= basis.shape[1]
    lines = dim * q ** (dim - 1)
    for first, end, _ in slopes_of(kernel.sources, qfunction.slopes_in, qfunction.values_in):
        flops += (end - first) * lines * count(Matrix1D(kernel.d1d))
    for first, end, valued in slopes_of(kernel.targets, qfunction.slopes_out, qfunction.values_out):
        # The results of all directions are summed: one addition per point and direction. The first
        # result needs none unless it is added to values.
        adds = q**dim * (dim if valued else dim - 1)
        flops += (end - first) * (lines * count(Matrix1D(kernel.d1d.T)) + adds)
    weights = bool(qfunction.numbers.weight) * (q**dim + (q ** (dim - 1) if dim > 2 else 0))
    return int(flops + weights)


def _face_contractions(kernel: SumFactorised, count: Callable[[Matrix1D], int]) -> int:
    """Operations of the contractions of one face: first across the face, then along it."""
    q, along, qfunction, flops = kernel.q1d, kernel.dim - 1, kernel.qfunction, 0
    for sides, turn in ((kernel.sources, False), (kernel.targets, True)):
        for side in sides:
            end, b1d = side.end, side.bases[0]
            assert end is not None
            p1d = b1d.shape[1]
            lines = 2 * sum(p1d ** (along - 1 - k) * q**k for k in range(along))
            each = p1d**along * count(Matrix1D(end.T if turn else end))
            flops += side.ncomp * (each + lines * count(Matrix1D(b1d.T if turn else b1d)))
    lines = along * q ** max(along - 1, 0)
    for first, last, _ in slopes_of(kernel.sources, qfunction.slopes_in, qfunction.values_in):
        flops += (last - first) * lines * count(Matrix1D(kernel.d1d))
    for first, last, valued in slopes_of(
        kernel.targets, qfunction.slopes_out, qfunction.values_out
    ):
        adds = q**along * max(along if valued else along - 1, 0)
        flops += (last - first) * (lines * count(Matrix1D(kernel.d1d.T)) + adds)
    return int(flops)


def _geometry_flops(kernel: SumFactorised) -> int:
    """Operations that compute Jacobians and positions from Legendre coefficients."""
    given, dim, q = kernel.qfunction.numbers, kernel.dim, kernel.q1d
    if not given.mapped:
        return 0
    assert kernel.geometry is not None
    value, slope = _row_flops(kernel.geometry.value), _row_flops(kernel.geometry.slope)
    g1d, flops = kernel.geometry.g1d, 0
    if dim > 2:
        flops += q * dim * g1d**2 * (value + slope)
    if dim > 1:
        flops += q ** (dim - 1) * dim * g1d * ((dim - 1) * value + slope)
    per_point = bool(given.jacobian) * ((dim - 1) * value + slope)
    per_point += bool(given.position) * value
    return int(flops + q**dim * dim * per_point)


def _row_flops(matrix: NDArray[np.float64]) -> int:
    """Operations of one row in the code of ``dot_row``: zeros and ones cost no multiplication."""
    used = [column for column in matrix.T if np.any(column != 0.0)]
    products = sum(bool(np.any(column != 1.0)) for column in used)
    return products + max(len(used) - 1, 0)
