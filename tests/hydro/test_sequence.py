"""Sequences of operations: by Python at first, compiled then, with the numbers of NumPy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.errors import ConvergenceWarning, SolverError
from femops.hydro.sequence import OperationSequence, _Piece
from femops_kernels.cpu import machine
from support.cuda.guarded import guarded_device

V = femops.H1(femops.box((3, 2)), order=2)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Any:
    before = machine.get_threads()
    machine.set_threads(request.param)
    yield request.param
    machine.set_threads(before)


numbers = st.sampled_from([0.0, -0.0, 1.0, -1.0, -3.0, np.inf, np.nan]) | st.floats(-5, 5)


def some(n: int, seed: int = 0) -> Any:
    """Numbers over 40 orders of magnitude."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 10.0 ** rng.integers(-20, 20, n)


def scalar(sequence: OperationSequence, value: float) -> Any:
    found = sequence.scalar()
    found.set(value)
    return found


# --- sums -----------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(
    n=st.sampled_from([1, 2, 7, 2047, 2048, 2049, 5000]),
    steps=st.lists(st.integers(1, 4), min_size=2, max_size=6),
    factors=st.lists(
        st.sampled_from([0.0, 1.0, -1.0, 0.3, 1e20]) | st.floats(-4, 4), min_size=5, max_size=5
    ),
    scaled=st.lists(st.booleans(), min_size=5, max_size=5),
    inside=st.booleans(),
)
def test_sums_are_numpys(n, steps, factors, scaled, inside):
    bases = [some(n * step, k) % 1e9 for k, step in enumerate(steps)]
    out, *vectors = (base[::step][:n] for base, step in zip(bases, steps, strict=True))
    if inside:
        vectors[0] = out
    sequence = OperationSequence(V)
    dt = sequence.scalar()
    pairs = [(c * dt if by else c, v) for c, by, v in zip(factors, scaled, vectors, strict=False)]
    sequence.add(out, *pairs)
    begin = out.copy()
    for value in (0.5, -1.25, 0.5):
        out[:] = begin
        dt.set(value)
        expected = np.zeros(n)
        size = np.zeros(n)
        for (_, v), c, by in zip(pairs, factors, scaled, strict=False):
            part = c * (value if by else 1.0) * v
            expected, size = expected + part, size + np.abs(part)
        assert sequence.run()
        assert np.all(
            np.abs(out - expected) <= 8 * np.finfo(float).eps * size + np.finfo(float).tiny
        )
        for base, step in zip(bases, steps, strict=True):  # nothing is written between entries
            assert np.all(np.isfinite(base)), step


def test_entries_between_are_left_alone():
    state = np.arange(12.0)
    sequence = OperationSequence(V)
    sequence.add(state[1::3], (2.0, state[0::3]), (-1.0, state[2::3]))
    for _ in range(2):
        sequence.run()
        np.testing.assert_array_equal(state[0::3], [0, 3, 6, 9])
        np.testing.assert_array_equal(state[2::3], [2, 5, 8, 11])
        np.testing.assert_array_equal(state[1::3], [-2, 1, 4, 7])


def test_the_bits_are_those_of_numpy_for_any_threads(threads):
    x, y, out = some(200_001, 1), some(200_001, 2), np.zeros(200_001)
    sequence = OperationSequence(V)
    dt = scalar(sequence, 0.3)
    sequence.add(out, (1.0, x), (0.7 * dt, y))
    for _ in range(2):
        sequence.run()
        np.testing.assert_array_equal(out, x + (0.3 * 0.7) * y)


# --- operators, forms, solves, blocks -------------------------------------------------------------


def test_a_step_with_everything(threads):
    """Compiled, the same bits as by Python, run after run."""
    A = femops.diffusion(V, kappa=lambda x: 1 + x[0])
    M = femops.mass(V)
    solvers = [femops.CGSolver(one, M=femops.jacobi(one)) for one in (M, M + A)]

    def decay(u: Any, w: Any) -> Any:
        return {"u": {"value": u * u}, "least": 2.0 - u + w, "whole": u * u}

    W = femops.Product(u=V, w=femops.L2(V.mesh, 0))
    F = femops.residual(decay, W, minima=["least"], integrals=["whole"])
    blocks = np.random.default_rng(3).standard_normal((5, V.size // 5, V.size // 5))
    u, v, w, x = (np.zeros(V.size) for _ in range(4))
    both = np.zeros(2 * V.size)
    begin = V.interpolate(lambda x: 0.3 * x[0] - x[1] ** 2)
    first = M @ begin

    sequence = OperationSequence(V)
    dt = scalar(sequence, 0.25)
    fields, forces = np.zeros(W.size), np.zeros(W.size)
    sequence.add(fields[: V.size], (1.0, u))
    found = sequence.evaluate(F, fields, forces)
    sequence.add(w, (1.0, forces[: V.size]))
    sequence.add(v, (1.0, first), (dt, w))
    sequence.solve(solvers, [v, w], [both[0::2], both[1::2]], rtol=1e-13, maxiter=100)
    sequence.multiply_blocks(blocks, w, x)
    u[:] = begin

    residual, functionals = F.evaluate(W.join(u=begin, w=np.zeros(V.mesh.num_elements)))
    residual = residual[: V.size].copy()
    right = first + 0.25 * residual
    expected = np.column_stack(
        [femops.cg(one, b, rtol=1e-13)[0] for one, b in ((M, right), (M + A, residual))]
    ).reshape(-1)
    results = []
    for _ in range(3):
        assert sequence.run()
        assert {name: one.value for name, one in found.items()} == functionals
        np.testing.assert_allclose(both, expected, rtol=0, atol=1e-10 * abs(expected).max())
        product = np.einsum("eij,ej->ei", blocks, residual.reshape(5, -1)).reshape(-1)
        np.testing.assert_allclose(x, product, rtol=0, atol=1e-14 * abs(product).max())
        results.append((both.copy(), w.copy(), v.copy(), x.copy()))
    for one, two in zip(results[0], results[2], strict=True):
        np.testing.assert_array_equal(one, two)
    done = [femops.CGSolver.solve_all(solvers, [right, residual], rtol=1e-13) for _ in range(2)]
    assert sequence.iterations == 3 * sum(info.iterations for _, info in done[-1])


def test_solvers_may_be_used_elsewhere_between_runs():
    M = femops.mass(V)
    first, second, third = (femops.CGSolver(M, M=femops.jacobi(M)) for _ in range(3))
    b, c = M @ np.ones(V.size), M @ np.arange(V.size, dtype=float)
    x, y = np.zeros(V.size), np.zeros(V.size)
    sequence = OperationSequence(V)
    sequence.solve([first, second], [b, c], [x, y], rtol=1e-13, maxiter=100)
    for k in range(4):
        x[:], y[:] = 0.0, 0.0
        sequence.run()
        np.testing.assert_allclose(x, 1.0, atol=1e-10)
        np.testing.assert_allclose(y, np.arange(V.size), atol=1e-9)
        if k == 1:
            first.solve(2.0 * c, rtol=1e-3)
        if k == 2:
            femops.CGSolver.solve_all([third, second], [b, 3.0 * b], rtol=1e-3)
            femops.CGSolver.solve_all([third, second], [b, 3.0 * b], rtol=1e-3)
        machine.set_threads(1 + k % 2)
    machine.set_threads(3)


@pytest.mark.parametrize("threads", [1], indirect=True)
def test_solves_are_compiled_as_soon_as_they_have_begun(threads):
    """Also those that an end before them has kept from the first runs."""
    M = femops.mass(V)
    b, x = M @ np.ones(V.size), np.zeros(V.size)
    sequence = OperationSequence(V)
    dt, least = scalar(sequence, 0.0), scalar(sequence, 1.0)
    sequence.require(dt, least)
    sequence.solve([femops.CGSolver(M, natural=True)], [b], [x], rtol=1e-12, maxiter=100)
    assert [sequence.run() for _ in range(2)] == [False, False]
    dt.set(1.0)
    for _ in range(3):
        x[:] = 0.0
        assert sequence.run()
        np.testing.assert_allclose(x, 1.0, atol=1e-9)
    assert all(isinstance(part, _Piece) for part in sequence._plan)


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.999, np.nan, -np.inf])
def test_it_ends_where_something_is_required(value):
    x, y = np.ones(4), np.zeros(4)
    sequence = OperationSequence(V)
    least, found = scalar(sequence, 2.0), sequence.scalar()
    sequence.add(y, (1.0, x))
    sequence.require(2.0 * found, least)
    sequence.add(y, (3.0, x))
    for good in (False, True, False, True):
        found.set(1.0 if good else value)
        assert sequence.run() is good
        np.testing.assert_array_equal(y, 3.0 if good else 1.0)


@settings(max_examples=50)
@given(one=numbers, other=numbers, factors=st.tuples(numbers, numbers))
def test_scalars_are_compared_with_their_factors(one, other, factors):
    sequence = OperationSequence(V)
    a, b = scalar(sequence, one), scalar(sequence, other)
    sequence.require(factors[0] * a, factors[1] * b)
    expected = factors[0] * one >= factors[1] * other
    assert [sequence.run() for _ in range(3)] == [expected] * 3  # by Python, then compiled


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e-200])
def test_errors_of_solves_are_raised_and_what_follows_is_not_done(broken):
    M = femops.mass(V)
    solver = femops.CGSolver(M)
    b, x, after = M @ np.ones(V.size), np.zeros(V.size), np.zeros(3)
    sequence = OperationSequence(V)
    sequence.solve([solver], [b], [x], rtol=1e-12, maxiter=100)
    sequence.add(after, (1.0, np.ones(3)))
    for _ in range(2):
        after[:] = 0.0
        assert sequence.run()
        np.testing.assert_array_equal(after, 1.0)
    good = b.copy()
    for _ in range(2):
        b[:], after[:] = (good * broken if broken < 1 else np.full(V.size, broken)), 0.0
        with pytest.raises(SolverError, match="b has entries"):
            sequence.run()
        np.testing.assert_array_equal(after, 0.0)
        b[:] = good
        assert sequence.run()
        np.testing.assert_allclose(x, 1.0, atol=1e-9)


def test_indefinite_operators_and_unconverged_solves_are_told_of_in_each_run():
    """By Python, and compiled."""
    M = femops.mass(V)
    b, x = some(V.size), np.zeros(V.size)
    short, bad = OperationSequence(V), OperationSequence(V)
    short.solve([femops.CGSolver(M)], [b], [x], rtol=1e-12, maxiter=2)
    bad.solve([femops.CGSolver(femops.diffusion(V) - 100.0 * M)], [b], [x], rtol=1e-5, maxiter=100)
    for _ in range(3):
        with pytest.warns(ConvergenceWarning, match="1 of 1 systems"):
            short.run()
        with pytest.raises(SolverError, match="not to be positive definite"):
            bad.run()


def test_threads_of_python_share_solvers():
    """Sequences and solves wait for each other, in whatever order they name their solvers."""
    M = femops.mass(V)
    solvers = [femops.CGSolver(M, M=femops.jacobi(M)) for _ in range(3)]

    def work(seed: int) -> float:
        rng, sequence, worst = np.random.default_rng(seed), OperationSequence(V), 0.0
        order = solvers if seed % 2 else solvers[::-1]
        rights = [rng.standard_normal(V.size) for _ in solvers]
        found = [np.zeros(V.size) for _ in solvers]
        sequence.solve(order, rights, found, rtol=1e-12, maxiter=100)
        for _ in range(20):
            for right in rights:
                right[:] = rng.standard_normal(V.size)
            if seed < 2:
                sequence.run()
            else:
                found = [x for x, _ in femops.CGSolver.solve_all(order, rights, rtol=1e-12)]
            worst = max(worst, *(abs(M @ x - b).max() for x, b in zip(found, rights, strict=True)))
        return worst

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < 1e-10


def test_on_a_device():
    """By Python, one operation after the other, with the numbers of the host."""
    device = guarded_device()
    U = femops.H1(V.mesh, order=2, device=device)
    A, M = femops.mass(U), femops.mass(V)
    blocks = np.random.default_rng(3).standard_normal((5, V.size // 5, V.size // 5))
    host = M @ V.interpolate(lambda x: 1 + x[0])
    u, v, w, x = (U.memory.put(one) for one in (host.copy(), *np.zeros((3, V.size))))
    sequence = OperationSequence(U)
    dt = scalar(sequence, 0.5)
    sequence.add(v, (1.0, u), (2.0 * dt, u))
    sequence.add(v[0::2], (dt, v[0::2]))
    sequence.solve([femops.CGSolver(A, M=femops.jacobi(A))], [v], [w], rtol=1e-13, maxiter=100)
    sequence.multiply_blocks(U.memory.put(blocks), w, x)
    for _ in range(2):
        assert sequence.run()
        right = 2.0 * host
        right[0::2] *= 0.5
        np.testing.assert_allclose(U.memory.get(v), right, rtol=1e-13)
        found = U.memory.get(w)
        np.testing.assert_allclose(M @ found, right, rtol=0, atol=1e-12 * abs(right).max())
        product = np.einsum("eij,ej->ei", blocks, found.reshape(5, -1)).reshape(-1)
        np.testing.assert_allclose(U.memory.get(x), product, rtol=0, atol=1e-11)
