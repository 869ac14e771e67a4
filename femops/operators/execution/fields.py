"""Forms on several fields: what a machine compiles of them, and the host's way to do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.geometry.legendre import LegendreGeometry, mode_values
from femops.operators.integrals.chunks import field_plans
from femops.operators.integrals.term import Term
from femops.spaces.product import Product
from femops_kernels.compiled import CompiledFields
from femops_kernels.cpu.exchange import Forward, Reverse
from femops_kernels.cpu.fields import FieldDofs, FieldSweep
from femops_kernels.cpu.identity_rows import IdentityRows
from femops_kernels.cpu.kernels.kernel import FieldKernel, Kernel, Side
from femops_kernels.cpu.operators import HostOperator
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sequence import least_instruction
from femops_kernels.cpu.sweep import Application, HostLaunch, NoOp, plain_first
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.instruction import Instruction
from femops_kernels.pointwise.qdata import Data
from femops_kernels.pointwise.sum_factorization import Map1D
from femops_meshes.coordinates.interpolation import lagrange_derivative_matrix

Ints = NDArray[np.int64]
Forwards = Sequence[tuple[int, Forward]]
"""Exchanges that send values of owned dofs to ghosts, with the number of the field."""
Reverses = Sequence[tuple[int, Reverse]]
"""Exchanges that send contributions to ghosts to owners, with the number of the test function."""

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
    sweep : FieldSweep or None
        The work on this rank's elements, if it has any.
    forwards, reverses
        Exchanges of fields that ranks share, see `field_exchanges`.

    Attributes
    ----------
    operator : HostOperator
        The sweep over this rank's elements. It writes zeros for fields that have no test function.
    """

    def __init__(
        self, work: FieldWork, sweep: FieldSweep | None, forwards: Forwards, reverses: Reverses
    ) -> None:
        self._work, self._sweep = work, sweep
        self._forwards, self._reverses = forwards, reverses
        offsets, size = work.product.offsets, work.dtype.itemsize
        self._read_at = [begin * size for begin in offsets.values()]
        self._written_at = [offsets[name] * size for name in work.tests]
        launches: list[tuple[float, HostLaunch]] = [(1.0, self._sweep or NoOp())]
        places = [(0, 0, False)]
        for name in work.product.names:
            if name not in work.tests:
                none = np.zeros(0, dtype=np.int64)
                entries = work.product.spaces[name].size
                zeros = IdentityRows(entries, none, 0.0, work.term.width, work.dtype)
                launches.append((1.0, zeros))
                places.append((0, offsets[name] * size, False))
        self.operator = HostOperator(launches, places)
        if self._sweep is not None:
            self._order, self._plain = plain_first(self._sweep.with_ghosts)

    @property
    def functionals(self) -> NDArray[Any]:
        """See `CompiledFields.functionals`."""
        work = self._work
        count = work.minima + work.integrals
        if self._sweep is None:
            return np.zeros((count, 0), work.dtype)
        lanes = self._sweep.functionals.swapaxes(0, 1)
        return lanes.reshape(count, -1)[:, : work.num_elements]

    def apply(self, u: NDArray[Any], out: NDArray[Any]) -> None:
        """See `CompiledFields.apply`."""
        if self._forwards or self._reverses:
            self._apply_on_ranks(u, out)
        else:
            self.operator.apply(u, out)

    def instructions(
        self, u: NDArray[Any], out: NDArray[Any], minima: Sequence[int]
    ) -> list[Instruction] | None:
        """See `CompiledFields.instructions`: not of integrals, which are summed exactly."""
        if self._forwards or self._reverses or self._work.integrals or self._sweep is None:
            return None
        found, values = [self.operator.instruction(u, out)], self._sweep.functionals
        for k, scalar in enumerate(minima):
            found.append(least_instruction(values[:, k], self._work.num_elements, scalar))
        return found

    def _apply_on_ranks(self, u: NDArray[Any], out: NDArray[Any]) -> None:
        """Apply the form while messages are on their way. Collective.

        First values travel to ghosts, then contributions to ghosts travel to the owners.
        """
        sweep, x, y = self._sweep, u.ctypes.data, out.ctypes.data
        with LAUNCH:
            run = Application(self.operator, x, y)
            for k, forward in self._forwards:
                forward.start(x + self._read_at[k])
            if sweep is not None:
                run.some(0, self._order, 0, self._plain // 2)
            for k, forward in self._forwards:
                forward.finish()
                if sweep is not None:
                    sweep.set_ghosts(k, forward.ghosts)
            if sweep is not None:
                run.some(0, self._order, self._plain, len(self._order))
            for k, reverse in self._reverses:
                reverse.collect(None if sweep is None else sweep.contributions[k], more=False)
                reverse.start()
            if sweep is not None:
                run.some(0, self._order, self._plain // 2, self._plain)
                run.combined(0)
            for k in range(1, len(self.operator.sweeps)):
                run.some(k, np.arange(self.operator.rows[k, 3]), 0, self.operator.rows[k, 3])
            for k, reverse in self._reverses:
                reverse.finish(y + self._written_at[k])


def sweep_of(work: FieldWork) -> FieldSweep:
    """Sweep of a form over the elements of this rank, which has some."""
    product, term = work.product, work.term
    spaces = list(product.spaces.values())
    plans = field_plans(spaces, work.dtype, term.width)
    dofs = [
        FieldDofs(plan, product.offsets[name], _inside(work.constrained, product.slice(name)))
        for name, plan in zip(product.names, plans, strict=True)
    ]
    points = len(plans[0].starts) * term.width * term.quadrature.q1d**product.dim
    effort = points * term.qfunction.flops // _FLOPS_PER_NUMBER
    return FieldSweep(_kernel(work, plans), dofs, _repeated(term.data, work.num_elements), effort)


def _kernel(work: FieldWork, plans: Sequence[Plan]) -> FieldKernel:
    rule, product, term = work.term.quadrature, work.product, work.term
    sides = tuple(
        Side(
            space.ncomp,
            space.basis.interpolation(rule.points),
            plan.number_bytes,
            plan.runs,
            term.any_width,
        )
        for space, plan in zip(product.spaces.values(), plans, strict=True)
    )
    first = Kernel(
        product.dim,
        sides[0],
        sides[0],
        work.derivative,
        term.qfunction.code,
        work.dtype,
        term.width,
        rule.weights,
        work.geometry,
    )
    targets = tuple(product.names.index(name) for name in work.tests)
    return FieldKernel(first, sides, targets, work.minima, work.integrals)


def _inside(positions: Ints, part: slice) -> Ints:
    """Positions that lie in a part of a vector, counted from the beginning of the part."""
    within: Ints = positions[(positions >= part.start) & (positions < part.stop)] - part.start
    return within


def _repeated(data: Data, ne: int) -> Data:
    """Data whose padding slots repeat the last element: no division by zero there."""
    for array in (data.points, data.elements):
        if array.size:
            filled = ne - (len(array) - 1) * array.shape[-1]
            array[-1, ..., filled:] = array[-1, ..., filled - 1 : filled]
    return data
