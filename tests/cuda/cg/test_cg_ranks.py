"""Conjugate gradients of ranks with a device each, and what is done when in those of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import femops
from femops.errors import SolverError
from femops.solvers.inner_products import Sums
from femops_kernels.compiled import BREAKDOWN, Reduction, Solve
from support.cases.kernels import bend, smooth, turned
from support.cases.rank_operators import own_piece
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice, HostStagingBuffer, host_device
from support.simulated_ranks import on_ranks

device = host_device_fixture.device

Vector = NDArray[Any]
CASES = {"bare": 1.0, "jacobi": 1e-20, "guess": 1.0, "vector": 1e20, "float32": 1.0}
"""Factors of the right-hand side, by kind of problem."""
HOST, APART, MERGED, RANKS = "host", "apart", "merged", "ranks"


def mesh() -> femops.Mesh:
    return turned(femops.box((6, 5), order=2, mapping=bend))


def wide(x: Any) -> Any:
    """Over 40 orders of magnitude."""
    return 10.0 ** (35.0 * x[0] - 20.0)


def noise(V: Any, dtype: Any = np.float64, seed: int = 3) -> Vector:
    """The rank's piece of numbers for the whole space."""
    whole = np.random.default_rng(seed).standard_normal(V.global_size * V.ncomp)
    return whole[own_piece(V)].astype(dtype)


def problem(case: str, place: Any, device: HostDevice | None) -> tuple[Any, dict[str, Any]]:
    """Operator, and what it is solved with."""
    V = femops.H1(place, 2, ncomp=2 if case == "vector" else 1, device=device)
    dtype, rtol = ("float32", 1e-4) if case == "float32" else ("float64", 1e-11)
    if case == "vector":
        A: Any = femops.elasticity(V, 1.3, smooth) + femops.mass(V)
    else:
        A = femops.diffusion(V, smooth, dtype=dtype) + femops.mass(V, dtype=dtype)
    if case != "bare":
        A = A.constrained(V.boundary_dofs())
    options: dict[str, Any] = {"rtol": rtol, "M": None if case == "bare" else femops.jacobi(A)}
    if case == "guess":
        options["x0"] = noise(V, seed=4)
    return A, options


def together(size: int, work: Callable[[Any, Any], tuple[Any, Vector, Any]]) -> tuple[Vector, Any]:
    """The ranks' vectors, one after the other, and what they found, which is the same on all.

    ``work`` is given where the problem is: a mesh and a device.
    """
    whole, devices = mesh(), [host_device(shared_bytes=16 * 1024) for _ in range(size)]

    def program(comm: Any) -> tuple[int, Vector, Any]:
        space, x, found = work(femops.distribute(whole, comm), devices[comm.rank])
        return space.first_dof, x, found

    results, _ = on_ranks(size, program)
    results.sort(key=lambda each: each[0])
    assert all(found == results[0][2] for _, _, found in results)
    return np.concatenate([x for _, x, _ in results]), results[0][2]


# --- as on the CPU --------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_solutions_are_those_of_the_cpu(case: str) -> None:
    def work(place: Any, device: HostDevice | None) -> tuple[Any, Vector, Any]:
        A, options = problem(case, place, device)
        b, seen = CASES[case] * noise(A.space, A.dtype), list[Vector]()
        options |= {"history": True, "callback": lambda x: seen.append(x.copy())}
        x, info = femops.cg(A, b, **options)
        assert info.converged
        assert device is None or not info.merged
        return A.space, np.stack([x, *seen[:5]], axis=1), info

    (X, info), (_, Y, expected) = together(3, work), work(mesh(), None)
    (x, *iterates), (y, *others) = X.T, Y.T
    close = 1e-3 if case == "float32" else 1e-10
    assert x.dtype == y.dtype
    assert abs(info.iterations - expected.iterations) <= 1
    assert abs(x - y).max() <= close * abs(y).max()
    for one, other in zip(iterates, others, strict=True):
        assert abs(one - other).max() <= close * abs(y).max()
    assert len(iterates) == 5
    np.testing.assert_allclose(info.residuals[:5], expected.residuals[:5], rtol=10 * close)


def test_entries_of_any_size() -> None:
    """Of the matrix and the right-hand side, by a norm that sees them all."""

    def work(place: Any, device: HostDevice | None) -> tuple[Any, Vector, Any]:
        V = femops.H1(place, 2, device=device)
        A = femops.mass(V, wide)
        sizes = A.diagonal() ** 0.5
        solver = femops.CGSolver(A, M=femops.jacobi(A), natural=True)
        x, info = solver.solve(sizes * noise(V), rtol=1e-12)
        return V, np.stack([x, sizes], axis=1), info.iterations

    (x, count), (_, y, expected) = together(2, work), work(mesh(), None)
    assert x[:, 1].max() > 1e18 * x[:, 1].min()
    assert abs(count - expected) <= 2  # round-off, which processors have differently
    x, y = x[:, 0] * x[:, 1], y[:, 0] * y[:, 1]
    assert abs(x - y).max() <= 1e-10 * abs(y).max()


def test_so_many_iterations_and_no_more() -> None:
    limits = (0, 1, 2, 5, 8, 21)

    def work(place: Any, device: HostDevice | None) -> tuple[Any, Vector, Any]:
        A, options = problem("guess", place, device)
        options |= {"rtol": 1e-14, "warn": False}
        found = [femops.cg(A, noise(A.space), **options, maxiter=limit) for limit in limits]
        assert not any(info.converged for _, info in found)
        counts = tuple(info.iterations for _, info in found)
        return A.space, np.stack([x for x, _ in found], axis=1), counts

    (X, counts), (_, Y, _) = together(2, work), work(mesh(), None)
    assert counts == limits
    for x, y in zip(X.T, Y.T, strict=True):
        assert abs(x - y).max() <= 1e-11 * abs(y).max()


def test_beginnings_that_are_ends() -> None:
    def work(place: Any, device: HostDevice | None) -> tuple[Any, Vector, Any]:
        A, options = problem("jacobi", place, device)
        x, info = femops.cg(A, 0.0 * noise(A.space), **options)
        negative = femops.jacobi(A * -1.0)
        with pytest.raises(SolverError, match=r"after 0 iterations .* preconditioner"):
            femops.cg(A, noise(A.space), M=negative)
        with pytest.raises(SolverError, match="ranks have a GPU each: leave merged out"):
            femops.cg(A, noise(A.space), merged=True)
        return A.space, x, (info.converged, info.iterations)

    x, found = together(2, work)
    assert found == (True, 0)
    assert not x.any()


@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
@pytest.mark.parametrize("make", [femops.H1, femops.L2])
def test_ranks_may_have_nothing(make: Any) -> None:
    def program(comm: Any) -> None:
        V = make(femops.box((2, 1), comm=comm), 3, device=host_device())
        x, info = femops.cg(femops.mass(V), femops.load(V, 1.0), rtol=1e-13)
        assert info.converged
        np.testing.assert_allclose(x, V.interpolate(1.0), rtol=1e-12)

    on_ranks(4, program)


# --- what is done when ----------------------------------------------------------------------------


class Counted(Reduction):
    """Sums of a single rank, as if there were others."""

    many = True

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        self.calls += 1
        return partial.sum(axis=1)


def begun(A: Any, b: Vector, kind: str, M: Any = None, sums: Reduction | None = None) -> Solve:
    """A solve of one rank, in one of the ways that there are."""
    sums = sums or (Counted() if kind == RANKS else Sums(A.space))
    inverse = None if M is None else M.inverse
    solve: Solve = A.compiled.conjugate_gradients(b, None, inverse, kind == MERGED, sums)
    return solve


def test_the_host_waits_once_an_iteration(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait = list[int](), HostStagingBuffer.wait

    def counted(buffer: HostStagingBuffer) -> None:
        waits.append(buffer.here.nbytes)
        wait(buffer)

    monkeypatch.setattr(HostStagingBuffer, "wait", counted)
    A, options = problem("jacobi", mesh(), device)
    sums = Counted()
    solve = begun(A, noise(A.space), RANKS, options["M"], sums)
    solve.advance(0.0, 100, 0)
    begin = device.launches
    A.apply(noise(A.space))
    alone = device.launches - begin
    before, begin = (len(waits), sums.calls), device.launches
    solve.advance(0.0, 100, 10, show=False)
    assert solve.iterations == 10
    assert (len(waits), sums.calls) == (before[0] + 10, before[1] + 10)
    assert device.launches - begin == 10 * (2 + alone)
    assert max(waits) < 300  # bytes
    assert (device.downloads, device.late_downloads) == (0, 0)


def test_ranks_touch_x_every_second_iteration(device: HostDevice) -> None:
    A, options = problem("jacobi", mesh(), device)
    solve = begun(A, noise(A.space), RANKS, options["M"])
    touched = []
    for _ in range(12):
        before = solve.x.copy()
        solve.advance(0.0, 100, 1, show=False)
        touched.append(not np.array_equal(solve.x, before))
    assert touched == 6 * [False, True]


@pytest.mark.parametrize("kind", [APART, MERGED])
def test_a_device_touches_x_every_second_iteration(kind: str, device: HostDevice) -> None:
    A, options = problem("jacobi", mesh(), device)
    solve = begun(A, noise(A.space), kind, options["M"])
    solve.advance(0.0, 100, 0)
    for steps, times in ((8, 4), (3, 2), (1, 1)):
        with device.recording() as recorded:
            solve.advance(0.0, 100, steps, show=False)
        iterates = [solve.x.tobytes()]
        for launch in reversed(recorded):
            vectors = [a for a in launch.arrays if a.ndim == 2 and len(a) == 5]
            iterates += [a[0, : len(solve.x)].tobytes() for a in vectors]
        assert len(set(iterates)) == 1 + times
    solve.advance(0.0, 100, 0)
    assert solve.iterations == 12


@pytest.mark.parametrize("kind", [APART, MERGED, RANKS])
def test_a_direction_that_is_all_but_new(kind: str, device: HostDevice) -> None:
    """What it has of the one before is lost in round-off: x is not updated by the difference."""
    V = femops.L2(femops.box((4, 3)), 1, device=device)
    A = femops.mass(V, femops.by_attribute(V.mesh, {1: 1.0}), quadrature=V.quadrature(2))
    heavy = np.arange(V.size) % 3 == 0
    M = femops.jacobi(A)  # of another operator: eigenvalues are one and three
    M.inverse[heavy] *= 3.0
    b = A.diagonal() * np.where(heavy, 1e-8, 1.0)
    solve = begun(A, b, kind, M)
    solve.advance(0.0, 2, 8, show=False)
    solve.advance(0.0, 2, 0)
    assert solve.iterations == 2
    assert abs(A.apply(solve.x) - b).max() <= 1e-15 * abs(b).max()


@pytest.mark.parametrize("kind", [APART, MERGED, RANKS])
def test_the_last_iterate_before_a_breakdown(kind: str, device: HostDevice) -> None:
    for shift, count in ((1000.0, 0), (300.0, 1), (200.0, 2), (100.0, 4), (40.0, 5)):
        solves = []
        for where, way in ((None, HOST), (device, kind)):
            V = femops.H1(mesh(), 2, device=where)
            A = (femops.diffusion(V) - shift * femops.mass(V)).constrained(V.boundary_dofs())
            solve = begun(A, noise(V), way)
            while solve.status == 0:
                solve.advance(1e-9, 100, solve.every or 8, show=False)
            solves.append(solve)
        host, there = solves
        assert host.status == there.status == BREAKDOWN
        assert host.iterations == there.iterations == count, shift
        assert abs(there.x - host.x).max() <= 1e-10 * abs(host.x).max()
