"""Partitions: their figures against sets gone through one by one, and what makes them."""

import sys

import numpy as np
import pytest

import femops
from femops_meshes import MeshArgumentError, MeshExtraError, Partition, box, partition
from support.oracles.partitions import MESHES, figures

NAMES = ("touched", "owned", "shared", "total", "total_shared", "neighbours", "copies")


def check_figures(mesh, parts):
    expected = figures(mesh, parts.owner, parts.size)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(parts, name), expected[name], err_msg=name)
    elements = np.bincount(parts.owner, minlength=parts.size)
    np.testing.assert_array_equal(parts.elements, elements)
    assert parts.empty == list(elements).count(0)


@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize("kind", MESHES)
def test_figures(kind, size):
    mesh = MESHES[kind]()
    check_figures(mesh, partition(mesh, size))
    owner = np.random.default_rng(size).integers(size, size=mesh.num_elements)
    check_figures(mesh, Partition.of(mesh, owner, size))


@pytest.mark.parametrize("order", [1, 4])
@pytest.mark.parametrize("kind", ["circle", "square", "torus", "cube", "ball"])
def test_dofs(kind, order):
    mesh = MESHES[kind]()
    owner = np.random.default_rng(order).integers(4, size=mesh.num_elements)
    parts = Partition.of(mesh, owner, 4)
    V = femops.H1(mesh, order)
    touching = [set() for _ in range(V.ndofs)]
    for part, dofs in zip(owner.tolist(), V.restriction.indices.tolist(), strict=True):
        for dof in dofs:
            touching[dof].add(part)
    owned = [sum(min(t) == part for t in touching) for part in range(4)]
    shared = [sum(part in t and len(t) > 1 for t in touching) for part in range(4)]
    assert parts.owned_dofs(order).tolist() == owned
    assert parts.shared_dofs(order).tolist() == shared
    sent = [(min(t), part) for t in touching for part in t if part != min(t)]
    assert parts.exchange(order) == (len(set(sent)), len(sent))


def test_the_curve_cuts_the_order_into_equal_pieces():
    mesh = box((5, 4))
    assert partition(mesh, 3).owner.tolist() == [0] * 7 + [1] * 7 + [2] * 6
    assert partition(mesh, 3).balance == pytest.approx(7 / (20 / 3), rel=1e-15)
    assert partition(mesh, 1).owner.tolist() == [0] * 20
    assert partition(mesh, 1).exchange(3) == (0, 0)


def test_more_parts_than_elements():
    parts = partition(box((2, 1)), 5)
    assert parts.owner.tolist() == [0, 1]
    assert (parts.empty, parts.balance) == (3, 2.5)
    assert parts.elements.tolist() == [1, 1, 0, 0, 0]
    assert parts.owned_dofs(2).tolist() == [9, 6, 0, 0, 0]
    assert "5 parts, 3 empty, balance 2.5, 1 faces" in repr(parts)


def test_weights_are_shared_out():
    mesh = box((40, 25))
    weights = np.where(mesh.element_centers()[:, 0] < 0.25, 8.0, 1.0)
    parts = partition(mesh, 6, weights=weights)
    assert (np.diff(parts.owner) >= 0).all()
    np.testing.assert_allclose(
        parts.load, [weights[parts.owner == part].sum() for part in range(6)], rtol=1e-14
    )
    assert parts.balance < 1.03
    assert partition(mesh, 6, weights=weights.tolist()).balance == parts.balance
    assert Partition.of(mesh, partition(mesh, 6).owner, 6, weights).balance > 1.5


def test_arrays_are_read_only():
    parts = partition(box((3, 3)), 2)
    with pytest.raises(ValueError, match="read-only"):
        parts.owner[0] = 1


@pytest.mark.parametrize("method", ["curve", "metis"])
def test_bad_arguments(method):
    for arguments, message in (
        ({"size": 0}, "size is a whole number >= 1, got 0"),
        ({"size": 2.0}, "size is 2.0: give a whole number"),
        ({"method": "random"}, "method is 'curve' or 'metis', got 'random'"),
        ({"method": None}, "method is None: give a text"),
        ({"weights": [1.0, 2.0]}, r"weights have shape \(2,\), it must be \(6,\)"),
        ({"weights": np.ones((6, 1))}, r"weights have shape \(6, 1\)"),
        ({"weights": [1, 1, 0, 1, 1, -2]}, r"2 weight\(s\) are not positive .* element\(s\) 2, 5 "),
        ({"weights": [1, 1, 1, np.nan, 1, 1]}, "the first is nan"),
        ({"weights": [1, 1, 1, 1, np.inf, 1]}, "the first is inf"),
        ({"weights": ["a"] * 6}, "weights can't be made an array of numbers"),
    ):
        with pytest.raises(MeshArgumentError, match=message):
            partition(box((3, 2)), **({"size": 2, "method": method} | arguments))


def test_bad_owners():
    for owner, message in (
        ([0, 1], r"shape \(2,\): it must be whole numbers of shape \(6,\)"),
        ([0.0] * 6, "owner holds float64"),
        ([True] * 6, "owner holds bool"),
        ([0, 0, 0, 0, 0, 2], "owner goes from 0 to 2, but parts are 0 to 1"),
        ([0, 0, 0, 0, 0, -1], "owner goes from -1 to 0"),
    ):
        with pytest.raises(MeshArgumentError, match=message):
            Partition.of(box((3, 2)), owner, 2)


@pytest.mark.parametrize("order", [0, 65, 10**8, 2**70, 1.5, "2"])
def test_bad_orders(order):
    cut = partition(box((3, 2)), 2)
    for count in (cut.owned_dofs, cut.shared_dofs, cut.exchange):
        with pytest.raises(MeshArgumentError, match="order is"):
            count(order)


# --- METIS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metis():
    pytest.importorskip("pymetis", reason="needs the extra metis")


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("kind", MESHES)
def test_parts_by_metis(metis, kind, size):
    mesh = MESHES[kind]()
    parts = partition(mesh, size, "metis")
    assert np.array_equal(parts.owner, partition(mesh, size, "metis").owner)
    used, first = np.unique(parts.owner, return_index=True)
    assert used.tolist() == list(range(len(used)))  # empty parts are the last
    assert (np.diff(first) > 0).all()  # parts are in the order of their first elements
    if size >= mesh.num_elements:
        assert parts.owner.tolist() == list(range(mesh.num_elements))


def test_metis_finds_small_surfaces(metis):
    mesh = box((32, 8))
    parts = partition(mesh, 4, "metis")
    assert 24 <= parts.total_shared[-1] <= 30  # three straight cuts are 24
    assert parts.balance == 1
    blocks = femops.read_mesh(femops.sample("ball.mesh"), refine=2)
    by_metis, by_curve = (partition(blocks, 16, method) for method in ("metis", "curve"))
    assert by_metis.total_shared[-1] < by_curve.total_shared[-1]
    assert by_metis.balance < 1.05


def test_metis_weighs(metis):
    mesh = box((30, 30))
    weights = np.where(mesh.element_centers()[:, 1] < 0.2, 9.5, 0.5)
    for scale in (1e-20, 1.0, 1e20):
        parts = partition(mesh, 4, "metis", weights * scale)
        check_figures(mesh, parts)
        assert parts.balance < 1.1
        np.testing.assert_allclose(
            parts.load,
            [weights[parts.owner == part].sum() * scale for part in range(4)],
            rtol=1e-12,
        )
    assert partition(mesh, 4, "metis").balance < 1.1


def test_without_pymetis(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MeshExtraError, match=r"pip install pymetis") as caught:
        partition(box((3, 2)), 2, "metis")
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, femops.errors.Errors)
    assert partition(box((3, 2)), 2).size == 2
