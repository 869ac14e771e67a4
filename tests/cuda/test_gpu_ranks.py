"""Two ranks with a GPU each, where there are two: their messages by MPI and by NCCL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.parallel import Communicator, gpus
from femops_kernels.cuda.device import cupy_device
from femops_kernels.errors import DeviceError
from support.cases.kernels import bend, smooth
from support.cases.rank_operators import here, piece


@pytest.fixture(params=["0", "1"], ids=["mpi", "nccl"])
def messages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if len(cupy_device.describe()["devices"]) < 2:
        pytest.skip("there are no two GPUs")
    if request.param == "1":
        try:
            cupy_device.open_device("cuda").network()
        except DeviceError as error:
            pytest.skip(str(error))
    monkeypatch.setenv(gpus.NCCL, request.param)


@pytest.mark.parallel(2, timeout=300)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("refined", [False, True], ids=["uniform", "refined"])
def test_operators_and_solves_are_those_of_one_process(
    comm: Communicator, messages: None, dtype: str, refined: bool
) -> None:
    def solve(comm: Communicator | None, device: str | None) -> tuple[Any, ...]:
        mesh = femops.box((12, 12, 6), mapping=bend, comm=comm)
        if refined:
            mesh = mesh.refined(lambda x: x[0] < 0.4)
        V = femops.H1(mesh, 3, device=device)
        A = femops.diffusion(V, smooth, dtype=dtype) + femops.mass(V, dtype=dtype)
        A = A.constrained(V.boundary_dofs())
        b = A.rhs(femops.load(V, smooth, dtype=dtype), 0.5)
        for _ in range(20):  # many messages are under way before the host waits
            product = A @ b
        return V, product, *femops.cg(A, b, rtol=1e-5 if dtype == "float32" else 1e-11)

    V, product, x, info = solve(comm, "cuda")
    _, *expected, _ = solve(None, None)
    assert info.converged
    bound = 1e-4 if dtype == "float32" else 1e-10
    for mine, whole in zip((product, x), expected, strict=True):
        gap = np.abs(here(mine).reshape(-1) - whole.reshape(-1)[piece(V)]).max()
        assert gap <= bound * np.abs(whole).max()
