"""Products of forms over faces between elements with many vectors, beside one vector at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from femops_kernels.compiled import Panels
from support.cases.meshes import bend, scrambled_box
from support.teams import each_team

FLAT = scrambled_box((13, 15), 4, bend, 2)
TURNED = scrambled_box((4, 3, 3), 9, bend, 2)
MANY = scrambled_box((16, 12, 12), 3, bend)  # several groups of faces


def sides(u: Any, n: Any, h: Any, k: Any) -> dict[str, Any]:
    """Values and gradients of both sides, not symmetric, with coefficients of two sides."""
    return {
        "jump": {"value": k.minus / h.plus * u.jump + u.minus.grad @ n, "grad": n * u.plus},
        "plus": {"value": k.jump * u.minus, "grad": u.jump.grad * h.minus},
    }


def vectors(n: int, count: int, dtype: Any = float) -> Any:
    return np.random.default_rng(1).standard_normal((n, count)).astype(dtype)


def check(A: Any, count: int = 11) -> None:
    X = vectors(A.shape[1], count, A.dtype)
    expected = np.stack([A @ np.ascontiguousarray(x) for x in X.T], axis=1)
    error = np.abs(A @ X - expected).max()
    assert error < (1e-13 if A.dtype == np.float64 else 1e-5) * np.abs(expected).max()


@pytest.mark.parametrize(
    ("mesh", "order", "options"),
    [
        (FLAT, 3, {"family": "hermite"}),
        pytest.param(TURNED, 2, {"family": "gauss"}, marks=pytest.mark.exhaustive),
        (femops.box((23,)), 4, {"family": "hermite"}),
        (femops.box((12, 16), periodic=True), 0, {}),
    ],
)
def test_the_columns(mesh: Any, order: int, options: Any) -> None:
    """With cells and the boundary, a factor, and constrained dofs; of functions without slopes."""
    V = femops.L2(mesh, order, **options)
    k = femops.GridFunction(W := femops.L2(mesh, 1), 2.0 + np.sin(np.arange(W.size)))
    if order:
        check(femops.form(sides, V, faces="interior", k=k))
        A = femops.interior_penalty(V, 1.5)
        check(-0.5 * A)
        check(A.constrained(np.arange(0, V.size, 5)))
        V = femops.L2(mesh, order, family="gll")
    wind = np.array([1.0, -2.0, 0.5])[: mesh.dim]
    check(femops.upwind_convection(V, wind), 3)


def test_a_basis_of_layers_after_another() -> None:
    """The first field needs all nodes, the second one two layers of them."""
    V, W = femops.L2(FLAT, 2), femops.L2(FLAT, 4, family="hermite")
    check(femops.form(lambda u, n: {"jump": u.mean.grad @ n}, V, W, faces="interior"))
    pairs = femops.Product(u=V, w=W)

    def between(u: Any, w: Any, n: Any) -> dict[str, Any]:
        return {"u": {"jump": w.mean.grad @ n}, "w": {"mean": {"grad": w.jump * n + u.jump * n}}}

    check(femops.form(between, pairs, faces="interior"))


def test_other_spaces() -> None:
    """Functions of different orders and types; continuous ones, whose elements share dofs."""
    V, W = femops.L2(FLAT, 3, family="hermite"), femops.L2(FLAT, 1)
    check(
        femops.form(lambda u, n: {"mean": u.jump, "jump": u.mean.grad @ n}, V, W, faces="interior")
    )
    H = femops.H1(FLAT, 2)
    jumps = femops.form(lambda u, n: {"jump": {"grad": n * (u.jump.grad @ n)}}, H, faces="interior")
    check(femops.diffusion(H) + jumps)
    check(femops.interior_penalty(femops.L2(FLAT, 2, family="hermite"), dtype="float32"))
    pairs = femops.Product(u=V, w=H)
    between = femops.form(
        lambda u, w: {"u": {"jump": u.jump}, "w": {"mean": u.jump}}, pairs, faces="interior"
    )
    cells = femops.form(lambda u, w: {"u": {"value": w}, "w": {"grad": w.grad, "value": u}}, pairs)
    check(between)
    check((cells - 2.0 * between).constrained(np.arange(0, pairs.size, 4)))


def test_reproducible_meshes() -> None:
    mesh = femops.distribute(FLAT, Serial(), reproducible=True)
    check(femops.interior_penalty(femops.L2(mesh, 2, family="hermite")))


def test_several_chunks_and_threads() -> None:
    """One sweep over both sides, in place but for other chunks' layers; the bits of any team."""
    A = femops.interior_penalty(femops.L2(MANY, 2, family="hermite"))
    check(A, 9)
    X, expected = (X := vectors(A.shape[1], 9)), A @ X
    for _ in each_team(1, 2):
        np.testing.assert_array_equal(A @ X, expected)
    _, inside, _ = (step.launch for step in A.steps(Panels(9)))
    minus, plus = (left.target for left in inside.left)
    assert minus.nchunks > 8
    assert not len(minus.nonowned_dofs)
    assert len(plus.nonowned_dofs) > 0 == len(plus.nonowned_dofs) % (2 * 3 * 3)  # two layers each
