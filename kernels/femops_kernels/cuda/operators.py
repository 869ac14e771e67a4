"""Operators compiled for a device, of one process and of many ranks with a device each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from femops_kernels.compiled import DistributedOperator, Routes
from femops_kernels.cuda.cg.cg import DeviceConjugateGradients
from femops_kernels.cuda.device.device import DeviceChannel
from femops_kernels.cuda.operator.sides import suffix
from femops_kernels.cuda.operator.sweep import DeviceLaunchSum, DeviceSweep
from femops_kernels.cuda.ranks.messages import DeviceForward, DeviceReverse


@final
class DeviceOperator(DeviceLaunchSum):
    """An operator of one process; see `DeviceLaunchSum`."""

    solves = DeviceConjugateGradients

    def diagonal(self) -> DeviceOperator:
        """Operator that gives the diagonal, whatever it is applied to; without constraints."""
        launches = zip(self.alphas, self.sweeps, strict=True)
        return DeviceOperator(
            self.device, [(a, s.diagonal()) for a, s in launches if s.on_elements]
        )

    def mergeable(self, size: int, *, many: bool) -> bool:
        """See `CompiledOperator.mergeable`: one sweep, whose sums nobody else adds to."""
        sweep = self.sweeps[0]
        if many or len(self.sweeps) > 1 or not isinstance(sweep, DeviceSweep):
            return False
        return sweep.mergeable(size)


@final
class DistributedDeviceOperator(DistributedOperator):
    """An operator that ranks with a device each share: launches beside messages.

    The device works on elements that meet no ghosts while messages are on their way: on half of
    those of the first launch while ghosts are, on the others of a launch while its results for
    other ranks are.

    Parameters
    ----------
    local : DeviceOperator
    forwards : sequence of (DeviceForward, int)
    reverses : sequence of (DeviceReverse, int)
    routes
        See `DistributedOperator`.
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
        """See `DeviceOperator.diagonal`; constrained rows have any numbers."""
        launches = zip(self.routes, self.sweeps, strict=True)
        routes = [route for route, sweep in launches if sweep.on_elements]
        return DistributedDeviceOperator(
            self.local.diagonal(), self.forwards, self.reverses, routes
        )

    def apply(self, x: Any, y: Any) -> None:
        """See `CompiledOperator.apply`.

        Waits for messages that the hosts send, but not for the end of what was launched.
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
        """Launch k: elements without ghosts around those with ghosts, for the first."""
        sweep, (begin_in, begin_out, add) = self.sweeps[k], self.local.places[k]
        vectors: dict[str, Any] = {"x": x + begin_in, "y": y + begin_out}
        vectors |= {"alpha": self.alphas[k], "add": add}
        due = self._sent_behind(k)
        if not isinstance(sweep, DeviceSweep):
            if k == 0:
                self._arrive()
            sweep.launch(**vectors)
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
        sweep.some(behind, order.blocks, **vectors, **self._ghosts(k))
        for post in due:
            post.ready()
        sweep.some(before, behind, **vectors)
        for post in due:
            post.start()
        sweep.combine(vectors["y"])

    def _arrive(self) -> None:
        """Have the ghosts brought, while the device works."""
        for forward, _ in self.forwards:
            forward.post.start()
        for forward, _ in self.forwards:
            forward.post.finish()

    def _ghosts(self, k: int) -> dict[str, int]:
        """Where launch k finds ghosts and leaves what it has for them."""
        route = self.routes[k]
        found = {
            f"ghosts_in{suffix(field)}": self.forwards[n][0].ghosts
            for field, n in enumerate(route.forwards)
            if n is not None
        }
        found |= {
            f"ghosts_out{suffix(test)}": self.reverses[n][0].ghosts
            for test, n in enumerate(route.reverses)
            if n is not None
        }
        return found

    def _sent_behind(self, k: int) -> list[DeviceChannel]:
        """Channels to send when launch k is done: it is the last of those that add to them."""
        each = zip(self.routes[k].reverses, self._due[k], strict=True)
        return [self.reverses[n][0].post for n, due in each if n is not None and due]

    def mergeable(self, size: int, *, many: bool) -> bool:  # noqa: ARG002  (never)
        """See `CompiledOperator.mergeable`: the host is told of sums between the updates."""
        return False
