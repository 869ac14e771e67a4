"""No kernel writes behind the work space that it asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from femops_kernels.cpu import sweep
from support import fixtures

one_thread = fixtures.one_thread

BEHIND, MARK = 1 << 16, 0xA5
DISC = femops.disc(2)  # elements lie differently behind their faces


class Guarded(sweep.AlignedBuffer):
    """Work space with marked bytes behind it."""

    def address(self, nbytes: int) -> int:
        """Address of exactly ``nbytes`` bytes."""
        begin = super().address(nbytes + BEHIND)
        offset = begin - self._memory.ctypes.data
        self.behind = self._memory[offset + nbytes :]
        self.behind[:] = MARK
        return begin

    @property
    def intact(self) -> bool:
        """True if nothing has been written behind the work space."""
        return bool((self.behind == MARK).all())


def on_cells(u: Any, k: Any) -> Any:
    return {"u": {"value": u * k, "grad": u.grad}, "k": {"value": u}}


def small_test(u: Any, k: Any) -> Any:
    """The test function has fewer nodes than the field."""
    return {"u": {}, "k": {"plus": u.jump**2, "minus": u.mean * k.minus}}


def all_tests(u: Any, k: Any) -> Any:
    return {"u": {"jump": k.mean, "mean": {"grad": u.mean.grad}}, "k": {"plus": u.jump}}


@pytest.mark.sample(2)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize(
    ("function", "options"),
    [
        (on_cells, {}),
        (on_cells, {"boundary": "all"}),
        (small_test, {"faces": "interior"}),
        (all_tests, {"faces": "interior"}),
    ],
    ids=["cells", "boundary", "small test", "all tests"],
)
def test_marks_are_intact(
    monkeypatch: Any, reproducible: bool, function: Any, options: Any
) -> None:
    there = femops.distribute(DISC, Serial(), reproducible=reproducible)
    P = femops.Product(u=femops.L2(there, 3), k=femops.L2(there, 1))
    F = femops.residual(function, P, **options)
    z = np.random.default_rng(0).standard_normal(P.size)
    monkeypatch.setattr(sweep, "_work", work := Guarded())
    for apply in (lambda: F.residual(z), lambda: F.jacobian(z) @ z):
        apply()
        assert work.intact
