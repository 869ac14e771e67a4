"""Data at quadrature points. A sweep computes them from the geometry and a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.kernels import planned, plans_of
from femops.operators.execution.specs import point_spec
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.kernel_term import GivenTerm
from femops.operators.integrals.point_data import setup_of
from femops.operators.integrals.term import Sum
from femops.pointwise.expressions.graph import ancestors
from femops.pointwise.qdata_split import QDataSplit
from femops.pointwise.trace import INVERSE, WEIGHT
from femops.spaces.base import Space
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels import FillKernel
from femops_kernels.cpu.operators import HostOperator
from femops_kernels.cpu.sweep import Sweep, SweepDofs

# Fewest quadrature points of all ranks for which a kernel is compiled. Derivatives at other states
# use the kernel again. For a linear form it must pay at once, so it needs `_ONCE` times the points.
_COMPILED_FROM = 2**17
_ONCE = 4
_NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_WIDE = np.dtype(np.float64)


def filled_points(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> NDArray[Any] | None:
    """Compute the numbers (nbatch, points, numbers, width) that a form stores at points.

    The numbers depend on the form's state, which is on the host, or on the geometry. Return None if
    NumPy should compute them: for few points, and for a state in float32, because a float32 sweep
    would lose digits.
    """
    spaces, ne = _spaces(form, qdata_split, dtype), form.domain.num_elements
    if not spaces or not _many(form, _finest(spaces)) or not ne:
        return None
    kernel, term = _kernel(form, qdata_split, dtype, width)
    if not form.state.spaces:
        form.setups.clear()  # not needed again
    shape = -(-ne // width), form.geometry.num_points, kernel.numbers, width
    points = placed_array(shape, dtype, term.chunk_batches)
    states = [_l_vec(form, name) for name in spaces]
    starts = [0, *accumulate(len(state) for state in states)]
    dofs = [
        SweepDofs(*plans, _NONE, _NONE, 0.0, start)
        for plans, start in zip(plans_of(term), starts, strict=False)
    ]
    sweep = Sweep(kernel, dofs, term.data, points)
    _run(sweep, np.concatenate(states, dtype=np.float64), [*spaces.values()], starts)
    rest = ne - (len(points) - 1) * width
    points[-1, ..., rest:] = 0.0  # slots of no element
    return points


def compile_kernels(summands: Sum) -> None:
    """Compile the kernels that compute the data of large operators in advance."""
    for _, term in summands:
        form, split = term.source, term.qdata_split
        if form is not None and split.point and _spaces(form, split, term.dtype):
            kernel, _ = _kernel(form, split, term.dtype, term.width)
            kernel.module  # noqa: B018  (made when asked for)


def _kernel(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> tuple[FillKernel, GivenTerm]:
    """Kernel that computes the numbers at points, and its term; see `filled_points`."""
    found, given = setup_of(form, qdata_split, _WIDE, width)
    spaces = _spaces(form, qdata_split, dtype)
    fields, rule = Arguments(spaces, next(iter(spaces.values()))), form.quadrature
    target = fields.only([next(iter(spaces))])  # nothing is added to it
    kinds = found.qfunction, _WIDE, width, None
    term = GivenTerm(form.name, fields, target, rule, *kinds, 0, 0, given)
    spec = point_spec(term)
    sides = planned(spec, plans_of(term))
    return FillKernel(spec, *sides, width, len(qdata_split.point), dtype), term


def _spaces(form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """Spaces of the fields of a kernel, by name. Empty if NumPy should compute the numbers."""
    spaces = form.state.spaces or _any_space(form, qdata_split)
    plain = form.domain.has_maps and bool(spaces) and _finest(spaces).order > 0
    return spaces if plain and (dtype == _WIDE or not form.state.spaces) else {}


def _finest(spaces: Mapping[str, Any]) -> Space:
    found: Space = max(spaces.values(), key=lambda space: space.order)
    return found


def _any_space(form: Integral, qdata_split: QDataSplit) -> Mapping[str, Any]:
    """Space of a linear form, whose field the numbers do not use. Empty if they are coefficients.

    Numbers in ``form.rounded`` are rounded by NumPy.
    """
    shape = {node.number for name in (INVERSE, WEIGHT) for node in form.static[name].flat}
    used = {node.number for node in ancestors(qdata_split.point)}
    if form.rounded or not shape & used:
        return {}
    name, space = next(iter(form.fields.spaces.items()))
    return {name: space}


def _l_vec(form: Integral, name: str) -> NDArray[Any]:
    """Values of a field of the state. Zeros for a form without a state, which are not read."""
    if form.state.spaces:
        return np.ravel(form.state.field(name).l_vec)
    space = form.fields.spaces[name]
    return np.zeros(space.ndofs * space.ncomp)


def _many(form: Integral, space: Space) -> bool:
    """True if a space has many quadrature points on all ranks together.

    All ranks get the same answer without communication.
    """
    each = (form.quadrature.q1d / max(space.order, 1)) ** space.dim
    least = _COMPILED_FROM * (1 if form.state.spaces else _ONCE)
    return space.global_size / space.ncomp * each >= least


def _run(
    sweep: Sweep, state: NDArray[np.float64], spaces: Sequence[Space], starts: Sequence[int]
) -> None:
    """Run a sweep on a state: the concatenated l_vecs of its fields, which start at ``starts``."""
    for space, start, entry in zip(spaces, starts, sweep.ghosts_at, strict=False):
        sweep.table[entry] = state.ctypes.data + (start + space.size) * state.itemsize
    HostOperator([(1.0, sweep)]).apply(state, np.empty(spaces[0].size))
