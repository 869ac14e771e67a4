"""Integrals over the boundary on a device: of derivatives, of L2 spaces, and Jacobians of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from support.cases.boundary import mesh, random_form
from support.cases.kernels import bend
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice
from support.cuda.host_device import host_device
from support.oracles import boundary as oracle
from support.simulated_ranks import on_ranks

device = guarded.small_device

SPACES: dict[str, Any] = {  # trial and test space of a mesh; they differ where they may
    "segment": lambda m, d: (femops.H1(m, 4, device=d), femops.H1(m, 2, ncomp=2, device=d)),
    "line": lambda m, d: (femops.L2(m, 0, device=d), femops.H1(m, 6, device=d)),
    "disc": lambda m, d: (femops.L2(m, 2, ncomp=2, device=d), femops.H1(m, 5, device=d)),
    "ball": lambda m, d: (femops.H1(m, 1, device=d), femops.L2(m, 3, device=d)),
    "cube": lambda m, d: (femops.H1(m, 2, device=d), femops.H1(m, 1, ncomp=2, device=d)),
}


def close(got: Any, expected: Any, tolerance: float = 1e-13) -> None:
    np.testing.assert_allclose(got.get(), expected, rtol=0, atol=tolerance * abs(expected).max())


def backwards(device: GuardedDevice, A: Any, x: Any) -> bytes:
    """A x, blocks and threads the other way around."""
    device.host.backwards = True
    try:
        return bytes(A.apply(x).get().tobytes())
    finally:
        device.host.backwards = False


# --- linear forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
def test_any_coupling(kind: str, device: GuardedDevice) -> None:
    """Values and derivatives of different spaces; the transpose; many vectors."""
    V, W = SPACES[kind](mesh(kind), device)
    form, weak = random_form(V, W, seed=len(kind))
    q1d = max(V.order, W.order) + 1
    A = femops.form(form, V, W, boundary="all", quadrature=q1d)
    dense = oracle.matrix_of_slots(V, W, None, weak, q1d if V.mesh.dim > 1 else 1)
    rng = np.random.default_rng(1)
    x, y, X = (rng.standard_normal(shape) for shape in (V.size, W.size, (V.size, 3)))
    close(A @ device.upload(x), dense @ x)
    close(A.T @ device.upload(y), dense.T @ y)
    if kind == "disc":
        close(A @ device.upload(X), dense @ X)


@pytest.mark.parametrize(("kind", "level"), [("line", "partial"), ("ball", "matrix-free")])
def test_sums_diagonals_and_conditions(kind: str, level: str, device: GuardedDevice) -> None:
    """With others over elements and faces, which add to the same dofs."""
    V = femops.H1(mesh(kind), 3, device=device)
    form, weak = random_form(V, V, seed=7, sparse=True)
    alone = oracle.matrix_of_slots(V, V, None, weak, 5 if V.mesh.dim > 1 else 1)
    plain = (femops.diffusion(V) + femops.boundary_mass(V, 3.0)).at_level(level)
    factor = 1 / np.abs(alone).max()
    A = femops.form(form, V, boundary="all", quadrature=5, level=level)
    dense = factor * alone + plain.assemble().toarray()
    B, x = factor * A + plain, np.random.default_rng(2).standard_normal(V.size)
    close(A @ device.upload(x), alone @ x)
    close(B @ device.upload(x), dense @ x)
    close(B.diagonal(), dense.diagonal())
    held, kept = V.boundary_dofs()[::2], np.ones(V.size)
    kept[held] = 0.0
    conditions = kept[:, None] * dense * kept + np.diag(1 - kept)
    close(B.constrained(held) @ device.upload(x), conditions @ x)


@pytest.mark.parametrize("family", ["H1", "L2"])
def test_reproducible_sums(family: str, device: GuardedDevice) -> None:
    """Faces of one element, as at edges and corners, add to the same dofs, those inside it too."""
    cube = femops.box((2, 2, 1))
    V = femops.H1(cube, 2, device=device, reproducible=True)
    form, _ = random_form(V, V, seed=3)
    A = femops.form(form, V, boundary="all")
    if family == "L2":

        def pair(u: Any, p: Any, n: Any) -> dict[str, Any]:
            return {"u": {"value": u + p * n}, "p": {"value": p + u @ n, "grad": p.grad}}

        W = femops.Product(u=femops.L2(cube, 2, ncomp=3, device=device), p=V)
        A = femops.form(pair, W, boundary="all")
    x = device.upload(np.random.default_rng(4).standard_normal(A.shape[1]))
    assert backwards(device, A, x) == A.apply(x).get().tobytes()
    close(A @ x, A.assemble() @ x.get())


def exchange(u: Any, p: Any, n: Any) -> dict[str, Any]:
    """Both sides of a vector and a number."""
    slopes = {"grad": -np.outer(u.jump, n)}
    return {
        "u": {"jump": u.jump + p.mean * n, "mean": slopes},
        "p": {"jump": u.mean @ n + p.jump},
    }


def test_diagonals_of_products_between_elements(device: GuardedDevice) -> None:
    """Blocks of two sides that share no dof have no part in it."""
    m = mesh("disc")
    u, p = femops.L2(m, 2, ncomp=2, device=device), femops.L2(m, 1, device=device)
    A = femops.form(exchange, femops.Product(u=u, p=p), faces="interior")
    close(A.diagonal(), A.assemble().diagonal())


def nitsche(u: Any, n: Any, h: Any) -> dict[str, Any]:
    return {"value": 40 * u / h - u.grad @ n, "grad": -u * n}


# --- functionals, residuals, Jacobians ------------------------------------------------------------


def drag(u: Any, p: Any, n: Any, x: Any) -> Any:
    stress = u.grad + u.grad.T - p * np.eye(2)
    return (stress @ n)[0] * (1 + x[1]) + p**2 * (u @ n) ** 2


def thrust(u: Any, p: Any, n: Any, x: Any) -> Any:
    """Of values alone."""
    return (u @ n) ** 2 * (1 + x[0]) * p**2


@pytest.mark.parametrize("function", [drag, thrust])
def test_functionals_and_their_derivatives(function: Any, device: GuardedDevice) -> None:
    """Those of the host, which others are the judges of."""
    m = mesh("disc")
    of_p = femops.L2 if function is drag else femops.H1
    W, here = (
        femops.Product(u=femops.H1(m, 2, ncomp=2, device=d), p=of_p(m, 1, device=d))
        for d in (device, None)
    )
    J = femops.functional(function, W, boundary="all", quadrature=5)
    state, step = np.random.default_rng(5).standard_normal((2, W.size))
    u = device.upload(state)
    at_home = femops.functional(function, here, boundary="all", quadrature=5)
    assert J(u) == pytest.approx(at_home(state), rel=1e-12)
    close(J.derivative.residual(u), at_home.derivative.residual(state), 1e-12)
    before = device.host.downloads
    second = J.derivative.jacobian(u)
    found = second @ device.upload(step)
    assert device.host.downloads == before  # its data are computed where the state is
    matrix = at_home.derivative.jacobian(state).assemble()
    close(found, matrix @ step)
    close(second.diagonal(), matrix.diagonal())


# --- ranks ----------------------------------------------------------------------------------------


def test_ranks_of_which_some_have_no_faces() -> None:
    m = femops.box((6, 2), order=2, mapping=bend)
    devices = [host_device(shared_bytes=4096) for _ in range(3)]

    def operator(mesh: Any, device: Any) -> Any:
        V = femops.H1(mesh, 3, device=device)
        return femops.mass(V) + femops.form(nitsche, V, boundary=2)

    whole = operator(m, None)
    u = np.random.default_rng(6).standard_normal(whole.shape[1])

    def program(comm: Any) -> tuple[int, Any, int]:
        A = operator(femops.distribute(m, comm), devices[comm.rank])
        first = A.space.first_dof
        x = u[first : first + A.space.ndofs].copy()
        result = A @ x
        faces = sum("FACES = true" in text for text in devices[comm.rank]._functions)
        return first, result, faces

    found, _ = on_ranks(3, program)
    assert {faces > 0 for _, _, faces in found} == {False, True}
    result = np.concatenate([y for _, y, _ in sorted(found, key=lambda each: each[0])])
    expected = whole.assemble() @ u
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13 * abs(expected).max())
