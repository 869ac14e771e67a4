"""Projections on a device: the numbers of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from support.cases.kernels import bend, turned
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice

device = host_device_fixture.device


def mixed(u: Any, p: Any, x: Any, kappa: Any) -> Any:
    return kappa * p.grad * (u.div + x[0]) + u.value * p


def space(kind: str, mesh: Any, device: Any) -> Any:
    if kind.startswith("h1"):
        return femops.H1(
            mesh, 2, 2, "bernstein" if kind == "h1-bernstein" else "gll", device=device
        )
    return femops.L2(mesh, 1, 2, "bernstein" if kind == "l2-bernstein" else "gauss", device=device)


@pytest.mark.parametrize("kind", ["h1", "h1-bernstein", "l2", "l2-bernstein"])
def test_fields_of_a_product(kind: str, device: HostDevice) -> None:
    found = []
    for where in (None, device):
        mesh = turned(femops.box((4, 3), order=2, mapping=bend))
        W = femops.Product(
            u=femops.H1(mesh, 3, ncomp=2, device=where), p=femops.H1(mesh, 2, device=where)
        )
        w = W.interpolate(u=lambda x: (x[0] * x[1], np.sin(x[0])), p=lambda x: x[0] ** 2 + x[1])
        Q = space(kind, mesh, where)
        q = femops.project(Q, mixed, W, w, kappa=lambda x: 1 + x[1])
        assert Q.memory.adopt(q, "q") is q
        found.append(Q.memory.get(q))
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-10)


def test_functions_of_x(device: HostDevice) -> None:
    Q = femops.L2(femops.box((3, 2)), 2, device=device)
    q = femops.project(Q, lambda x: x[0] * x[1])
    expected = femops.L2(Q.mesh, 2).interpolate(lambda x: x[0] * x[1])
    np.testing.assert_allclose(Q.memory.get(q), expected, atol=1e-13)
