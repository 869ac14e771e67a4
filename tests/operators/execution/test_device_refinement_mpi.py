"""Locally refined meshes on many ranks with a device each, against ranks of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.parallel import Communicator
from support.cases import rank_devices
from support.cuda.guarded import GuardedDevice
from support.refined import mixed, penalised, shared, slopes, through, transport, tree

pytestmark = pytest.mark.filterwarnings("ignore:.*ranks have no elements")
device, way = rank_devices.device, rank_devices.way


def cells(m: Any, place: Any) -> Any:
    return femops.form(transport, femops.H1(m, 3, device=place))


def walls(m: Any, place: Any) -> Any:
    """A sum over elements and faces, with essential conditions."""
    V = femops.H1(m, 2, device=place)
    A = femops.form(transport, V) + 2.0 * femops.form(through, V, boundary="all")
    return A.constrained(V.boundary_dofs(1))


def fields(m: Any, place: Any) -> Any:
    v = femops.H1(m, 2, m.mesh.dim, device=place)
    W = femops.Product(v=v, p=femops.H1(m, 1, device=place))
    return femops.form(mixed, W).constrained(W.positions(v=v.boundary_dofs()))


def apart(m: Any, place: Any) -> Any:
    return femops.form(penalised, femops.L2(m, 2, device=place), faces="interior")


def kinks(m: Any, place: Any) -> Any:
    return femops.form(slopes, femops.H1(m, 2, device=place), faces="interior")


def agree(comm: Communicator, found: Any, expected: Any, tolerance: float = 1e-13) -> None:
    """Compare the entries of all ranks, relative to the largest of them."""
    most = comm.max(float(abs(expected).max(initial=0.0)))
    assert abs(np.asarray(found) - expected).max(initial=0.0) <= tolerance * most


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", ["bent squares", "cubes"])
@pytest.mark.parametrize(
    ("make", "way"),
    [(cells, "staged"), (walls, "nccl"), (fields, "direct"), (apart, "staged"), (kinks, "nccl")],
    indirect=["way"],
)
def test_operators(
    comm: Communicator, device: GuardedDevice, make: Callable[..., Any], name: str, way: str
) -> None:
    for m in shared(tree(name), comm):
        A, B = make(m, None), make(m, device)
        rng = np.random.default_rng(comm.rank)
        x, y = rng.standard_normal(A.shape[1]), rng.standard_normal(A.shape[0])
        put, get = B.space.memory.put, B.space.memory.get
        for _ in range(2):  # contributions to ghosts are zero again
            agree(comm, get(B @ put(x)), A @ x)
        agree(comm, get(B.T @ put(y)), A.T @ y)
        if A.space is A.test_space:
            agree(comm, get(B.diagonal()), A.diagonal())


def heat(u: Any, x: Any) -> Any:
    return {"grad": (1 + u * u) * u.grad, "value": x[0] * u.value**3}


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("way", ["staged"], indirect=True)
def test_jacobians_and_solves(comm: Communicator, device: GuardedDevice, way: str) -> None:
    for m in shared(tree("squares"), comm):
        V, W = (femops.H1(m, 3, device=place) for place in (None, device))
        put, get = W.memory.put, W.memory.get
        u, x = np.random.default_rng(comm.rank).standard_normal((2, V.size))
        F, G = (femops.residual(heat, space) for space in (V, W))
        agree(comm, get(G.residual(put(u))), F.residual(u))
        J, K = F.jacobian(u), G.jacobian(put(u))
        agree(comm, get(K @ put(x)), J @ x)
        agree(comm, get(K.diagonal()), J.diagonal())
        found = []
        for space in (V, W):
            A = femops.diffusion(space).constrained(space.boundary_dofs())
            b = A.rhs(femops.load(space, 1.0))
            found.append(femops.cg(A, b, rtol=1e-11, M=femops.multigrid(A)))
        (here, info), (there, other) = found
        assert abs(info.iterations - other.iterations) <= 1
        agree(comm, get(there), here, 1e-9)
