"""Integrals over faces between elements on many ranks, beside those of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.operators.execution import host
from femops.parallel import Serial
from support.cases.kernels import smooth
from support.cases.meshes import bend, scrambled_box
from support.cases.rank_operators import close, of_rank_0, piece

MESHES: dict[str, Callable[[], femops.Mesh]] = {
    "many": lambda: scrambled_box((16, 15, 15), 5, bend),
    "medium": lambda: scrambled_box((14, 13, 13), 5),
    "large": lambda: scrambled_box((5, 4, 3), 5, bend, 2),
    "turned": lambda: scrambled_box((3, 3, 2), 11, bend, 2),
    "flat": lambda: scrambled_box((5, 4), 3, bend, 2),
    "line": lambda: femops.box(7),
    "glued": lambda: femops.box((5, 3), periodic=True),
    "ball": lambda: femops.read_mesh(femops.sample("ball.mesh")),
}

FACTORS = np.arange(1.0, 12.0)


def moved(u: Any, n: Any, h: Any, x: Any, k: Any) -> dict[str, Any]:
    """All parts of a field, with a coefficient that has two sides."""
    return {
        "jump": {"value": k.minus / h.plus * u.jump + u.mean.grad @ n, "grad": n * u.minus},
        "plus": x[0] * k.jump * u.minus,
    }


def jumps(mesh: Any, family: str = "gauss", level: str = "partial") -> Any:
    V = femops.L2(mesh, 2, family=family)
    K = femops.L2(mesh, 1)
    k = femops.GridFunction(K, K.interpolate(lambda x: 2.0 + np.sin(5.0 * x[0])))
    return femops.form(moved, V, faces="interior", k=k, level=level) + femops.mass(V, level=level)


def hermite_jumps(mesh: Any, level: str = "partial") -> Any:
    return jumps(mesh, "hermite", level)


def jumps_of_gradients(mesh: Any, level: str = "partial") -> Any:
    V = femops.H1(mesh, 2)
    penalty = femops.form(
        lambda u, n: {"jump": {"grad": n * (u.jump.grad @ n)}}, V, faces="interior", level=level
    )
    return femops.diffusion(V, level=level) + penalty


def coupled(mesh: Any, level: str = "partial") -> Any:
    W, b = femops.Product(u=femops.L2(mesh, 1), w=femops.H1(mesh, 2, ncomp=2)), np.array([1.0, 2.0])

    def function(u: Any, w: Any, n: Any) -> dict[str, Any]:
        return {
            "u": {"jump": u.jump + n[0] * (w.mean.value @ b)},
            "w": {"mean": {"value": b * u.plus.value}},
        }

    return femops.form(function, W, faces="interior", level=level) + femops.form(
        lambda u, w: {"u": {"value": u}, "w": {"value": w}}, W, level=level
    )


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("build", "mesh", "level", "factors"),
    [
        (jumps, "flat", "partial", FACTORS),
        (jumps, "line", "partial", ()),
        (jumps, "turned", "full", ()),
        (jumps, "many", "partial", ()),
        (hermite_jumps, "turned", "partial", ()),
        *(  # the same bits are those of one process, too
            pytest.param(hermite_jumps, *more, marks=pytest.mark.exhaustive)
            for more in (
                ("large", "partial", ()),
                ("flat", "partial", FACTORS),
                ("turned", "element", ()),
            )
        ),
        (jumps_of_gradients, "glued", "partial", ()),
        (jumps_of_gradients, "ball", "partial", FACTORS),
        (jumps_of_gradients, "flat", "element", ()),
        (coupled, "flat", "partial", ()),
        pytest.param(coupled, "ball", "partial", (), marks=pytest.mark.exhaustive),
        (coupled, "turned", "full", FACTORS),
    ],
)
def test_the_operator_of_one_process(
    comm: Any, build: Any, mesh: str, level: str, factors: Any
) -> None:
    """Product, transpose, diagonal and some for many vectors, with faces between ranks."""
    whole = MESHES[mesh]()
    A = build(femops.distribute(whole, comm), level=level)

    def alone() -> Any:
        B = build(femops.distribute(whole, Serial()), level=level)
        w = np.random.default_rng(3).standard_normal(B.space.size)
        return w, B @ w, B.T @ w, B.diagonal()

    w, product, transpose, entries = of_rank_0(comm, alone)
    u = w[piece(A.space)].copy()
    close(A @ u, product, A.space)
    close(A.T @ u, transpose, A.space)
    close(A.diagonal(), entries, A.space)
    many = A @ np.multiply.outer(u, factors) if len(factors) else None
    for k in (0, 10) if len(factors) else ():
        close(many[:, k].copy(), factors[k] * product, A.space)


@pytest.mark.parallel(2)
@pytest.mark.parametrize(("family", "layers"), [("gauss", 4), ("hermite", 2), ("bernstein", 2)])
def test_messages_have_the_layers_that_faces_need(comm: Any, family: str, layers: int) -> None:
    mesh = femops.distribute(femops.box((4, 3)), comm)  # cut across the first direction
    A = femops.interior_penalty(femops.L2(mesh, 3, family=family))
    received = [len(forward.channel.incoming) for forward, _ in A.compiled.forwards]
    assert received == [layers * 4 * 3 * comm.rank]  # the last rank has the faces


@pytest.mark.parallel(2, 3, 4)
@pytest.mark.parametrize(
    ("mesh", "family"),
    [
        *(("turned", "gauss"), ("flat", "hermite")),
        pytest.param("large", "gauss", marks=pytest.mark.exhaustive),
        pytest.param("turned", "gll", marks=pytest.mark.exhaustive),
    ],
)
def test_the_same_bits(comm: Any, mesh: str, family: str, monkeypatch: Any) -> None:
    """Of an L2 space on a reproducible mesh, also where some ranks have no elements."""
    monkeypatch.setattr(host, "_COMPILED_FROM", 0)

    def everything(mesh: Any) -> tuple[Any, float, list[Any]]:
        A = jumps(mesh, family)
        V = A.space
        u = np.random.default_rng(5).standard_normal(V.global_size)[piece(V)]
        upwind = femops.upwind_convection(V, np.array([1.0, -0.5, 2.0][: V.dim]))
        R = femops.residual(
            lambda u, n: {"jump": u.jump * (1.0 + u.mean.value**2)}, V, faces="interior"
        )
        vectors = [A @ u, A.diagonal(), upwind @ u]
        vectors += [R.residual(u), R.jacobian(u) @ u]
        return V, femops.functional(lambda u: u.jump**2, V, faces="interior")(u), vectors

    def on(ranks: Any) -> tuple[Any, float, list[Any]]:
        return everything(femops.distribute(MESHES[mesh](), ranks, reproducible=True))

    V, square, vectors = on(comm)
    other, expected = of_rank_0(comm, lambda: on(Serial())[1:])
    assert square == other != 0.0
    for mine, one in zip(vectors, expected, strict=True):
        assert np.array_equal(mine, one[piece(V)])


@pytest.mark.parallel(2)
def test_the_same_bits_of_many_faces(comm: Any) -> None:
    """Batches of a group are in the same order, wherever the rank's faces begin."""

    def product(ranks: Any) -> tuple[Any, Any]:
        V = femops.L2(femops.distribute(MESHES["medium"](), ranks, reproducible=True), 1)
        u = np.random.default_rng(5).standard_normal(V.global_size)[piece(V)]
        return V, femops.form(lambda u: {"jump": u.jump}, V, faces="interior") @ u

    V, mine = product(comm)
    assert np.array_equal(mine, of_rank_0(comm, lambda: product(Serial())[1])[piece(V)])


@pytest.mark.parallel(3)
def test_a_solve_with_multigrid(comm: Any) -> None:
    def solve(mesh: Any) -> tuple[Any, Any, Any]:
        V = femops.L2(mesh, 2)
        A = femops.interior_penalty(V, smooth)
        b = femops.load(V, smooth)
        return V, *femops.cg(A, b, M=femops.multigrid(A), rtol=1e-11)

    whole = MESHES["flat"]()
    V, x, info = solve(femops.distribute(whole, comm))
    y, expected = of_rank_0(comm, lambda: solve(femops.distribute(whole, Serial()))[1:])
    assert info.converged
    assert abs(info.iterations - expected.iterations) <= 1
    close(x, y, V, tolerance=1e-9)


@pytest.mark.parallel(2)
def test_what_is_refused(comm: Any) -> None:
    """On all ranks alike, before they wait for each other."""
    single = femops.distribute(femops.box((1, 1)), comm)
    with pytest.raises(femops.errors.SpaceError, match="no faces between elements"):
        femops.form(lambda u: {"jump": u.jump}, femops.L2(single, 1), faces="interior")
    with pytest.raises(femops.errors.SpaceError, match="reproducible=True"):
        jumps_of_gradients(femops.distribute(femops.box((9, 4)), comm, reproducible=True))


@pytest.mark.parallel(2)
def test_conductivities_on_a_rank_without_faces(comm: Any) -> None:
    """A function that jumps is refused on all ranks, another one is taken."""
    V = femops.L2(femops.distribute(femops.box((2,)), comm), 1)
    A = femops.interior_penalty(V, smooth)
    assert np.isfinite(A @ V.interpolate(1.0)).all()
    with pytest.raises(femops.errors.FemopsError, match="kappa jumps at 1 face"):
        femops.interior_penalty(V, lambda x: np.where(x[0] < 0.5, 1.0, 2.0))


@pytest.mark.parallel(2)
def test_a_coefficient_that_is_negative_on_one_rank(comm: Any) -> None:
    """All ranks raise. A constant is refused also by a rank without faces of the integral."""
    mesh = femops.distribute(femops.box((9, 4)), comm)

    def negative(space: Any) -> femops.GridFunction:
        values = space.interpolate(lambda x: np.where(x[0] < 0.2, -1.0, 1.0))
        return femops.GridFunction(space, values)

    V, U = femops.L2(mesh, 1), femops.H1(mesh, 1)
    with pytest.raises(femops.errors.FemopsError, match="kappa is -1 somewhere"):
        femops.interior_penalty(V, negative(femops.L2(mesh, 0)))
    with pytest.raises(femops.errors.FemopsError, match="p is -1 somewhere"):
        femops.p_laplacian(U, negative(U))
    with pytest.raises(femops.errors.OperatorError, match="kappa is -1: it must be positive"):
        femops.interior_penalty(V, -1.0, boundary=1)
