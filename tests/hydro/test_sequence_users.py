"""Users of sequences, their solvers and forms: threads, forked processes, interrupted ones."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import FemopsError
from femops.hydro.sequence import OperationSequence
from femops_kernels.cpu import machine
from femops_kernels.exclusive import Exclusive, together

V = femops.H1(femops.box((6, 5)), order=3)
M = femops.mass(V)
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")


def solvers(n: int) -> list[Any]:
    """Those of which compiled code solves several at once, if one thread works on each."""
    return [femops.CGSolver(M, M=femops.jacobi(M), natural=True) for _ in range(n)]


def many(seed: int, n: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(V.size) for _ in range(n)]


def in_threads(*works: Callable[[], object]) -> list[Exception | None]:
    """Errors of functions that run at a time; all end within seconds."""
    errors: list[Exception | None] = [None] * len(works)

    def work(k: int) -> None:
        try:
            works[k]()
        except (AssertionError, FemopsError) as error:
            errors[k] = error

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(len(works))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60.0)
    assert not any(one.is_alive() for one in threads)
    return errors


@pytest.fixture(autouse=True)
def _switching() -> Any:
    before, threads = sys.getswitchinterval(), machine.get_threads()
    sys.setswitchinterval(1e-6)
    machine.set_threads(1)
    yield
    sys.setswitchinterval(before)
    machine.set_threads(threads)


def test_who_wants_several_waits_in_one_order() -> None:
    several = [Exclusive() for _ in range(3)]
    counts = [0]

    def add(order: list[Exclusive]) -> None:
        for _ in range(500):
            together(order, lambda: counts.__setitem__(0, counts[0] + 1))

    turned = [several[k:] + several[:k] for k in range(3)]
    assert in_threads(*(lambda order=order: add(order) for order in turned)) == [None] * 3
    assert counts == [1500]


def test_solvers_join_others_while_they_solve() -> None:
    """Results, iterations and bits are those of a solve alone."""
    a, b, c = solvers(3)
    rights, tolerances = many(0, 3), [1e-1, 1e-10, 1e-3]
    alone = [[solvers(1)[0].solve(r, rtol=t) for t in tolerances] for r in rights]
    outs = [np.zeros(V.size) for _ in range(2)]
    sequence = OperationSequence(V)
    sequence.solve([b, a], rights[:2], outs, rtol=1e-10, maxiter=100)

    def run() -> None:
        for k in range(1, 100):
            sequence.run()
            assert sequence.iterations == k * (
                alone[0][1][1].iterations + alone[1][1][1].iterations
            )
            np.testing.assert_array_equal(outs, [alone[0][1][0], alone[1][1][0]])

    def solve() -> None:
        for k in range(100):
            found = femops.CGSolver.solve_all([a, c], [rights[0], rights[2]], rtol=1e-3)
            expected = [alone[0][2], alone[2][2]]
            if k % 2:
                found, expected = [a.solve(rights[1], rtol=1e-1)], [alone[1][0]]
            for (x, info), (y, same) in zip(found, expected, strict=True):
                assert info.iterations == same.iterations
                np.testing.assert_array_equal(x, y)

    assert in_threads(run, solve) == [None, None]


@posix
def test_a_forked_process_does_not_wait_for_threads_that_it_has_not() -> None:
    """Its sequences, solvers and forms once did for ever."""
    W = femops.Product(u=V, w=femops.L2(V.mesh, 0))
    F = femops.residual(lambda u, w: {"u": {"value": u * u}, "least": u + w}, W, minima=["least"])
    one, right, out = solvers(1)[0], many(1, 1)[0], np.zeros(V.size)
    u, residual = np.ones(W.size), np.zeros(W.size)
    sequence = OperationSequence(V)
    sequence.solve([one], [right], [out], rtol=1e-12, maxiter=100)
    sequence.evaluate(F, u, residual)
    inside = threading.Event()
    sequence.call(lambda: None if inside.is_set() else (inside.set(), time.sleep(1.0)))
    works = sequence.run, lambda: one.solve(right), lambda: F.evaluate(u, residual)
    users = [threading.Thread(target=sequence.run)]
    sleep = (lambda: time.sleep(1.0),)
    users += [threading.Thread(target=together, args=([held._alone], *sleep)) for held in (one, F)]
    for user in users:
        user.start()
        inside.wait() if user is users[0] else time.sleep(0.1)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # who waits is ended
        for work in works:
            work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    for user in users:
        user.join()


@posix
def test_what_an_interrupted_run_has_used_is_free() -> None:
    """Solvers once were not, if it came between two of them."""
    two, rights, outs = solvers(2), many(2, 2), [np.zeros(V.size) for _ in range(2)]
    sequence = OperationSequence(V)
    sequence.solve(two, rights, outs, rtol=1e-12, maxiter=100)
    sequence.run()
    expected, iterations = np.array(outs), sequence.iterations
    random, before = np.random.default_rng(3), signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for k in range(60):
            with pytest.raises(KeyboardInterrupt):
                _run_until_interrupted(sequence, random.uniform(1e-4, 1e-3))
            one = threading.Thread(target=two[0].solve, args=(rights[k % 2], outs[0]), daemon=True)
            one.start()
            one.join(20.0)
            assert not one.is_alive()
            done = sequence.iterations
            assert sequence.run()
            assert sequence.iterations - done == iterations
            np.testing.assert_array_equal(outs, expected)
    finally:
        signal.signal(signal.SIGALRM, before)


def _run_until_interrupted(sequence: OperationSequence, seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        sequence.run()
