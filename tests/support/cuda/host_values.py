"""Numbers at points that the host evaluates for a device, counted."""

from __future__ import annotations

from typing import Any

import pytest

from femops.operators.integrals.integral import Integral


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers that the host evaluates at more than one point of an element, for a device."""
    found: list[int] = []
    plain = Integral.values

    def values(self: Integral, stored: Any, block: Any, **options: Any) -> Any:
        if self.fields.whole.device is not None and block.geometry.num_points > 1:
            found.append(len(stored))
        return plain(self, stored, block, **options)

    monkeypatch.setattr(Integral, "values", values)
    return found
