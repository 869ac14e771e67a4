"""Updates of vectors in a multigrid cycle."""

import numpy as np
import pytest

from femops_kernels.cpu.multigrid.relaxation import HostUpdates, padded_vector

step = HostUpdates().step


@pytest.mark.parametrize("absent", [(), (1,), (2,), (4,), (1, 2, 4)])
def test_a_step_is_the_formula(absent):
    rng = np.random.default_rng(0)
    vectors = [padded_vector(70_000, np.dtype(np.float32)) for _ in range(5)]
    for vector in vectors:
        vector[:] = rng.standard_normal(len(vector))
    old, product, right, scales, current = vectors
    a, f, b, c = -0.3, 0.4, 1.2, -0.7
    parts = (0.0, a * product, f * right, 0.0, b * current)
    there = [0.0 if k in absent else part for k, part in enumerate(parts)]
    expected = scales * (there[1] + there[2]) + there[4] + c * old
    given = [None if k in absent else vector for k, vector in enumerate(vectors)]
    step(*given, (a, f, b, c))
    np.testing.assert_allclose(old, expected, rtol=2e-5, atol=2e-6)


def test_old_is_not_read_where_it_does_not_count():
    old, right, scales = (padded_vector(20, np.dtype(np.float32)) for _ in range(3))
    old[:], right[:], scales[:] = np.nan, 2.0, 3.0
    step(old, None, right, scales, None, (0.0, 1.0, 0.0, 0.0))
    assert (old == 6.0).all()
