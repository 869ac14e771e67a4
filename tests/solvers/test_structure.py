"""Preconditioners that follow from forms: iterations, their bounds over meshes and coefficients."""

import numpy as np
import pytest

import femops
from femops.errors import SolverError
from femops.solvers import structure

I2 = np.eye(2)


@pytest.fixture
def many(monkeypatch):
    """No problem is small enough for factors."""
    monkeypatch.setattr(structure, "_FEW", {1: 0, 2: 0, 3: 0})


def product(n, order=2, dim=2):
    """Space of a velocity and a pressure, held at all sides but one, and a load."""
    mesh = femops.box((n,) * dim)
    U, Q = femops.H1(mesh, order, ncomp=dim), femops.H1(mesh, order - 1)
    W = femops.Product(u=U, p=Q)
    load = W.join(u=femops.load(U, lambda x: (x[1] ** 2, *[0.0 * x[0]] * (dim - 1))))
    return W, W.positions(u=U.boundary_dofs([1, 2, 3])), load


def solved(A, b, M="auto", rtol=1e-8, solver=femops.gmres):
    x, info = solver(A, A.rhs(b), M=M, rtol=rtol, maxiter=150)
    rest = A.assemble() @ x - A.rhs(b)
    assert info.converged
    assert np.linalg.norm(rest) <= 1.1 * rtol * np.linalg.norm(A.rhs(b))
    return info.iterations


def viscous(u, p, nu, rate):
    momentum = {"value": rate * u.value, "grad": nu * (u.grad + u.grad.T) - p * np.eye(u.ncomp)}
    return {"u": momentum, "p": {"value": -u.div}}


CASES = {
    "stokes": (lambda u, p: {"u": {"grad": 3.0 * u.grad - p * I2}, "p": {"value": -u.div}}, {}),
    "other sign": (
        lambda u, p: {"u": {"grad": u.grad - p * I2}, "p": {"value": 2.0 * u.div}},
        {},
    ),
    "jump": (
        lambda u, p, x: {
            "u": {"grad": (1.0 + 1e4 * (x[0] > 0.5)) * (u.grad + u.grad.T) - p * I2},
            "p": {"value": -u.div},
        },
        {},
    ),
    "unsteady": (
        lambda u, p, r: {
            "u": {"value": r * u.value, "grad": u.grad - p * I2},
            "p": {"value": -u.div},
        },
        {"r": 1e4},
    ),
    "nearly incompressible": (
        lambda u, p: {
            "u": {"grad": u.grad + u.grad.T - p * I2},
            "p": {"value": -u.div - 1e-4 * p},
        },
        {},
    ),
    "consolidation": (
        lambda u, p, k: {
            "u": {"grad": u.grad + u.grad.T + u.div * I2 - p * I2},
            "p": {"value": u.div + 1e-3 * p, "grad": k * p.grad},
        },
        {"k": 1e-3},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_iterations_do_not_depend_on_the_mesh(name, many):
    form, coefficients = CASES[name]
    counts = []
    for n in (6, 12):
        W, held, load = product(n)
        counts.append(solved(femops.form(form, W, **coefficients).constrained(held), load))
    assert max(counts) <= 25
    assert counts[1] <= counts[0] + 4


def test_the_words_say_what_was_chosen(many):
    W, held, load = product(4)
    unsteady, values = CASES["unsteady"]
    A = femops.form(unsteady, W, **values).constrained(held)
    M = femops.preconditioner(A)
    assert [*M.reasons] == ["p", "u"]
    assert M.reasons["u"] == "multigrid"
    assert "mass / stiffness + diffusion / density" in M.reasons["p"]
    assert "Cahouet" in repr(M)
    assert not M.symmetric
    positive = femops.preconditioner(A, symmetric=True)
    x = np.random.default_rng(0).standard_normal((W.size, 4))
    gram = x.T @ (positive @ x)
    assert positive.symmetric
    assert np.allclose(gram, gram.T, rtol=1e-5)
    assert (np.linalg.eigvalsh(gram) > 0.0).all()
    assert solved(A, load, solver=femops.minres) <= 60


def test_coefficients_are_those_of_the_form(many):
    """The Schur complement of a viscosity that varies by 1e6 is the mass divided by it."""
    W, held, load = product(8)

    def stokes(u, p, nu):
        return {"u": {"grad": nu * u.grad - p * I2}, "p": {"value": -u.div}}

    nu = femops.GridFunction(V := femops.H1(W.mesh, 1), V.interpolate(lambda x: 10.0 ** (6 * x[0])))
    A = femops.form(stokes, W, nu=nu).constrained(held)
    assert solved(A, load) <= 30
    plain = femops.block_triangular(
        A, p=-femops.multigrid(femops.mass(W.spaces["p"])), u=femops.multigrid(A["u", "u"])
    )
    _, info = femops.gmres(A, A.rhs(load), M=plain, rtol=1e-8, maxiter=60, warn=False)
    assert info.iterations > 45  # without them


def test_carried_fields(many):
    W, held, load = product(8)
    w = femops.GridFunction(
        U := W.spaces["u"], U.interpolate(lambda x: (x[1] * (1 - x[1]), 0 * x[0]))
    )

    def oseen(u, p, w, nu):
        momentum = {"value": u.grad @ w, "grad": nu * u.grad - p * I2}
        return {"u": momentum, "p": {"value": -u.div}}

    A = femops.form(oseen, W, w=w, nu=0.02).constrained(held)
    M = femops.preconditioner(A)
    assert "pressure convection-diffusion" in M.reasons["p"]
    assert "gmres" in M.reasons["u"]
    assert solved(A, load, M) <= 40


def test_one_field(many):
    V = femops.H1(femops.box((8, 8)), 3)
    held = V.boundary_dofs()
    carried = femops.form(lambda u: {"value": 2.0 * u.grad[0] + u, "grad": 0.2 * u.grad}, V)
    assert solved(carried.constrained(held), femops.load(V, 1.0)) <= 30
    plain = femops.diffusion(V).constrained(held)
    for solver in (femops.cg, femops.minres, femops.gmres):
        assert solved(plain, femops.load(V, 1.0), solver=solver) <= 12
    assert femops.CGSolver(plain, M="auto").solve(plain.rhs(femops.load(V, 1.0)))[1].converged
    wave = plain - 80.0 * femops.mass(V).constrained(held)
    with pytest.raises(SolverError, match="is symmetric, and multigrid does not take it"):
        femops.preconditioner(wave)


def test_few_unknowns_have_factors():
    V = femops.H1(femops.box((4, 4)), 2)
    wave = femops.diffusion(V) - 80.0 * femops.mass(V)
    M = femops.preconditioner(wave)
    assert isinstance(M.made, femops.solvers.Direct)
    assert solved(wave, femops.load(V, lambda x: x[0]), M) == 1


def test_darcy_and_reactions(many):
    mesh = femops.box((6, 6))
    D = femops.Product(u=femops.L2(mesh, 2, ncomp=2), p=femops.H1(mesh, 2))

    def darcy(u, p, x):
        return {"u": {"value": (1.0 + 9.0 * x[0]) * u.value + p.grad}, "p": {"grad": u.value}}

    A = femops.form(darcy, D).constrained(D.positions(p=D.spaces["p"].boundary_dofs()))
    M = femops.preconditioner(A)
    assert M.reasons["p"].startswith("diffusion / density")
    assert solved(A, D.join(p=femops.load(D.spaces["p"], 1.0)), M) <= 30

    V = femops.H1(mesh, 2)
    R = femops.Product(a=V, b=V)

    def reaction(a, b):
        return {
            "a": {"value": a + 0.5 * b, "grad": 0.1 * a.grad},
            "b": {"value": 3 * b - a, "grad": b.grad},
        }

    B = femops.form(reaction, R)
    assert solved(B, R.join(a=femops.load(V, 1.0))) <= 10


def test_newton_by_name():
    """A cavity at Reynolds number 400, whose preconditioner no one wrote."""
    mesh = femops.box((8, 8))
    U, Q = femops.H1(mesh, 3, ncomp=2), femops.H1(mesh, 2)
    W = femops.Product(u=U, p=Q)

    def navier_stokes(u, p, nu):
        momentum = {"value": u.grad @ u.value, "grad": nu * u.grad - p * I2}
        return {"u": momentum, "p": {"value": -u.div}}

    F = femops.residual(navier_stokes, W, nu=0.01).constrained(W.positions(u=U.boundary_dofs()))
    start = W.interpolate(u=lambda x: (16 * (x[0] * (1 - x[0])) ** 2 * (x[1] > 1 - 1e-9), 0 * x[0]))
    z, info = femops.newton(F, start, preconditioner="auto")
    found = []
    for options in ({"preconditioner": "auto"}, {"linear": "direct"}, {"preconditioner": "direct"}):
        w, info = femops.newton(F.update(nu=0.0025), z, rtol=1e-10, **options)
        assert info.converged
        assert info.linear_iterations <= 12 * info.iterations
        found.append(W.split(w)[0])
    assert all(abs(u - found[0]).max() < 1e-7 for u in found)
    with pytest.raises(SolverError, match="leave preconditioner out"):
        femops.newton(F, z, linear="direct", preconditioner="multigrid")


def test_bad_input():
    mesh = femops.box((2, 2))
    V = femops.H1(mesh, 1)
    W = femops.Product(u=V, c=V)
    A = femops.form(lambda u, c: {"u": {"grad": u.grad, "value": c}, "c": {"value": u}}, W)
    with pytest.raises(SolverError, match="c has no equation of its own"):
        femops.preconditioner(A, symmetric=True)
    assert femops.preconditioner(A).reasons[""].startswith("factors (c has no equation of its own")
    with pytest.raises(SolverError, match="'auto', 'multigrid', 'direct', 'jacobi'"):
        femops.gmres(A, W.zeros(), M="ilu")
    Z = femops.form(lambda u: {"value": 1j * u, "grad": u.grad}, V, dtype=complex)
    with pytest.raises(SolverError, match="this one is complex"):
        femops.gmres(Z, V.zeros(complex) + 1.0, M="direct")
