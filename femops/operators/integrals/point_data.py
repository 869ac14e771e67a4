"""Data that the kernel of an integral reads, and programs that compute data on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.domain import DomainBlock
from femops.geometry.jacobians import Geometry
from femops.geometry.legendre import LegendreGeometry
from femops.operators.integrals.chunks import chunk_batches
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.number_types import check_range, check_values, largest_of
from femops.operators.integrals.state import NO_STATE
from femops.pointwise.expressions.graph import Node
from femops.pointwise.field_symbol import Argument
from femops.pointwise.qdata_split import (
    NonlinearQFunction,
    QDataSplit,
    nonlinear_split,
    stored_split,
)
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.in_order import in_order
from femops_kernels.derived import Derived
from femops_kernels.pointwise.qdata import Data, store_interleaved
from femops_meshes.mesh import Mesh

_mode_lanes = Derived[Mesh, NDArray[Any]]()


def mode_lanes(
    mesh: Mesh, dtype: np.dtype[Any], width: int, edges: NDArray[np.int64]
) -> NDArray[Any]:
    """Return the geometry modes (nbatch, dim, modes, width) of a mesh's elements, in lanes.

    The modes are computed once for a mesh, type and width.

    Slots past the last element repeat its modes, so that they have a valid Jacobian. The memory is
    near the threads of the first sweep, whose chunks begin at the batches ``edges``.
    """

    def make() -> NDArray[Any]:
        modes, ne = LegendreGeometry(mesh), mesh.num_elements
        shape = (-(-ne // width), mesh.dim, (modes.degree + 1) ** mesh.dim, width)
        out = placed_array(shape, dtype, edges)
        for start, values in modes.blocks():
            store_interleaved(out, values, start)
        if ne:  # a rank may have no elements
            filled = ne - (len(out) - 1) * width
            out[-1, :, :, filled:] = out[-1, :, :, filled - 1 : filled]
        return out

    return _mode_lanes.get(mesh, make, dtype.str, width)


def data_of(
    form: Integral,
    qdata_split: QDataSplit,
    dtype: np.dtype[Any],
    width: int,
    data_dtype: np.dtype[Any] | None = None,
    *,
    at_points: bool = True,
    looks: bool = True,
) -> Data:
    """Compute the data that the kernel of an integral reads, block by block."""
    ne, numbers = form.domain.num_elements, qdata_split.qfunction.numbers
    edges = chunk_batches(form.fields, form.tests, dtype, width)
    swept = _swept(form, qdata_split, dtype, width) if at_points and not data_dtype else None
    nodes = qdata_split.point if at_points and swept is None else []
    stored, finite = _stored(form, nodes, (data_dtype or dtype, width, edges), data_dtype is None)
    elements = placed_array((-(-ne // width), 1, numbers.element, width), dtype, edges)
    for block in form.center if numbers.element else ():
        values = form.values(qdata_split.element, block, check=False)
        finite &= bool(np.isfinite(values).all())
        check_values(f"{form.name}: the data of elements", values, dtype)
        store_interleaved(elements, values, block.start)
    constants = np.zeros(len(qdata_split.constant), dtype)
    if ne:  # constants are the same in all elements
        values = form.values(qdata_split.constant, form.center.block(0, 1), check=False)[0, 0]
        finite &= bool(np.isfinite(values).all())
        check_values(f"{form.name}: constants that kernels read", values, dtype)
        constants[:] = values
    if not finite:
        form.check(qdata_split.finite)
    if qdata_split.computed and at_points and looks and swept is None:
        form.check(qdata_split.computed)
    modes: NDArray[Any] = np.zeros(0, dtype)
    if numbers.mapped:
        assert isinstance(form.geometry, Geometry)
        if looks:
            form.geometry.check()
        modes = mode_lanes(form.geometry.mesh, dtype, width, edges)
    return Data(stored if swept is None else swept, elements[:, 0], modes, constants)


def _stored(
    form: Integral,
    nodes: list[Node],
    lanes: tuple[np.dtype[Any], int, NDArray[np.int64]],
    own_type: bool,
) -> tuple[NDArray[Any], bool]:
    """Numbers at points (nbatch, points, nodes, width), and True if all are finite."""
    dtype, width, edges = lanes
    shape = -(-form.domain.num_elements // width), form.geometry.num_points, len(nodes), width
    stored, finite, largest = placed_array(shape, dtype, edges), True, 0.0
    what = f"{form.name}: the data at quadrature points"
    cure = "use float64" if own_type else "leave data_dtype out"
    ranged = dtype == np.float32 and not form.state.spaces

    def store(block: DomainBlock) -> tuple[bool, float]:
        values = form.values(nodes, block, check=False)
        with np.errstate(over="ignore"):  # reported below
            store_interleaved(stored, values, block.start)
        return bool(np.isfinite(values).all()), largest_of(values) if ranged else 0.0

    for well, size in in_order(store, form.geometry if nodes else ()):
        finite, largest = finite and well, max(largest, size)
        check_range(what, largest, dtype, cure)
    if largest and not own_type:
        check_range(what, largest, dtype, cure, whole=True)
    return stored, finite


def _swept(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> NDArray[Any] | None:
    """Numbers at points, computed by a sweep. None if NumPy should compute them.

    NumPy names numbers that are not finite, and determinants that are not positive.
    """
    if not qdata_split.point:
        return None
    points = form.state.points(form, qdata_split, dtype, width)
    if points is None or form.state.spaces:  # a bad state shows in its residual
        return points
    assert isinstance(form.geometry, Geometry)
    form.geometry.check()
    ends = points.min(initial=0.0), points.max(initial=0.0)  # a sum may overflow, on some ranks
    return points if np.isfinite(ends).all() else None


def setup_of(
    form: Integral, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
) -> tuple[QDataSplit, Data]:
    """Program that computes the numbers of a split at points, and the data of the program.

    Program and data do not depend on the values of the state, and are made once. On a device the
    data have no geometry, except for faces.
    """
    key = dtype, width, tuple(node.number for node in qdata_split.point)
    if key not in form.setups:
        static, given = dict(form.static), next(iter(form.program.fields.values()))
        parts = [Argument(static.pop(n), static.pop(f"d{n}")) for n in form.state.spaces]
        if parts:
            given = Argument.joined(parts)
        trace, nodes = replace(form.program, static=static), qdata_split.point
        there = form.domain.has_maps and (form.state.filled or not parts)
        split = stored_split if there else nonlinear_split
        found = split(trace, given, nodes, len(nodes), form.known)
        step = NonlinearQFunction(trace) if parts else form.traced
        plain = replace(form, state=NO_STATE, traced=step)
        form.setups[key] = found, data_of(plain, found, dtype, width, looks=not there)
    found_already: tuple[QDataSplit, Data] = form.setups[key]
    return found_already
