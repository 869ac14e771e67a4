"""The terms of an operator on one of many ranks with a device each: launches beside messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from femops_kernels.channel import Route
from femops_kernels.cuda.operator.sweep import DeviceSweep, DeviceTerms
from femops_kernels.cuda.ranks.messages import DeviceForward, DeviceReverse, Post


@final
class DeviceRankTerms:
    """Terms of which each rank has its part, ready to be run by all ranks together.

    The device works on elements that meet no ghosts while the host waits for messages: on half of
    those of the first launch while ghosts are on their way, on the others of a launch while its
    results for other ranks are.

    Parameters
    ----------
    terms : DeviceTerms
        Of this rank's elements.
    forwards : sequence of (DeviceForward, int)
        What is exchanged before, and where in x the vector begins, bytes.
    reverses : sequence of (DeviceReverse, int)
        What is exchanged afterwards, and where in y.
    routes : sequence of Route
        For each launch of the terms.

    Attributes
    ----------
    overlap : bool
        Whether elements are worked on while messages are on their way; on unless it is set to
        False.
    """

    def __init__(
        self,
        terms: DeviceTerms,
        forwards: Sequence[tuple[DeviceForward, int]],
        reverses: Sequence[tuple[DeviceReverse, int]],
        routes: Sequence[Route],
    ) -> None:
        self.terms, self.forwards, self.reverses = terms, tuple(forwards), tuple(reverses)
        self.routes, self.overlap, self.device = tuple(routes), True, terms.device
        self._last = {route.reverse: k for k, route in enumerate(routes)}

    def apply(self, x: Any, y: Any) -> None:
        """Overwrite y by the sum of the terms applied to x. All ranks call this.

        Both are contiguous arrays of the device, of the kernels' type. Waits for messages, but not
        for the end of what was launched.
        """
        source, target = (self.terms.device.address(vector) for vector in (x, y))
        for forward, place in self.forwards:
            forward.pack(source + place)
        self.device.clear(y)
        for reverse, _ in self.reverses:
            reverse.clear()
        for k in range(len(self.terms.sweeps)):
            self._launch(k, source, target)
        for reverse, place in self.reverses:
            reverse.add(target + place)

    def _launch(self, k: int, x: int, y: int) -> None:
        """Launch k: elements without ghosts around those with ghosts, for the first."""
        sweep, (begin_in, begin_out, add) = self.terms.sweeps[k], self.terms.places[k]
        vectors: dict[str, Any] = {"x": x + begin_in, "y": y + begin_out}
        vectors |= {"alpha": self.terms.alphas[k], "add": add}
        due = self._due(k)
        if not isinstance(sweep, DeviceSweep):
            if k == 0:
                self._arrive()
            sweep.launch(**vectors)
            if due is not None:
                due.ready()
                due.start()
            return
        order = sweep.order
        before = order.plain // 2 if k == 0 and self.overlap else 0
        sweep.some(0, before, **vectors)
        if k == 0:
            self._arrive()
        behind = order.plain if self.overlap and due is not None else before
        sweep.some(behind, order.blocks, **vectors, **self._ghosts(k))
        if due is not None:
            due.ready()
        sweep.some(before, behind, **vectors)
        if due is not None:
            due.start()

    def _arrive(self) -> None:
        """Have the ghosts brought, while the device works."""
        for forward, _ in self.forwards:
            forward.post.start()
        for forward, _ in self.forwards:
            forward.post.finish()

    def _ghosts(self, k: int) -> dict[str, int]:
        """Where launch k finds ghosts and leaves what it has for them."""
        route, found = self.routes[k], {}
        if route.forward is not None:
            found["ghosts_in"] = self.forwards[route.forward][0].ghosts
        if route.reverse is not None:
            found["ghosts_out"] = self.reverses[route.reverse][0].ghosts
        return found

    def _due(self, k: int) -> Post | None:
        """What is sent when launch k is done: the last of those that have something for it."""
        which = self.routes[k].reverse
        if which is None or self._last[which] != k:
            return None
        return self.reverses[which][0].post
