"""Diagonals on a device of operators on elements with hanging nodes."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import simple_text
from femops_kernels.cuda.operator.hanging import HangingTable, Taken, units_of
from femops_kernels.cuda.operator.sweep import Combine, DeviceLaunch, DeviceSweep
from femops_kernels.cuda.ranks.messages import Entries


@final
class HangingDiagonal(DeviceLaunch):
    """Launch that adds the entries of a sweep's diagonal which come from hanging nodes to y.

    For each place of such nodes in elements the ``sweep``, which neither fills nor empties ghosts,
    multiplies the values at all elements' ghosts; see ``hanging_diagonal.cuh``.
    """

    on_elements = True

    def __init__(self, sweep: DeviceSweep, table: HangingTable) -> None:
        self._sweep, device = sweep, sweep.device
        spec, side, xp = sweep.kernel.spec, sweep.kernel.target, device.xp
        ncomp, dtype = side.ncomp, spec.dtype
        ghosts, self._results, results = sweep.scratch
        self._taken: Taken | None = None
        self._combine: Combine | None = None
        parts = None
        if spec.reproducible:
            self._taken = Taken(device, table, results, self._results, ncomp)
            parts, shared = xp.zeros(results.shape, dtype), sweep.shared
            assert shared is not None
            self._combine = Combine(device, dtype, ncomp, shared, parts)
        self._vectors = [xp.zeros(table.owned * ncomp, dtype) for _ in range(2)]
        self._ncomp, self._launches = ncomp, list[Any]()
        self._theirs, self._sent = xp.zeros(max(table.theirs, 1) * ncomp, dtype), None
        if table.theirs:
            fields = {"y": "T*", "values": "const T*"}
            places = np.arange(len(self._theirs))
            self._sent = Entries(device, "add", fields, self._theirs, places)
        (stage,) = table.stages  # elements that have but a part of a face are of two sides
        layout, halves = Layout(_ARGUMENTS, dtype), device.upload(table.halves.astype(dtype))
        nodes, p = stage.lists.shape[1], side.p1d
        units, threads = units_of(nodes, 1)
        numbers = {"THREADS": threads, "P": p, "NODES": nodes, "UNITS": units}
        numbers |= {"NCOMP": ncomp, "REPRODUCIBLE": spec.reproducible}
        self._texts = [
            simple_text(layout, dtype, "hanging_diagonal", **numbers, ADD=add) for add in (0, 1)
        ]
        count = len(stage.units)
        self._shape = -(-count // units), threads, threads * dtype.itemsize
        for column in stage.columns:
            packed = layout.pack(
                device,
                y=None,
                ghosts=ghosts,
                halves=halves,
                parts=parts,
                theirs=self._theirs,
                owned=table.owned,
                units=stage.units,
                lists=stage.lists,
                positions=stage.positions,
                columns=column,
                count=count,
                component=0,
                begin=table.indices.size * ncomp,
            )
            self._launches.append(packed)
        self._kept = halves, parts, ghosts, stage  # while launches read them

    def launch(self, x: int, y: int, alpha: float, *, add: bool) -> None:  # noqa: ARG002
        device = self._sweep.device
        address = {name: device.address(v) for name, v in zip("xy", self._vectors, strict=True)}
        for given in self._launches:
            for component in range(self._ncomp):
                packed = copied(given)
                packed["component"], packed["y"] = component, y
                device.function(self._texts[0]).launch(*self._shape, packed)
                self._sweep.some(0, self._sweep.blocks, **address, alpha=alpha, add=False)
                if self._taken is not None:
                    self._taken.launch()
                packed["ghosts"] = device.address(self._results)
                device.function(self._texts[1]).launch(*self._shape, packed)
        if self._combine is not None:
            self._combine.launch(y)

    def leave(self, ghosts: dict[str, int]) -> None:
        if self._sent is not None:
            self._sent.launch(y=ghosts["ghosts_out"])
            self._sweep.device.clear(self._theirs)

    def diagonal(self) -> HangingDiagonal:
        return self


def diagonal_launches(launch: DeviceLaunch) -> list[DeviceLaunch]:
    """Launches that together add the diagonal of a launch to y."""
    found = [launch.diagonal()]
    if isinstance(launch, DeviceSweep) and launch.hanging is not None:
        found.append(HangingDiagonal(launch.masked(launch.kernel.entry), launch.hanging))
    return found


_ARGUMENTS = (
    dict.fromkeys(("y", "ghosts", "theirs", "parts"), "T*")
    | {"halves": "const T*"}
    | dict.fromkeys(("units", "lists", "positions", "columns"), "const int*")
    | dict.fromkeys(("owned", "count", "component"), "int")
    | {"begin": "long long"}
)
