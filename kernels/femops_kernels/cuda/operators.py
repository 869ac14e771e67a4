"""Operators compiled for a device, on one process and on many ranks with a device each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from femops_kernels.compiled import DistributedOperator, Route, Routes
from femops_kernels.cuda.cg.cg import DeviceConjugateGradients
from femops_kernels.cuda.operator.hanging_diagonal import diagonal_launches
from femops_kernels.cuda.operator.sides import suffix
from femops_kernels.cuda.operator.sweep import DeviceLaunchSum, DeviceSweep
from femops_kernels.cuda.ranks.messages import DeviceForward, DeviceReverse
from femops_kernels.device import DeviceChannel


@final
class DeviceOperator(DeviceLaunchSum):
    """An operator that one process applies on its device; see `DeviceLaunchSum`."""

    solves = DeviceConjugateGradients

    def diagonal(self) -> DeviceOperator:
        """Operator that writes the diagonal, without constraints, to y and ignores x."""
        launches = zip(self.alphas, self.sweeps, strict=True)
        each = [(a, diagonal_launches(s)) for a, s in launches if s.on_elements]
        return DeviceOperator(self.device, [(a, part) for a, parts in each for part in parts])

    def mergeable(self, size: int, *, many: bool) -> bool:
        """See `CompiledOperator.mergeable`. It needs one sweep, and one rank."""
        sweep = self.sweeps[0]
        if many or len(self.sweeps) > 1 or not isinstance(sweep, DeviceSweep):
            return False
        return sweep.mergeable(size)


@final
class DistributedDeviceOperator(DistributedOperator):
    """An operator that ranks with a device each share. It computes while messages are on their way.

    While the values of ghosts arrive, the device works on half of the first launch's elements
    without ghosts.  While a launch's contributions to ghosts are sent, it works on the launch's
    other elements without ghosts.
    """

    solves = DeviceConjugateGradients

    def __init__(
        self,
        local: DeviceOperator,
        forwards: Sequence[tuple[DeviceForward, int]],
        reverses: Sequence[tuple[DeviceReverse, int]],
        routes: Routes,
    ) -> None:
        super().__init__(local, forwards, reverses, routes)
        self.device = local.device

    def diagonal(self) -> DistributedDeviceOperator:
        """See `DeviceOperator.diagonal`. Numbers in constrained rows have no meaning."""
        launches = zip(self.routes, self.sweeps, strict=True)
        routes = list[Route]()
        for route, sweep in launches:
            hangs = isinstance(sweep, DeviceSweep) and sweep.hanging is not None
            routes += [route] * ((1 + hangs) * sweep.on_elements)
        return DistributedDeviceOperator(
            self.local.diagonal(), self.forwards, self.reverses, routes
        )

    def apply(self, x: Any, y: Any) -> None:
        """See `CompiledOperator.apply`.

        Wait for messages that the hosts send, but not for the end of the launches.
        """
        source, target = (self.device.address(vector) for vector in (x, y))
        for forward, place in self.forwards:
            forward.pack(source + place)
        self.device.clear(y)
        for reverse, _ in self.reverses:
            reverse.clear()
        for k in range(len(self.sweeps)):
            self._launch(k, source, target)
        for reverse, place in self.reverses:
            reverse.add(target + place)

    def _launch(self, k: int, x: int, y: int) -> None:
        """Run launch k and its exchanges, elements with ghosts before the remaining ones."""
        sweep, (begin_in, begin_out, add) = self.sweeps[k], self.local.places[k]
        vectors: dict[str, Any] = {"x": x + begin_in, "y": y + begin_out}
        vectors |= {"alpha": self.alphas[k], "add": add}
        due = self._sent_behind(k)
        if not isinstance(sweep, DeviceSweep):
            if k == 0:
                self._arrive()
            sweep.launch(**vectors)
            sweep.leave(self._ghosts(k))
            for post in due:
                post.ready()
                post.start()
            return
        order = sweep.order
        before = order.plain // 2 if k == 0 and self.overlap else 0
        sweep.some(0, before, **vectors)
        if k == 0:
            self._arrive()
        behind = order.plain if self.overlap and due else before
        ghosts = sweep.fill(vectors["x"], self._ghosts(k))
        sweep.some(behind, order.blocks, **vectors, **ghosts)
        sweep.empty(vectors["x"], vectors["y"], self.alphas[k], self._ghosts(k))
        for post in due:
            post.ready()
        sweep.some(before, behind, **vectors)
        for post in due:
            post.start()
        sweep.combine(vectors["y"])

    def _arrive(self) -> None:
        """Send owned values and receive the values of ghosts, while the device works."""
        for forward, _ in self.forwards:
            forward.post.start()
        for forward, _ in self.forwards:
            forward.post.finish()

    def _ghosts(self, k: int) -> dict[str, int]:
        """Addresses, by argument, of the ghosts' values and of contributions to ghosts."""
        route = self.routes[k]
        addresses = {
            f"ghosts_in{suffix(field)}": self.forwards[n][0].ghosts
            for field, n in enumerate(route.forwards)
            if n is not None
        }
        addresses |= {
            f"ghosts_out{suffix(test)}": self.reverses[n][0].ghosts
            for test, n in enumerate(route.reverses)
            if n is not None
        }
        return addresses

    def _sent_behind(self, k: int) -> list[DeviceChannel]:
        """Channels to which launch k is the last to contribute: they are sent after it."""
        each = zip(self.routes[k].reverses, self._due[k], strict=True)
        return [self.reverses[n][0].post for n, due in each if n is not None and due]

    def mergeable(self, size: int, *, many: bool) -> bool:  # noqa: ARG002  (never)
        """See `CompiledOperator.mergeable`. Never: ranks add sums between the updates."""
        return False
