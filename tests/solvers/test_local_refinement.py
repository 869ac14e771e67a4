"""Solvers, eigenpairs, gradients and fields on locally refined meshes."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, splu, spsolve

import femops
from support.refined import broken, prolongation, tree


def problem(name="squares", p=3):
    V = femops.H1(tree(name), p)
    A = femops.diffusion(V, lambda x: 1 + x[0]).constrained(V.boundary_dofs())
    load = femops.load(V, lambda x: np.sin(7 * x[0]) + x[1])
    b = A.rhs(load, V.interpolate(lambda x: x[0]))
    return A, b, spsolve(A.assemble().tocsc(), b)


@pytest.mark.parametrize("p", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_preconditioners(p):
    """None needs many more iterations than on a mesh of equal elements."""
    A, b, exact = problem(p=p)
    lu = splu(femops.low_order(A).tocsc())
    low = LinearOperator(A.shape, lu.solve, dtype=np.float64)
    relaxed = ("points", "elements", "patches", "direct")
    most = {femops.jacobi(A): 150, low: 23} | {
        femops.multigrid(A, relaxation=way): 9 for way in relaxed
    }
    for M, bound in most.items():
        u, info = femops.cg(A, b, M=M, rtol=1e-11)
        assert abs(u - exact).max() < 1e-9 * abs(exact).max()
        assert info.iterations <= bound


def test_krylov_methods():
    A, b, exact = problem()
    for method in (femops.cg, femops.minres, femops.gmres):
        assert abs(method(A, b, rtol=1e-12)[0] - exact).max() < 1e-10
    X, _ = femops.cg(A, np.stack([b, 2 * b], axis=1), M=femops.multigrid(A), rtol=1e-12)
    assert abs(X - np.stack([exact, 2 * exact], axis=1)).max() < 1e-10


def test_low_order_matrices_are_those_of_the_cut_elements():
    """Of elements whose nodes are all free: P^T A P with A of elements without neighbours."""
    mesh = tree("squares")
    V = femops.H1(mesh, 3, 2)
    low = femops.low_order(femops.elasticity(V) + femops.boundary_mass(V)).toarray()
    values = scipy.linalg.eigh(
        (femops.elasticity(V) + femops.boundary_mass(V)).assemble().toarray(),
        low,
        eigvals_only=True,
    )
    assert values[0] > 0.3
    assert values[-1] < 6.0
    ones = np.ones(V.size)
    assert abs(ones @ femops.low_order(femops.mass(V)) @ ones - 2.0) < 1e-14
    assert abs(femops.low_order(femops.diffusion(V)) @ ones).max() < 1e-13


@pytest.mark.parametrize("name", ["squares", pytest.param("cubes", marks=pytest.mark.exhaustive)])
def test_eigenvalues_of_the_cube(name):
    """No mode is pinned at hanging nodes: the dense eigenvalues are those of the cube."""
    mesh = tree(name) if name == "squares" else femops.box((2, 2, 2)).refined([0]).refined([3])
    V = femops.H1(mesh, 5 if mesh.dim == 2 else 4)
    held = V.boundary_dofs()
    A, M = (make(V).constrained(held) for make in (femops.diffusion, femops.mass))
    free = np.setdiff1d(np.arange(V.size), held)
    dense = [B.assemble().toarray()[np.ix_(free, free)] for B in (A, M)]
    k = np.arange(1, 6) ** 2
    sums = k[:, np.newaxis] + k if mesh.dim == 2 else np.add.outer(k[:, np.newaxis] + k, k)
    exact = np.pi**2 * np.sort(sums.ravel())[:6]
    found = scipy.linalg.eigh(*dense, eigvals_only=True)
    assert abs(found[:6] / exact - 1).max() < 1e-4
    assert abs(femops.eigen.lobpcg(A, M, 4).values / found[:4] - 1).max() < 1e-9


def test_taylor_hood():
    """A flow that the spaces contain; the matrix against the spaces without continuity."""
    mesh = tree("squares")

    def stokes(u, p):
        return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}

    U, Q = femops.H1(mesh, 2, 2), femops.H1(mesh, 1)
    W = femops.Product(u=U, p=Q)
    A = femops.form(stokes, W)
    P = prolongation(U, Q)
    apart = femops.form(stokes, femops.Product(u=broken(U), p=broken(Q))).assemble()
    matrix = P.T @ (apart @ P)
    assert abs(A.assemble() - matrix).max() < 1e-14 * abs(matrix).max()
    x = np.random.default_rng(0).standard_normal(W.size)
    assert abs(A @ x - matrix @ x).max() < 1e-13 * abs(matrix).max()
    held = U.boundary_dofs()
    flow = U.interpolate(lambda x: (x[1] ** 2, x[0] ** 2))
    pressure = Q.interpolate(lambda x: x[0])
    force = femops.load(U, lambda x: (-1.0 + 0 * x[0], -2.0 + 0 * x[0]))
    B = A.constrained(held)
    b = B.rhs(np.concatenate([force, Q.zeros()]), np.concatenate([flow, Q.zeros()]))
    u, _ = femops.minres(B, b, rtol=1e-12, maxiter=4000)
    assert abs(u[: U.size] - flow).max() < 1e-8
    difference = u[U.size :] - pressure
    assert np.ptp(difference) < 1e-5


def flow(u, x, k):
    """Not linear, with a coefficient."""
    return {"value": u**3 - x[0], "grad": (k + u * u) * u.grad}


def energy(u, x):
    return u**4 + x[0] * femops.inner(u.grad, u.grad)


def test_residuals_jacobians_and_functionals():
    mesh = tree("squares")
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    P, rng = prolongation(V), np.random.default_rng(3)
    k, u = 1 + rng.random(K.size), rng.standard_normal(V.size)
    F = femops.residual(flow, V, k=femops.GridFunction(K, k))
    apart = femops.GridFunction(broken(K), prolongation(K) @ k)
    G = femops.residual(flow, broken(V), k=apart)
    assert abs(F.residual(u) - P.T @ G.residual(P @ u)).max() < 1e-13
    J = F.jacobian(u).assemble().toarray()
    assert abs(J - P.T @ (G.jacobian(P @ u).assemble() @ P)).max() < 1e-13 * abs(J).max()
    goals = femops.functional(energy, V), femops.functional(energy, broken(V))
    assert abs(goals[0](u) - goals[1](P @ u)) < 1e-14 * goals[0](u)


@pytest.mark.exhaustive
def test_gradients():
    """By a coefficient, by loads, essential values and nodes of the mesh: against differences."""
    mesh = tree("squares")
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    rng, held, h = np.random.default_rng(3), V.boundary_dofs(), 1e-5
    k, goal = 1 + rng.random(K.size), femops.functional(energy, V)

    def solved(k, load, ends):
        E = femops.residual(flow, V, k=femops.GridFunction(K, k)).constrained(held)
        return E, femops.newton(E, ends, b=load, rtol=1e-13)[0]

    at = {"k": k, "load": V.interpolate(lambda x: x[1]), "dirichlet": V.zeros()}
    E, state = solved(*at.values())
    found = femops.gradient(goal, E, state, wrt=list(at))
    for name, value in at.items():
        direction = rng.standard_normal(len(value))
        if name == "load":
            direction[held] = 0
        if name == "dirichlet":
            direction[np.setdiff1d(np.arange(V.size), held)] = 0
        two = [goal(solved(*(at | {name: value + s * direction}).values())[1]) for s in (h, -h)]
        slope = (two[0] - two[1]) / (2 * h)
        assert abs(found[name] @ direction - slope) < 1e-6 * abs(slope), name
    W = femops.H1(mesh, 1, 2)
    direction = rng.standard_normal(W.size)
    moves = W.restriction.gather(W.components(direction))
    two = []
    for s in (h, -h):
        moved = replace(mesh, coordinates=mesh.coordinates + s * moves)
        two.append(femops.functional(energy, femops.H1(moved, 2))(state))
    slope = (two[0] - two[1]) / (2 * h)
    found = femops.gradient(goal, u=state, wrt="mesh")["mesh"]
    assert abs(found @ direction - slope) < 1e-6 * abs(slope)


def test_values_and_probes():
    for name in ("disc", "bent squares"):
        V = femops.H1(tree(name), 3, 2)
        W, P = broken(V), prolongation(V)
        u = np.random.default_rng(4).standard_normal(V.size)
        apart = P @ u
        assert abs(V.values(u) - W.values(apart)).max() < 1e-13
        assert abs(V.gradient(u) - W.gradient(apart)).max() < 1e-12
        assert abs(femops.l2_norm(V, u) - femops.l2_norm(W, apart)) < 1e-13
        probe = femops.Probe(V.mesh, V.mesh.element_centers())
        assert abs(probe(V, u) - probe(W, apart)).max() < 1e-13
        B = femops.H1(V.mesh, 3, 2, family="bernstein")
        assert abs(femops.l2_norm(B, B.from_nodal(u)) - femops.l2_norm(V, u)) < 1e-13
        assert abs(V.components(V.interpolate(lambda x: x)) - V.dof_coordinates()).max() < 1e-15
        on_boundary = femops.boundary_mass(V).diagonal() > 1e-14
        assert np.array_equal(V.boundary_dofs(), np.flatnonzero(on_boundary))


def test_conservation_between_elements_of_two_sizes():
    """Of a constant velocity on periodic meshes."""
    V = femops.L2(tree("periodic"), 2)
    A = femops.upwind_convection(V, lambda x: np.stack([1 + 0 * x[0], 0.5 + 0 * x[0]]))
    flux = A @ np.random.default_rng(5).standard_normal(V.size)
    assert abs(flux.sum()) < 1e-13 * abs(flux).sum()
    assert abs(A @ np.ones(V.size)).max() < 1e-13


@pytest.mark.parametrize(
    "p",
    [
        1,
        pytest.param(2, marks=pytest.mark.exhaustive),
        pytest.param(3, marks=pytest.mark.exhaustive),
    ],
)
def test_interior_penalty_converges(p):
    """At rate p + 1; the matrix is symmetric and positive."""
    found = []
    for n in (4, 8):
        mesh = femops.box((n, n)).refined(lambda x: x[0] + x[1] < 0.7)
        V = femops.L2(mesh.refined(lambda x: x[0] + x[1] < 0.3), p)
        A = femops.interior_penalty(V)
        b = femops.load(V, lambda x: 2 * np.pi**2 * np.prod(np.sin(np.pi * x), axis=0))
        u, _ = femops.cg(A, b + femops.dirichlet_load(V, 0.0), M=femops.multigrid(A), rtol=1e-10)
        found.append(femops.l2_error(V, u, lambda x: np.prod(np.sin(np.pi * x), axis=0)))
        if n == 4:
            dense = A.assemble().toarray()
            assert abs(dense - dense.T).max() < 1e-13 * abs(dense).max()
            assert np.linalg.eigvalsh(dense)[0] > 0
    assert np.log2(found[0] / found[1]) > p + 0.7
