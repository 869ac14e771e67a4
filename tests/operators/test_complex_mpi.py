"""Complex operators and solves on many ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import FemopsError
from femops.parallel import Serial
from support.cases.rank_operators import every_fifth, of_rank_0, piece


def damped(u: Any, x: Any, k2: Any) -> Any:
    return {"grad": (1.0 + 0.5j * x[0]) * u.grad, "value": -k2 * u}


def walls(u: Any) -> Any:
    return {"value": -3j * u}


def operator(mesh: Any) -> Any:
    V = femops.H1(mesh, 2)
    functions = {"cells": damped, "boundary": walls}
    return femops.form(functions, V, k2=lambda x: 20.0 + 2j * x[1], dtype=complex)


def magnetic(u: Any, x: Any) -> Any:
    potential = 3.0 * np.array([-x[1], x[0]])
    moved = u.grad - 1j * potential * u
    return {"grad": moved, "value": 1j * femops.inner(potential, moved) + u}


def random(space: Any, whole: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    u = rng.standard_normal(whole.size) + 1j * rng.standard_normal(whole.size)
    return u[piece(space)].copy(), u


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("reproducible", [False, True])
def test_as_on_one_rank(comm: Any, reproducible: bool) -> None:
    """Products, diagonals and solutions; on a reproducible mesh to the last bit."""
    whole = femops.disc(3, order=2)
    mesh = femops.distribute(whole, comm, reproducible=reproducible)
    alone = femops.distribute(whole, Serial(), reproducible=True) if reproducible else whole

    def results(A: Any, u: Any) -> tuple[list[Any], list[int]]:
        x, info = femops.gmres(A, u, M=femops.jacobi(A), rtol=1e-9, restart=300)
        y, other = femops.cg(femops.form(magnetic, A.space, dtype=complex), u, rtol=1e-9)
        return [A @ u, A.diagonal(), x, y], [info.iterations, other.iterations]

    A, V = operator(mesh), femops.H1(whole, 2)
    u, w = random(A.space, V)
    here = piece(A.space)

    found, counts = results(A, u)
    expected, others = of_rank_0(comm, lambda: results(operator(alone), w))
    assert counts[0] == others[0]
    assert abs(counts[1] - others[1]) <= 1
    for mine, one, tolerance in zip(found, expected, (1e-14, 1e-14, 1e-6, 1e-6), strict=True):
        if reproducible:
            assert mine.tobytes() == one[here].tobytes()
        else:
            assert abs(mine - one[here]).max() <= tolerance * abs(one).max()


@pytest.mark.parallel(2, 3)
def test_rows_of_a_matrix(comm: Any) -> None:
    """Of one field, and of two whose second one has no block on the diagonal."""
    whole = femops.box((3, 2))

    def pair(mesh: Any) -> Any:
        W = femops.Product(u=femops.H1(mesh, 2, ncomp=2), p=femops.H1(mesh, 1))

        def saddle(u: Any, p: Any) -> Any:
            return {"u": {"grad": 1j * u.grad - p * np.eye(2)}, "p": {"value": -u.div}}

        S = femops.form(saddle, W, dtype=complex)
        return S.constrained(W.positions(p=every_fifth(W.spaces["p"])))

    for make in (operator, pair):
        A, B = make(femops.distribute(whole, comm)), make(whole)
        rows = B.assemble().toarray()[piece(A.space)]
        assert abs(A.assemble().toarray() - rows).max(initial=0.0) <= 1e-13 * abs(rows).max()


@pytest.mark.parallel(3)
def test_ranks_without_elements(comm: Any) -> None:
    """A preconditioner of complex vectors is not taken for one of pairs, both of size zero."""
    whole = femops.box((2, 1))
    mesh = femops.distribute(whole, comm)
    A, B = operator(mesh), operator(whole)
    u, w = random(A.space, B.space)
    x, info = femops.gmres(A, u, M=femops.jacobi(A), rtol=1e-9)
    y, _ = femops.gmres(B, w, M=femops.jacobi(B), rtol=1e-9)
    assert info.converged
    assert abs(x - y[piece(A.space)]).max(initial=0.0) <= 1e-6 * abs(y).max()
    H = femops.form(magnetic, A.space, dtype=complex)
    X, info = femops.cg(H, np.stack([u, 1j * u], axis=1), rtol=1e-9)
    assert info.converged
    assert abs(X[:, 1] - 1j * X[:, 0]).max(initial=0.0) <= 1e-6 * abs(y).max()


@pytest.mark.parallel(2)
def test_one_rank_with_a_wrong_vector(comm: Any) -> None:
    """All ranks raise, so none waits."""
    A = operator(femops.distribute(femops.disc(3), comm))
    b = A.space.zeros(complex if comm.rank else float)
    with pytest.raises(FemopsError, match="complex128 is needed"):
        femops.gmres(A, b)
