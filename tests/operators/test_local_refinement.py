"""Operators on locally refined meshes, against P^T A P; see `support.refined`."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import femops
from femops.errors import SpaceError
from femops.operators.execution import host
from femops_meshes.topology.entities import outward_corners
from support.cases.kernels import bend
from support.refined import (
    broken,
    errors,
    penalised,
    prolongation,
    reference,
    slopes,
    stretching,
    through,
    transport,
    tree,
)

LEVELS = ("partial", "matrix-free", "element", "full")
TREES = ("squares", "bent squares", "disc", "periodic", "line", "cubes")


def check(make, V, levels=LEVELS, tolerance=2e-14):
    matrix = reference(lambda W: make(W, "partial"), V)
    for level in levels:
        found = errors(make(V, level), matrix)
        assert max(found.values()) < tolerance, (level, found)


# --- the restriction ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gll", "bernstein"])
@pytest.mark.parametrize("name", [name for name in TREES if name != "disc"])
def test_polynomials_are_continuous(name, family):
    """Elements have the values of interpolated polynomials at their nodes."""
    mesh = tree(name)

    def f(x):  # one value at both ends of the period
        return np.ones(x.shape[1]) if name == "periodic" else x[0] - 2 * x[-1]

    for p in (1, 2, 3, 5):
        V = femops.H1(mesh, p, family=family)
        found = V.restriction.gather(V.interpolate(f)).reshape(-1)
        straight = name in ("squares", "line", "periodic")
        exact = broken(V).interpolate(f)
        assert abs(found - exact).max() < (1e-13 if straight or p > 1 else 0.02)
    V = femops.H1(mesh, 2, family=family)
    P = prolongation(V)
    assert np.linalg.matrix_rank(P) == V.ndofs  # no dof is without a function
    y = np.random.default_rng(0).standard_normal(len(P))
    summed = V.sum_elements(y.reshape(mesh.num_elements, -1))
    assert abs(summed - P.T @ y).max() < 1e-13 * abs(P).sum(axis=0).max()
    free, indices = V.restriction.free, V.restriction.indices
    own = indices.ravel() if free is None else indices[free]
    assert np.array_equal(V.multiplicity(), np.bincount(own, minlength=V.ndofs))


# --- linear forms ---------------------------------------------------------------------------------


@pytest.mark.sample(11)
@pytest.mark.parametrize("family", ["gll", "bernstein"])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("name", TREES)
def test_cells(name, p, family):
    V = femops.H1(tree(name), p, family=family)
    check(lambda V, level: femops.form(transport, V, level=level), V)


@pytest.mark.parametrize("make", [femops.mass, femops.diffusion])
def test_constant_coefficients(make):
    """Kernels of 1-D matrices."""
    for name in ("squares", "random cubes"):
        check(lambda V, level: make(V, level=level), femops.H1(tree(name), 2))


def test_several_components():
    for name in ("bent squares", "cubes"):
        mesh = tree(name)
        check(
            lambda V, level: femops.form(stretching, V, level=level), femops.H1(mesh, 2, mesh.dim)
        )


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["bent squares", "cubes"])
def test_boundaries(name):
    for p in (1, 3) if name != "cubes" else (2,):
        check(
            lambda V, level: femops.form(through, V, boundary="all", level=level),
            femops.H1(tree(name), p),
        )


def test_diagonals_by_sweeps(monkeypatch):
    for name in ("bent squares", "cubes"):
        V = femops.H1(tree(name), 2)
        for domain in ({}, {"boundary": "all"}):
            function = through if domain else transport
            A = femops.form(function, V, **domain)
            matrix = reference(lambda W, f=function, d=domain: femops.form(f, W, **d), V)
            for least in (0, 2**60):
                monkeypatch.setattr(host, "_COMPILED_FROM", least)
                again = femops.form(function, V, **domain).diagonal()
                assert abs(again - matrix.diagonal()).max() < 1e-14 * abs(matrix).max()
            assert A.shape == matrix.shape


def test_diagonal_of_a_form_that_only_couples_components():
    V = femops.H1(tree("squares"), 1, ncomp=2)
    A = femops.form(lambda u: {"value": np.stack([u[1], u[0]])}, V)
    assert not A.diagonal().any()
    assert abs(A.assemble()).max() > 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lanes_and_types(lanes, dtype):
    V = femops.H1(tree("bent squares"), 3)
    matrix = reference(lambda W: femops.form(transport, W), V)
    A = femops.form(transport, V, lanes=lanes, dtype=dtype)
    x = np.random.default_rng(0).standard_normal(V.size).astype(dtype)
    assert A.dtype == dtype
    most = abs(matrix).sum(axis=1).max() * abs(x).max()
    assert abs(A @ x - matrix @ x).max() < 20 * np.finfo(dtype).eps * most


# --- faces between elements -----------------------------------------------------------------------


def embedding(V, fine):
    """Matrix from the dofs of a space to those on a mesh that is refined from its mesh.

    Gauss nodes lie inside elements, so that values at them belong to one element.
    """
    inside = femops.L2(fine.mesh, fine.order, family="gauss")
    columns = [inside.interpolate(femops.GridFunction(V, one)) for one in np.eye(V.size)]
    if isinstance(fine, femops.H1) or fine.family != "gauss":
        own = [inside.interpolate(femops.GridFunction(fine, one)) for one in np.eye(fine.size)]
        return np.linalg.lstsq(np.stack(own, axis=1), np.stack(columns, axis=1), rcond=None)[0]
    return np.stack(columns, axis=1)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "space", "function"),
    [
        ("squares", lambda m: femops.L2(m, 2, family="gll"), penalised),
        ("squares", lambda m: femops.L2(m, 2), penalised),
        ("squares", lambda m: femops.H1(m, 2), slopes),
        ("cubes", lambda m: femops.L2(m, 1), penalised),
        ("cubes", lambda m: femops.H1(m, 1), slopes),
    ],
)
def test_faces_of_two_sizes(name, space, function, monkeypatch):
    """The same form on the mesh whose elements all have the least size."""
    mesh = tree(name) if name == "squares" else femops.box((2, 2, 2)).refined([0])
    fine = mesh
    while (fine.forest.level < fine.forest.depth).any():
        fine = fine.refined(fine.forest.level < fine.forest.depth)
    V, F = space(mesh), space(fine)
    P = embedding(V, F)
    matrix = P.T @ (femops.form(function, F, faces="interior").assemble() @ P)
    for level in ("partial", "element", "full"):
        found = errors(femops.form(function, V, faces="interior", level=level), matrix)
        assert max(found.values()) < 1e-13, (level, found)
    monkeypatch.setattr(host, "_COMPILED_FROM", 0)
    again = femops.form(function, V, faces="interior").diagonal()
    assert abs(again - matrix.diagonal()).max() < 1e-13 * abs(matrix).max()


@pytest.mark.parametrize("name", ["squares", pytest.param("cubes", marks=pytest.mark.exhaustive)])
def test_continuous_values_on_faces(name):
    """A face may end at a node that hangs in another face of its element."""
    V = femops.H1(tree(name), 2)

    def mean(u, x):
        return {"mean": u.mean * (1 + x[0])}

    check(
        lambda V, level: femops.form(mean, V, faces="interior", level=level),
        V,
        levels=("partial", "element", "full"),
    )
    u = np.random.default_rng(2).standard_normal(broken(V).size)
    k = femops.GridFunction(V, V.interpolate(lambda x: 1 + x[0]))
    goal = femops.functional(lambda u, k: k.mean * u.jump**2, broken(V), faces="interior", k=k)
    slope = femops.gradient(goal, u=u, wrt="k")["k"]  # the goal is linear in k
    assert abs(slope @ k.vector - goal(u)) < 1e-13 * abs(goal(u))


def test_values_on_a_listed_face_between_halves():
    """Such a face, as MFEM's files may list it, ends at a node that hangs in another face."""
    mesh = femops.box((4, 4)).refined([5])
    small = mesh.forest.level == 1
    number = next(k for k in mesh.topology.pairs if small[mesh.topology.faces[k]].all())
    face = np.array([[mesh.topology.faces[number, 0], mesh.topology.face_codes[number, 0]]])
    listed = replace(
        mesh,
        boundary=np.concatenate([mesh.boundary, outward_corners(mesh.elements, face)]),
        boundary_attributes=np.append(mesh.boundary_attributes, np.int32(9)),
    )
    V = femops.H1(listed, 2)

    def make(V, level):
        return femops.form(lambda u, x: {"value": u * (1 + x[0])}, V, boundary=9, level=level)

    check(make, V)


# --- what cannot be -------------------------------------------------------------------------------


def test_file_dofs_are_refused():
    mesh = tree("squares")
    with pytest.raises(SpaceError, match="MFEM also numbers nodes that hang"):
        femops.H1(mesh, 2).file_dofs()
    V = femops.L2(mesh, 2)
    assert np.array_equal(np.sort(V.file_dofs()), np.arange(V.ndofs))


def harmonic(x, p):
    return ((x[0] + 1j * x[1]) ** p).real


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(10))
def test_random_trees(part):
    """Shuffled, coarsened, bent and periodic trees: polynomials, continuity, products, patches."""
    rng = np.random.default_rng(7 + part)
    for k in range(100):
        dim, periodic, bent = 2 + (k % 3 == 0), k % 5 == 0, k % 2 == 1
        counts = (3,) * dim if periodic else tuple(int(n) for n in rng.integers(1, 3, dim) + 1)
        mesh = femops.box(counts, periodic=(periodic,) * dim)
        if k % 4 == 1:
            mesh = mesh.reordered(rng.permutation(mesh.num_elements))
        for _ in range(5 - dim):
            mesh = mesh.refined(rng.random(mesh.num_elements) < (0.2 if dim == 2 else 0.06))
        if k % 7 == 3 and mesh.forest is not None:
            mesh = mesh.coarsened(rng.random(mesh.num_elements) < 0.7)
        if k % 4 == 2:
            mesh = mesh.reordered(rng.permutation(mesh.num_elements))
        p = int(rng.integers(1, 9)) if dim == 2 and mesh.num_elements < 60 else 1 + k % 3
        volume = 1.0
        if bent and not periodic:
            mesh = mesh.mapped(bend, min(p, 2))
            volume = mesh.volume()
        V = femops.H1(mesh, p)
        W = broken(V)
        u = rng.standard_normal(V.size)
        apart = V.restriction.gather(u).reshape(-1)
        jumps = femops.form(lambda u: {"jump": u.jump}, W, faces="interior")
        assert abs(apart @ (jumps @ apart)) < 1e-24 * (apart @ apart)
        A = femops.diffusion(V)
        results = (femops.diffusion(W) @ apart).reshape(mesh.num_elements, -1)
        expected = V.sum_elements(results)
        assert abs(A @ u - expected).max() < 1e-12 * abs(expected).max()
        ones = np.ones(V.size)
        assert abs(ones @ (femops.mass(V) @ ones) - volume) < 1e-12 * volume
        if periodic:
            assert abs(A @ ones).max() < 1e-12 * abs(expected).max()
            continue
        degree = 1 if bent else p
        f = partial(harmonic, p=degree)
        w = V.interpolate(f)
        if not bent or p > 1:
            exact = W.interpolate(f)
            assert abs(V.restriction.gather(w).reshape(-1) - exact).max() < 1e-13
        inside = np.setdiff1d(np.arange(V.size), V.boundary_dofs())
        assert abs((A @ w)[inside]).max(initial=0.0) < 1e-11 * abs(A @ w).max()
