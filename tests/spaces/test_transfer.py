"""Fields of one space in another, on the same, a refined or another mesh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.spaces import interpolation
from femops_meshes import scrambled
from femops_meshes.parents import parents_of
from support.mixed_meshes import flat_mesh, mixed_mesh

BENT = {
    dim: femops.box((3, 2, 2)[:dim]).mapped(lambda x: x + 0.05 * np.sin(2 * x[::-1]), order=3)
    for dim in (1, 2, 3)
}


def shuffled(mesh: femops.Mesh, seed: int = 0) -> femops.Mesh:
    return mesh.reordered(np.random.default_rng(seed).permutation(mesh.num_elements))


def field(space: femops.Space, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(space.shape)


def values_at(space: femops.Space, u: np.ndarray, points: np.ndarray) -> np.ndarray:
    return femops.Probe(space.mesh, points)(space, u)


def inner_points(mesh: femops.Mesh, n: int = 40) -> np.ndarray:
    """Some points inside elements, away from all faces of twice refined ones."""
    V = femops.L2(mesh, 1)
    where, _ = V.sample(V.zeros(), 5)
    inside = where[:, len(where[0]) // 2] * 0.9 + where[:, 0] * 0.07 + where[:, -1] * 0.03
    return inside[:n]


@settings(max_examples=20)
@given(
    dim=st.integers(1, 3),
    orders=st.tuples(st.integers(1, 3), st.integers(0, 2)),
    times=st.integers(0, 2),
    families=st.tuples(*[st.sampled_from(["gll", "bernstein"])] * 2),
    ncomp=st.integers(1, 2),
    jumps=st.booleans(),
)
def test_a_field_is_the_same_function_on_a_refined_mesh(dim, orders, times, families, ncomp, jumps):
    """Whatever the orders and bases: the finer space contains the coarser one, jumps included."""
    coarse = scrambled(BENT[dim], 1)
    fine = shuffled(coarse.refine(min(times, 4 - dim)))
    make = femops.L2 if jumps else femops.H1
    V = make(coarse, orders[0], ncomp, families[0])
    W = make(fine, orders[0] + orders[1], ncomp, families[1])
    u = field(V)
    w = W.interpolate(femops.GridFunction(V, u))
    assert w.shape == W.shape
    points = inner_points(coarse)
    np.testing.assert_allclose(values_at(W, w, points), values_at(V, u, points), atol=3e-12)
    np.testing.assert_array_equal(W.interpolate((V, u)), w)


def test_a_continuous_field_in_a_space_that_jumps_and_back() -> None:
    V = femops.H1(BENT[2], 3, ncomp=2)
    Q = femops.L2(BENT[2], 3)
    u = field(V)
    np.testing.assert_array_equal(V.interpolate((V, u)), u)
    assert V.interpolate((V, u.astype(np.float32))).dtype == np.float64
    Q2 = femops.L2(BENT[2], 3, ncomp=2)
    np.testing.assert_allclose(V.interpolate((Q2, Q2.interpolate((V, u)))), u, atol=1e-13)
    W = femops.Product(a=V, b=Q)
    joined = W.interpolate(a=(V, u), b=3.0)
    np.testing.assert_allclose(W.split(joined)[0], u, atol=1e-14)


@pytest.mark.parametrize("family", ["gauss", "hermite"])
def test_functions_that_jump_between_elements(family: str) -> None:
    """Values on a side of a jump are those of the element that has them, not of a neighbour."""
    mesh = femops.box((4, 3))
    V = femops.L2(mesh, 3, family=family)
    step = V.interpolate(lambda x: np.where(x[0] < 0.5, 1.0, 3.0))
    assert femops.l2_error(V, step, lambda x: np.where(x[0] < 0.5, 1.0, 3.0)) < 1e-13
    fine, u = femops.L2(mesh.refine(), 3, family=family), field(V)
    there = fine.interpolate((V, u))
    np.testing.assert_allclose(V.interpolate((fine, there)), u, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_between_meshes_polynomials_in_space_are_kept(dim: int) -> None:
    """On straight meshes, of degree p; the meshes have nothing to do with each other."""
    first, second = femops.box((4, 3, 2)[:dim]), femops.box((3, 5, 3)[:dim])

    def f(x: np.ndarray) -> np.ndarray:
        return 1 + x[0] ** 3 + (2 * x[-1] - x[0]) ** 2

    V, W = femops.H1(first, 3), femops.H1(second, 3)
    np.testing.assert_allclose(W.interpolate((V, V.interpolate(f))), W.interpolate(f), atol=1e-12)


def test_refinements_are_known_and_others_located(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = femops.ball(1, order=2)
    V = femops.H1(mesh, 2)
    u = field(V)
    refined, moved = mesh.refine(), mesh.refine().mapped(lambda x: 0.9 * x)
    located = femops.H1(moved, 2).interpolate((V, u))
    monkeypatch.setattr(interpolation, "locate", lambda *_: pytest.fail("located"))
    femops.H1(refined, 2).interpolate((V, u))
    with pytest.raises(pytest.fail.Exception):
        femops.H1(moved, 2).interpolate((V, u))
    # not the same function, but close: moved elements cut those of the field
    points = 0.9 * inner_points(mesh)
    assert np.abs(values_at(V, u, points)).max() < 10 * np.abs(located).max()


@settings(max_examples=15)
@given(dim=st.integers(1, 3), times=st.integers(0, 2), seeds=st.tuples(*[st.integers(0, 9)] * 2))
def test_parents_are_where_children_came_from(dim: int, times: int, seeds: tuple[int, int]) -> None:
    coarse = shuffled(BENT[dim], seeds[0])
    fine = shuffled(coarse.refine(times), seeds[1])
    parents = parents_of(fine, coarse)
    assert parents is not None
    V = femops.L2(coarse, 3, ncomp=dim, family="gll")
    x = V.interpolate(tuple)
    middle = parents.low + parents.width / 2
    rows = x.reshape(coarse.num_elements, -1, dim)[parents.elements]
    where = V.element.values_at(middle, rows)
    np.testing.assert_allclose(where, fine.element_centers(), atol=1e-12)


def test_what_is_no_refinement_has_no_parents() -> None:
    mesh = BENT[2]
    assert parents_of(mesh, mesh.refine()) is None
    assert parents_of(mesh.refine().curved(4), mesh) is None
    assert parents_of(mesh.mapped(lambda x: 1.001 * x), mesh) is None
    assert parents_of(BENT[3], mesh) is None
    assert parents_of(femops.box((6, 4)), femops.box((3, 2))) is None  # in another order


def test_errors_of_fields() -> None:
    V = femops.H1(femops.box((2, 2)), 2)
    u, wide = V.zeros(), femops.box((2, 2), upper=(5.0, 1.0))
    outside = r"20 of 25 nodes .* lie outside .* at \(2.5, 0\)"
    for space, vector, error, match in (
        (femops.H1(wide, 2), u, femops.errors.ProbeError, outside),
        (femops.H1(V.mesh, 2, ncomp=2), u, femops.errors.SpaceError, "cannot be interpolated"),
        (femops.H1(femops.box((2,)), 2), u, femops.errors.SpaceError, "cannot be interpolated"),
        (V, np.zeros(3), femops.errors.VectorError, "vector has 3 entries"),
    ):
        with pytest.raises(error, match=match):
            space.interpolate((V, vector))


# --- dofs that a predicate chooses ------------------------------------------------------------


def test_a_predicate_chooses_dofs_of_the_boundary() -> None:
    mesh = femops.box((3, 2, 2)).with_names(boundary={"low x": 1})
    V = femops.H1(mesh, 3, ncomp=2)
    low = V.boundary_dofs(lambda x: x[0] < 1e-9)
    np.testing.assert_array_equal(low, V.boundary_dofs("low x"))
    np.testing.assert_array_equal(V.boundary_dofs(lambda x: x[0] >= 0), V.boundary_dofs())
    half = V.boundary_dofs("low x", 1, where=lambda x: x[1] < 0.5 + 1e-9)
    x = V.dof_coordinates()
    expected = np.flatnonzero((x[:, 0] < 1e-9) & (x[:, 1] < 0.5 + 1e-9)) * 2 + 1
    np.testing.assert_array_equal(half, expected)
    seen = []
    V.boundary_dofs(lambda x: seen.append(x.shape) or np.ones(x.shape[1], bool))
    assert seen[0] == (3, len(V.boundary_dofs()) // 2)
    assert sum(n for _, n in seen[1:]) < 20  # a few points again


def test_a_predicate_of_no_faces_is_not_called() -> None:
    V = femops.H1(femops.box((3, 3), periodic=True), 2)
    assert len(V.boundary_dofs(lambda x: pytest.fail("called"))) == 0


def test_a_predicate_that_is_true_nowhere_is_refused() -> None:
    """The condition was left out silently, as where round-off keeps x from 1."""
    V = femops.H1(femops.box((3, 3)), 2)
    for ask in (lambda: V.boundary_dofs(lambda x: x[0] == 1.1), lambda: V.boundary_dofs(1, 0, top)):
        with pytest.raises(femops.errors.SpaceError, match=r"true at no node .* tolerance"):
            ask()


def top(x):
    return x[1] > 1


def test_other_predicates_are_refused() -> None:
    V = femops.H1(femops.box((2, 2)), 2)
    for predicate in (
        lambda x: x[0],
        lambda x: True,
        lambda x: (x[0] < 0.5)[:-1],
        lambda x: x < 0.5,
        lambda x: None,
        lambda x: [[True], [True, False]],
        lambda: True,
        lambda x, y: x[0] < y,
    ):
        with pytest.raises(femops.errors.SpaceError, match=r"x of shape \(dim, n\)"):
            V.boundary_dofs(predicate)
    with pytest.raises(femops.errors.SpaceError, match="two predicates"):
        V.boundary_dofs(lambda x: x[0] < 1, where=lambda x: x[1] < 1)
    with pytest.raises(femops.errors.SpaceError, match="belong to its elements"):
        femops.L2(V.mesh, 1).boundary_dofs(lambda x: x[0] < 1)


@pytest.mark.parametrize("name", ["triangles", "tetrahedra", "squares and triangles", "all shapes"])
@pytest.mark.parametrize("p", [1, 3])
def test_jumps_stay_on_refined_meshes_of_all_shapes(name, p):
    """Nodes on a face have the value of the side on which their own element lies."""
    mesh = {
        "triangles": lambda: femops.disc(1, order=2).simplices(),
        "tetrahedra": lambda: femops.box((2, 1, 1)).simplices(),
        "squares and triangles": lambda: flat_mesh(1, curved=2),
        "all shapes": lambda: mixed_mesh(1, curved=2),
    }[name]()
    V, W = femops.L2(mesh, p), femops.L2(mesh.refine(), p)
    u = np.random.default_rng(p).standard_normal(V.size)
    w = W.interpolate((V, u))
    assert femops.integrate(W, w) == pytest.approx(femops.integrate(V, u), abs=1e-9)
    assert femops.l2_norm(W, w) == pytest.approx(femops.l2_norm(V, u), rel=1e-9)
