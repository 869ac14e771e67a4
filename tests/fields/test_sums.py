"""Inner products of vectors that ranks have pieces of."""

import numpy as np
import pytest

import femops
from femops.fields.reproducible import rounded_sum
from femops.parallel import Serial
from femops.solvers.inner_products import Sums


def vectors(V):
    x = V.interpolate(lambda x: np.sin(7 * x[0] + 3 * x[1]))
    return x, V.interpolate(lambda x: np.cos(x[0] * x[1]))


MESHES = {
    "disc": lambda: femops.read_mesh(femops.sample("disc.mesh")),
    "9 x 7": lambda: femops.box((9, 7)),
    "30 x 31": lambda: femops.box((30, 31)),
}


@pytest.mark.parallel(2, 3, 4)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_the_same_bits_on_any_number_of_ranks(comm):
    """Whatever a rank has behind a block, or if it has nothing; for one vector and for many."""
    for name, order in (("disc", 1), ("disc", 5), ("9 x 7", 2), ("9 x 7", 5), ("30 x 31", 1)):
        mesh = MESHES[name]()
        shared = [femops.distribute(mesh, ranks, reproducible=True) for ranks in (Serial(), comm)]
        alone, many = (femops.H1(part, order) for part in shared)
        (u, v), (x, y) = vectors(alone), vectors(many)
        expected = [Sums(alone).dot(w, v) for w in (u, v)]
        assert [Sums(many).dot(w, y) for w in (x, y)] == expected
        assert Sums(many).dots(np.stack([x, y]), y).tolist() == expected
        assert expected[0] == pytest.approx(float(u @ v), rel=1e-12)


@pytest.mark.parametrize("edges", [[0, 10], [0, 0, 4, 4, 4, 10], [0, 10, 10]])
def test_blocks_without_entries(monkeypatch, edges):
    V = femops.H1(femops.box((9,), comm=Serial(), reproducible=True), 1)
    monkeypatch.setattr("femops.solvers.inner_products.group_edges", lambda _: np.array(edges))
    assert Sums(V).dot(np.arange(10.0), np.full(10, 2.0)) == 90.0
    rows = np.stack([np.arange(10.0), np.ones(10)])
    assert Sums(V).dots(rows, np.full(10, 2.0)).tolist() == [90.0, 20.0]


def test_sums_are_rounded_once_in_any_order():
    for numbers, expected in (
        ([1e16, 1.0, -1e16], 1.0),
        ([1e308, 1e308, -1e308, -1e308, 3.0], 3.0),
        ([1e308, 1e308, 1.0], np.inf),
        ([1e308, 1e308, -np.inf], -np.inf),
        ([np.inf, 1.0, -np.inf], np.nan),
        ([1e308, 1e308, np.inf, -np.inf], np.nan),
        ([np.nan, 1.0], np.nan),
    ):
        for order in (numbers, numbers[::-1], sorted(numbers, key=abs)):
            np.testing.assert_equal(rounded_sum(np.array(order)), expected)


def test_integrals_and_inner_products_of_infinite_numbers_are_no_error():
    V = femops.L2(femops.box((4, 4), comm=Serial(), reproducible=True), 0)
    u = np.where(np.arange(V.size) % 2, np.inf, -np.inf)
    assert np.isnan(femops.integrate(V, u))
    with np.errstate(invalid="ignore"):
        assert np.isnan(Sums(V).dot(u, V.zeros() + 1.0))


class Watched:
    """Passes calls on, and notes their names."""

    def __init__(self, raw, seen):
        self.raw, self.seen = raw, seen

    def __getattr__(self, name):
        self.seen.append(name)
        return getattr(self.raw, name)


@pytest.mark.parallel(2, 3)
def test_one_collective_call_a_sum(comm, monkeypatch):
    raw = comm.raw
    for reproducible, call in ((True, "Allgather"), (False, "Allreduce")):
        V = femops.H1(femops.box((20, 20), comm=comm, reproducible=reproducible), 2)
        sums, (x, y), seen = Sums(V), vectors(V), []
        monkeypatch.setattr(comm, "raw", Watched(raw, seen))
        sums.norm(x)
        sums.dots(np.stack([x, y, x]), y)
        assert seen == 2 * [call]
        monkeypatch.setattr(comm, "raw", raw)
