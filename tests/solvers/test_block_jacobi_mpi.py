"""All ranks decide together how the blocks of elements are inverted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import RankError, SolverError
from femops.solvers.block_jacobi import DenseBlocks, FactoredBlocks
from support.mpi_runs import NO_ELEMENTS


def tapered(x: Any) -> Any:
    """Boxes on the left, where the first rank is, bent elements on the right."""
    y = x.copy()
    y[1] *= 1.0 + np.maximum(0.0, x[0] - 0.5)
    return y


def blocks(comm: Any, counts: tuple[int, int], mapping: Any, **options: Any) -> tuple[Any, Any]:
    mesh = femops.box(counts, mapping=mapping)
    reproducible = options.pop("reproducible", False)
    V = femops.L2(femops.distribute(mesh, comm, reproducible=reproducible), 2)
    B = femops.mass(V, **options)
    return B, femops.block_jacobi(B)


@NO_ELEMENTS
@pytest.mark.parallel(3)
@pytest.mark.parametrize(
    ("counts", "mapping", "options", "kind"),
    [
        ((9, 4), tapered, {}, DenseBlocks),
        ((9, 4), tapered, {"quadrature": 3}, FactoredBlocks),
        ((9, 4), tapered, {"reproducible": True}, DenseBlocks),
        ((9, 4), tapered, {"quadrature": 3, "reproducible": True}, FactoredBlocks),
        ((1, 1), None, {}, FactoredBlocks),
        ((1, 1), None, {"reproducible": True}, FactoredBlocks),
        ((2, 1), tapered, {}, DenseBlocks),
        ((2, 1), tapered, {"reproducible": True}, DenseBlocks),
    ],
)
def test_one_kind_on_all_ranks(comm, counts, mapping, options, kind):
    """Also where some ranks have boxes alone, or no elements."""
    B, M = blocks(comm, counts, mapping, **options)
    assert isinstance(M, kind)
    x = np.random.default_rng(comm.rank).standard_normal(B.shape[1])
    np.testing.assert_allclose(M @ (B @ x), x, atol=1e-13)


@pytest.mark.parallel(3)
@pytest.mark.parametrize("rule", [3, 4])
def test_blocks_that_are_singular_on_one_rank_end_all(comm, rule):
    error = SolverError if comm.rank == 0 else RankError
    with pytest.raises(error, match="elements have singular blocks"):
        blocks(comm, (9, 4), None, rho=lambda x: 1.0 * (x[0] > 0.2), quadrature=rule)
