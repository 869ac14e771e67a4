"""Results are set to zero where elements add to them, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from support.cuda.host_device import HostDevice, host_device


@pytest.fixture(scope="module")
def device() -> HostDevice:
    return host_device(options=["-O0"])


def applied(A: femops.Operator, x: np.ndarray) -> np.ndarray:
    """A x, where all that is not written shows."""
    out = np.full(A.test_space.size, np.nan)
    return A.apply(x, out=out)


@pytest.mark.parametrize(
    ("kind", "ncomp"), [("all", 1), ("boundary", 2), ("inside", 1), ("inside", 2), ("L2", 1)]
)
def test_only_shared_dofs_are_cleared(
    kind: str, ncomp: int, device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless one inside an element is constrained: its row is zero before."""
    mesh, whole = femops.disc(1), []
    space = femops.L2 if kind == "L2" else femops.H1
    V, W = space(mesh, 3, ncomp, device=device), space(mesh, 3, ncomp)
    A, B = femops.mass(V), femops.mass(W)
    if kind in ("boundary", "inside"):
        dofs = W.boundary_dofs() if kind == "boundary" else np.array([W.ndofs - 1])
        A, B = A.constrained(dofs), B.constrained(dofs)
    clear = type(device).clear
    monkeypatch.setattr(
        HostDevice, "clear", lambda self, y: (whole.append(y.size), clear(self, y))[1]
    )
    x = np.random.default_rng(3).standard_normal(V.size)
    np.testing.assert_allclose(applied(A, x), B @ x, rtol=1e-12, atol=1e-12)
    assert bool(whole) is (kind == "inside")
