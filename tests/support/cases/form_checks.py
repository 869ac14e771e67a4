"""What is asked of an operator of a random form, and examples tried many at a time."""

from __future__ import annotations

import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import femops
from support.cases.random_forms.examples import Example, example
from support.oracles.dense_forms import Matrix

LEVELS = ("full", "element", "partial", "matrix-free")


def compare(what: str, got: Any, exact: Any, bound: Any) -> None:
    """Every entry within its bound."""
    got = np.asarray(got, np.longdouble).reshape(exact.shape)
    wrong = ~(np.abs(got - exact) <= bound)
    if wrong.any():
        excess = np.where(wrong, np.abs(got - exact) / np.maximum(bound, 1e-300), 0.0)
        worst = np.unravel_index(np.argmax(excess), wrong.shape)
        at = ", ".join(map(str, worst))
        raise AssertionError(
            f"{what}[{at}] is {float(got[worst])!r}, must be {float(exact[worst])!r} "
            f"+- {float(bound[worst]):.1e} ({wrong.sum()} of {wrong.size} are wrong)"
        )


def check_actions(what: str, A: Any, matrix: Any, parts: list[slice], seed: int) -> None:
    """Products with vectors of which one component is not zero: no other can hide it.

    On the host all of them are also multiplied at once.
    """
    rng = np.random.default_rng(seed)
    vectors = np.zeros((len(parts), matrix.v.shape[1]), A.dtype)
    for u, part in zip(vectors, parts, strict=True):
        u[part] = rng.uniform(-1, 1, len(u[part]))
    device = A.space.device
    if device is not None:
        for u in vectors:
            got = A.apply(device.upload(u)).get()
            compare(f"{what} on a device", got, *matrix.times(u.astype(float)))
        return
    together = A @ np.concatenate([vectors, vectors]).T
    for k, u in enumerate(vectors):
        expected = matrix.times(u.astype(float))
        compare(what, A @ u, *expected)
        compare(f"{what}, many vectors", together[:, k], *expected)


def components(sides: Any) -> list[slice]:
    """The positions of each component of each space, in a flat vector."""
    out, start = [], 0
    for side in sides:
        stop = start + side.size
        out += [slice(start + c, stop, side.ncomp) for c in range(side.ncomp)]
        start = stop
    return out


def made(case: Example, level: str) -> Any:
    """The operator, or None if it is rightly refused."""
    try:
        form = case.operator(level)
        if case.state is None:
            return form
        state = np.concatenate([state.ravel() for state in case.state])
        state = state.astype("float32" if case.single else "float64")
        device = form.space.device
        if device is not None:
            state = device.upload(state)
        residual = form.residual(state)
        compare("residual", residual if device is None else residual.get(), *case.residual)
        return form.jacobian(state).at_level(level)
    except femops.errors.TraceError as error:
        if "zero whatever the field" in str(error) and case.matrix.is_zero:
            return None
        raise


def check(case: Example, level: str) -> None:
    """An operator at a level: actions, matrix, diagonal, symmetry."""
    A = made(case, level)
    if A is None:
        return
    exact, inputs = case.matrix, list(case.sides.values())
    outputs = inputs if case.test_side is None else [case.test_side]
    here = A.space.device is None
    if here:
        compare("matrix", A.assemble().toarray(), exact.v, exact.e)
    assert not (A.symmetric and exact.skew), "an operator that is not symmetric says it is"
    check_actions("A @ u", A, exact, components(inputs), case.seed)
    turned = exact.T
    if A.symmetric:  # it is applied as A is: where terms of an entry cancel, round-off is A's own
        turned = Matrix(turned.v, np.maximum(exact.e, turned.e))
    check_actions("A.T @ v", A.T, turned, components(outputs), case.seed)
    if here and A.shape[0] == A.shape[1] and case.test_side is None:
        compare("diagonal", A.diagonal(), np.diagonal(exact.v), np.diagonal(exact.e))


def check_algebra(case: Example, level: str) -> None:
    """Other values of a coefficient, and a sum with the transpose."""
    A = made(case, level) if case.state is None else None
    if A is None:
        return
    inputs, exact = list(case.sides.values()), case.matrix
    if case.update is not None:
        name, new, matrix = case.update
        B = A.update(**{name: new.given})
        compare("updated matrix", B.assemble().toarray(), matrix.v, matrix.e)
        check_actions("updated A @ u", B, matrix, components(inputs), case.seed)
        assert not (B.symmetric and matrix.skew), "updated, it says that it is symmetric"
    if case.test_side is None:
        total = Matrix(2 * exact.v + exact.v.T, 2 * exact.e + exact.e.T)
        S = 2.0 * A + A.T
        check_actions("(2 A + A.T) @ u", S, total, components(inputs), case.seed)
        compare("sum's diagonal", S.diagonal(), np.diagonal(total.v), np.diagonal(total.e))


def tried(seed: int, levels: tuple[str, ...], algebra: str = "", device: Any = None) -> None:
    """The example of a number at some levels, and its algebra at one; a failure prints it."""
    case = example(seed)
    if device is not None:
        case = case.on(device)
    for level in levels:
        try:
            check(case, level)
            if level == algebra:
                check_algebra(case, level)
        except Exception as error:
            error.add_note(f"at level {level!r}, {case.described}")
            raise


def failures(seeds: range) -> list[str]:
    """What fails of examples, each at all levels, in a process of its own.

    Compiled kernels stay in memory to the end of a process: those of all would fill it.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_failures, seeds).result()


def _failures(seeds: range) -> list[str]:
    warnings.simplefilter("error")
    found = []
    for seed in seeds:
        try:
            tried(seed, LEVELS, algebra=LEVELS[seed % len(LEVELS)])
        except Exception as error:  # noqa: BLE001  # whatever it is, the others are tried too
            notes = getattr(error, "__notes__", [])
            found.append("\n".join([f"{type(error).__name__}: {error}", *notes]))
    return found
