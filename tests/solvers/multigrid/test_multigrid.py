"""Multigrid: numbers of any size, what it solves, and what it refuses."""

from __future__ import annotations

import contextlib
import copy
import pickle
import sys
from queue import SimpleQueue
from threading import Thread, current_thread, main_thread

import numpy as np
import pytest
import scipy.sparse.linalg as sla
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.errors import MissingExtraError, SolverError
from femops.operators.execution import transfer
from femops.solvers.multigrid import hierarchy, preconditioner
from femops_kernels.cpu.machine import set_threads
from support import fixtures
from support.cases.multigrid import (
    CUBE,
    DISC,
    DOUBLE,
    SINGLE,
    SQUARE,
    bent,
    noise,
    poisson,
    solve,
)

one_thread = fixtures.one_thread


def heat(size, **options):
    V = femops.H1(SQUARE, 3)
    A = femops.diffusion(V, size, **options) + femops.mass(V, size, **options)
    return A.constrained(V.boundary_dofs())


def multiple(size):
    V = femops.H1(SQUARE, 3)
    return (size * (femops.diffusion(V) + femops.mass(V))).constrained(V.boundary_dofs())


def cancelled(size):
    V = femops.H1(SQUARE, 3)
    return (size * femops.diffusion(V, 1.0 / size)).constrained(V.boundary_dofs())


def elastic(size):
    V = femops.H1(SQUARE, 2, ncomp=2)
    return femops.elasticity(V, lam=size, mu=size).constrained(V.boundary_dofs())


def linear(size):
    """The cycle is a direct solver."""
    return poisson(SQUARE, 1, kappa=size)


MAKE = pytest.mark.parametrize("make", [heat, multiple, cancelled, elastic, linear])


@MAKE
def test_single_precision_that_does_not_hold_the_numbers_is_refused(make):
    """With numbers near the ends of the range M was not finite, or not positive definite."""
    for size in (1e-100, 1e-38, 1e36, 1e40):
        with pytest.raises(SolverError, match=r"size .*e[+-].*float32 takes .*leave dtype out"):
            femops.multigrid(make(size), dtype="float32")


@MAKE
def test_single_precision_that_holds_the_numbers_is_what_was_asked_for(make):
    for size in (1e-22, 1e22):
        A = make(size)
        M, r = femops.multigrid(A, dtype="float32"), noise(A)
        assert (M.precision, M.reason) == (SINGLE, "as asked")
        assert r @ (M @ r) > 0.0
        if A.space.order > 1:
            assert femops.cg(A, A @ r, M=M, rtol=1e-9)[1].iterations <= 12


def test_the_precision_of_an_operator_in_single_precision():
    assert femops.multigrid(heat(1.0, dtype=SINGLE)).reason == "as A"
    assert femops.multigrid(heat(1e28, dtype=SINGLE)).reason == "as A"
    for size in (1e31, 1e36):  # M @ x would be small, without digits
        with pytest.raises(SolverError, match=r"size .*make A with dtype='float64'"):
            femops.multigrid(heat(size, dtype=SINGLE))


def test_no_dofs_are_free():
    V = femops.H1(SQUARE, 2)
    A = femops.diffusion(V).constrained(np.arange(V.size))
    b = A.space.interpolate(1.0)
    np.testing.assert_array_equal(femops.multigrid(A, dtype="float32") @ b, b)


@pytest.mark.parametrize(("size", "family"), [(1e-14, "gll"), (1e15, "bernstein")])
def test_elements_whose_volumes_single_precision_does_not_hold(size, family):
    """The numbers of A are near 1."""
    V = femops.H1(CUBE.mapped(lambda x: size * x), 2, 3, family)
    A = femops.elasticity(V, lam=1 / size, mu=1 / size).constrained(V.boundary_dofs())
    M, b = femops.multigrid(A), A @ noise(A)
    assert M.reason == "numbers of A are beyond the range of float32"
    assert femops.cg(A, b, M=M)[1].iterations <= 10
    with pytest.raises(SolverError, match=r"products with A change .* leave dtype out"):
        femops.multigrid(A, dtype="float32")


@pytest.mark.parametrize("make", [femops.multigrid, femops.jacobi, lambda _: None])
def test_right_hand_sides_of_any_size_that_single_precision_holds(make):
    """Squares of numbers from 1.8e19 on and below 1e-23 are out of its range."""
    A = poisson(SQUARE, 3, dtype=SINGLE)
    M, b = make(A), noise(A)
    start = 0.3 * noise(A, 1)
    expected = sla.spsolve(A.assemble().astype(DOUBLE).tocsc(), b.astype(DOUBLE))
    for k in (-115, -60, -19, 0, 40, 64, 120):
        given, seen = np.ldexp(b, k), list[np.ndarray]()
        for guess in (None, np.ldexp(start, k)):
            options = {"rtol": 1e-5, "history": True, "callback": seen.append}
            x, info = femops.cg(A, given, guess, M=M, **options)
            assert info.converged
            relative = np.ldexp(x.astype(DOUBLE), -k)
            np.testing.assert_allclose(relative, expected, atol=1e-4 * abs(expected).max())
            true = np.linalg.norm(np.ldexp(given.astype(DOUBLE) - A @ x, -k))
            assert info.residual == pytest.approx(np.ldexp(true, k), rel=0.2)
            tolerance = 1e-5 * np.linalg.norm(given.astype(DOUBLE))
            assert info.tolerance == pytest.approx(tolerance)
            assert info.residuals[-1] <= info.tolerance
            if guess is None:
                assert info.residuals[0] <= 1.001e5 * tolerance
            np.testing.assert_array_equal(seen[-1], x)


def test_a_solution_that_single_precision_does_not_hold_is_told_of():
    A = poisson(SQUARE, 2, dtype=SINGLE, kappa=1e-6)
    M, b = femops.multigrid(A), noise(A)
    assert np.isfinite(femops.cg(A, np.ldexp(b, 90), M=M)[0]).all()
    with pytest.raises(SolverError, match="out of the range of float32"):
        femops.cg(A, np.ldexp(b, 120), M=M)


def test_a_cycle_takes_numbers_of_any_size():
    A = poisson(SQUARE, 3, dtype=SINGLE)
    M, b = femops.multigrid(A), noise(A)
    for power in (-110, -70, 64, 110):
        found = np.ldexp(M @ np.ldexp(b, power), -power)
        np.testing.assert_allclose(found, M @ b, atol=1e-5 * abs(M @ b).max())
    b[np.flatnonzero(b)[3]] = np.nan
    assert np.isnan(np.delete(M @ b, A.constrained_dofs)).all()


def test_a_copy_is_made_anew_of_the_operator():
    A = poisson(SQUARE, 2)
    M = femops.multigrid(A, degree=3, dtype=DOUBLE)
    for twin in (copy.copy(M), copy.deepcopy(M), pickle.loads(pickle.dumps(M))):
        assert repr(twin) == repr(M)
        assert twin.degree == 3
        np.testing.assert_array_equal(twin @ noise(A), M @ noise(A))


def test_an_interrupted_cycle_leaves_the_preconditioner_free():
    """A handler may use it at once, wherever the interrupt came: where calls begin or end."""
    A = poisson(femops.box((3, 3)), 3)
    M, b, found = femops.multigrid(A), noise(A), []
    expected, files = M @ b, (contextlib.__file__, preconditioner.__file__)
    count, left, before = 0, 0, sys.gettrace()

    def interrupt(frame, *_):
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_lines = False
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return interrupt

    while left == 0:  # until it comes after the end
        count, left = count + 1, count + 1
        try:
            sys.settrace(interrupt)
            M @ b
        except KeyboardInterrupt:
            sys.settrace(before)
            np.testing.assert_array_equal(M @ b, expected)
            other = Thread(target=lambda: found.append(M @ b), daemon=True)
            other.start()
            other.join(20.0)
            np.testing.assert_array_equal(found.pop(), expected)
        finally:
            sys.settrace(before)
    assert count > 10


def test_a_callback_cannot_use_the_preconditioner_of_its_solve():
    """It waited for itself."""
    A = poisson(SQUARE, 2)
    M = femops.multigrid(A)
    with pytest.raises(SolverError, match="make another for that"):
        femops.cg(A, noise(A), M=M, callback=lambda x: M @ x)
    assert solve(A)[1] == femops.cg(A, noise(A), M=M, rtol=1e-9)[1].iterations


def test_a_cycle_with_more_digits_than_the_operator_is_refused():
    A = poisson(SQUARE, 2, dtype=SINGLE)
    with pytest.raises(SolverError, match="M works in float64, A in float32"):
        femops.cg(A, noise(A), M=femops.multigrid(A, dtype=DOUBLE))


# --- what it solves -------------------------------------------------------------------------------


def test_iterations_depend_little_on_the_order_and_on_the_mesh():
    for order in (2, 4, 8):
        assert solve(poisson(SQUARE, order))[1] <= 8
    for refine in (0, 2):
        mesh = femops.read_mesh(femops.sample("disc.mesh"), refine=refine)
        A = poisson(mesh, 3)
        assert solve(A)[1] <= 10
    assert [size.elements for size in femops.multigrid(A).sizes].count(80) == 0  # few dofs


def test_meshes_that_were_refined_are_undone(monkeypatch):
    monkeypatch.setattr(hierarchy, "_FEW", 10)
    mesh = femops.box((3, 5)).refine(2).mapped(bent)
    A = poisson(mesh, 2)
    assert [size.elements for size in femops.multigrid(A).sizes] == [240, 240, 60, 15, 6, 2]
    assert solve(A)[1] <= 8


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: femops.l_shape(5 * n, order=2).mapped(bent),
        lambda n: femops.l_shape(n, dim=3),
        lambda n: femops.cylinder(2 * n, 4 * n),
        lambda n: femops.shell(2 * n, 2 * n),
        lambda n: femops.shell(8 * n, 6 * n, dim=2),
    ],
    ids=["L-shape", "corner", "cylinder", "shell", "ring"],
)
def test_generated_meshes_take_the_same_iterations_when_refined(make, monkeypatch):
    monkeypatch.setattr(hierarchy, "_FEW", 60)
    counts = list[int]()
    for n in (1, 2, 4):
        A = poisson(make(n), 2)
        M, elements = femops.multigrid(A), A.space.mesh.num_elements
        if n == 4:
            assert [size.elements for size in M.sizes[:2]] == [elements] * 2
            assert M.sizes[-1].elements < elements / 10
        counts.append(solve(A)[1])
    assert max(counts) - min(counts) <= 2, counts
    assert max(counts) <= 12


@settings(max_examples=6, deadline=None)
@given(
    counts=st.tuples(*[st.integers(2, 7)] * 2),
    order=st.sampled_from([1, 2, 4]),
    sides=st.sets(st.integers(1, 4), min_size=1),
    tilt=st.floats(0.0, 0.1),
)
def test_any_order_mesh_and_constraints(counts, order, sides, tilt):
    mesh = femops.box(counts, mapping=lambda x: x + tilt * np.sin(3 * x[::-1]))
    V = femops.H1(mesh, order)
    A = femops.diffusion(V).constrained(V.boundary_dofs(sides))
    b = noise(A)
    x, iterations = solve(A, b)
    assert iterations <= 12
    np.testing.assert_allclose(A @ x, b, atol=1e-7)


@pytest.mark.parametrize("constrained", [True, False])
def test_order_one_of_single_precision(constrained):
    """Where the only level is that of the matrix, which is solved in double."""
    V = femops.H1(femops.box((5, 4), mapping=bent), 1)
    A = femops.diffusion(V, dtype="float32")
    A = A.constrained(V.boundary_dofs()) if constrained else A
    b = A @ noise(A).astype("float32")
    x, info = femops.cg(A, b, rtol=1e-5, M=femops.multigrid(A))
    assert info.iterations <= 2
    assert np.abs(A @ x - b).max() < 1e-5 * np.abs(b).max()


def test_constants_in_the_null_space():
    for mesh in (SQUARE, femops.box((6, 6), periodic=True)):
        A = femops.diffusion(femops.H1(mesh, 3))
        b = noise(A)
        assert solve(A, b - b.mean())[1] <= 9


def test_rigid_motions_in_the_null_space():
    for size in (1.0, 1e-12, 1e12):
        V = femops.H1(SQUARE.mapped(lambda x, size=size: size * x), 2, ncomp=2)
        A = femops.elasticity(V, lam=1.0, mu=1.0)
        assert solve(A, A @ noise(A))[1] <= 20


def test_bodies_that_do_not_touch():
    """One is held, the other is free."""
    nodes, cells = np.indices((3, 3)).reshape(2, -1).T[:, ::-1], [[0, 1, 3, 4], [1, 2, 4, 5]]
    vertices = np.vstack([nodes, np.add(nodes, [5, 0])])
    mesh = femops.Mesh.from_arrays(vertices, np.vstack([cells, np.add(cells, 9)]))
    V = femops.H1(mesh.refine(1), 2)
    held = np.intersect1d(V.boundary_dofs(), np.flatnonzero(V.dof_coordinates()[:, 0] < 3))
    for dofs in (held, []):
        A = femops.diffusion(V).constrained(dofs)
        assert solve(A, A @ noise(A))[1] <= 12


@pytest.mark.parametrize("count", [33, 1000])
def test_many_bodies_that_do_not_touch(count):
    """Squares, of which some are held; their numbers differ by sixteen orders of magnitude."""
    k = np.arange(count)
    corners = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[np.newaxis]
    vertices = corners + 2 * np.stack([k % 31, k // 31], axis=1)[:, np.newaxis]
    mesh = femops.Mesh.from_arrays(vertices.reshape(-1, 2), np.arange(4 * count).reshape(-1, 4))
    sizes = femops.GridFunction(femops.L2(mesh, 0), 10.0 ** (k % 17 - 8))
    V, W = femops.H1(mesh, 2), femops.H1(mesh, 2, ncomp=2)
    for A in (femops.diffusion(V, kappa=sizes), femops.elasticity(W, lam=1.0, mu=1.0)):
        held = np.flatnonzero(np.repeat(A.space.dof_coordinates()[:, 0] < 5, A.space.ncomp))
        for dofs in (held, []):
            B = A.constrained(dofs)
            assert solve(B, B @ noise(B))[1] <= 8


# --- what it refuses ------------------------------------------------------------------------------


def test_clear_errors():
    V, A = femops.H1(SQUARE, 2), poisson(SQUARE, 2)
    wind = femops.convection(V, beta=(1.0, 0.0)) + femops.diffusion(V)
    for operator, words in (
        (wind, r"not symmetric.*gmres"),
        (femops.helmholtz(V, k=9.0).constrained(V.boundary_dofs()), "not to be positive"),
        (-A, "not to be positive"),
        (sla.aslinearoperator(np.eye(3)), "a femops operator"),
    ):
        with pytest.raises(SolverError, match=words):
            femops.multigrid(operator)
    with pytest.raises(SolverError, match="merged"):
        femops.cg(A, V.zeros(), M=femops.multigrid(A), merged=True)


def test_a_large_coarsest_level_needs_pyamg(monkeypatch):
    from femops.solvers.multigrid import coarse

    monkeypatch.setitem(coarse.QUICK, 2, 3)
    monkeypatch.setitem(coarse._MOST, 2, 3)
    monkeypatch.setitem(sys.modules, "pyamg", None)
    with pytest.raises(MissingExtraError, match="pip install pyamg"):
        femops.multigrid(poisson(DISC, 2))


def test_pyamg_on_the_coarsest_level(monkeypatch):
    pytest.importorskip("pyamg")
    from femops.solvers.multigrid import coarse

    monkeypatch.setitem(coarse.QUICK, 2, 3)
    A = poisson(femops.disc(5), 4)
    assert "pyamg" in repr(femops.multigrid(A))
    assert solve(A)[1] <= 12


@pytest.mark.parametrize("held", [True, False])
def test_pyamg_computes_no_singular_values(monkeypatch, held):
    """They took most of the setup for displacements, 17 s for 2736 dofs of the coarsest level."""
    pytest.importorskip("pyamg")
    from femops.solvers.multigrid import coarse

    monkeypatch.setitem(coarse.QUICK, 3, 100)
    monkeypatch.setattr("pyamg.multilevel.pinv", None, raising=False)
    V = femops.H1(femops.box((5, 5, 5)).with_coarser(None), 2, ncomp=3)
    A = femops.elasticity(V, lam=1.0, mu=1.0)
    given = A.constrained(V.boundary_dofs(1)) if held else A
    M = femops.multigrid(given)
    assert "pyamg" in repr(M)
    b = given.rhs(A @ V.interpolate(lambda x: (x[0] ** 2, x[1] * x[2], np.sin(x[2]))))
    _, info = femops.cg(given, b, M=M, rtol=1e-9)
    assert info.converged
    assert info.iterations <= 15


@pytest.mark.parametrize(("degree", "words"), [(4, "degree=8"), (64, "use femops.jacobi")])
def test_a_cycle_that_diverges_is_named(monkeypatch, degree, words):
    from femops.solvers.multigrid import level

    monkeypatch.setattr(level, "_MARGIN", 0.2)
    A = poisson(SQUARE, 4)
    M = femops.multigrid(A, degree=degree, relaxation="points")
    assert not M.report()[0].factor < 1.0
    with pytest.raises(SolverError, match=f"multigrid cycle.*{words}"):
        femops.cg(A, noise(A), M=M, rtol=1e-9)


def test_plans_made_on_another_thread(monkeypatch):
    """The thread makes plans of all levels, and a cycle has the same bits with and without it."""
    b = np.random.default_rng(0).standard_normal(9**3)

    def cycle():
        V = femops.H1(femops.box((2, 2, 2)), order=4)
        A = (femops.diffusion(V) + femops.mass(V)).constrained(V.boundary_dofs())
        return femops.multigrid(A) @ b

    def recorded(fields, *others):
        orders.put((fields.first.order, current_thread() is main_thread()))
        return plans(fields, *others)

    alone, orders, plans = cycle(), SimpleQueue(), transfer.plans
    monkeypatch.setattr(transfer, "plans", recorded)
    monkeypatch.setattr(transfer, "_PLANNED_AHEAD", 0)
    set_threads(2)
    np.testing.assert_array_equal(cycle(), alone)
    assert [orders.get(timeout=60.0) for _ in range(3)] == [(4, False), (2, False), (1, False)]
