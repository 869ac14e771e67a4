"""Meshes of several shapes, and of prisms, on many ranks, against the same in one process."""

import re

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from femops.parallel.comm import gathered
from support.cases.levels import LEVELS
from support.gmsh_files import document
from support.mixed_meshes import flat_mesh, mixed_mesh, positions_of
from support.refined import shared

pytestmark = pytest.mark.filterwarnings("ignore:.*ranks have no elements")

MESHES = {
    "squares and triangles": lambda: flat_mesh(2),
    "all shapes": lambda: mixed_mesh(1, seed=3, curved=2),
    "prisms": lambda: femops.box((3, 2, 2), cells="prisms"),
    "an element of each": lambda: flat_mesh(0),
}


def cells(u, x):
    return {"value": (2 + x[0]) * u, "grad": (1 + x[-1] ** 2) * u.grad}


def skew(u, n, x):
    """No two sides are treated alike."""
    return {"minus": u.plus * (1 + x[0]), "plus": {"value": u.minus.grad @ n, "grad": u.jump * n}}


def outside(u, n):
    return {"value": 2 * u + u.grad @ n}


def kappa(mesh):
    K = femops.L2(mesh, 1)
    return femops.GridFunction(K, K.interpolate(lambda x: 1 + x[0] * x[1]))


FORMS = {
    "cells": (femops.H1, lambda V, **k: femops.form(cells, V, **k)),
    "boundary": (femops.H1, lambda V, **k: femops.form(outside, V, boundary="all", **k)),
    "continuous faces": (femops.H1, lambda V, **k: femops.form(skew, V, faces="interior", **k)),
    "faces": (femops.L2, lambda V, **k: femops.form(skew, V, faces="interior", **k)),
    "penalty": (
        femops.L2,
        lambda V, **k: femops.interior_penalty(V, kappa(V.distributed or V.mesh), **k),
    ),
}


@pytest.mark.parallel(2, 3)
def test_volumes(comm):
    for make in MESHES.values():
        whole, mesh = make(), femops.distribute(make() if comm.rank == 0 else None, comm)
        parts = [(a.volume(), b.volume()) for a, b in zip(whole.parts, mesh.parts, strict=True)]
        for mine, exact in [(mesh.volume(), whole.volume()), *parts]:
            assert mine == pytest.approx(exact, rel=1e-13)


@pytest.mark.parallel(2, 3, 4, 7)
@pytest.mark.parametrize("name", MESHES)
def test_operators(comm, name):
    mesh, p = MESHES[name](), 2 if name == "all shapes" else 3
    known = {}
    for title, (kind, make) in FORMS.items():
        V = kind(mesh, p)
        matrix = make(V).assemble()
        x = np.random.default_rng(p).standard_normal((V.size, 2))
        most = abs(matrix).sum(axis=1).max() * abs(x).max()
        known[title] = V, matrix.diagonal(), x, matrix @ x, most
    for cut in shared(mesh, comm):
        assert cut.num_elements == comm.sum(cut.mesh.num_elements)
        for title, (kind, make) in FORMS.items():
            W, (V, diagonal, x, y, most) = kind(cut, p), known[title]
            mine = positions_of(V, W)
            assert comm.sum(len(mine)) == V.size == W.global_size
            assert abs(W.dof_coordinates() - V.dof_coordinates()[mine]).max(initial=0.0) < 1e-14
            for level in LEVELS if title == "cells" else ("partial", "full"):
                A = make(W, level=level)
                assert abs(A @ x[mine, 0] - y[mine, 0]).max(initial=0.0) < 1e-14 * most
            assert abs(A @ x[mine] - y[mine]).max(initial=0.0) < 1e-14 * most
            assert abs(A.diagonal() - diagonal[mine]).max(initial=0.0) < 1e-14 * most


def power(x):
    return (1.0 + x[0] - 2.0 * x[1] + 0.5 * x[-1]) ** 2


@pytest.mark.parallel(2, 3)
def test_solutions_and_fields(comm, tmp_path):
    """Exact polynomials, and what one process finds."""
    folder = comm.broadcast(tmp_path if comm.rank == 0 else None)
    whole = mixed_mesh(2, seed=1)
    mesh = femops.distribute(whole if comm.rank == 0 else None, comm)
    V, S = femops.H1(mesh, 2), femops.H1(whole, 2)
    u = V.interpolate(power)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, -10.5), u)
    found, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-11)
    assert info.iterations < 14
    assert abs(found - u).max(initial=0.0) < 1e-8
    assert femops.l2_error(V, u, power) < 1e-12
    assert abs(femops.integrate(V, u) - femops.integrate(S, S.interpolate(power))) < 1e-12
    area = femops.integrate(V, 1.0, boundary="all")
    assert abs(area - femops.integrate(S, 1.0, boundary="all")) < 1e-12
    # interior penalty
    D = femops.L2(mesh, 2)
    right = femops.load(D, -10.5) + femops.dirichlet_load(D, power)
    w, info = femops.cg(B := femops.interior_penalty(D), right, M=femops.multigrid(B), rtol=1e-11)
    assert info.iterations < 25
    assert femops.l2_error(D, w, power) < 1e-8
    upwind = femops.upwind_convection(D, [1.0, 0.5, 0.25]) @ D.interpolate(1.0)
    assert abs(upwind).max(initial=0.0) < 5.0
    # projection, eigenvalues, Newton's method, functionals
    slopes = femops.L2(mesh, 1, ncomp=3)
    gradient = femops.project(slopes, lambda u: u.grad, V, u)
    exact = slopes.interpolate(
        lambda x: np.outer([2.0, -4.0, 1.0], 1.0 + x[0] - 2.0 * x[1] + 0.5 * x[-1])
    )
    assert femops.l2_norm(slopes, gradient - exact) < 1e-10
    values = [
        femops.eigen.lobpcg(
            femops.diffusion(space).constrained(space.boundary_dofs()), femops.mass(space), 2
        ).values
        for space in (V, S)
    ]
    np.testing.assert_allclose(*values, rtol=1e-6)
    F = femops.residual(lambda u: {"grad": (1 + u**2) * u.grad, "value": u}, V)
    F = F.constrained(V.boundary_dofs())
    _, info = femops.newton(F, u.copy(), femops.load(V, 1.0))
    assert info.converged
    energy = femops.functional(lambda u: 0.5 * u**2, V)
    assert abs(energy(u) - 0.5 * femops.l2_norm(V, u) ** 2) < 1e-11
    # probes, files, checkpoints
    points = whole.element_centers()[::7]
    probe, one = femops.Probe(mesh, points), femops.Probe(whole, points)
    np.testing.assert_array_equal(probe.elements, one.elements)
    np.testing.assert_allclose(probe(V, u), power(points.T), atol=1e-12)
    for kind in (femops.H1, femops.L2):
        W, T = kind(mesh, 2), kind(whole, 2)
        state = femops.io.save_state(folder / "run.state", {"w": (W, W.interpolate(power))})
        np.testing.assert_allclose(
            femops.io.load_state(state, {"w": T}).vectors["w"], T.interpolate(power), atol=1e-13
        )
        back = femops.io.load_state(state, {"w": W}).vectors["w"]
        np.testing.assert_array_equal(back, W.interpolate(power))
        comm.sum(0)
    femops.save(folder / "u.vtu", V, u=u)
    comm.sum(0)  # rank 0 has written it
    counts = re.findall(rb'NumberOfCells="(\d+)"', (folder / "u.vtu").read_bytes())
    assert sum(map(int, counts)) == whole.num_elements
    # other meshes of this one
    fine = mesh.refine()
    assert (fine.num_elements, fine.mesh.plural) == (8 * whole.num_elements, whole.plural)
    assert femops.distribute(whole, Serial()).checksum == mesh.checksum


@pytest.mark.parallel(2, 3)
def test_groups_of_a_file(comm, tmp_path):
    """A cube, two prisms and two tetrahedra, by Gmsh, with names."""
    points = np.array(
        [
            *((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)),
            *((0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)),
            *((2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1), (1.2, 0.3, 2), (2.2, 0.3, 2)),
        ],
        dtype=float,
    )
    elements = [(5, 7, 1, 1, 2, 3, 4, 5, 6, 7, 8), (6, 8, 2, 2, 9, 3, 6, 11, 7)]
    elements += [(6, 8, 2, 9, 10, 3, 11, 12, 7), (4, 9, 3, 6, 11, 7, 13), (4, 9, 3, 13, 11, 14, 7)]
    elements += [(3, 4, 4, 1, 2, 3, 4), (2, 5, 5, 2, 3, 9), (3, 5, 5, 2, 9, 11, 6)]
    path = comm.broadcast(tmp_path if comm.rank == 0 else None) / "a.msh"
    if comm.rank == 0:
        path.write_text(document(points, elements, [(3, 7, "cube"), (2, 5, "cold")]))
    mesh = femops.read_mesh(path, comm=comm, refine=1)
    whole = femops.read_mesh(path, refine=1)
    assert (mesh.boundary_names, mesh.element_names) == (whole.boundary_names, whole.element_names)
    V, S = femops.H1(mesh, 2), femops.H1(whole, 2)
    for name in ("cold", 1):
        areas = [femops.integrate(space, 1.0, boundary=name) for space in (V, S)]
        assert areas[0] == pytest.approx(areas[1], abs=1e-13)
        assert comm.sum(len(V.boundary_dofs(name))) == len(S.boundary_dofs(name))
    assert comm.sum(len(V.element_dofs("cube"))) == len(S.element_dofs("cube")) == 5**3
    layers = femops.by_attribute(mesh, {"cube": 2.0}, default=1.0)
    total = femops.mass(V, layers) @ V.interpolate(1.0)
    assert comm.sum(total.sum()) == pytest.approx(whole.volume() + 1.0)
    numbers = gathered(comm, mesh.part.elements)
    assert np.array_equal(np.sort(numbers), np.arange(whole.num_elements))


@pytest.mark.parallel(2, 3)
def test_the_same_bits(comm):
    """Ranks have whole groups of elements of one shape."""
    mesh, found = flat_mesh(3), []
    for cut in (
        femops.distribute(mesh, Serial(), reproducible=True),
        femops.distribute(mesh if comm.rank == 0 else None, comm, reproducible=True),
    ):
        V, D = femops.H1(cut, 2), femops.L2(cut, 1)
        A = femops.form(cells, V) + femops.boundary_mass(V, lambda x: 1 + x[0])
        C = femops.diffusion(V).constrained(V.boundary_dofs())
        b = C.rhs(femops.load(V, lambda x: np.exp(x[0])), 0.0)
        u, _ = femops.cg(C, b, M=femops.jacobi(C), rtol=1e-9)
        wave, jumps = (W.interpolate(lambda x: np.cos(3 * x[0] + x[1])) for W in (V, D))
        products = [A.at_level(level) @ wave for level in LEVELS]
        penalty = femops.interior_penalty(D)
        products += [b, u, C.diagonal(), penalty @ jumps, penalty.diagonal()]
        found.append([gathered(cut.comm, each) for each in products])
    for one, many in zip(*found, strict=True):
        np.testing.assert_array_equal(one, many)
