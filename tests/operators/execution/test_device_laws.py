"""A device runs a law as C++ with labels. Here the host's compiler makes the kernel."""

from typing import Any

import numpy as np
import pytest

import femops
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice

device = guarded.small_device
pytest.importorskip("numba")
cases = pytest.importorskip("support.cases.laws")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_residuals_and_operators(dtype: Any, device: GuardedDevice) -> None:
    mesh, tol = cases.mesh_of(3), 1e-13 if dtype == "float64" else 5e-6
    spaces = [femops.H1(mesh, 2, device=one) for one in (None, device)]
    u, v = np.random.default_rng(0).standard_normal((2, spaces[0].size)).astype(dtype)
    found = []
    for V in spaces:
        function = cases.reaction(cases.root, cases.pair)
        F = femops.residual(function, V, kappa=lambda x: x[0] - 0.4, dtype=dtype)
        A = femops.form(
            lambda u, x: {"grad": cases.root(x[0]) * u.grad}, V, level="matrix-free", dtype=dtype
        )
        u_there, v_there = V.memory.put(u), V.memory.put(v)
        results = F.residual(u_there), F.jacobian(u_there) @ v_there, A @ v_there
        found.append([V.memory.get(one) for one in results])
    for host, there in zip(*found, strict=True):
        cases.close(there, host, tol)
