"""Numbers that a derivative keeps at points, computed of its state by compiled sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.kernels import factorised_kernel, plans_of
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.snapshots import Field
from femops.operators.integrals.term import Term
from femops.pointwise.qdata_split import QDataSplit
from femops.spaces.base import Space
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels.kernel import FillKernel
from femops_kernels.cpu.operators import HostOperator
from femops_kernels.cpu.sweep import Sweep, SweepDofs
from femops_kernels.skeletons.chunk import table as sweep_layout

# Quadrature points of all ranks from which on a kernel is worth its compilation.
_COMPILED_FROM = 2**17
_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def filled_points(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> NDArray[Any] | None:
    """Numbers (nbatch, points, numbers, width) of a form at a state of the host.

    None where NumPy is to compute them: of several fields, of a few points, and in float32, which
    would lose digits.

    Parameters
    ----------
    form : Integral
        With a state.
    qdata_split : QDataSplit
        Tells the numbers.
    dtype : dtype
    width : int
        Slots of a lane.
    """
    assert form.state is not None
    (name, space), *others = form.state.spaces.items()
    if others or dtype != np.float64 or not _many(form, space):
        return None
    ne, numbers = space.mesh.num_elements, len(qdata_split.point)
    if not ne or space.order == 0:
        return None
    found, given = form.setup(qdata_split, dtype, width)
    qfunction, rule = found.qfunction, form.quadrature
    field = Arguments.of(space)
    term = Term(form.name, field, field, rule, qfunction, dtype, width, None, given=given)
    kernel = FillKernel(factorised_kernel(term), numbers)
    shape = -(-ne // width), form.geometry.num_points, numbers, width
    points = placed_array(shape, dtype, term.chunk_batches)
    dofs = SweepDofs(*plans_of(term)[0], _NONE, _NONE, 0.0)
    sweep = Sweep(kernel, [dofs], given, (points, points))
    _run(sweep, form.state.field(name))
    rest = ne - (len(points) - 1) * width
    points[-1, ..., rest:] = 0.0  # slots of no element
    return points


def _many(form: Integral, space: Space) -> bool:
    """True if all ranks have many points; the same on each, and without asking the others."""
    each = (form.quadrature.q1d / max(space.order, 1)) ** space.dim
    return space.global_size / space.ncomp * each >= _COMPILED_FROM


def _run(sweep: Sweep, field: Field) -> None:
    """Go through the elements with a state; what the sweep adds to a vector is nothing."""
    state = np.ascontiguousarray(field.l_vec, dtype=np.float64).reshape(-1)
    own = field.space.size
    sweep.table[sweep_layout.IN_GHOSTS] = state.ctypes.data + own * state.itemsize
    HostOperator([(1.0, sweep)]).apply(state, np.empty(own))
