"""Copies, arrays and launches of a device, counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from support.cuda.guarded import GuardedDevice


@final
@dataclass(frozen=True)
class Moves:
    """What a device did: copies to it and back, numbers looked at, arrays made, launches."""

    uploads: int = 0
    downloads: int = 0
    looks: int = 0
    made: int = 0
    launches: int = 0

    @staticmethod
    def of(device: GuardedDevice) -> Moves:
        """All until now."""
        host = device.host
        return Moves(host.uploads, host.downloads, device.looks, device.made, host.launches)


@contextmanager
def moves(device: GuardedDevice, **expected: int) -> Iterator[None]:
    """What the block does; all that is not named is nothing."""
    before = Moves.of(device)
    yield
    after = Moves.of(device)
    found = {name: n - getattr(before, name) for name, n in vars(after).items()}
    assert {name: n for name, n in found.items() if n} == expected
