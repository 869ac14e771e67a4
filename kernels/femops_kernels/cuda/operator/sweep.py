"""Sweeps on a device: kernels bound to dofs and data, and sums of launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.compiled import ONE, CompiledOperator, Launch, Panels, Places
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.cuda.operator.data import FilledData, prefetched, tables_of, uploaded
from femops_kernels.cuda.operator.dofs import (
    DeviceDofs,
    DeviceEnd,
    DeviceShared,
    Marked,
    Shared,
    centre,
)
from femops_kernels.cuda.operator.grid import launch_portions
from femops_kernels.cuda.operator.hanging import HangingTable, Interpolation
from femops_kernels.cuda.operator.inputs import CLEARED, CONSTRAINED, STATE
from femops_kernels.cuda.operator.kernel import CudaKernel, unspilled
from femops_kernels.cuda.operator.order import Order
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.cuda.operator.sides import INPUT, OUTPUT, alone, runs_of, suffix
from femops_kernels.cuda.ranks.messages import Entries
from femops_kernels.device import Device, Function
from femops_kernels.pointwise.qdata import Data
from femops_kernels.simd.runs import DofRuns
from femops_kernels.spec import Side

# Least fraction of an element's dofs inside the element. From this fraction on, the time saved by
# not clearing them is longer than the time to read the numbers of the other dofs.
_WORTH = 0.2
_WARP = 32


@final
class Clearing:
    """Launch that sets y to zero at all dofs but those inside elements.

    Each element clears the dofs that it touches first.
    """

    def __init__(self, device: Device, kernel: CudaKernel, dofs: DeviceDofs) -> None:
        starts, touched = dofs.starts, dofs.touched
        pointers = {"y": "T*", "starts": "const int*", "touched": "const int*"}
        layout = Layout(pointers | {"count": "int"}, kernel.spec.dtype)
        runs = _runs(kernel)
        numbers = {"RUNS": len(runs.nodes), "CENTRE": centre(runs), "INSIDE": len(runs.inside)}
        numbers["NCOMP"] = kernel.target.ncomp
        if kernel.spec.tabulated:  # whose starts are interleaved: those inside elements suffice
            numbers |= {"RUNS": 1, "CENTRE": 0}
            starts = device.upload(dofs.indices[:, runs.inside[0]].astype(np.int32))
        count = len(touched) - 1
        self._blocks = -(-count * _WARP // SIMPLE_THREADS)
        self._arrays = {"starts": starts, "touched": touched}
        self._packed = layout.pack(device, y=None, count=count, **self._arrays)
        self._function = device.function(simple_text(layout, kernel.spec.dtype, "clear", **numbers))

    @staticmethod
    def pays(kernel: CudaKernel, dofs: DeviceDofs, constrained: NDArray[np.int64]) -> bool:
        """True if many dofs are inside elements and numbered in order, and none is constrained.

        The kernel adds to rows of constrained dofs, also inside elements, so they must be zero.
        ``constrained`` (n,) are their flat positions.
        """
        count = len(_runs(kernel).inside)
        if dofs.inside is None or count < _WORTH * dofs.indices.shape[1]:
            return False
        nodes = constrained // kernel.target.ncomp
        before = np.append(-count, dofs.inside)  # no node is in the run at -count
        before = before[np.searchsorted(before, nodes, side="right") - 1]
        return not (nodes - before < count).any()

    def launch(self, y: int) -> None:
        """Clear the vector y, given by its address."""
        packed = copied(self._packed)
        packed["y"] = y
        self._function.launch(self._blocks, SIMPLE_THREADS, 0, packed)


def _runs(kernel: CudaKernel) -> DofRuns:
    return runs_of(kernel.target, kernel.spec.dim)


class DeviceLaunch(Launch, ABC):
    """Launch of compiled work on a device."""

    overwrites = False

    @abstractmethod
    def launch(self, x: int, y: int, alpha: float, *, add: bool) -> None:
        """Add alpha times the term applied to x to y, both given by address.

        If ``add`` is False, entries of dofs inside elements are overwritten.  All other entries of
        y must have been set before.
        """

    @abstractmethod
    def diagonal(self) -> DeviceLaunch:
        """Launch that adds a square term's diagonal, without constraints, to y and ignores x."""

    def leave(self, ghosts: dict[str, int]) -> None:
        """Add contributions to ghosts to those that are sent, given by address."""


@final
class DeviceSweep(DeviceLaunch):
    """A kernel bound to dofs and data on a device: one term of an operator."""

    on_elements = True

    def __init__(
        self,
        device: Device,
        kernel: CudaKernel,
        sources: Sequence[DeviceEnd],
        targets: Sequence[DeviceEnd],
        data: Data | FilledData,
        keep: float,
        panels: Panels = ONE,
    ) -> None:
        hanging = any(end.dofs.hanging is not None for end in (*sources, *targets))
        # panels of a launch with ghosts that hang are worked on one after the other
        self.panels = Panels(panels.nvec) if hanging else panels
        self._repeated = panels.count if hanging else 1
        self.device, self.kernel, self.count = device, kernel, len(sources[0].dofs.indices)
        self._given = sources, targets, data, keep
        ghosts = np.zeros(self.count, dtype=np.bool_)
        if kernel.ordered:  # messages are on their way to ghosts, also to those of hanging nodes
            ghosts = np.any([end.dofs.with_ghosts for end in (*sources, *targets)], axis=0)
        self.order = Order.of(ghosts, kernel.shape.elements)
        count, self._functionals = kernel.spec.minima + kernel.spec.sums, None
        if count:
            self._functionals = device.xp.empty((count, self.count), kernel.spec.dtype)
        self._combines: list[tuple[int, Combine]] = []
        self._kept: list[Marked] = []  # while they are, other sweeps share them
        # before and after a launch: places of vectors, and what fills their ghosts or empties them
        self._before: list[tuple[int, Interpolation]] = []
        self._after: list[tuple[int, Interpolation]] = []
        self._rows: list[tuple[int, int, DeviceIdentityRows]] = []  # that no element sets
        # by argument: copies of other ranks' ghosts to the ghosts of a launch with hanging nodes,
        # and sums of contributions to such ghosts, which are zero before
        self._received: dict[str, Entries] = {}
        self._sent: dict[str, tuple[Entries, Any]] = {}
        self._arrays = self._made_arrays(sources, targets, data)
        self._bound: tuple[Function, NDArray[Any]] | None = None
        one = len(sources) == len(targets) == 1 and not count
        self._alike = one and (
            sources[0].dofs is targets[0].dofs
            and np.array_equal(sources[0].marked, targets[0].marked)
        )
        self._num_first_touched = (
            targets[0].dofs.num_first_touched * kernel.target.ncomp if one else -1
        )
        size = kernel.spec.dtype.itemsize
        self._places = {
            f"{name}{suffix(k)}": (name, size * end.begin * panels.nvec)
            for name, ends in (("x", sources), ("y", targets))
            for k, end in enumerate(ends)
            if k or end.begin
        }

    def _made_arrays(
        self, sources: Sequence[DeviceEnd], targets: Sequence[DeviceEnd], data: Data | FilledData
    ) -> dict[str, Any]:
        """Arguments of the kernel, without vectors."""
        device, kernel = self.device, self.kernel
        arrays: dict[str, Any] = {
            "order": device.upload(self.order.elements) if kernel.ordered else None,
            "functionals": self._functionals,
            **uploaded(device, kernel, data, self.count, self.order),
            **tables_of(device, kernel),
        }
        for k, (side, end) in enumerate(zip(kernel.spec.sources, sources, strict=True)):
            arrays |= input_arguments(side, end.dofs, suffix(k)) | self._marks(k, side, end)
            arrays |= self._hanging(f"ghosts_in{suffix(k)}", side, end)
        for k, (side, end) in enumerate(zip(kernel.spec.targets, targets, strict=True)):
            arrays |= self._output(k, side, end)
        return arrays

    def _marks(self, k: int, side: Side, end: DeviceEnd) -> dict[str, Any]:
        """Arguments of field k that mark its entries to be read as zero."""
        marked = end.dofs.marked(self.device, end.marked, side.ncomp, CLEARED)
        self._kept.append(marked)
        return {f"flags_in{suffix(k)}": marked.flags, f"marks_in{suffix(k)}": marked.marks}

    def _output(self, k: int, side: Side, end: DeviceEnd) -> dict[str, Any]:
        """Arguments of test function k, without its vector."""
        dofs, device, kernel = end.dofs, self.device, self.kernel
        marked = dofs.marked(device, end.marked, side.ncomp, CONSTRAINED)
        self._kept.append(marked)
        parts = None
        if kernel.spec.reproducible and not (alone(side) and len(kernel.spec.targets) > 1):
            shared, hanging = dofs.shared, dofs.hanging
            if shared is None:  # another field's space is reproducible
                runs = runs_of(side, kernel.spec.dim)
                there = None if hanging is None else hanging.downloaded(device)
                shared = DeviceShared.of(device, Shared.of(dofs.indices, runs, there))
            more = 0 if hanging is None else hanging.slots
            parts = device.xp.zeros((dofs.indices.size + more) * side.ncomp, kernel.spec.dtype)
            combine = Combine(device, kernel.spec.dtype, side.ncomp, shared, parts)
            self._combines.append((end.begin * kernel.spec.dtype.itemsize, combine))
        values: dict[str, Any] = dict.fromkeys(OUTPUT)
        values |= {"starts_out": dofs.starts, "turned_out": dofs.turned, "parts": parts}
        values |= {"flags_out": marked.flags, "marks_out": marked.marks, "touched": dofs.touched}
        values |= {"owned_out": (dofs.owned or 0) * side.ncomp}
        keep = self._given[3]
        if dofs.unmet is not None and keep:
            rows = end.marked[np.isin(end.marked // side.ncomp, dofs.unmet)]
            made = DeviceIdentityRows(device, rows, keep, kernel.spec.dtype, self.panels.nvec)
            of = self._given[0][kernel.spec.blocks[k]]
            self._rows.append((self._place(of), self._place(end), made))
        found = {f"{name}{suffix(k)}": value for name, value in values.items()}
        return found | self._hanging(f"ghosts_out{suffix(k)}", side, end, parts)

    def _hanging(self, name: str, side: Side, end: DeviceEnd, parts: Any = None) -> dict[str, Any]:
        """Argument with the ghosts of a field or test function; nothing if no node hangs.

        Those of hanging nodes are filled before each launch, or emptied after it, unless they take
        no part in it. Those of other ranks, which come first, are copied.
        """
        table, device, nvec, size = end.dofs.hanging, self.device, self.panels.nvec, side.ncomp
        if table is None:
            return {}
        back = name.startswith("ghosts_out")
        ghosts = device.xp.zeros(table.ghosts * size * nvec, self.kernel.spec.dtype)
        if not side.masked:
            mark = CONSTRAINED if back else CLEARED
            marks = end.dofs.marked(device, end.marked, size, mark).marks
            made = Interpolation(device, table, marks, ghosts, size, nvec, back=back, parts=parts)
            (self._after if back else self._before).append((self._place(end), made))
        theirs = ghosts[: table.theirs * size]
        if len(theirs) and back:
            fields = {"y": "T*", "values": "const T*"}
            places = np.arange(len(theirs))
            self._sent[name] = Entries(device, "add", fields, theirs, places), theirs
        elif len(theirs):
            fields = {"x": "const T*", "values": "T*"}
            self._received[name] = Entries(device, "pack", fields, theirs, np.arange(len(theirs)))
        return {name: ghosts}

    def _place(self, end: DeviceEnd) -> int:
        """Bytes from the beginning of a vector to a field or test function."""
        return self.kernel.spec.dtype.itemsize * end.begin * self.panels.nvec

    @property
    def functionals(self) -> Any:
        return self._functionals

    def mergeable(self, size: int) -> bool:
        """True if a merged sweep can update vectors of ``size`` entries.

        The constrained rows must be the columns that are read as zero.  Elements must touch every
        dof.  The q-function must return factors for just the values and derivatives that it takes.
        Thread blocks must have two threads or more.
        """
        qfunction, merged = self.kernel.spec.qfunction, replace(self.kernel, merged=True)
        factors = (qfunction.value_in, qfunction.gradient_in) == (
            qfunction.value_out,
            qfunction.gradient_out,
        )
        # a block joins the sums of as many blocks as it has threads: one thread would make no
        # progress
        room = merged.shared_bytes <= self.device.shared_bytes and merged.threads > 1
        room = room and not self.kernel.spec.hanging
        return self._alike and self._num_first_touched == size and factors and room

    def clearing(self, size: int) -> Clearing | None:
        """Launch that clears the entries to which the sweep adds; None to clear all of y."""
        if self.panels != ONE or self._num_first_touched != size:
            return None
        target = self._given[1][0]
        if not Clearing.pays(self.kernel, target.dofs, target.marked):
            return None
        return Clearing(self.device, self.kernel, target.dofs)

    @property
    def blocks(self) -> int:
        """Number of portions of a launch: portions of elements times groups of vectors."""
        return self.order.blocks * self._groups

    @property
    def _groups(self) -> int:
        """Number of groups of vectors in all panels. A block works on one group."""
        return self.panels.count * -(-self.panels.nvec // self.kernel.vectors)

    def bind(self, kernel: CudaKernel, **arrays: Any) -> tuple[Function, NDArray[Any]]:
        """Compile a variant of the kernel with the same launch shape, and pack its arguments.

        The packed arguments are a shape () array.
        """
        sources, targets, _, keep = self._given
        none = dict.fromkeys(("r", "inverse", "p", "touched", *STATE))
        numbers: dict[str, Any] = {"alpha": 0.0, "keep": keep, "add": 0, "count": self.count}
        numbers |= {"first_portion": 0, "row": self.panels.nvec, "groups": self._groups}
        numbers |= prefetched(self.device, kernel, self.order, self._groups)
        spec = kernel.spec
        for name, side, ends in (("in", spec.source, sources), ("out", spec.target, targets)):
            size = ends[0].dofs.size if ends else 0
            numbers[f"panel_{name}"] = size * side.ncomp * self.panels.nvec
        values = {**none, **numbers, **self._arrays, **arrays}
        return self.device.function(kernel.text), kernel.layout.pack(self.device, **values)

    @property
    def hanging(self) -> HangingTable | None:
        """Hanging nodes of the elements of a sweep with one field; None if there are none."""
        table = self._given[0][0].dofs.hanging
        return table if table is not None and table.stages else None

    @property
    def shared(self) -> DeviceShared | None:
        """See `DeviceDofs.shared`, of the test function."""
        return self._given[1][0].dofs.shared

    @property
    def scratch(self) -> tuple[Any, Any, Any]:
        """Ghosts of the field and of the test function, and contributions in elements' order."""
        ghosts_in, ghosts_out, parts = (
            self._arrays[name] for name in ("ghosts_in", "ghosts_out", "parts")
        )
        return ghosts_in, ghosts_out, parts

    def diagonal(self) -> DeviceSweep:
        """See `DeviceLaunch.diagonal`. Entries that come from hanging nodes are left out."""
        return self.masked("diagonal")

    def masked(self, entry: str) -> DeviceSweep:
        """Sweep without constraints that does not fill or empty the ghosts of hanging nodes."""
        spec = self.kernel.spec
        if spec.hanging:
            both = (spec.sources, spec.targets)
            of, to = (tuple(replace(side, masked=True) for side in sides) for sides in both)
            spec = replace(spec, sources=of, targets=to)
        kernel = unspilled(replace(self.kernel, spec=spec, entry=entry), self.device)
        sources, targets, data, _ = self._given
        none = np.zeros(0, dtype=np.int64)
        fields, tests = ([DeviceEnd(e.dofs, none) for e in side] for side in (sources, targets))
        return DeviceSweep(self.device, kernel, fields, tests, data, 0.0)

    def reshaped(self, shape: Shape) -> DeviceSweep:
        """Sweep with another launch shape. The data are copied again if their order changes."""
        kernel = replace(self.kernel, shape=shape)
        if shape.elements != self.kernel.shape.elements:
            return DeviceSweep(self.device, kernel, *self._given)
        same = copy(self)
        same.kernel, same._bound = kernel, None
        return same

    @property
    def data_bytes(self) -> int:
        """Bytes of data, geometry and dof tables that a launch reads besides the vectors."""
        # arguments that a launch writes, does not use, or that are plain numbers
        unread = ("touched", "parts", "functionals", "owned", "ghosts")
        read = {id(a): a for k, a in self._arrays.items() if k.split("_")[0] not in unread}
        hanging = sum(made.nbytes for _, made in (*self._before, *self._after))
        return hanging + sum(int(array.nbytes) for array in read.values() if array is not None)

    def launch(self, x: int, y: int, alpha: float, *, add: bool) -> None:
        for _ in range(self._repeated):
            self.fill(x, {})
            self.some(0, self.blocks, x=x, y=y, alpha=alpha, add=add)
            self.empty(x, y, alpha, {})
            self.combine(y)
            x, y = x + self._panel_bytes[0], y + self._panel_bytes[1]

    def fill(self, x: int, ghosts: dict[str, int]) -> dict[str, int]:
        """Fill the ghosts of hanging nodes before the elements with ghosts are worked on.

        ``ghosts`` has addresses of other ranks' ghosts, by argument. Returns those of arguments
        without hanging nodes.
        """
        for name, received in self._received.items():
            received.launch(x=ghosts[name])
        for place, filling in self._before:
            filling.launch(x + place)
        return {name: ghosts[name] for name in ghosts if self._arrays.get(name) is None}

    def empty(self, x: int, y: int, alpha: float, ghosts: dict[str, int]) -> None:
        """Add contributions to ghosts of hanging nodes to dofs, after elements with ghosts."""
        for place, emptying in self._after:
            emptying.launch(y + place)
        for name, (sent, theirs) in self._sent.items():
            sent.launch(y=ghosts[name])
            self.device.clear(theirs)
        for of, place, rows in self._rows:
            rows.launch(x + of, y + place, alpha, add=True)

    @property
    def _panel_bytes(self) -> tuple[int, int]:
        """Bytes of a panel of x, and of y."""
        sources, targets, _, _ = self._given
        size, spec = self.kernel.spec.dtype.itemsize * self.panels.nvec, self.kernel.spec
        inside = size * sources[0].dofs.size * spec.source.ncomp
        return inside, size * targets[0].dofs.size * spec.target.ncomp if targets else 0

    def some(self, begin: int, end: int, **arguments: Any) -> None:
        """Launch the kernel on the portions begin to end - 1."""
        if self._bound is None:
            self._bound = self.bind(self.kernel)
        function, packed = self._bound[0], copied(self._bound[1])
        if not self.kernel.spec.targets:  # a kernel of functionals alone
            del arguments["y"]
        for name, value in arguments.items():
            packed[name] = value
        for name, (vector, place) in self._places.items():
            packed[name] = arguments[vector] + place
        launch_portions(self.device, function, self.kernel, packed, begin, end)

    def combine(self, y: int) -> None:
        """Add to y the contributions that a reproducible launch has left, in elements' order."""
        for begin, combine in self._combines:
            combine.launch(y + begin)


def input_arguments(side: Side, dofs: DeviceDofs, end: str) -> dict[str, Any]:
    """Arguments of a field without its vector. ``end`` is the end of their names."""
    values = dict[str, Any].fromkeys(INPUT)
    values |= {"starts_in": dofs.starts, "turned_in": dofs.turned}
    values |= {"owned_in": (dofs.owned or 0) * side.ncomp}
    return {f"{name}{end}": value for name, value in values.items()}


@final
class DeviceNoOp(DeviceLaunch):
    """Launch without work, for a rank that has none of a term's elements."""

    on_elements = True

    def launch(self, x: int, y: int, alpha: float, *, add: bool) -> None:
        """See `DeviceLaunch.launch`."""

    def diagonal(self) -> DeviceNoOp:
        return self


@final
class Combine:
    """Launch that adds the contributions to shared dofs, in the order of the elements."""

    def __init__(
        self, device: Device, dtype: np.dtype[Any], ncomp: int, shared: DeviceShared, parts: Any
    ) -> None:
        pointers = {"y": "T*", "parts": "const T*", "dofs": "const int*", "starts": "const int*"}
        numbers = {"slots": "const long long*", "count": "int", "ncomp": "int"}
        layout, count = Layout(pointers | numbers, dtype), len(shared.dofs)
        self._device, self._text = device, simple_text(layout, dtype, "combine")
        self._blocks = -(-count * ncomp // SIMPLE_THREADS)
        self._arrays = {"parts": parts, **vars(shared)}
        self._packed = layout.pack(device, y=None, count=count, ncomp=ncomp, **self._arrays)

    def launch(self, y: int) -> None:
        """Add the contributions to the vector y, given by its address."""
        packed = copied(self._packed)
        packed["y"] = y
        self._device.function(self._text).launch(self._blocks, SIMPLE_THREADS, 0, packed)


@final
class DeviceIdentityRows(DeviceLaunch):
    """Launch that sets ``y[i] = keep x[i]`` at some entries, which must be zero before.

    Shapes: `positions` (n,).
    """

    on_elements = False

    def __init__(
        self,
        device: Device,
        positions: NDArray[np.int64],
        keep: float,
        dtype: np.dtype[Any],
        nvec: int = 1,
    ) -> None:
        fields = {"x": "const T*", "y": "T*", "positions": "const long long*"}
        layout = Layout(fields | {"factor": "T", "count": "int", "row": "int"}, dtype)
        self._device, self._keep, self._entries = device, keep, len(positions) * nvec
        self._positions = device.upload(positions)
        self._text = simple_text(layout, dtype, "identity_rows")
        self._packed = layout.pack(
            device,
            x=None,
            y=None,
            positions=self._positions,
            factor=0.0,
            count=len(positions),
            row=nvec,
        )

    def launch(self, x: int, y: int, alpha: float, *, add: bool) -> None:  # noqa: ARG002
        packed = copied(self._packed)
        packed["x"], packed["y"], packed["factor"] = x, y, alpha * self._keep
        blocks = -(-self._entries // SIMPLE_THREADS)
        self._device.function(self._text).launch(blocks, SIMPLE_THREADS, 0, packed)

    def diagonal(self) -> DeviceNoOp:
        """See `DeviceLaunch.diagonal`. These rows belong to no term."""
        return DeviceNoOp()


class DeviceLaunchSum(CompiledOperator, ABC):
    """An operator on a device: a sum of launches with factors."""

    sweeps: tuple[DeviceLaunch, ...]

    def __init__(
        self,
        device: Device,
        launches: Sequence[tuple[float, DeviceLaunch]],
        places: Places | None = None,
    ) -> None:
        self.device = device
        self.sweeps = tuple(launch for _, launch in launches)
        self.alphas = tuple(alpha for alpha, _ in launches)
        if places is None:
            places = [(0, 0, k > 0) for k in range(len(launches))]
        self.places = tuple(places)
        self._clearings: dict[int, Clearing | None] = {}

    def apply(self, x: Any, y: Any) -> None:
        """See `CompiledOperator.apply`. Return before the device is done."""
        source, target = self.device.address(x), self.device.address(y)
        if not self._overwrites():
            self._clear(y)
        for alpha, sweep, place in zip(self.alphas, self.sweeps, self.places, strict=True):
            begin_in, begin_out, add = place
            sweep.launch(source + begin_in, target + begin_out, alpha, add=add)

    def _overwrites(self) -> bool:
        """True if the first launch sets all entries of the result."""
        return bool(self.sweeps) and self.sweeps[0].overwrites and self.places[0] == (0, 0, False)

    def _clear(self, y: Any) -> None:
        clearing = self._clearing(y.size)
        if clearing is None:
            self.device.clear(y)
        else:
            clearing.launch(self.device.address(y))

    def _clearing(self, size: int) -> Clearing | None:
        """Launch that clears some of the ``size`` entries of a result; None to clear all."""
        if size not in self._clearings:
            first = self.sweeps[0] if self.sweeps and self.places[0] == (0, 0, False) else None
            clearing = first.clearing(size) if isinstance(first, DeviceSweep) else None
            self._clearings[size] = clearing
        return self._clearings[size]
