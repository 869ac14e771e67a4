"""Data at quadrature points of a residual's derivative. A sweep computes them from the state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.kernels import factorised_kernel, plans_of
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.kernel_term import GivenTerm
from femops.operators.integrals.point_data import setup_of
from femops.pointwise.qdata_split import QDataSplit
from femops.spaces.base import Space
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels.kernel import FillKernel
from femops_kernels.cpu.operators import HostOperator
from femops_kernels.cpu.sweep import Sweep, SweepDofs

# Fewest quadrature points of all ranks for which a kernel is compiled.
_COMPILED_FROM = 2**17
_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def filled_points(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> NDArray[Any] | None:
    """Compute the numbers (nbatch, points, numbers, width) that a form stores at points.

    The numbers depend on the form's state, which is on the host. Return None if NumPy should
    compute them: for few points, and in float32, because a float32 sweep would lose digits.

    Parameters
    ----------
    form : Integral
        A form with a state.
    qdata_split : QDataSplit
        ``qdata_split.point`` lists the numbers to compute.
    dtype : dtype
    width : int
        Number of lanes.
    """
    spaces = form.state.spaces
    finest = max(spaces.values(), key=lambda space: space.order)
    plain = dtype == np.float64 and finest.order > 0 and form.domain.has_maps
    if not (plain and _many(form, finest)):
        return None
    ne, numbers = form.domain.num_elements, len(qdata_split.point)
    if not ne:
        return None
    found, given = setup_of(form, qdata_split, dtype, width)
    fields, rule = Arguments(spaces, next(iter(spaces.values()))), form.quadrature
    target = fields.only([next(iter(spaces))])  # nothing is added to it
    kinds = found.qfunction, dtype, width, None
    term = GivenTerm(form.name, fields, target, rule, *kinds, 0, 0, given)
    kernel = FillKernel(factorised_kernel(term), numbers)
    shape = -(-ne // width), form.geometry.num_points, numbers, width
    points = placed_array(shape, dtype, term.chunk_batches)
    states = [np.ravel(form.state.field(name).l_vec) for name in spaces]
    starts = [0, *accumulate(len(state) for state in states)]
    dofs = [
        SweepDofs(*plans, _NONE, _NONE, 0.0, start)
        for plans, start in zip(plans_of(term), starts, strict=False)
    ]
    sweep = Sweep(kernel, dofs, given, points)
    _run(sweep, np.concatenate(states, dtype=np.float64), [*spaces.values()], starts)
    rest = ne - (len(points) - 1) * width
    points[-1, ..., rest:] = 0.0  # slots of no element
    return points


def _many(form: Integral, space: Space) -> bool:
    """True if a space has many quadrature points on all ranks together.

    All ranks get the same answer without communication.
    """
    each = (form.quadrature.q1d / max(space.order, 1)) ** space.dim
    return space.global_size / space.ncomp * each >= _COMPILED_FROM


def _run(
    sweep: Sweep, state: NDArray[np.float64], spaces: Sequence[Space], starts: Sequence[int]
) -> None:
    """Run a sweep on a state: the concatenated l_vecs of its fields, which start at ``starts``."""
    for space, start, entry in zip(spaces, starts, sweep.ghosts_at, strict=False):
        sweep.table[entry] = state.ctypes.data + (start + space.size) * state.itemsize
    HostOperator([(1.0, sweep)]).apply(state, np.empty(spaces[0].size))
