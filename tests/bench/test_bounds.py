"""Limits: arithmetic by hand."""

from itertools import product

import numpy as np
import pytest

import femops
from femops.bench.bounds import host_bound, least_traffic
from femops.bench.problems import PROBLEMS, make_space
from femops_kernels.cpu.limits import Limits, Mix
from femops_kernels.errors import KernelValueError


def test_the_limit_is_the_larger_time():
    memory = host_bound(4e9, 1e9, 8.0, 4.0)  # 4 GB at 8 GB/s: half a second; operations: a quarter
    assert (memory.seconds, memory.resource) == (0.5, "memory")
    arithmetic = host_bound(4e9, 8e9, 8.0, 4.0)
    assert (arithmetic.seconds, arithmetic.resource) == (2.0, "arithmetic")
    speed = arithmetic.speed(10**6, 4.0)
    assert (speed["limit"], speed["fraction_of_limit"]) == (0.5e6, 0.5)


@pytest.mark.parametrize("form", ["bp1", "bp3"])
def test_least_bytes_of_a_box(form):
    """Affine elements keep at most ten numbers; the indices are those of the operator itself."""
    V = make_space(PROBLEMS[form], "cartesian", 3, 20e3)
    traffic = least_traffic(PROBLEMS[form], V)
    costs = {
        level: PROBLEMS[form].operator(V, level).cost() for level in ("matrix-free", "partial")
    }
    assert traffic.written == 8 * V.size
    assert traffic.total == pytest.approx(min(c.bytes_moved for c in costs.values()), rel=0.02)
    assert traffic.total < 16 * V.size + V.mesh.num_elements * (10 * 8 + 64 * 2)


def test_least_bytes_of_curved_linear_elements_are_the_matrix():
    """81 numbers of a quadratic map outweigh a row of at most 27 entries of 12 bytes."""
    V = make_space(PROBLEMS["bp3"], "curved", 1, 5e3)
    traffic = least_traffic(PROBLEMS["bp3"], V)
    matrix = PROBLEMS["bp3"].operator(V).assemble()
    assert traffic.level == "full"
    by_hand = 16 * V.size + 12 * matrix.nnz + 8 * V.size
    assert traffic.total == pytest.approx(by_hand, rel=1e-12)


def test_no_level_moves_less():
    for name in ("bp1", "bp3", "bp4", "bp5"):
        V = make_space(PROBLEMS[name], "multilinear", 1, 1e3)
        traffic = least_traffic(PROBLEMS[name], V)
        for level in ("full", "element", "partial", "matrix-free"):
            moved = PROBLEMS[name].operator(V, level).cost().bytes_moved
            # padding of the last lanes is not counted
            assert moved >= 0.98 * traffic.total, (name, level)


def test_a_mix_keeps_size_and_proportion():
    amounts = [(2e6, 1e6), (1e8, 1e6), (1e6, 9e6), (1e3, 1e3)]
    for (read, written), workers in product(amounts, (1, 3)):
        mix = Mix.of(read, written, 64, workers)
        assert mix.reads % 8 == 0
        assert min(mix.writes, mix.blocks) >= 1
        if read + written > 1e5:
            assert mix.nbytes(64) == pytest.approx(read + written, rel=0.1)
            assert mix.reads / mix.writes == pytest.approx(read / written, rel=0.3)
    # by hand, a third written: 43 of 128 lanes, and 86 read, rounded to eights
    assert Mix.of(2**20, 2**19, 64) == Mix(reads=88, writes=43, blocks=188)
    for nothing in ((0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)):
        with pytest.raises(KernelValueError, match="give two of 1 or more"):
            Mix.of(*nothing, 64)


@pytest.mark.parametrize("nbytes", [2**12, 2**24])
def test_bandwidth_stays_inside_its_arrays(nbytes):
    """More than the arrays of the triad hold is gone through in part."""
    limits = Limits(1, nbytes=2**20)
    assert np.isfinite(limits.bandwidth(0.7 * nbytes, 0.3 * nbytes))
    assert limits.triad() > 0
    assert limits.multiply_adds() > 0


def test_collocated_rules():
    assert PROBLEMS["bp5"].rule(3).name == "lobatto"
    assert PROBLEMS["bp5"].rule(3).q1d == 4
    assert PROBLEMS["bp3"].rule(3).name == "gauss"
    assert PROBLEMS["bp3"].rule(3).q1d == 5
    V = femops.H1(femops.box((2, 2, 2)), 3)
    # derivatives in x of x at the nodes are exact: u . A u is the volume
    u = V.interpolate(lambda x: x[0])
    assert u @ (PROBLEMS["bp5"].operator(V) @ u) == pytest.approx(1.0)
