"""Locally refined meshes on a device: the same numbers as on the host, and P^T A P."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.operators.execution.device import LEVELS
from support.cuda import host_device as host_device_fixture
from support.refined import reference, tree

device = host_device_fixture.device


def transport(u: Any, x: Any) -> Any:
    """Not symmetric, with all entries."""
    return {"grad": u.grad * (1 + x[0]), "value": u * x[0] + u.grad[0]}


def check(A: Any, matrix: Any, tolerance: float = 2e-14) -> None:
    """Products, transposed products, many vectors and the diagonal against a matrix."""
    rng = np.random.default_rng(1)
    most = abs(matrix).sum(axis=1).max()
    x, y = rng.standard_normal(matrix.shape[1]), rng.standard_normal(matrix.shape[0])
    X = rng.standard_normal((matrix.shape[1], 3))
    found = {
        "product": abs(A @ x - matrix @ x).max() / most,
        "again": abs(A @ x - matrix @ x).max() / most,
        "transpose": abs(A.T @ y - matrix.T @ y).max() / most,
        "many": abs(A @ X - matrix @ X).max() / most,
    }
    if matrix.shape[0] == matrix.shape[1]:
        found["diagonal"] = abs(A.diagonal() - matrix.diagonal()).max() / abs(matrix).max()
    assert max(found.values()) < tolerance, found


@pytest.mark.sample(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["bent squares", "periodic", "line", "disc", "cubes"])
def test_cells(name: str, p: int, level: Any, device: Any) -> None:
    if name == "cubes" and p > 3:
        return
    mesh = tree(name)
    matrix = reference(lambda W: femops.form(transport, W), femops.H1(mesh, p))
    check(femops.form(transport, femops.H1(mesh, p, device=device), level=level), matrix)
