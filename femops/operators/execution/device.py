"""Backend of a device: binds kernels of terms to dofs and data in the device's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.basis import grid_rule
from femops.errors import OperatorError
from femops.geometry.jacobians import Geometry
from femops.operators.assembly.diagonal import assemble_diagonal
from femops.operators.execution.backend import (
    Backend,
    Ints,
    Sizes,
    TermWork,
    Transfer,
    Work,
)
from femops.operators.execution.ranks import device_ghosts
from femops.operators.execution.specs import (
    geometry_map,
    point_spec,
    separated,
    side_of,
    transfer_spec,
)
from femops.operators.integrals.coefficients import smallest_of
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.fusion import scaled_points
from femops.operators.integrals.state import NO_STATE, Field, State
from femops.operators.integrals.term import KernelTerm, Sum, Term, data_of, setup_of
from femops.parallel.gpus import device_channel
from femops.pointwise.expressions.graph import Node
from femops.pointwise.qdata_split import QDataSplit
from femops.pointwise.sides import is_plus, is_side
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.side_space import side_spaces
from femops_kernels.compiled import (
    ONE,
    CompiledOperator,
    Exchanges,
    Panels,
    Places,
    Routes,
)
from femops_kernels.cuda.device.ahead import Ahead
from femops_kernels.cuda.multigrid.rows import DeviceRowProduct
from femops_kernels.cuda.multigrid.updates import DeviceUpdates, compile_updates_later
from femops_kernels.cuda.operator.data import FilledData, host_streams, joined_streams
from femops_kernels.cuda.operator.dofs import (
    DeviceDofs,
    DeviceEnd,
    DeviceShared,
    DofTable,
    Shared,
    interleaved,
)
from femops_kernels.cuda.operator.filling import FieldVector, filled_streams
from femops_kernels.cuda.operator.hanging import HangingTable
from femops_kernels.cuda.operator.kernel import CudaKernel, LineKernel
from femops_kernels.cuda.operator.many import for_many
from femops_kernels.cuda.operator.order import Order
from femops_kernels.cuda.operator.sides import runs_of
from femops_kernels.cuda.operator.sweep import (
    DeviceIdentityRows,
    DeviceLaunch,
    DeviceNoOp,
    DeviceSweep,
)
from femops_kernels.cuda.operator.table_kernel import TableKernel
from femops_kernels.cuda.operators import DeviceOperator, DistributedDeviceOperator
from femops_kernels.cuda.ranks.messages import DeviceForward, DeviceReverse
from femops_kernels.device import Device, DeviceChannel
from femops_kernels.errors import KernelValueError
from femops_kernels.exclusive import Derived
from femops_kernels.pointwise.qdata import Data
from femops_kernels.simd.runs import equal_runs
from femops_kernels.spec import (
    KernelSpec,
    PointSpec,
    QFunctionInputs,
    SeparableSpec,
    Side,
    scaling,
)
from femops_meshes.mesh import Mesh

# dofs of a space for kernels of 1-D matrices, and for kernels by tables
_dofs: WeakKeyDictionary[DomainSpace, dict[bool, DeviceDofs]] = WeakKeyDictionary()


_modes = Derived[KernelTerm, Work | None]()


def kernel_of(device: Device, term: KernelTerm, modes: Work | None = None) -> CudaKernel:
    """Kernel of a term, or of its work in an orthonormal basis, with a launch shape that suits."""
    if modes is not None:
        return _fitting(device, modes[0])
    if not (term.tabulated and term.domain.by_tables):
        for space in (*term.fields.spaces.values(), *term.tests.spaces.values()):
            _ = space.basis  # raises unless all directions have the same one
        grid_rule(term.quadrature, "a device")
    return _fitting(device, point_spec(term))


def _modes_of(term: KernelTerm) -> Work | None:
    """Work of a linear term by tables in an orthonormal basis; None if it has no such basis.

    Other terms have separable work too, for which a device has no kernels.
    """
    if not (term.tabulated and term.domain.by_tables):
        return None
    return _modes.get(term, lambda: separated(term, ()))


def _fitting(device: Device, spec: KernelSpec) -> CudaKernel:
    """Kernel of a specification, with a launch shape that suits the device."""
    assert isinstance(spec, PointSpec)
    return (TableKernel if spec.tabulated else LineKernel).fitting(device, spec)


def _at_points(work: Work) -> tuple[PointSpec, Data]:
    """Products of element dofs as kernels of a device compute them: with points, or at nodes."""
    spec, data = work
    if isinstance(spec, PointSpec) and spec.tabulated and not data.elements.size:
        alone = scaling(spec.source.ncomp, QFunctionInputs())  # the factors of elements are 1
        return replace(spec, qfunction=alone), data
    if isinstance(spec, SeparableSpec):
        if not data.elements.size:
            return spec.at_nodes(scaled=False), data
        # all components have the same factors
        return spec.at_nodes(scaled=True), replace(data, elements=data.elements[:, :1])
    assert isinstance(spec, PointSpec)
    return spec, data


def device_dofs(device: Device, space: DomainSpace, *, tabulated: bool) -> DeviceDofs:
    """Dof tables of a space on the device, uploaded once, for a kernel by tables or by lines."""
    known = _dofs.setdefault(space, {})
    if tabulated not in known:
        indices, side = space.restriction.indices, side_of(space)
        runs = replace(runs_of(side, space.dim, tabulated=tabulated), single=False)
        hanging = _hanging(space, side)
        if hanging is not None:
            indices = hanging.indices
        table = DofTable.of(indices, runs)
        shared = None
        if space.volume.reproducible:
            ordered = replace(runs, single=not space.domain.on_elements)
            shared = DeviceShared.of(device, Shared.of(indices, ordered, hanging))
        touched = _touched(space)
        starts = device.upload(interleaved(table.starts) if tabulated else table.starts)
        turned = device.upload(table.turned)
        on_device, num_touched = device.upload(touched), int(touched[-1] - touched[0])
        size = space.volume.ndofs
        owned = None if space.halo is None and hanging is None else size
        unmet = None if hanging is None else _unmet(space, indices, touched)
        hanging = None if hanging is None else hanging.uploaded(device)
        tables, inside = (starts, turned, on_device, indices), table.inside(runs)
        more = inside, hanging, unmet
        known[tabulated] = DeviceDofs(*tables, num_touched, shared, owned, size, *more)
    return known[tabulated]


def _hanging(space: DomainSpace, side: Side) -> HangingTable | None:
    """Nodes of elements that are interpolated; None if all nodes have dofs of their own."""
    hanging = space.restriction.hanging
    if hanging is None:
        return None
    indices, size = space.restriction.indices, space.volume.ndofs
    theirs = space.restriction.ndofs - size
    runs, layers = equal_runs(space.dim, space.p1d, side.broken), side.layers or space.p1d
    rows = hanging.hanging, hanging.parts
    return HangingTable.of(indices, size, theirs, runs, *rows, hanging.halves, layers)


def _unmet(space: DomainSpace, indices: Ints, touched: NDArray[np.int32]) -> Ints:
    """Dofs (n,) that the element which is first to touch them has only in places of ghosts.

    ``indices`` (ne, nodes) has ghosts in these places; for ``touched`` see `_touched`.
    """
    assert space.restriction.hanging is not None
    some = np.unique(space.restriction.hanging.hanging[:, 0])
    places, own = space.restriction.indices[some], indices[some]
    first = (places >= touched[some, np.newaxis]) & (places < touched[some + 1, np.newaxis])
    row, node = np.nonzero(first & (own != places))
    dofs = places[row, node]
    return np.unique(dofs[(own[row] != dofs[:, np.newaxis]).all(axis=1)])


def _touched(space: DomainSpace) -> NDArray[np.int32]:
    """Ranges (ne + 1,) of dofs that each element touches first, see `first_touch`."""
    if not space.domain.on_elements:
        return np.zeros(space.domain.num_elements + 1, dtype=np.int32)
    return space.restriction.first_touch.astype(np.int32)


@final
class DeviceField:
    """A field of a state, stored on a device."""

    def __init__(self, space: Space, vector: Any, ghosts: Any = None) -> None:
        self.space, self.vector, self.ghosts = space, vector, ghosts

    @cached_property
    def on_host(self) -> Field:
        """Copy of the field on the host, made at first use."""
        whole = np.concatenate(self._parts())
        ncomp = self.space.ncomp
        return Field.of_table(self.space, whole.reshape(-1, ncomp) if ncomp > 1 else whole)

    def _parts(self) -> list[NDArray[Any]]:
        parts = [self.vector] if self.ghosts is None else [self.vector, self.ghosts]
        return [self.space.memory.get(part) for part in parts]

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a recipe for another process."""
        return _restored, (self.space, *self._parts())


def _restored(space: Space, *parts: NDArray[Any]) -> DeviceField:
    return DeviceField(space, *(space.memory.put(part) for part in parts))


@final
class DeviceState(State):
    """State whose fields are stored on a device."""

    filled = True

    def __init__(
        self,
        fields: Mapping[str, DeviceField],
        setups: dict[Any, tuple[QDataSplit, Data]] | None = None,
    ) -> None:
        self.fields = dict(fields)
        self.spaces = {name: field.space for name, field in fields.items()}
        self.setups = {} if setups is None else setups

    def field(self, name: str) -> Field:
        return self.fields[name].on_host

    def of(self, names: Iterable[str], setups: dict[Any, Any]) -> DeviceState:
        return DeviceState({name: self.fields[name] for name in names}, setups)

    def points(
        self,
        form: Any,
        qdata_split: Any,
        dtype: np.dtype[Any],
        width: int,
    ) -> None:
        """See `State.points`: None, because kernels of the device compute these numbers."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a recipe for another process, which makes new ``setups``."""
        return DeviceState, (self.fields,)


LEVELS = ("partial", "matrix-free")
"""Levels for which a device has kernels."""

# kernels of terms that are compiled ahead: "apply", with those of its data, and "diagonal"
_asked: WeakKeyDictionary[KernelTerm, set[str]] = WeakKeyDictionary()
_filled = Derived[KernelTerm, FilledData]()
_looked = Derived[Mesh, None]()


@final
class DeviceBackend(Backend):
    """Backend of a device."""

    levels, measures, separates = LEVELS, False, False

    def __init__(self, device: Device) -> None:
        self._device = device
        self.updates = DeviceUpdates(device)

    def compile_ahead(self, works: Callable[[], Sequence[TermWork]], ranks: int) -> None:  # noqa: ARG002
        if self._device.compiles_later:
            given = [term for term, _ in works()]
            apart = any(term.domain.two_sided for term in given)  # the host computes their diagonal
            for term in given:
                _compile_later(self._device, term, _modes_of(term), diagonal=not apart)

    def compile_cycle(
        self,
        transfers: Sequence[Transfer],
        modes: Callable[[], Sequence[tuple[Space, NDArray[np.float64]]]],  # noqa: ARG002
        outer: np.dtype[Any],
        dtype: np.dtype[Any],
    ) -> None:
        if self._device.compiles_later:
            compile_updates_later(self._device, outer, dtype)
            ahead: Any = Ahead(self._device)
            for one, two, matrix, fine in transfers:
                work = transfer_spec(one, two, matrix, fine, dtype), Data(np.zeros((0, 0, 0, 1)))
                ahead.function(_fitting(ahead, _at_points(work)[0]).text)

    def check_lanes(self, lanes: int | None) -> None:
        if lanes is not None:
            raise OperatorError(f"lanes = {lanes!r} on a GPU: they are the CPU's, leave them out")

    def launch(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work] | None = None,
    ) -> DeviceLaunch:
        if not term.domain.num_elements:
            return DeviceNoOp()
        return _sweep(self._device, term, constraints, keep, linear=work is not None)

    def launch_products(self, source: Space, target: Space, work: Work) -> DeviceLaunch:
        if not source.domain.num_elements:
            return DeviceNoOp()
        device, (spec, data) = self._device, _at_points(work)
        dofs = partial(device_dofs, device, tabulated=spec.tabulated)
        into, out = ([DeviceEnd(dofs(V), FREE.rows)] for V in (source, target))
        return DeviceSweep(device, _fitting(device, spec), into, out, data, 0.0)

    def slots(self, dtype: np.dtype[Any]) -> int:  # noqa: ARG002
        return 1

    def fewest_at_once(self, width: int, *, ordered: bool) -> tuple[int, int]:  # noqa: ARG002
        return (0, 1) if ordered else (2, 2)

    def launch_panels(
        self,
        term: KernelTerm,
        constraints: Constraints,
        keep: float,
        work: Callable[[], Work],  # noqa: ARG002  (the host's)
        panels: Panels,
    ) -> DeviceLaunch:
        if not term.domain.num_elements:
            return DeviceNoOp()
        return _sweep(self._device, term, constraints, keep, panels)

    def rows(
        self,
        matrix: csr_array,
        dtype: np.dtype[Any],
        *,
        any_width: bool = False,  # noqa: ARG002  (a device has no lanes)
    ) -> DeviceRowProduct:
        start, columns = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
        return DeviceRowProduct(self._device, start, columns, matrix.data.astype(dtype))

    def idle(self) -> DeviceLaunch:
        return DeviceNoOp()

    def start(
        self,
        size: int,
        rows: Ints,
        keep: float,
        dtype: np.dtype[Any],
        panels: Panels = ONE,
    ) -> DeviceLaunch:
        """See `Backend.start`. A device clears the result before any launch."""
        every = np.add.outer(np.arange(panels.count) * size, rows if keep else rows[:0])
        return DeviceIdentityRows(self._device, every.reshape(-1), keep, dtype, panels.nvec)

    def operator(
        self, launches: Sequence[tuple[float, DeviceLaunch]], places: Places | None = None
    ) -> CompiledOperator:
        return DeviceOperator(self._device, launches, places)

    def diagonal(self, summands: Sum, compiled: Callable[[], CompiledOperator]) -> NDArray[Any]:
        """See `Backend.diagonal`. It is computed from the operator's data on the device.

        The host computes it if the operator has integrals over faces between elements.
        """
        if any(term.domain.two_sided for _, term in summands):  # also blocks of one side each
            on_host = assemble_diagonal(summands).astype(summands.first.dtype)
            values: NDArray[Any] = summands.first.spaces[0].memory.put(on_host)
            return values
        whole, term = compiled(), summands.first
        assert isinstance(whole, DeviceOperator | DistributedDeviceOperator)
        xp, size = self._device.xp, term.spaces[0].size
        nothing: NDArray[Any] = xp.zeros(size, term.dtype)
        out: NDArray[Any] = xp.zeros(size, term.dtype)
        whole.diagonal().apply(nothing, out)
        return out

    def state(self, vectors: Mapping[str, tuple[Space, Any]], setups: dict[Any, Any]) -> State:
        """See `Backend.state`. Vectors and their present ghosts are copied in float64."""
        if not vectors:
            return NO_STATE
        fields = {}
        for name, (space, u) in vectors.items():
            if is_side(name) and space.comm.size > 1:
                raise OperatorError(
                    "the derivative of a residual over faces between elements is not for ranks "
                    "with a GPU each: take one GPU, or the host"
                )
            ghosts = device_ghosts(self, space, space.halo, u)
            parts = [None if part is None else part.astype(np.float64) for part in (u, ghosts)]
            fields[name] = DeviceField(space, *parts)
        return DeviceState(fields, setups)

    def placed(self, vector: Any) -> Any:
        return vector

    def way(self, space: Space, send: Sizes, receive: Sizes, dtype: np.dtype[Any]) -> DeviceChannel:
        return device_channel(self._device, space.comm, send, receive, dtype)

    def forward(self, way: Any, positions: Ints) -> DeviceForward:
        return DeviceForward(self._device, way, positions)

    def reverse(self, way: Any, positions: Ints, starts: Ints | None = None) -> DeviceReverse:
        assert starts is None  # spaces on a device refuse the option that needs it
        return DeviceReverse(self._device, way, positions)

    def distributed(
        self,
        local: Any,
        forwards: Exchanges,
        reverses: Exchanges,
        routes: Routes,
        at_once: bool,  # noqa: ARG002  (spaces on a device refuse the option that needs it)
    ) -> CompiledOperator:
        return DistributedDeviceOperator(local, forwards, reverses, routes)


def _sweep(
    device: Device,
    term: KernelTerm,
    constraints: Constraints,
    keep: float,
    panels: Panels = ONE,
    *,
    linear: bool = True,
) -> DeviceSweep:
    """Bind the kernel of a term to dofs and data on a device."""
    modes = _modes_of(term) if linear else None
    if device.compiles_later and panels == ONE:
        _compile_later(device, term, modes)
    kernel = kernel_of(device, term, modes)
    if panels != ONE:
        kernel = for_many(kernel, device, panels.nvec)
    dofs = partial(device_dofs, device, tabulated=kernel.spec.tabulated)
    sources, targets = (
        [
            DeviceEnd(dofs(space), side.within(name, held), side.origin(name))
            for name, space in side.spaces.items()
        ]
        for side, held in ((term.fields, constraints.columns), (term.tests, constraints.rows))
    )
    data = _data(term) if modes is None else modes[1]
    return DeviceSweep(device, kernel, sources, targets, data, keep, panels)


def _compile_later(
    device: Device, term: KernelTerm, modes: Work | None, *, diagonal: bool = False
) -> None:
    """Start to compile a term's kernel and those of its data, and perhaps that of its diagonal."""
    asked = _asked.setdefault(term, set())
    wanted = {"diagonal"} if diagonal else {"apply"}
    if not term.domain.num_elements or wanted <= asked:
        return
    ahead: Any = Ahead(device)
    with suppress(KernelValueError):  # raised again where the kernel is needed
        kernel = kernel_of(ahead, term, modes)
        if diagonal:
            ahead.function(replace(kernel, entry="diagonal").text)
        if "apply" not in asked:
            ahead.function(kernel.text)
            for _, part in term.parts if term.looked_at and modes is None else ():
                for stored in _filled_nodes(part):
                    ahead.function(_filling(ahead, part, stored, kernel)[0].text)
    asked |= {"apply", *wanted}


def _filled_nodes(term: Term) -> list[list[Node]]:
    """Nodes of each launch that computes a term's data or checks them; see `_sum_streams`."""
    source, split = term.source, term.qdata_split
    found = [split.point] if term.qfunction.numbers.point and term.filled else []
    if term.looked_at and source.has_maps:
        assert isinstance(source.geometry, Geometry)
        if not _looked.known(source.geometry.mesh, term.quadrature.key):
            found.append([source.weight])
        if split.computed and not source.state.spaces:
            found.append(split.computed)
    return found


def _data(term: KernelTerm) -> Data | FilledData:
    """Data that a kernel of the term reads: data of the host, or computed on the device.

    The device computes or checks the data of a term only once.
    """
    if not term.looked_at:
        return term.data
    fill = partial(_sum_streams, term.parts)
    return _filled.get(term, lambda: FilledData(term.data_without_points, fill))


def _sum_streams(terms: Sum, kernel: CudaKernel, order: Order) -> Any:
    """Streams of a sum's kernel: the numbers of all terms at each point, term by term.

    None if no term stores numbers at points. Also checks the terms' data.
    """
    device = terms.first.spaces[0].device
    assert device is not None
    parts = []
    for factor, term in terms:
        count, found = term.qfunction.numbers.point, None
        if count and term.filled:
            found = _streams(term, term.qdata_split.point, kernel, order)
        elif count:
            found = host_streams(device, kernel, term.data.points, order)
        if term.looked_at:
            _check(term, found, kernel, order)
        if count:
            factors = np.ones(count)
            factors[scaled_points(term)] = factor
            parts.append((found, factors))
    return joined_streams(device, kernel, parts) if parts else None


def _check(term: Term, found: Any, kernel: CudaKernel, order: Order) -> None:
    """Check a term's geometry and streams on the device.

    ``found`` has the streams, or is None if there are none. If a check fails, the host computes the
    data again and raises an error that names the elements.
    """
    source, xp = term.source, term.spaces[0].memory.xp
    if not source.has_maps:  # the host has checked the geometry
        return
    weights = partial(_streams, term, [source.weight], kernel, order)
    geometry, qdata_split = source.geometry, term.qdata_split
    assert isinstance(geometry, Geometry)
    look = partial(_look, geometry, weights)
    _looked.get(geometry.mesh, look, term.quadrature.key)
    if source.state.spaces:  # a state with NaN or infinity shows in its residual
        return
    good = found is None or bool(xp.isfinite(found).all())
    if good and found is not None and term.data_dtype is not None:
        largest = max(float(found.max()), -float(found.min()))
        good = largest >= smallest_of(term.data_dtype)
    if good and qdata_split.computed:
        computed = _streams(term, qdata_split.computed, kernel, order)
        good = bool(xp.isfinite(computed).all())
    if not good:
        # raises the error
        data_of(source, qdata_split, term.dtype, term.width, term.data_dtype)


def _look(geometry: Geometry, weights: Callable[[], Any]) -> None:
    """Check on the device that all Jacobian determinants are positive.

    If the check fails, the host checks again and names the elements. The device has determinants
    times quadrature weights. So the host checks if the rule has weights that are not positive.
    """
    points = geometry.mesh.num_elements * geometry.num_points
    signed = (geometry.weights <= 0.0).any()
    if signed or int((weights() > 0.0).sum()) < points:
        geometry.check()


def _streams(term: Term, stored: list[Node], kernel: CudaKernel, order: Order) -> Any:
    """Compute streams of the ``stored`` nodes at quadrature points on the device.

    The device reads the geometry, or the form's state.
    """
    source, device = term.source, term.spaces[0].device
    assert device is not None
    filling, data = _filling(device, term, stored, kernel)
    dofs = partial(device_dofs, device, tabulated=filling.spec.tabulated)
    fields = [FieldVector(dofs(term.trial))]
    if isinstance(source.state, DeviceState):
        fields = [
            FieldVector(dofs(_placed(term.trial, name, f)), f.vector, f.ghosts)
            for name, f in source.state.fields.items()
        ]
    # the filling kernel is run again for each state at which the form is differentiated
    again = bool(source.state.spaces) and stored is term.qdata_split.point
    return filled_streams(device, filling, fields, data, order, again=again)


def _filling(
    device: Device, term: Term, stored: list[Node], kernel: CudaKernel
) -> tuple[CudaKernel, Data]:
    """Kernel that computes the ``stored`` nodes at quadrature points, and its inputs."""
    source, sides = term.source, [kernel.spec.source]
    kept = replace(term.qdata_split, point=stored)
    qdata_split, data = setup_of(source, kept, np.dtype(np.float64), term.width)
    code, numbers = qdata_split.qfunction.code, qdata_split.qfunction.ncomp_out
    if isinstance(source.state, DeviceState):
        spaces = [_placed(term.trial, *field) for field in source.state.fields.items()]
        tabulated = kernel.spec.tabulated
        sides = [side_of(space, term.quadrature, tabulated=tabulated) for space in spaces]
    return kernel.filling(device, tuple(sides), code, geometry_map(term, code), numbers), data


def _placed(trial: DomainSpace, name: str, field: DeviceField) -> DomainSpace:
    """Space of a field of a state on the elements of a trial space, or on its side of faces."""
    if trial.domain.two_sided:
        sides = side_spaces(field.space, int(is_plus(name)), slopes=trial.have_slopes)
        return next(each for each in sides if each.domain is trial.domain)
    return trial.on(field.space)
