"""Ranks without elements take part in all that is collective, and have nothing of it."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.cases.kernels import bend, smooth
from support.cases.levels import LEVELS
from support.cases.rank_operators import close, every_fifth, of_rank_0, piece

MESHES = {
    "1 x 1": lambda: femops.box((1, 1), mapping=bend, order=2),
    "2": lambda: femops.box((2,), mapping=lambda x: x + 0.1 * np.sin(x)),
    "2 x 1, curved": lambda: femops.box((2, 1), mapping=bend, order=2),
    "1 x 2 x 1, multilinear": lambda: femops.box((1, 2, 1), mapping=bend),
}


CURVED = "2 x 1, curved"
CASES = [(CURVED, level) for level in LEVELS]
CASES += [
    (name, level) for name in MESHES if name != CURVED for level in ("partial", "matrix-free")
]


def on_both(comm, make, build, reproducible=False):
    """A thing on the mesh of all ranks, some of which have nothing, and on that of one."""
    mesh, options = make(), {"reproducible": reproducible}
    shared = femops.distribute(mesh, comm, **options)
    assert comm.sum(int(shared.mesh.num_elements == 0)) > 0
    return build(shared), build(femops.distribute(mesh, Serial(), **options))


def drift(u, x, c):
    return {"value": c * u.grad[0] + x[0] * u, "grad": u.grad}


def weakly(u, x, n, h):
    return {"value": 9 * u / h - u.grad @ n, "grad": -(1 + x[0] ** 2) * u * n}


def operators(mesh, level):
    """Sums of what is made one, and of what has rules or places of its own."""
    V = femops.H1(mesh, 2)
    given = {"level": level}
    A, M = femops.diffusion(V, smooth, **given), femops.mass(V, **given)
    other = femops.mass(V, femops.GridFunction(V, V.interpolate(smooth)), quadrature=5, **given)
    own = femops.form(drift, V, c=smooth, **given)
    p = femops.p_laplacian(V, p=3.0, epsilon=0.1)
    yield "constant", femops.diffusion(V, **given) + 2.0 * M
    yield "rules", A - 3.0 * other + M
    yield "transposed", (own + A).T + other
    yield "nonlinear", p.jacobian(V.interpolate(smooth)).at_level(level) + M
    W = femops.L2(mesh, 1)
    if mesh.dim > 1:
        yield "boundary", A + femops.boundary_mass(V, smooth, **given) + other
        yield "boundary alone", femops.boundary_mass(V, smooth, **given)
        yield "slopes", femops.form(weakly, V, boundary="all", **given) + A
        yield "slopes of two spaces", femops.form(weakly, W, V, boundary="all", **given)
    U = femops.H1(mesh, 2, ncomp=mesh.dim)
    yield "two spaces", femops.divergence(U, W, **given)
    yield "components", femops.mass(U, **given) + femops.diffusion(U, **given)


def results(A, u, v):
    """Everything that is asked of an operator, and its matrix."""
    found = {"product": A @ u, "transpose": A.T @ v, "flops": A.cost().data_flops}
    if A.space is A.test_space:
        found["diagonal"] = A.diagonal()
        found["held"] = A.constrained(every_fifth(A.space)) @ u
    return found, A.assemble()


def of_one(mesh, level, reproducible):
    """For each operator two vectors, and what one process has."""
    found = {}
    alone = femops.distribute(mesh, Serial(), reproducible=reproducible)
    for key, B in operators(alone, level):
        u = np.random.default_rng(3).standard_normal(B.space.size)
        v = np.random.default_rng(4).standard_normal(B.test_space.size)
        found[key] = u, v, *results(B, u, v)
    return found


@pytest.mark.sample(6)
@pytest.mark.parallel(3)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize(("name", "level"), CASES)
def test_operators_and_sums(comm, name, level, reproducible):
    mesh = MESHES[name]()
    shared = femops.distribute(mesh, comm, reproducible=reproducible)
    assert comm.sum(int(shared.mesh.num_elements == 0)) > 0
    mine = dict(operators(shared, level))
    alone = of_rank_0(comm, lambda: of_one(mesh, level, reproducible))
    assert list(mine) == list(alone)
    for key, A in mine.items():
        u, v, expected, matrix = alone[key]
        found, rows = results(A, u[piece(A.space)], v[piece(A.test_space)])
        assert comm.sum(found.pop("flops")) == expected.pop("flops")
        assert set(found) == set(expected)
        for name, value in found.items():
            close(value, expected[name], A.space if name == "transpose" else A.test_space)
        gap = rows - matrix[piece(A.test_space)]
        assert abs(gap).max() < 1e-12 if gap.shape[0] else True


def reaction(u):
    return {"value": u + u**3, "grad": u.grad}


@pytest.mark.parallel(3)
@pytest.mark.parametrize(
    ("linear", "level", "reproducible"),
    [("cg", "auto", False), ("minres", "full", True), ("gmres", "matrix-free", False)],
)
def test_solvers(comm, linear, level, reproducible):
    def build(mesh):
        V = femops.H1(mesh, 3)
        F = femops.residual(reaction, V)
        u, info = femops.newton(F, V.zeros(), femops.load(V, smooth), linear=linear, level=level)
        A = F.jacobian(u).at_level("partial").constrained(every_fifth(V))
        x, report = femops.cg(A, A.rhs(femops.load(V, smooth), u), M=femops.jacobi(A), rtol=1e-12)
        return V, u, info, x, report

    made = on_both(comm, MESHES[CURVED], build, reproducible)
    (V, u, info, x, report), (_, whole, expected, solution, _) = made
    assert info.converged
    assert report.converged
    assert info.iterations == expected.iterations
    close(u, whole, V, 1e-7)
    close(x, solution, V, 1e-7)


@pytest.mark.parallel(3)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("name", [CURVED, "2"])
def test_states_norms_and_loads(comm, tmp_path, name, reproducible):
    folder = comm.broadcast(tmp_path)

    def build(mesh):
        V = femops.H1(mesh, 2)
        path = folder / (f"one-{comm.rank}.state" if mesh.comm.size == 1 else "many.state")
        u = V.interpolate(smooth)
        femops.io.save_state(path, {"u": (V, u)}, {"n": 1})
        assert np.array_equal(femops.io.load_state(path, {"u": V}).vectors["u"], u)
        materials = femops.by_attribute(mesh, {1: 2.5})
        loads = [femops.load(V, smooth), femops.diffusion(V, materials) @ u]
        numbers = [femops.l2_norm(V, u), femops.integrate(V, u), mesh.num_elements]
        if mesh.dim > 1:
            loads.append(femops.boundary_load(V, smooth))
            numbers.append(femops.integrate(V, u, boundary=2))
        return V, loads, numbers

    (V, mine, told), (_, whole, expected) = on_both(comm, MESHES[name], build, reproducible)
    for a, b in zip(mine, whole, strict=True):
        close(a, b, V)
    np.testing.assert_allclose(told, expected, rtol=1e-12)
