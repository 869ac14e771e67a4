"""Gradients on triangles, tetrahedra and several shapes, beside differences."""

import numpy as np
import pytest

import femops
from femops.errors import OperatorError
from support.mixed_meshes import MIXED_MESHES
from support.simplex_meshes import SIMPLEX_MESHES

NAMES = ["curved triangles", "tetrahedra", "curved tetrahedra"]
FLAT, ALL = "curved squares and triangles", "curved hexahedra, prisms, tetrahedra"
MESHES = {name: SIMPLEX_MESHES[name] for name in NAMES} | MIXED_MESHES
STEP = 1e-5


def problem(mesh, kappa, c):
    """Goal, equation and solution for a field and a constant; the form has the load."""
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    field = femops.GridFunction(K, kappa)
    F = femops.residual(
        lambda u, kappa, c: {"grad": kappa * (1 + u * u) * u.grad, "value": c * (u - 4.0)},
        V,
        kappa=field,
        c=c,
    ).constrained(V.boundary_dofs())
    u, info = femops.newton(F, V.zeros(), rtol=1e-13)
    assert info.converged
    goal = femops.functional(lambda u, kappa: kappa * u**2 + u.grad @ u.grad, V, kappa=field)
    return goal, F, u


@pytest.mark.parametrize("name", [*NAMES, ALL])
def test_by_a_field_a_constant_and_the_nodes(name):
    mesh = MESHES[name]()
    K = femops.H1(mesh, 1)
    kappa = K.interpolate(lambda x: 1 + x[0] ** 2)
    goal, F, u = problem(mesh, kappa, 1.3)
    found = femops.gradient(goal, F, u, ["kappa", "c", "mesh"])
    X = found.spaces["mesh"]
    step = np.random.default_rng(0).standard_normal(K.size)
    moved = X.interpolate(lambda x: 0.5 * np.sin(2 * x[::-1] + x[:1]))

    def value(t, by):
        changed = mesh if by != "mesh" else femops.adjoint.moved(X, t * moved)
        field = kappa + t * step if by == "kappa" else kappa
        goal, _, u = problem(changed, field, 1.3 + t * (by == "c"))
        return goal(u)

    slopes = {"kappa": found["kappa"] @ step, "c": found["c"], "mesh": found["mesh"] @ moved}
    for by, slope in slopes.items():
        due = (value(STEP, by) - value(-STEP, by)) / (2 * STEP)
        assert slope == pytest.approx(due, rel=1e-6)


@pytest.mark.parametrize("name", [*NAMES, FLAT])
def test_by_loads_and_boundary_values(name):
    V = femops.H1(MESHES[name](), 2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    values, b = V.interpolate(lambda x: x[0]), femops.load(V, 1.0)
    goal = femops.functional(lambda u: u**2, V)

    def solved(b, values):
        return femops.cg(A, A.rhs(b, values), rtol=1e-14)[0]

    found = femops.gradient(goal, A, solved(b, values), ["load", "dirichlet"])
    step = np.random.default_rng(1).standard_normal(V.size)
    for by, start in (("load", (b, values)), ("dirichlet", (b, values))):
        ends = []
        for t in (STEP, -STEP):
            moved = [one + t * step * (k == (by == "dirichlet")) for k, one in enumerate(start)]
            ends.append(goal(solved(*moved)))
        assert found[by] @ step == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6)


@pytest.mark.parametrize("name", [*NAMES, "prisms"])
def test_goals_on_the_boundary(name):
    mesh = MESHES[name]()
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    u, kappa = (W.interpolate(lambda x: 1 + x[0] ** 2) for W in (V, K))
    step = np.random.default_rng(0).standard_normal(K.size)

    def flux(u, kappa, n):
        return kappa**2 * (u.grad @ n) ** 2 + u * n[0]

    def goal(t, space=V):
        field = femops.GridFunction(femops.H1(space.mesh, 1), kappa + t * step)
        return femops.functional(flux, space, boundary="all", kappa=field)

    found = femops.gradient(goal(0.0), u=u, wrt="kappa")["kappa"] @ step
    due = (goal(STEP)(u) - goal(-STEP)(u)) / (2 * STEP)
    assert found == pytest.approx(due, rel=1e-6)
    by_nodes = femops.gradient(goal(0.0), u=u, wrt="mesh")
    X = by_nodes.spaces["mesh"]
    moved = X.interpolate(lambda x: 0.5 * np.sin(2 * x[::-1] + x[:1]))
    ends = [goal(0.0, femops.H1(femops.adjoint.moved(X, t * moved), 2))(u) for t in (STEP, -STEP)]
    assert by_nodes["mesh"] @ moved == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6)


@pytest.mark.parametrize("name", [FLAT, ALL])
def test_volumes_and_jumps_by_the_nodes(name):
    """The derivative of a volume, and of jumps across faces between all shapes."""
    mesh = MESHES[name]()
    dim, rng = mesh.dim, np.random.default_rng(3)
    V = femops.L2(mesh, 1)
    u, M = rng.standard_normal(V.size), rng.standard_normal((dim, dim))
    found = femops.gradient(femops.functional(lambda u: 1.0 + 0.0 * u, V), u=u, wrt="mesh")
    X = found.spaces["mesh"]
    assert found["mesh"] @ X.interpolate(lambda x: M @ x) == pytest.approx(
        np.trace(M) * mesh.volume(), rel=1e-12
    )
    step = X.interpolate(lambda x: 0.5 * np.sin(2 * x[::-1] + x[:1]))

    def jumps(mesh):
        return femops.functional(
            lambda u, n: u.jump**2 + u.jump.grad[0] * n[1], femops.L2(mesh, 1), faces="interior"
        )

    slope = femops.gradient(jumps(mesh), u=u, wrt="mesh")["mesh"] @ step
    ends = [jumps(femops.adjoint.moved(X, t * step))(u) for t in (STEP, -STEP)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6)


def test_a_rule_too_coarse_for_the_control():
    mesh = SIMPLEX_MESHES["triangles"]()
    V, K = femops.H1(mesh, 1), femops.L2(mesh, 4)
    kappa = femops.GridFunction(K, K.interpolate(1.0))
    goal = femops.functional(lambda u, kappa: kappa * u, V, kappa=kappa)
    with pytest.raises(OperatorError, match="kappa has order 4, an integral 6 quadrature points"):
        femops.gradient(goal, u=V.zeros(), wrt="kappa")


def test_jax_and_its_gradient():
    jax = pytest.importorskip("jax", reason="needs JAX")
    import femops.jax

    jax.config.update("jax_enable_x64", True)
    mesh = SIMPLEX_MESHES["triangles"]()
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    kappa = femops.GridFunction(K, K.interpolate(lambda x: 1 + x[0]))
    A = femops.form(lambda u, kappa: {"grad": kappa * u.grad}, V, kappa=kappa)
    A = A.constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0))
    solve = femops.jax.solve(A, "kappa")
    found = jax.grad(lambda k: (solve(b, kappa=k) ** 2).sum())(kappa.vector)
    step = np.random.default_rng(0).standard_normal(K.size)
    ends = [(solve(b, kappa=kappa.vector + t * step) ** 2).sum() for t in (STEP, -STEP)]
    assert float(found @ step) == pytest.approx(float(ends[0] - ends[1]) / (2 * STEP), rel=1e-5)
