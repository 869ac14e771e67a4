"""Products of members that are less than a lane vector, several at once."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from femops.tensor import gemm
from femops_kernels.cpu import machine
from femops_kernels.cpu.tensor.contraction import Contraction
from femops_kernels.simd.tensor.offsets import offsets
from femops_kernels.simd.tensor.together import members_together

# the same examples each time: what they compile is found again
FEW = settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tiny_members_are_worked_on_together(dtype):
    width = machine.lane_width(dtype)
    if width < 8:
        pytest.skip("lane vectors are too short")
    assert members_together((2, 2, 2), width) == width // 4
    assert members_together((8, 8, 8), width) == 0
    square = (offsets(range(0, 4, 2)), range(2)) * 3
    size = np.dtype(dtype).itemsize
    assert Contraction(dtype, *square).lengths() == (4 * size,) * 3
    assert Contraction(dtype, *square, lanes=8, members="abc").lengths() == ()
    turned = (range(2), offsets(range(0, 4, 2)), *square[2:])
    assert Contraction(dtype, *turned).lengths() == ()
    assert Contraction("complex128", *square).lengths() == ()


SHAPES = ((2, 2, 2), (1, 4, 3), (4, 3, 1), (3, 1, 4))


@FEW
@given(st.data())
def test_results_are_numpys(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from(["float64", "float32"]))
    m, n, k = data.draw(st.sampled_from(SHAPES))
    members = data.draw(st.integers(1, 70))
    first = data.draw(st.integers(0, 3))  # members that are left out, and where c begins
    alpha, beta = data.draw(st.sampled_from([(1.0, 0.0), (-2.0, 1.0), (0.5, -3.0)]))
    shapes = (m, k), (k, n), (m, n)
    blocks = [rng.standard_normal((members + first + 2, *one)).astype(dtype) for one in shapes]
    scale = 10.0 ** rng.uniform(-15, 15, (members, 1, 1)).astype(dtype)
    a, b, c = (one[first : first + members] for one in blocks)
    a *= scale
    c *= scale
    outside, expected = blocks[2].copy(), alpha * (a @ b) + beta * c
    bound = np.abs(a) @ np.abs(b) * abs(alpha) + abs(beta) * np.abs(c)
    gemm(a, b, c, alpha=alpha, beta=beta)
    assert np.all(np.abs(c - expected) <= 20 * np.finfo(dtype).eps * bound)
    outside[first : first + members] = c
    assert np.array_equal(outside, blocks[2])  # nothing else is written
    alone = [gemm(a[e : e + 1], b[e : e + 1], alpha=alpha)[0] for e in range(members)]
    assert np.array_equal(gemm(a, b, alpha=alpha), alone)  # to the last bit, wherever tasks end


def test_members_do_not_mix():
    """A member that is not finite is its own affair."""
    a = np.ones((9, 2, 2), np.float32)
    a[4] = np.nan
    found = gemm(a, np.ones((9, 2, 2), np.float32))
    assert np.isnan(found[4]).all()
    assert np.array_equal(np.delete(found, 4, 0), np.full((8, 2, 2), 2.0))
