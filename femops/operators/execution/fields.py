"""Forms on several fields: what a machine compiles of them, and the host's way to do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.geometry.legendre import LegendreGeometry, mode_values
from femops.operators.integrals.term import Term
from femops.spaces.product import Product
from femops_kernels.compiled import CompiledFields
from femops_kernels.cpu.fields import FieldKernel, FieldSide, FieldSweep
from femops_kernels.cpu.operators import HostOperator
from femops_kernels.cpu.sequence import least_instruction
from femops_kernels.instruction import Instruction
from femops_kernels.pointwise.qdata import Data
from femops_kernels.pointwise.sum_factorization import Map1D
from femops_meshes.coordinates.interpolation import lagrange_derivative_matrix

Ints = NDArray[np.int64]

_MOST_CHUNKS = 32
_FLOPS_PER_NUMBER = 10  # in the time in which a number is read


@final
@dataclass(frozen=True, eq=False)
class FieldWork:
    """Work at the points of a form on several fields.

    Attributes
    ----------
    product : Product
        Of the fields.
    tests : list of str
        Names of the test functions that are multiplied by something.
    minima, integrals : int
        Functionals, whose components come after those of the test functions.
    term : Term
        All of it, cut at the quadrature points.
    constrained : (n,) int64
        Positions of the result that are zero.
    """

    product: Product
    tests: list[str]
    minima: int
    integrals: int
    term: Term
    constrained: Ints

    @property
    def num_elements(self) -> int:
        """Elements of this rank."""
        return self.product.mesh.num_elements

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of vectors and arithmetic."""
        return self.term.dtype

    @property
    def derivative(self) -> NDArray[np.float64]:
        """Derivative at the quadrature points of the polynomial through them."""
        points = self.term.quadrature.points
        return lagrange_derivative_matrix(points, points)

    @property
    def geometry(self) -> Map1D | None:
        """Modes of the geometry at the points, if the q-function is given any."""
        if not self.term.qfunction.code.numbers.mapped:
            return None
        degree = LegendreGeometry(self.product.mesh).degree
        return Map1D(*mode_values(degree + 1, self.term.quadrature.points))


@final
class HostFields(CompiledFields):
    """A form on several fields, compiled for the host.

    Parameters
    ----------
    work : FieldWork

    Attributes
    ----------
    operator : HostOperator
        The sweep over this rank's elements, if it has any.
    """

    def __init__(self, work: FieldWork) -> None:
        self._work = work
        spaces = work.product.spaces.values()
        self._shared = any(space.distributed is not None for space in spaces)
        if work.num_elements:
            self._sweep = _sweep(work)
            self.operator = HostOperator([(1.0, self._sweep)])

    @property
    def functionals(self) -> NDArray[Any]:
        """See `CompiledFields.functionals`."""
        work = self._work
        count = work.minima + work.integrals
        if not work.num_elements:
            return np.zeros((count, 0), work.dtype)
        lanes = self._sweep.functionals.swapaxes(0, 1)
        return lanes.reshape(count, -1)[:, : work.num_elements]

    def apply(self, u: NDArray[Any], out: NDArray[Any]) -> None:
        """See `CompiledFields.apply`."""
        if self._shared:
            self._apply_on_ranks(u, out)
        else:
            self.operator.apply(u, out)

    def instructions(
        self, u: NDArray[Any], out: NDArray[Any], minima: Sequence[int]
    ) -> list[Instruction] | None:
        """See `CompiledFields.instructions`: not of integrals, which are summed exactly."""
        if self._shared or self._work.integrals:
            return None
        found, values = [self.operator.instruction(u, out)], self._sweep.functionals
        for k, scalar in enumerate(minima):
            found.append(least_instruction(values[:, k], self._work.num_elements, scalar))
        return found

    def _apply_on_ranks(self, u: NDArray[Any], out: NDArray[Any]) -> None:
        """Bring ghosts' values, do this rank's elements, add what ranks share. Collective."""
        work, product = self._work, self._work.product
        parts = zip(product.spaces.values(), product.split(u), strict=True)
        values = np.concatenate([space.l_vec(part).reshape(-1) for space, part in parts])
        if work.num_elements:
            self.operator.apply(values, np.empty_like(values))
        out[:] = 0.0
        for k, name in enumerate(work.tests):
            space = product.spaces[name]
            e_vec = np.zeros((0, space.p1d**space.dim, space.ncomp), work.dtype)
            if work.num_elements:
                e_vec = self._sweep.element_results(k)
            e_vec = np.ascontiguousarray(e_vec[..., 0] if space.ncomp == 1 else e_vec)
            out[product.slice(name)] = space.sum_elements(e_vec)
        out[work.constrained] = 0.0


def _sweep(work: FieldWork) -> FieldSweep:
    starts, ne, term = _starts(work.product), work.num_elements, work.term
    nbatch = -(-ne // term.width)
    chunks = np.linspace(0, nbatch, min(nbatch, _MOST_CHUNKS) + 1).astype(np.int64)
    points = nbatch * term.width * term.quadrature.q1d**work.product.dim
    effort = points * term.qfunction.flops // _FLOPS_PER_NUMBER
    data = _repeated(term.data, ne)
    return FieldSweep(_kernel(work, starts), data, chunks, starts[""], work.constrained, effort)


def _kernel(work: FieldWork, starts: dict[str, int]) -> FieldKernel:
    rule, product = work.term.quadrature, work.product
    sides = {}
    for name, space in product.spaces.items():
        entries = starts[name] + space.restriction.indices * space.ncomp
        sides[name] = FieldSide(space.ncomp, space.basis.interpolation(rule.points), entries)
    return FieldKernel(
        product.dim,
        list(sides.values()),
        [sides[name] for name in work.tests],
        work.minima,
        work.integrals,
        work.derivative,
        work.term.qfunction.code,
        work.dtype,
        work.term.width,
        rule.weights,
        work.geometry,
        work.term.any_width,
    )


def _starts(product: Product) -> dict[str, int]:
    """Begin of each field's values in what a sweep reads; its ghosts come after its own."""
    sizes = [s.restriction.ndofs * s.ncomp for s in product.spaces.values()]
    ends = accumulate(sizes, initial=0)
    return dict(zip([*product.spaces, ""], ends, strict=True))


def _repeated(data: Data, ne: int) -> Data:
    """Data whose padding slots repeat the last element: no division by zero there."""
    for array in (data.points, data.elements):
        if array.size:
            filled = ne - (len(array) - 1) * array.shape[-1]
            array[-1, ..., filled:] = array[-1, ..., filled - 1 : filled]
    return data
