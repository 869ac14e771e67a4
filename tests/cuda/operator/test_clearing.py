"""Results are set to zero where elements add to them, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from support.cuda.host_device import host_device


@pytest.mark.parametrize(
    ("kind", "ncomp"), [("all", 1), ("boundary", 2), ("inside", 1), ("inside", 2), ("L2", 1)]
)
def test_only_shared_dofs_are_cleared(
    kind: str, ncomp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless one inside an element is constrained: its row is zero before."""
    mesh, device, whole = femops.disc(1), host_device(), []
    space = femops.L2 if kind == "L2" else femops.H1
    V, W = space(mesh, 3, ncomp, device=device), space(mesh, 3, ncomp)
    A, B = femops.mass(V), femops.mass(W)
    if kind in ("boundary", "inside"):
        dofs = W.boundary_dofs() if kind == "boundary" else np.array([W.ndofs - 1])
        A, B = A.constrained(dofs), B.constrained(dofs)
    monkeypatch.setattr(device, "clear", lambda y: (whole.append(y.size), y.fill(0)))
    x, out = np.random.default_rng(3).standard_normal(V.size), np.full(V.size, np.nan)
    np.testing.assert_allclose(A.apply(x, out=out), B @ x, rtol=1e-12, atol=1e-12)
    assert bool(whole) is (kind == "inside")
