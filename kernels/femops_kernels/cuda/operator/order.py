"""The order in which a launch works on its elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.device import Device


@final
@dataclass(frozen=True, eq=False)
class Order:
    """Elements by place in a launch: those that meet other ranks' dofs are last, in own blocks.

    Attributes
    ----------
    elements : (blocks * group,) int32
        The element of each place; ~e, which is negative, where a block has more places.
    group : int
        Elements of a block.
    plain : int
        Blocks of elements that meet no dofs of other ranks, the first ones.
    """

    elements: NDArray[np.int32]
    group: int
    plain: int

    @staticmethod
    def of(with_ghosts: NDArray[np.bool_], group: int) -> Order:
        """Order of elements, given which meet dofs of other ranks, (ne,)."""
        parts = [_filled(np.flatnonzero(which), group) for which in (~with_ghosts, with_ghosts)]
        return Order(np.concatenate(parts), group, len(parts[0]) // group)

    def of_parts(self, group: int) -> Order:
        """The same order in smaller blocks, of which whole ones fill a block."""
        return Order(self.elements, group, self.plain * self.group // group)

    @property
    def blocks(self) -> int:
        """Number of blocks of the whole launch."""
        return len(self.elements) // self.group

    def taken(self, device: Device, points: NDArray[Any], begin: int, end: int) -> Any:
        """Numbers at the points of some places; zeros where there is no element.

        Whole batches are copied to the device, and their elements put in order there.

        Parameters
        ----------
        device : Device
        points : (nbatch, points, n, width) array
            See `Data.points`.
        begin, end : int

        Returns
        -------
        (end - begin, points, n) array of the device
        """
        elements, width = self.elements[begin:end], points.shape[-1]
        batches, found = np.unique(np.maximum(elements, 0) // width, return_inverse=True)
        there = device.upload(points[batches])
        flat = there.transpose(0, 3, 1, 2).reshape(-1, *points.shape[1:3])
        places = found.reshape(-1) * width + np.maximum(elements, 0) % width
        values = flat[device.upload(places)]
        if (elements < 0).any():
            values[device.upload(np.flatnonzero(elements < 0))] = 0
        return values


def _filled(elements: NDArray[np.int64], group: int) -> NDArray[np.int32]:
    """Places of whole blocks."""
    more = -len(elements) % group
    return np.concatenate([elements, np.repeat(~elements[-1:], more)]).astype(np.int32)
