"""Locally refined meshes on a device: the same numbers as on the host, and P^T A P."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.operators.execution.device import LEVELS, device_dofs
from femops_kernels.cuda.operator import sweep
from support.cases.kernels import bend
from support.cuda import host_device as host_device_fixture
from support.cuda.guarded import guarded_device
from support.refined import (
    mixed,
    penalised,
    reference,
    slopes,
    stretching,
    through,
    transport,
    tree,
)

device = host_device_fixture.device


def check(A: Any, matrix: Any, tolerance: float = 2e-14) -> None:
    """Products, transposed products, many vectors and the diagonal against a matrix."""
    rng = np.random.default_rng(1)
    most = abs(matrix).sum(axis=1).max()
    x, y = rng.standard_normal(matrix.shape[1]), rng.standard_normal(matrix.shape[0])
    X = rng.standard_normal((matrix.shape[1], 3))
    found = {
        "product": abs(A @ x - matrix @ x).max() / most,
        "again": abs(A @ x - matrix @ x).max() / most,  # contributions to ghosts are zero again
        "transpose": abs(A.T @ y - matrix.T @ y).max() / most,
        "many": abs(A @ X - matrix @ X).max() / most,
    }
    if matrix.shape[0] == matrix.shape[1]:
        found["diagonal"] = abs(A.diagonal() - matrix.diagonal()).max() / abs(matrix).max()
    assert max(found.values()) < tolerance, found


# --- linear forms ---------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["bent squares", "periodic", "line", "disc", "cubes"])
def test_cells(name: str, p: int, level: Any, device: Any) -> None:
    if name == "cubes" and p > 3:
        return
    mesh = tree(name)
    matrix = reference(lambda W: femops.form(transport, W), femops.H1(mesh, p))
    check(femops.form(transport, femops.H1(mesh, p, device=device), level=level), matrix)


def conditions(V: Any) -> Any:
    return femops.diffusion(V, lambda x: 1 + x[0] ** 2) + femops.mass(V)


def own_and_walls(V: Any) -> Any:
    A = femops.form(transport, V) + 2.0 * femops.form(through, V, boundary="all")
    return A.constrained(V.boundary_dofs(1))


def two_fields(V: Any) -> Any:
    W = femops.Product(v=V, p=femops.H1(V.mesh, 1, device=V.device))
    return femops.form(mixed, W).constrained(W.positions(v=V.boundary_dofs()))


def to_pressures(V: Any) -> Any:
    return femops.divergence(V, femops.L2(V.mesh, V.order - 1, device=V.device))


def inside(V: Any) -> Any:
    return conditions(V).constrained(V.boundary_dofs(1))


def cut_off(V: Any) -> Any:
    return conditions(V).eliminated(V.boundary_dofs())


def penalty(V: Any) -> Any:
    return femops.form(penalised, V, faces="interior")


def upwind(V: Any) -> Any:
    return femops.upwind_convection(V, [1.0, -0.5, 2.0][: V.dim])


def on(kind: Any, order: int, *, vectors: bool = False, **options: Any) -> Callable[..., Any]:
    """Function that makes a space on a mesh."""
    return lambda m, **more: kind(m, order, m.dim if vectors else 1, **options, **more)


FORMS: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    "components": (lambda V: femops.form(stretching, V), on(femops.H1, 2, vectors=True)),
    "boundary": (lambda V: femops.form(through, V, boundary="all"), on(femops.H1, 2)),
    "boundary mass": (femops.boundary_mass, on(femops.H1, 3)),
    "conditions": (inside, on(femops.H1, 2)),
    "eliminated": (cut_off, on(femops.H1, 3)),
    "sum": (own_and_walls, on(femops.H1, 2)),
    "bernstein": (conditions, on(femops.H1, 3, family="bernstein")),
    "two fields": (two_fields, on(femops.H1, 2, vectors=True)),
    "divergence": (to_pressures, on(femops.H1, 2, vectors=True)),
    "penalty": (penalty, on(femops.L2, 2)),
    "penalty of nodes": (penalty, on(femops.L2, 2, family="gll")),
    "penalty of slopes": (penalty, on(femops.L2, 3, family="hermite")),
    "upwind": (upwind, on(femops.L2, 2, family="gll")),
    "continuous": (lambda V: femops.form(slopes, V, faces="interior"), on(femops.H1, 2)),
}


@pytest.mark.parametrize("name", ["bent squares", "cubes"])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, name: str, device: Any) -> None:
    make, space = FORMS[form]
    mesh = tree(name)
    matrix = make(space(mesh)).assemble().toarray()
    for options in ({}, {"reproducible": True}) if space(mesh).continuous else ({},):
        A = make(space(mesh, device=device, **options))
        check(A, matrix, 1e-13)


@pytest.mark.parametrize(
    ("form", "reproducible"),
    [("conditions", False), ("conditions", True), ("two fields", True), ("penalty", False)],
)
def test_nothing_moves_unasked(form: str, reproducible: bool) -> None:
    """On a device whose arrays NumPy cannot read."""
    (make, space), mesh = FORMS[form], tree("squares")
    options = {"reproducible": True} if reproducible else {}
    A, B = make(space(mesh)), make(space(mesh, device=guarded_device(), **options))
    put, get = B.space.memory.put, B.space.memory.get
    for more in ((), (3,)):
        x = np.random.default_rng(1).standard_normal((A.shape[1], *more))
        expected = A @ x
        assert abs(get(B @ put(x)) - expected).max() < 1e-13 * abs(expected).max()
    expected = A.diagonal()
    assert abs(get(B.diagonal()) - expected).max() < 1e-13 * abs(expected).max()


# --- residuals, types, solvers --------------------------------------------------------------------


def heat(u: Any, x: Any) -> Any:
    return {"grad": (1 + u * u) * u.grad, "value": x[0] * u.value**3}


def walls(u: Any, n: Any) -> Any:
    return {"value": u.value**3 * (u.grad @ n), "grad": (1 + u * u) * n * u}


def jumps(u: Any, n: Any) -> Any:
    return {"jump": u.mean**2 * u.jump - u.mean.grad @ n, "mean": {"grad": -(u.jump**2) * n}}


def kinks(u: Any, n: Any) -> Any:
    return {"jump": {"grad": (1 + u.mean**2) * u.jump.grad}}


RESIDUALS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "cells": (heat, femops.H1, {}),
    "walls": (walls, femops.H1, {"boundary": "all"}),
    "faces": (jumps, femops.L2, {"faces": "interior"}),
    "faces, continuous": (kinks, femops.H1, {"faces": "interior"}),
}


@pytest.mark.parametrize("name", ["bent squares", "cubes"])
@pytest.mark.parametrize("form", RESIDUALS)
def test_residuals(form: str, name: str, device: Any) -> None:
    function, space, domain = RESIDUALS[form]
    mesh = tree(name)
    here, there = space(mesh, 2), space(mesh, 2, device=device)
    u, v = np.random.default_rng(1).standard_normal((2, here.size))
    F, G = (femops.residual(function, V, **domain) for V in (here, there))
    expected = F.residual(u)
    assert abs(G.residual(u) - expected).max() < 1e-13 * abs(expected).max()
    J, K = F.jacobian(u), G.jacobian(u)
    expected = J @ v
    assert abs(K @ v - expected).max() < 1e-13 * abs(expected).max()
    diagonal = J.diagonal()
    assert abs(K.diagonal() - diagonal).max() < 1e-13 * abs(diagonal).max()
    other = F.jacobian(v) @ u
    assert abs(G.jacobian(v) @ u - other).max() < 1e-13 * abs(other).max()


def test_functionals(device: Any) -> None:
    mesh = tree("squares")

    def energy(u: Any) -> Any:
        return u**2 + u.grad @ u.grad

    here, there = (femops.functional(energy, femops.H1(mesh, 3, device=d)) for d in (None, device))
    u = np.random.default_rng(1).standard_normal(femops.H1(mesh, 3).size)
    assert there(u) == pytest.approx(here(u), rel=1e-13)


@pytest.mark.parametrize("name", ["bent squares", "cubes"])
def test_single_precision(name: str, device: Any) -> None:
    mesh = tree(name)
    here, there = (femops.H1(mesh, 3, device=d) for d in (None, device))
    matrix = femops.form(transport, here, dtype="float32").assemble().toarray()
    A = femops.form(transport, there, dtype="float32")
    x = np.random.default_rng(0).standard_normal(A.shape[1]).astype("float32")
    most = abs(matrix).sum(axis=1).max() * abs(x).max()
    assert (A @ x).dtype == np.float32
    assert abs(A @ x - matrix @ x).max() < 20 * np.finfo("float32").eps * most


def test_complex_numbers(device: Any) -> None:
    mesh = tree("bent squares")

    def wave(u: Any) -> Any:
        return {"grad": u.grad, "value": (1 + 2j) * u}

    spaces = (femops.H1(mesh, 3, device=d) for d in (None, device))
    here, there = (femops.form(wave, V, dtype="complex128") for V in spaces)
    x = np.random.default_rng(0).standard_normal((2, here.shape[1])).T @ [1, 1j]
    assert abs(there @ x - here @ x).max() < 1e-13 * abs(here @ x).max()


def test_panels(device: Any) -> None:
    """Several panels of many vectors, the last of which is not full."""
    mesh = tree("cubes")
    V = femops.H1(mesh, 2, mesh.dim)
    X = np.random.default_rng(1).standard_normal((V.size, 12))
    A, B = (
        femops.elasticity(W, 1.3, 0.7).constrained(V.boundary_dofs(1))
        for W in (V, femops.H1(mesh, 2, mesh.dim, device=device))
    )
    many = B @ femops.fields.multivector.MultiVector.from_columns(B.space, X, width=5)
    assert abs(many.columns() - A @ X).max() < 1e-13 * abs(A @ X).max()
    assert abs(B @ X - A @ X).max() < 1e-13 * abs(A @ X).max()


@pytest.mark.parametrize("name", ["squares", "cubes"])
def test_the_same_bits(name: str, device: Any) -> None:
    mesh = tree(name)
    V = femops.H1(mesh, 3, device=device, reproducible=True)
    A = femops.form(transport, V) + femops.form(through, V, boundary="all")
    x = np.random.default_rng(1).standard_normal(V.size)
    first = A @ x
    device.backwards = True
    assert np.array_equal(A @ x, first)


@pytest.mark.parametrize("name", ["squares", "cubes"])
def test_solves(name: str, device: Any) -> None:
    """Conjugate gradients with Jacobi's iterations, and multigrid: iterations of the host."""
    mesh = tree(name)
    found = []
    for V in (femops.H1(mesh, 4 if mesh.dim == 2 else 2, device=d) for d in (None, device)):
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        b = A.rhs(femops.load(V, 1.0))
        for M in (femops.jacobi(A), femops.multigrid(A)):
            u, info = femops.cg(A, b, M=M, rtol=1e-10)
            assert info.converged
            found.append((u, info.iterations))
    for k in (0, 1):
        (u, n), (v, m) = found[k], found[k + 2]
        assert abs(u - v).max() < 1e-8 * abs(u).max()
        assert abs(n - m) <= 1


# --- what a mesh's shape decides ------------------------------------------------------------------


def test_rows_that_no_element_meets(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constrained dofs which the first element to touch them has in places of hanging nodes."""
    mesh = tree("squares")
    V, W = femops.H1(mesh, 3), femops.H1(mesh, 3, device=device)
    x = np.random.default_rng(1).standard_normal(V.size)
    unmet = device_dofs(device, W, tabulated=False).unmet
    assert unmet is not None
    assert len(unmet)
    dofs = unmet[::2]
    A, B = (femops.mass(space).constrained(dofs) for space in (V, W))
    assert abs(B @ x - A @ x).max() < 1e-14
    assert np.array_equal((B @ x)[dofs], x[dofs])
    monkeypatch.setattr(sweep.DeviceIdentityRows, "launch", lambda *_, **__: None)
    assert not (femops.mass(W).constrained(dofs) @ x)[dofs].any()


def test_conforming_meshes_have_no_ghosts(device: Any) -> None:
    """Kernels of uniform meshes know nothing of hanging nodes, and there are no more launches."""
    for mesh, expected in ((femops.box((2, 2)).refined(range(4)), 2), (tree("squares"), 4)):
        A = femops.diffusion(femops.H1(mesh, 3, device=device))
        x = np.ones(A.shape[1])
        A.apply(x)
        before = device.launches
        A.apply(x)
        assert device.launches == before + expected
        (launch,) = A.compiled.sweeps
        assert ("GHOSTS = true" in launch.kernel.text) is (expected > 2)


@pytest.mark.exhaustive
def test_random_trees(device: Any) -> None:
    """Shuffled, coarsened, bent and periodic trees, orders 1 to 5."""
    rng = np.random.default_rng(7)
    for k in range(120):
        dim, periodic = 2 + (k % 3 == 0), k % 5 == 0
        counts = (3,) * dim if periodic else tuple(int(n) for n in rng.integers(1, 3, dim) + 1)
        if k % 4 == 3 and not periodic:
            mesh = femops.box(counts, order=2, mapping=bend)
        else:
            mesh = femops.box(counts, periodic=(periodic,) * dim)
        if k % 4 == 1:
            mesh = mesh.reordered(rng.permutation(mesh.num_elements))
        for _ in range(5 - dim):
            mesh = mesh.refined(rng.random(mesh.num_elements) < (0.2 if dim == 2 else 0.06))
        if k % 7 == 3 and mesh.forest is not None:
            mesh = mesh.coarsened(rng.random(mesh.num_elements) < 0.7)
        p = int(rng.integers(1, 6 if dim == 2 else 4))
        here, there = (femops.H1(mesh, p, device=d) for d in (None, device))
        dofs = np.flatnonzero(rng.random(here.size) < 0.1)
        x = rng.standard_normal(here.size)
        A, B = (femops.form(transport, V).constrained(dofs) for V in (here, there))
        expected, diagonal = A @ x, A.diagonal()
        assert abs(B @ x - expected).max() < 1e-13 * abs(expected).max()
        assert abs(B.diagonal() - diagonal).max() < 1e-13 * abs(diagonal).max()
        if k % 6 == 1:
            apart = femops.L2(mesh, min(p, 3)), femops.L2(mesh, min(p, 3), device=device)
            A, B = (femops.form(penalised, V, faces="interior") for V in apart)
            y = rng.standard_normal(apart[0].size)
            expected = A @ y
            assert abs(B @ y - expected).max() < 1e-13 * abs(expected).max()


def test_one_refined_cube(device: Any) -> None:
    """Each of its eight halves at a corner has three hanging faces: 19 of its 27 nodes hang."""
    mesh = femops.box((3, 3, 3)).refined(lambda x: abs(x - 0.5).max(axis=0) < 0.1)
    table = device_dofs(device, femops.H1(mesh, 2, device=device), tabulated=False).hanging
    assert table is not None
    assert table.ghosts == 8 * 19
    assert [len(stage.units) for stage in table.stages] == [24]
    assert len(table.stages[0].lists) == 6  # four halves of a face read the same dofs
