"""A device runs a law as C++ with labels. Here the host's compiler makes the kernel."""

import math
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.errors import DeviceError
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice
from support.cuda.paper import PaperDevice

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


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvidias_compiler_takes_the_text(arch: str) -> None:
    """Loops and branches are labels there; no number goes to memory."""
    try:
        if arch not in nvrtc.archs():
            pytest.skip(f"the compiler does not know {arch}")
    except DeviceError as error:
        pytest.skip(str(error))
    there = PaperDevice(arch)
    V = femops.H1(cases.mesh_of(3), 2, device=there)
    function = cases.reaction(cases.root, cases.pair)
    F = femops.residual(function, V, kappa=lambda x: x[0] - 0.4)
    F.compiled.apply(V.zeros(), V.zeros())
    J = F.jacobian(V.zeros())
    J.apply(V.zeros())
    found = [one for one in there.functions.values() if one.shapes]
    assert len(found) >= 2
    assert all(not one.report.spill_bytes and one.registers <= one.bound for one in found)
    assert any("block1:" in source for source in there.functions)


WHOLE = np.array([3, -92, 2**63 - 1, -(2**63), 5], np.int64)


def integers(a):
    """Integers of kinds that C++ has not, or writes in another way."""
    n, total = int(10 * a) + 20, 0
    for k in range(n):  # LLVM makes a product in 65 bits of it
        total += k * k
    sign = -1.0 * (a > 0.1)  # minus the number of one bit
    return total + sign, (n in (18, 20, 21, 24)) * 1.0, WHOLE[n % 5] * 1.0, float(n ^ (2**63 - 1))


def minima(a):
    return min(a, 0.1) * 3.0**a + max(a, math.nan) * 0.0


def test_integers_and_choices(device: GuardedDevice) -> None:
    numba = pytest.importorskip("femops.numba")
    for written in (integers, minima):
        one, found = numba.law(written), []
        for where in (None, device):
            V = femops.H1(femops.box((7,)), 2, device=where)
            function = lambda u, x, one=one: {"value": sum(np.atleast_1d(one(u)))}  # noqa: E731
            u = np.linspace(-1.0, 1.0, V.size)
            F = femops.residual(function, V)
            found.append(V.memory.get(F.residual(V.memory.put(u))))
        np.testing.assert_allclose(found[1], found[0], rtol=1e-13)
