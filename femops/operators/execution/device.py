"""Operators on a device: the kernels of their terms, bound to what lies there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.geometry.legendre import GeometryModes, mode_values
from femops.operators.constraints import FREE, Held
from femops.operators.integrals.device_state import DeviceState
from femops.operators.integrals.term import Term
from femops.spaces.base import Space
from femops.spaces.boundary_space import AnySpace, BoundarySpace, volume_space
from femops.spaces.h1_l2 import L2
from femops_kernels.cpu.sweep import Idle, Launch, Terms
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator.data import FilledData, streams
from femops_kernels.cuda.operator.dofs import DofTable, Shared
from femops_kernels.cuda.operator.kernel import CudaKernel, Side, unspilled
from femops_kernels.cuda.operator.order import Order
from femops_kernels.cuda.operator.sweep import (
    DeviceDofs,
    DeviceIdle,
    DeviceLaunch,
    DeviceShared,
    DeviceSweep,
    DeviceTerms,
)
from femops_kernels.pointwise.qdata import Data
from femops_kernels.pointwise.step import PointStep
from femops_kernels.pointwise.sum_factorization import Map1D
from femops_kernels.simd.runs import Runs
from femops_meshes.coordinates.interpolation import lagrange_derivative_matrix

LEVELS = ("partial", "none")
"""Levels that a device has kernels of."""

AnyLaunch = Launch | DeviceLaunch

_dofs: WeakKeyDictionary[AnySpace, DeviceDofs] = WeakKeyDictionary()
_filled: WeakKeyDictionary[Term, FilledData] = WeakKeyDictionary()


def terms_of(
    device: Device | None,
    launches: Sequence[tuple[float, Any]],
    places: Sequence[tuple[int, int, bool]] | None = None,
) -> Terms | DeviceTerms:
    """Launches made ready to be run, on a device or on the host; see `Terms`."""
    if device is None:
        return Terms(launches, places)
    return DeviceTerms(device, launches, places)


def idle(device: Device | None) -> AnyLaunch:
    """What a term is on a rank that has none of its elements."""
    return Idle() if device is None else DeviceIdle()


def check_device_level(level: str) -> None:
    """Refuse levels that a device has no kernels of.

    Raises
    ------
    OperatorError
    """
    if level not in LEVELS:
        raise OperatorError(
            f"level {level!r} on a GPU: choose one of {', '.join(LEVELS)} or auto; a matrix for "
            "cupyx.scipy.sparse comes from assemble()"
        )


def check_lanes(device: Device | None, lanes: int | None) -> None:
    """Refuse lanes where kernels have none.

    Raises
    ------
    OperatorError
    """
    if device is not None and lanes is not None:
        raise OperatorError(f"lanes = {lanes!r} on a GPU: they are the CPU's, leave them out")


def device_sweep(device: Device, term: Term, held: Held, keep: float) -> DeviceSweep:
    """The kernel of a term, bound to dofs and data on a device.

    Parameters
    ----------
    device : Device
    term : Term
    held, keep
        See `Term.sweep`.
    """
    kernel = _kernel(device, term)
    source, target = (_device_dofs(device, space) for space in (term.trial, term.test))
    return DeviceSweep(device, kernel, source, target, _data(term), held.columns, held.rows, keep)


def _data(term: Term) -> Data | FilledData:
    """What a kernel of the term reads, made once: computed on the host, or of a state there."""
    source = term.source
    if source is None or not isinstance(source.state, DeviceState):
        return term.data
    if term not in _filled:
        cut, program_data = source.setup(term.cut, term.dtype, term.width)
        data = source.data(term.cut, term.dtype, term.width, at_points=False)
        step = cut.program.step
        numbers, geometry = cut.program.ncomp_out, _geometry(term, step)
        fill = partial(_fill, source.state, step, numbers, geometry, program_data)
        _filled[term] = FilledData(data, fill)
    return _filled[term]


def _fill(
    state: DeviceState,
    step: PointStep,
    numbers: int,
    geometry: Map1D | None,
    data: Data,
    kernel: CudaKernel,
    order: Order,
) -> Any:
    """The streams of a kernel, so many numbers a point, computed of a state by a step."""
    device, free = state.space.device, FREE.rows
    assert device is not None
    out, dofs = streams(device, kernel, numbers, order), _device_dofs(device, state.space)
    filling = replace(
        kernel,
        target=replace(kernel.source, ncomp=numbers),
        step=step,
        geometry=geometry,
        reproducible=False,
        merged=False,
        entry="fill",
    )
    filling = unspilled(filling, device)
    sweep = DeviceSweep(device, filling, dofs, dofs, data, free, free, 0.0, out)
    sweep.launch(device.address(state.vector), 0, 1.0, add=False)
    return out


def _kernel(device: Device, term: Term) -> CudaKernel:
    points, step = term.quadrature.points, term.program.step
    sides = [
        Side(
            space.ncomp,
            space.basis.interpolation(points),
            _broken(space),
            volume_space(space).halo is not None,
        )
        for space in (term.trial, term.test)
    ]
    return CudaKernel.fitting(
        device,
        dim=term.trial.dim,
        source=sides[0],
        target=sides[1],
        d1d=lagrange_derivative_matrix(points, points),
        step=step,
        dtype=term.dtype,
        weights=term.quadrature.weights,
        geometry=_geometry(term, step),
        data_dtype=term.data_dtype,
        reproducible=volume_space(term.test).reproducible,
    )


def _geometry(term: Term, step: PointStep) -> Map1D | None:
    """What a step needs that is given Jacobians or positions."""
    if not step.numbers.mapped:
        return None
    assert isinstance(term.trial, Space)  # a face's position is kept
    points = term.quadrature.points
    return Map1D(*mode_values(GeometryModes(term.trial.mesh).degree + 1, points))


def _broken(space: AnySpace) -> bool:
    return space.p1d == 1 or isinstance(space, L2)


def _device_dofs(device: Device, space: AnySpace) -> DeviceDofs:
    """The dofs of the elements of a space, copied once."""
    if space not in _dofs:
        indices, runs = space.restriction.indices, Runs(space.dim, space.p1d, _broken(space))
        table = DofTable.of(indices, runs)
        shared = None
        if volume_space(space).reproducible:
            shared = DeviceShared.of(device, Shared.of(indices, runs))
        touched = _touched(space)
        starts, turned = device.upload(table.starts), device.upload(table.turned)
        there, met = device.upload(touched), int(touched[-1])
        owned = None if volume_space(space).halo is None else volume_space(space).ndofs
        _dofs[space] = DeviceDofs(starts, turned, there, indices, met, shared, owned)
    return _dofs[space]


def _touched(space: AnySpace) -> NDArray[np.int32]:
    """Which dofs each element meets first; no face meets any."""
    if isinstance(space, BoundarySpace):
        return np.zeros(space.mesh.num_elements + 1, dtype=np.int32)
    return space.restriction.first_touch.astype(np.int32)
