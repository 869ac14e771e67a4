"""Functions of a point, and operators in loops, that Numba has compiled."""

import gc
import multiprocessing
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import femops
from femops.errors import OperatorError
from femops_kernels.cpu import applier as applier_module
from femops_kernels.cpu.machine import set_threads
from femops_kernels.cpu.thread_pool import Team

numba = pytest.importorskip("numba")
applier = pytest.importorskip("femops.numba").applier
pointwise = femops.numba.pointwise


def bent(dim, n=3):
    return femops.box((n,) * dim, mapping=lambda x: x + 0.05 * np.sin(3 * x[::-1]))


def coupled(u, p):
    return {"u": {"grad": u.grad, "value": p}, "p": {"value": p - u}}


def operators():
    V, W = femops.H1(bent(2), 3), femops.L2(bent(3), 2)
    yield femops.diffusion(V)
    yield (femops.diffusion(V) + 2 * femops.mass(V)).constrained(V.boundary_dofs())
    yield femops.interior_penalty(W)
    yield femops.convection(femops.H1(bent(1, 5), 2), np.ones(1), dtype="float32")
    for level in ("full", "element", "matrix-free", "auto"):
        yield femops.diffusion(V, level=level)
    yield femops.form(coupled, femops.Product(u=V, p=femops.H1(V.mesh, 2)))


@pytest.mark.parametrize("number", range(len([*operators()])))
def test_the_same_bits_as_the_operator(number):
    A = [*operators()][number]
    apply, rng = applier(A), np.random.default_rng(number)
    for _ in range(3):
        x = rng.standard_normal(A.shape[1]).astype(A.dtype)
        y = np.full(A.shape[0], np.nan, A.dtype)
        apply(x, y)
        assert np.array_equal(y, A @ x)
    x.flags.writeable = False
    apply(x, y)


def test_a_loop_that_users_compile():
    """It is called by what was compiled before, and passed as an argument."""
    V = femops.H1(bent(2), 4)
    A = femops.diffusion(V) + femops.mass(V)
    apply = applier(A)

    @numba.njit
    def cg(apply, b, steps):
        x, r, product = np.zeros_like(b), b.copy(), np.empty_like(b)
        p, rho = r.copy(), r @ r
        for _ in range(steps):
            apply(p, product)
            alpha = rho / (p @ product)
            x += alpha * p
            r -= alpha * product
            before, rho = rho, r @ r
            p = r + rho / before * p
        return x

    b = femops.load(V, 1.0)
    x = cg(apply, b, 200)
    assert np.abs(A @ x - b).max() < 1e-12 * np.abs(b).max()


def test_what_it_needs_stays_alive():
    V = femops.H1(bent(3), 2)
    x = np.random.default_rng(0).standard_normal(V.size)
    expected = femops.diffusion(V) @ x
    apply = applier(femops.diffusion(V))
    gc.collect()
    junk = [np.full(V.size, np.nan) for _ in range(100)]
    y = np.empty(V.size)
    apply(x, y)
    assert np.array_equal(y, expected)
    assert len(junk) == 100


def test_arrays_that_do_not_fit():
    V = femops.H1(bent(2), 2)
    apply, x, y = applier(femops.mass(V)), V.zeros(), V.zeros()
    for bad in ((x[1:], y), (x, y[1:]), (np.zeros(V.size + 1), y)):
        with pytest.raises(ValueError, match=f"takes x of length {V.size} and y of length"):
            apply(*bad)
    both = np.zeros(2 * V.size)
    for bad in ((x, x), (both[: V.size], both[V.size - 1 : -1])):
        with pytest.raises(ValueError, match="share memory"):
            apply(*bad)
    apply(both[: V.size], both[V.size :])
    fixed = y.copy()
    fixed.flags.writeable = False
    for bad in ((x.astype("f4"), y), (both[::2], y), (x, both[::2]), (x, fixed), (1.0, y)):
        with pytest.raises(TypeError, match="No matching definition"):
            apply(*bad)


def test_operators_that_it_refuses():
    V = femops.H1(bent(2), 2)
    F = femops.residual(lambda u: {"value": u**3}, V)
    complex_one = femops.form(lambda u: {"value": 1j * u}, V, dtype="complex128")
    for wrong in (F, np.eye(3), complex_one):
        with pytest.raises(OperatorError):
            applier(wrong)


@pytest.mark.parallel(2)
def test_ranks_are_refused(comm):
    V = femops.H1(femops.distribute(femops.box((4, 4)), comm), 2)
    with pytest.raises(OperatorError, match="is distributed over 2 ranks"):
        applier(femops.mass(V))


@pytest.fixture
def large():
    """An operator that two threads share, its product, and an applier of two threads."""
    V = femops.H1(femops.box((40, 40)), 4)
    A = femops.diffusion(V, kappa=lambda x: 1 + x[0])
    x = np.random.default_rng(1).standard_normal(V.size)
    set_threads(2)
    apply = applier(A)
    yield apply, x, A @ x
    set_threads(1)


def test_threads(large):
    """Of an applier, beside those of Python's calls."""
    apply, x, expected = large
    others = femops.mass(femops.H1(femops.box((40, 40)), 4))
    stop = threading.Event()

    def beside():
        while not stop.is_set():
            others @ x

    worker = threading.Thread(target=beside)
    worker.start()
    try:
        for _ in range(50):
            y = np.empty_like(x)
            apply(x, y)
            assert np.array_equal(y, expected)
    finally:
        stop.set()
        worker.join()


def test_callers_at_once(large):
    """Callers of one applier take turns. Two appliers work side by side."""
    apply, x, expected = large

    def call(apply):
        y = np.empty_like(x)
        apply(x, y)
        return np.array_equal(y, expected)

    V = femops.H1(femops.box((40, 40)), 4)
    second = applier(femops.diffusion(V, kappa=lambda x: 1 + x[0]))
    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(call, [apply] * 100))
        assert all(pool.map(call, [apply, second] * 50))


def test_callers_in_a_parallel_loop(large):
    """Numba loses errors there, and y would be what it was."""
    apply, x, expected = large

    @numba.njit(parallel=True)
    def products(x, Y):
        for k in numba.prange(len(Y)):
            for _ in range(100):  # or one thread is done before the other begins
                Y[k] = 0.0
                apply(x, Y[k])

    before = numba.get_num_threads()
    numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
    try:
        for _ in range(5):
            Y = np.zeros((8, x.size))
            products(x, Y)
            assert all(np.array_equal(y, expected) for y in Y)
    finally:
        numba.set_num_threads(before)


def test_callers_where_the_system_has_no_locks(large, monkeypatch):
    _, x, expected = large
    monkeypatch.setattr(applier_module, "system_threads", lambda: None)
    V = femops.H1(femops.box((40, 40)), 4)
    apply, y = applier(femops.diffusion(V, kappa=lambda x: 1 + x[0])), np.empty_like(x)
    apply(x, y)
    assert np.array_equal(y, expected)
    apply.kept._table[applier_module.layout.BUSY] = 1
    with pytest.raises(RuntimeError, match="another thread is in this function"):
        apply(x, y)


def test_appliers_made_at_once(large, monkeypatch):
    """By several threads, while others run: the threads of their team are started once."""
    _, x, expected = large
    V = femops.H1(femops.box((40, 40)), 4)
    A = femops.diffusion(V, kappa=lambda x: 1 + x[0])
    start, started = Team._start, []

    def slow(self, number):
        started.append((id(self), number))
        time.sleep(0.02)
        start(self, number)

    monkeypatch.setattr(Team, "_start", slow)
    applier_module._team.cache_clear()

    def make(_):
        set_threads(2)
        made, y = applier(A), np.empty_like(x)
        made(x, y)
        return np.array_equal(y, expected)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(make, range(8)))
    assert len(started) == len(set(started)) == 1


def in_a_child(apply, x, expected, pipe):
    y = np.empty_like(x)
    apply(x, y)
    pipe.send(bool(np.array_equal(y, expected)))


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not forked")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process(large):
    apply, x, expected = large
    apply(x, np.empty_like(x))
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=in_a_child, args=(apply, x, expected, theirs)
    )
    child.start()
    assert ours.poll(60)
    assert ours.recv() is True
    child.join()


def compiles_in_a_child(pipe):
    pipe.send(float(pointwise(lambda x: 2 * x[0])(np.ones((1, 1)))[0]))


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not forked")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_while_another_thread_compiles():
    lock, held = numba.core.compiler_lock.global_compiler_lock, threading.Event()

    def compile_for_long():
        with lock:
            held.set()
            time.sleep(1.0)

    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=compiles_in_a_child, args=(theirs,))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(compile_for_long)
        assert held.wait(10)
        child.start()
    try:
        assert ours.poll(30)
        assert ours.recv() == 2.0
    finally:
        child.kill()
        child.join()


# --- functions of a point -------------------------------------------------------------------------


def root(x, a):
    """Solution u of u**3 + u = a (x[0] + x[-1]), by Newton's method."""
    u = 1.0
    while abs(u**3 + u - a * (x[0] + x[-1])) > 1e-14:
        u -= (u**3 + u - a * (x[0] + x[-1])) / (3 * u**2 + 1)
    return u


def at_once(x, a):
    s = a * (x[0] + x[-1])
    d = np.sqrt(s**2 / 4 + 1 / 27)
    return np.cbrt(s / 2 + d) + np.cbrt(s / 2 - d)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_loop_at_each_point(dim, threads):
    """As a coefficient, a load, values, on the boundary, in a norm; with another parameter."""
    V = femops.H1(bent(dim, 4), 2)
    set_threads(threads)
    for a in (0.5, 2.0):
        f = pointwise(root, a)
        expected = V.interpolate(lambda x, a=a: at_once(x, a))
        assert np.abs(V.interpolate(f) - expected).max() < 1e-14
        assert femops.l2_error(V, expected, f) < femops.l2_error(V, 0 * expected, f) / 20
        for form in (femops.mass, femops.diffusion):
            ours, theirs = form(V, f), form(V, lambda x, a=a: at_once(x, a))
            assert np.abs(ours @ expected - theirs @ expected).max() < 1e-14
        b = femops.load(V, f) - femops.load(V, lambda x, a=a: at_once(x, a))
        assert np.abs(b).max() < 1e-15
    set_threads(1)


@numba.njit
def wall(x, n, c):
    if n[0] > 0.5:
        return c * x[1], 1
    return 0.0, n[1]


def test_tuples_normals_and_complex_numbers():
    V = femops.H1(femops.box((4, 4)), 2, ncomp=2)
    found = femops.boundary_load(V, pointwise(wall, 3.0, normals=True))
    expected = femops.boundary_load(
        V, lambda x, n: np.where(n[0] > 0.5, [3 * x[1], 1 + 0 * x[0]], [0 * x[0], n[1]])
    )
    assert np.abs(found - expected).max() < 1e-15
    f = pointwise(lambda x: 1j * x[0] if x[0] > 0.5 else 1.0 + 0j)
    x = np.random.default_rng(0).random((2, 20_000))
    assert np.array_equal(f(x), np.where(x[0] > 0.5, 1j * x[0], 1.0))
    assert f(x[:, :0]).shape == (0,)
    g = pointwise(lambda x: (True, x[0], 2))
    assert np.array_equal(g(x), [np.ones(20_000), x[0], np.full(20_000, 2.0)])


def test_a_function_may_change_its_point():
    x = np.random.default_rng(0).random((2, 5000))
    before = x.copy()

    def doubled(x):
        x *= 2
        return x[0]

    assert np.array_equal(pointwise(doubled)(x), 2 * before[0])
    assert np.array_equal(x, before)


def test_errors_of_a_function():
    def fails(x):
        if x[0] > 0.9:
            raise ValueError("too far")
        return 1.0

    V = femops.H1(femops.box((4, 4)), 2)
    with pytest.raises(ValueError, match="too far"):
        V.interpolate(pointwise(fails))
    for wrong, message in (
        (3, "f is 3: give a function"),
        (lambda x: "text", "let it return a number, or a tuple of them"),
        (lambda x: x, "let it return a number, or a tuple of them"),
        (lambda x: (), "let it return a number, or a tuple of them"),
        (lambda x: 1.0 + unknown(x), "Numba cannot compile <lambda>"),  # noqa: F821
        (lambda: 1.0, "Numba cannot compile <lambda>"),
        (numba.njit("f8(f8)")(lambda x: x), "Numba cannot compile <lambda>"),
    ):
        with pytest.raises(OperatorError, match=message):
            pointwise(wrong)
    with pytest.raises(OperatorError, match="a parameter is 'a': give a number"):
        pointwise(root, "a")


class Called:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x):
        return x[0]


@pytest.mark.parametrize("wrong", [int, np.sin, partial(root, a=1.0), Called(), Called().__call__])
def test_what_is_no_function_of_python(wrong):
    with pytest.raises(OperatorError, match="give a function of a point x, written by def"):
        pointwise(wrong)


def test_a_function_with_threads_of_its_own_is_refused():
    """Numba ends the process where its threads are no others' and two threads call it."""

    @numba.njit(parallel=True)
    def summed(x):
        total = 0.0
        for k in numba.prange(10):
            total += k * x[0]
        return total

    with pytest.raises(OperatorError, match="summed is compiled with parallel=True: leave that"):
        pointwise(summed)


def test_points_and_normals_of_other_shapes():
    """They would be read from other memory."""
    x = np.ones((2, 7))
    across = pointwise(lambda x, n: x[0] * n[1], normals=True)
    assert np.array_equal(across(x, 3 * x), np.full(7, 3.0))
    for n in (x[:, :3], x[:1], x[0], None):
        with pytest.raises(OperatorError, match=r"normals of shape .*: give points"):
            across(x, n)
    with pytest.raises(OperatorError, match=r"x has shape \(7,\): give points \(dim, n\)"):
        pointwise(lambda x: x[0])(x[0])


def test_an_index_beyond_the_dimension_is_an_error():
    with pytest.raises(IndexError, match="out of bounds"):
        pointwise(lambda x: x[2])(np.ones((2, 3)))


def test_functions_of_whole_vectors():
    """A tuple of the entries would be joined to another one, not added."""
    x = np.array([[1.0, 2.0], [10.0, 20.0]])
    found = femops.numba.pointwise(lambda x: (x + x)[0])(x)
    np.testing.assert_array_equal(found, 2.0 * x[0])
    found = femops.numba.pointwise(lambda x: x[0] + x[int(x[0]) % 2])(x)
    np.testing.assert_array_equal(found, [11.0, 4.0])


def test_a_numba_that_is_too_old():
    program = (
        "import numba; numba.__version__ = '0.61.2'\n"
        "numba.version_info = numba.version_info._replace(short=(0, 61))\n"
        "import femops.numba"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode
    assert "MissingExtraError: femops.numba needs Numba 0.62 or newer, and this is" in run.stderr
