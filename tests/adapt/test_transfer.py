"""Fields on meshes of one tree, on random trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import SpaceError
from femops_meshes.errors import MeshArgumentError


def grown(mesh: Any, random: Any, rounds: int) -> Any:
    for _ in range(rounds):
        some = random.choice(mesh.num_elements, 1 + mesh.num_elements // 6, replace=False)
        mesh = mesh.refined(some[: max(1, mesh.num_elements - 1)])
    return mesh


COARSE = {
    1: lambda: femops.box((3,)),
    2: lambda: femops.disc(2),
    3: lambda: femops.box((2, 2, 2)),
    "periodic": lambda: femops.box((4, 3), periodic=True),
}


@pytest.mark.parametrize("of", COARSE)
@pytest.mark.parametrize("seed", range(4))
def test_random_trees(of: Any, seed: int) -> None:
    """Functions that both spaces have arrive unchanged; integrals are kept; what was finer returns.

    Any two trees: elements are coarser in some places, and finer in others.
    """
    random = np.random.default_rng(seed)
    mesh = COARSE[of]()
    old, new = (grown(mesh, random, int(random.integers(0, 3))) for _ in range(2))
    order, ncomp = max(1 + seed % 3, mesh.order), 1 + seed % 2
    V, W = (femops.H1(one, order, ncomp) for one in (old, new))
    f = (lambda x: 2.0 + 0.0 * x[0]) if of == "periodic" else (lambda x: x[0] - 2.0 * x[-1] + 1.0)
    g = f if ncomp == 1 else (lambda x: (f(x), 3.0 - f(x)))
    for how in ("nodal", "projection"):
        found = femops.adapt.transfer(V.interpolate(g), V, W, how=how)
        assert np.allclose(found, W.interpolate(g), atol=1e-11), how
    u = random.standard_normal(V.size)
    found = femops.adapt.transfer(u, V, W)
    assert np.allclose(femops.integrate(W, found), femops.integrate(V, u), atol=1e-12)
    finer = grown(old, random, 1)
    for X in (femops.H1(finer, order + 1, ncomp), femops.L2(finer, order, ncomp)):
        up = femops.adapt.transfer(u, V, X)
        assert np.isclose(femops.l2_norm(X, up), femops.l2_norm(V, u), rtol=1e-9)
        assert np.allclose(femops.adapt.transfer(up, X, V), u, atol=1e-10)


def test_numbers_of_elements() -> None:
    """Fields of order 0, such as materials, become means in elements that are coarser."""
    mesh = femops.box((2, 2)).refined([0])
    V = femops.L2(mesh, 0)
    u = np.random.default_rng(0).standard_normal(V.size)
    for order in (0, 1):
        W = femops.L2(mesh.coarsened(), order)
        found = femops.adapt.transfer(u, V, W)
        assert np.isclose(femops.integrate(W, found), femops.integrate(V, u))
    fine = mesh.forest.level == 1
    means = femops.adapt.transfer(u, V, femops.L2(mesh.coarsened(), 0))
    assert np.allclose(np.sort(means), np.sort([u[fine].mean(), *u[~fine]]))


def test_projection_is_the_nearest_function() -> None:
    mesh = femops.box((2, 2))
    V, W = femops.H1(mesh.refined([0, 3]), 2), femops.H1(mesh.refined([0, 1]), 1)
    u = V.interpolate(lambda x: np.sin(4.0 * x[0]) * x[1])
    w = femops.adapt.transfer(u, V, W)
    X = femops.H1(mesh.refine(2), 3)  # has both
    M = femops.mass(X)
    error = femops.adapt.transfer(u, V, X) - femops.adapt.transfer(w, W, X)
    for v in np.eye(W.size):
        assert abs(femops.adapt.transfer(v, W, X) @ (M @ error)) < 1e-12
    nodal = femops.adapt.transfer(u, V, W, how="nodal")
    assert np.allclose(nodal, W.interpolate((V, u)))


def test_products_and_bases() -> None:
    mesh = femops.box((2, 2))
    fine = mesh.refined([1])
    P = femops.Product(u=femops.H1(mesh, 2, ncomp=2), p=femops.L2(mesh, 1))
    Q = femops.Product(u=femops.H1(fine, 2, ncomp=2, family="bernstein"), p=femops.L2(fine, 1))
    z = np.random.default_rng(0).standard_normal(P.size)
    up = femops.adapt.transfer(z, P, Q)
    assert np.allclose(femops.adapt.transfer(up, Q, P), z, atol=1e-11)


def test_what_is_no_tree_is_refused() -> None:
    V, W = femops.H1(femops.box((2, 2)), 1), femops.H1(femops.box((3, 2)).refined([0]), 1)
    with pytest.raises(SpaceError, match="not of one tree"):
        femops.adapt.transfer(V.zeros(), V, W)
    with pytest.raises(SpaceError, match="has 1 component"):
        femops.adapt.transfer(V.zeros(), V, femops.H1(V.mesh, 1, ncomp=2))
    with pytest.raises(SpaceError, match="how"):
        femops.adapt.transfer(V.zeros(), V, V, how="best")
    P = femops.Product(u=V, p=V)
    with pytest.raises(SpaceError, match="the same names"):
        femops.adapt.transfer(P.zeros(), P, femops.Product(u=V, q=V))


def test_change() -> None:
    """Elements are coarsened and refined at once, and what is refined is not coarsened."""
    mesh = femops.box((3, 3)).refined([0, 8]).refined([0])
    count = mesh.num_elements
    levels = mesh.forest.level
    low = np.flatnonzero(levels == 2)
    whole = np.flatnonzero(levels == 0)
    changed = femops.adapt.change(mesh, refine=whole[:1], coarsen=low)
    assert changed.num_elements == count - 3 + 3
    assert changed.forest.level.max() == 1
    assert np.isclose(changed.volume(), 1.0)
    assert femops.adapt.change(mesh, coarsen=low[:3]) is mesh
    both = femops.adapt.change(mesh, refine=low[:1], coarsen=low)
    assert both.forest.level.max() == 3
    flat = femops.box((2, 2))
    assert femops.adapt.change(flat, coarsen=[0, 1]).num_elements == 4
    with pytest.raises(MeshArgumentError, match="elements run"):
        femops.adapt.change(flat, refine=[7])
