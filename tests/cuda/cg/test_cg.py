"""Conjugate gradients on a device, beside those of the CPU."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import SolverError
from femops_kernels.compiled import CONVERGED
from femops_kernels.cuda.cg.cg import DeviceConjugateGradients
from femops_kernels.cuda.operator.cg_state import DEVICE_STATE, STATE_CONSTANTS
from femops_kernels.skeletons.cg import cg_state, decisions
from support.cases.kernels import bend, smooth, turned
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice, host_device, plant

CASES = [
    "bare",
    "jacobi",
    "vector",
    "float32",
    "scaled",
    "eliminated",
    "segment",
    "l2",
    *("reordered", "blocks"),
]
MERGED = pytest.mark.parametrize("merged", [True, False])

device = host_device_fixture.device


def problem(case: str, device: HostDevice | None) -> tuple[Any, Any, Any]:
    """Operator, right-hand side and preconditioner."""
    mesh, dtype = turned(femops.box((7, 6), order=2, mapping=bend)), "float64"
    V: Any = femops.H1(mesh, 3, device=device, reproducible=case == "reordered")
    if case == "vector":
        V = femops.H1(turned(femops.box((3, 2, 2))), 2, ncomp=3, device=device)
        held = np.union1d(V.boundary_dofs(1), V.boundary_dofs(components=0))
        A: Any = femops.elasticity(V, 1.3, smooth).constrained(held)
    elif case == "scaled":
        A = 3.0 * femops.diffusion(V, level="matrix-free").constrained(V.boundary_dofs())
    elif case == "segment":
        V = femops.H1(femops.box((50,)), 2, device=device)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
    elif case == "blocks":
        Q = femops.H1(mesh, 1, device=device)
        V = femops.Product(u=femops.H1(mesh, 2, ncomp=2, device=device), p=Q)
        A = femops.form(
            lambda u, p: {"u": {"value": 3.0 * u, "grad": u.grad}, "p": {"value": 2.0 * p}}, V
        ).constrained(V.positions(p=[0]))
    elif case == "l2":
        V = femops.L2(mesh, 2, device=device)
        A = femops.mass(V, smooth)
    else:
        dtype = "float32" if case == "float32" else dtype
        A = femops.diffusion(V, smooth, dtype=dtype) + femops.mass(V, dtype=dtype)
        if case != "bare":
            A = A.constrained(V.boundary_dofs())
    b = np.random.default_rng(3).standard_normal(V.shape).astype(dtype)
    if case == "eliminated":
        A = A.unconstrained.eliminated(V.boundary_dofs(), V.boundary_dofs())
        b[V.boundary_dofs()] = 0.0
        return A, b, None
    return A, b, None if case in ("bare", "l2") else femops.jacobi(A)


def test_elements_that_are_worked_along_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """In p.Ap of a block that has more places than elements."""
    iterations = []
    for planted in (False, True):
        if planted:
            plant(monkeypatch, "if (there) *curvature += sum;", "*curvature += sum;")
        V = femops.H1(femops.box((3, 3), mapping=bend), 3, device=host_device())
        A = femops.mass(V, level="matrix-free")
        _, info = femops.cg(A, np.arange(1.0, V.size + 1), rtol=1e-10, maxiter=200, warn=False)
        assert info.merged
        iterations.append(info.iterations)
    assert iterations[0] < iterations[1]


@pytest.mark.sample(3)
@MERGED
@pytest.mark.parametrize("case", CASES)
def test_iterates_are_those_of_the_cpu(case: str, merged: bool, device: HostDevice) -> None:
    """Also without a callback, where the host does not wait for each."""
    found, merged = [], merged and case != "blocks"
    for where in (None, device):
        A, b, M = problem(case, where)
        single, iterates = A.dtype == np.float32, list[Any]()
        options = {"M": M, "rtol": 1e-4 if single else 1e-10, "merged": merged if where else None}
        x, info = femops.cg(
            A, b, **options, callback=lambda x, into=iterates: into.append(x.copy())
        )
        assert len(iterates) == info.iterations
        np.testing.assert_array_equal(iterates[-1], x)
        found.append((x, info, iterates))
    (expected, cpu, seen), (_, gpu, iterates) = found
    x, info = femops.cg(A, b, **options)
    scale = abs(expected).max()
    assert x.shape == b.shape
    assert info.merged == gpu.merged == merged
    assert info.converged
    assert max(abs(cpu.iterations - one.iterations) for one in (info, gpu)) <= 1
    assert abs(x - expected).max() < (1e-4 if single else 1e-8) * scale
    for one, other in zip(seen[:8], iterates[:8], strict=False):
        assert abs(one - other).max() < (1e-5 if single else 1e-11) * scale


def test_updates_are_merged_where_that_is_possible(device: HostDevice) -> None:
    for case, possible in (("jacobi", True), ("sum", False), ("small", False)):
        where = device if case != "small" else host_device()
        A, b, M = problem("jacobi", where)
        if case == "sum":
            A = A.unconstrained + femops.form(lambda u: {"value": u}, A.space, boundary=[1])
        if case == "small":  # there is room for the operator alone
            where.shared_bytes = A.compiled.sweeps[0].kernel.shared_bytes
        _, info = femops.cg(A, b, M=M)
        assert info.merged == possible
        if not possible:
            with pytest.raises(SolverError, match=r"merged = True, but .* is not one sweep"):
                femops.cg(A, b, merged=True)


# --- beginnings and ends --------------------------------------------------------------------------


@MERGED
def test_so_many_iterations_and_no_more(merged: bool, device: HostDevice) -> None:
    (A, b, M), (B, _, N) = problem("jacobi", device), problem("jacobi", None)
    first = np.random.default_rng(4).standard_normal(b.shape)
    given = first.copy()
    for maxiter in (0, 1, 7, 8, 9, 20):
        options = {"rtol": 1e-14, "maxiter": maxiter, "warn": False}
        x, info = femops.cg(A, b, first, M=M, merged=merged, **options)
        assert not info.converged
        assert info.iterations == maxiter
        np.testing.assert_array_equal(first, given)
        expected, cpu = femops.cg(B, b, first, M=N, **options)
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-11 * abs(expected).max())
        assert info.residual == pytest.approx(cpu.residual, rel=1e-6)
    x, info = femops.cg(A, 0.0 * b, M=M, merged=merged)
    assert (info.converged, info.iterations) == (True, 0)
    assert not x.any()


@MERGED
def test_nothing_is_done_after_the_end(merged: bool, device: HostDevice) -> None:
    A, b, _ = problem("bare", device)
    solve = DeviceConjugateGradients(A.compiled, b, 0.0 * b, None, merged)
    solve.advance(1e-3, 1000, 0)
    while solve.status == 0:
        solve.advance(1e-3, 1000, solve.every, show=False)
    assert solve.status == CONVERGED
    before, count, residual = solve.x.copy(), solve.iterations, solve.residual
    for steps in (1, solve.every, solve.every):
        solve.advance(1e-3, 1000, steps, show=False)
    assert (solve.iterations, solve.residual) == (count, residual)
    np.testing.assert_array_equal(solve.x, before)


@MERGED
def test_operators_that_are_not_positive_definite(merged: bool, device: HostDevice) -> None:
    messages = []
    for where in (None, device):
        A, b, _ = problem("jacobi", where)
        V = A.space
        indefinite = (femops.diffusion(V) - 40.0 * femops.mass(V)).constrained(V.boundary_dofs())
        with pytest.raises(SolverError, match="not to be positive definite") as caught:
            femops.cg(indefinite, b, merged=merged)
        messages.append(str(caught.value))
        negative = femops.jacobi(A * -1.0)
        with pytest.raises(SolverError, match=r"after 0 iterations .* preconditioner"):
            femops.cg(A, b, M=negative, merged=merged)
    assert messages[0] == messages[1]  # found in the same iteration


def test_bad_arguments(device: HostDevice) -> None:
    A, b, M = problem("jacobi", device)
    host, _, _ = problem("jacobi", None)
    with pytest.raises(SolverError, match=r"not on the same device: make M with femops\.j"):
        femops.cg(A, b, M=femops.jacobi(host))
    with pytest.raises(SolverError, match="not on the same device"):
        femops.cg(host, b, M=M)
    with pytest.raises(SolverError, match="not finite"):
        femops.cg(A, b * np.nan)
    with pytest.raises(femops.errors.VectorError, match="b has type float32"):
        femops.cg(A, b.astype(np.float32))
    with pytest.raises(femops.errors.VectorError, match="x0 has 417 entries"):
        femops.cg(A, b, b[:-1])


@pytest.mark.parametrize("natural", [False, True])
def test_many_right_hand_sides(natural: bool, device: HostDevice) -> None:
    found = []
    for where in (None, device):
        A, b, M = problem("jacobi", where)
        solver = femops.CGSolver(A, M=M, natural=natural)
        x, _ = solver.solve(b, rtol=1e-10)
        rights = [(b, None), (np.cos(b), None), (b, x), (b, np.sin(b)), (0.0 * b, None)]
        found.append([solver.solve(right, guess, rtol=1e-7) for right, guess in rights])
    for (expected, cpu), (y, gpu) in zip(*found, strict=True):
        assert abs(cpu.iterations - gpu.iterations) <= 1
        assert abs(y - expected).max() <= 1e-6 * abs(expected).max()
    counts = [info.iterations for _, info in found[1]]
    assert counts[2] == counts[4] == 0 < counts[0]


@pytest.mark.parametrize("natural", [False, True])
def test_no_iterations(natural: bool, device: HostDevice) -> None:
    """The residual was said to be zero, as its norm was not waited for."""
    found = []
    for where in (None, device):
        A, b, M = problem("jacobi", where)
        solver = femops.CGSolver(A, M=M, natural=natural)
        found.append(solver.solve(b, maxiter=0, warn=False)[1])
    assert found[0].residual > 0.0
    assert found[1].residual == pytest.approx(found[0].residual)


def test_the_state_is_laid_out_as_on_the_host() -> None:
    text = (files("femops_kernels.cuda") / "src" / "solver" / "cg_state.cuh").read_text()
    there = {name: float(k) for name, k in re.findall(r"\b([A-Z_]+) = ([\d.e-]+)\b", text)}
    assert there == {"TINY": decisions.UNDERFLOW, "SMALL_BETA": decisions.SMALL_BETA}
    places = [STATE_CONSTANTS[name] for name in ("STOPPED", "BEHIND", "SUMS")]
    assert places == [cg_state.STATE_SIZE, cg_state.STATE_SIZE + 1, DEVICE_STATE - cg_state.NSUMS]


# --- what moves -----------------------------------------------------------------------------------


@MERGED
def test_nothing_but_the_state_is_copied(merged: bool, device: HostDevice) -> None:
    A, b, M = problem("jacobi", device)
    femops.cg(A, b, M=M, maxiter=1, merged=merged, warn=False)
    counts = []
    for rtol in (1e-1, 1e-10):
        before = device.uploads, device.downloads, device.late_downloads, device.launches
        _, info = femops.cg(A, b, M=M, rtol=rtol, merged=merged)
        after = device.uploads, device.downloads, device.late_downloads, device.launches
        up, down, late, launches = np.subtract(after, before)
        assert (up, down) == (1, 0)  # the state, once
        bursts = -(-info.iterations // DeviceConjugateGradients.every)
        # the one that tells of the end comes while another burst is on its way
        assert late <= bursts + 2
        each = 2 if merged else 5
        assert launches <= each * 8 * (bursts + 1) + 5
        counts.append(info.iterations)
    assert counts[1] > 3 * counts[0] > 0


# --- Jacobi ---------------------------------------------------------------------------------------


def test_jacobi_stays_on_the_device(device: HostDevice) -> None:
    A, b, M = problem("vector", device)
    before = device.uploads, device.downloads
    x, expected = b, b / A.diagonal()
    assert M.device is device
    assert device.downloads == before[1]
    np.testing.assert_allclose(M @ x, expected, rtol=1e-14)
    np.testing.assert_allclose(M.rmatvec(x), expected, rtol=1e-14)
    column = M.matvec(x[:, np.newaxis])
    assert column.shape == (len(x), 1)
    np.testing.assert_allclose(column[:, 0], expected, rtol=1e-14)
    with pytest.raises(femops.errors.VectorError, match=r"x is an array of the host|a list"):
        M.matvec([1.0])


@pytest.mark.parametrize("on", [True, False])
def test_a_diagonal_with_zeros(on: bool, device: HostDevice) -> None:
    V = femops.H1(femops.box((4,)), 1, device=device if on else None)
    A = femops.mass(V, lambda x: np.where(x[0] < 0.5, 0.0, 1.0))
    with pytest.raises(SolverError, match=r"2 diagonal entries are zero .* first number 0"):
        femops.jacobi(A)
