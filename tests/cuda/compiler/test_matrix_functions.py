"""Eigenvalues and singular values at the points of a device's kernel: those of the host's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from support.cases.kernels import bend, turned
from support.cuda import guarded

device = guarded.small_device


def rooted(u: Any, x: Any) -> Any:
    """By the square root of a tensor and its least singular value, formed on the way."""
    n = len(x)
    S = np.array([[x[i] * x[j] + (1.0 + i) * (i == j) for j in range(n)] for i in range(n)])
    values, vectors = femops.eigh_sym(S)
    root = sum(
        np.sqrt(value) * np.array([[a * b for b in column] for a in column])
        for value, column in zip(values, vectors.T, strict=True)
    )
    return {"grad": femops.svd_min(S) * (root @ u.grad)}


@pytest.mark.parametrize("dim", [2, 3])
def test_a_tensor_by_its_eigenvectors(device: Any, dim: int) -> None:
    mesh = turned(femops.box((3, 2, 2)[:dim], order=2, mapping=bend))
    V, W = femops.H1(mesh, 2, device=device), femops.H1(mesh, 2)
    here = femops.form(rooted, W, level="matrix-free")
    there = femops.form(rooted, V, level="matrix-free")
    kernel = there.compiled.sweeps[0].kernel
    assert kernel.qfunction.numbers.point == 0  # nothing was computed beforehand
    x = np.random.default_rng(dim).standard_normal(W.size)
    expected = here @ x
    result = (there @ device.upload(x)).get()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12 * abs(expected).max())
