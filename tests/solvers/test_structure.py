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


@pytest.mark.parametrize("pressure", ["H1", "L2", "constants", "stabilised"])
@pytest.mark.parametrize("rate", [0.0, 50.0])
def test_carried_fields(pressure, rate, many):
    mesh, order = femops.box((8, 8)), {"stabilised": 1, "L2": 3}.get(pressure, 2)
    U = femops.H1(mesh, order, ncomp=2)
    continuous = pressure in ("H1", "stabilised")
    Q = femops.H1(mesh, 1) if continuous else femops.L2(mesh, order - 2)
    W = femops.Product(u=U, p=Q)
    w = femops.GridFunction(U, U.interpolate(lambda x: (x[1] * (1 - x[1]), 0 * x[0])))

    def oseen(u, p, w, nu, rate, tau):
        momentum = {"value": u.grad @ w + rate * u.value, "grad": nu * u.grad - p * I2}
        if pressure == "constants":
            return {"u": momentum, "p": {"value": -u.div}}
        return {"u": momentum, "p": {"value": -u.div, "grad": -tau * p.grad}}

    numbers = {"nu": 0.02, "rate": rate, "tau": 0.005 if pressure == "stabilised" else 0.0}
    A = femops.form(oseen, W, w=w, **numbers).constrained(W.positions(u=U.boundary_dofs([1, 2, 3])))
    M = femops.preconditioner(A)
    assert ("least-squares commutator" in M.reasons["p"]) == (pressure != "constants")
    assert "gmres" in M.reasons["u"]
    load = W.join(u=femops.load(U, lambda x: (x[1] ** 2, -x[0])))
    assert solved(A, load, M) <= (40 if pressure != "constants" else 80)


def test_a_commutator_is_near_the_complement_of_a_mass(many):
    W, *_ = product(4)
    U, rng = W.spaces["u"], np.random.default_rng(0)
    w = femops.GridFunction(U, U.zeros())

    def heavy(u, p, w):
        return {"u": {"value": u.grad @ w + u.value, "grad": -p * I2}, "p": {"value": -u.div}}

    A = femops.form(heavy, W, w=w).constrained(W.positions(u=U.boundary_dofs()))
    made = femops.preconditioner(A).made.parts["p"]
    F, G, B = (A[pair].assemble().toarray() for pair in (("u", "u"), ("u", "p"), ("p", "u")))
    x = rng.standard_normal(W.spaces["p"].size)
    x -= x.mean()
    # D is the diagonal of the mass alone, so the complement of the mass is near, not equal
    y = -B @ np.linalg.solve(F, G @ (made @ x))
    assert np.linalg.norm(y - x) < 0.5 * np.linalg.norm(x)


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
        femops.preconditioner(A)
    with pytest.raises(SolverError, match="'auto', 'multigrid', 'direct', 'jacobi'"):
        femops.gmres(A, W.zeros(), M="ilu")
    Z = femops.form(lambda u: {"value": 1j * u, "grad": u.grad}, V, dtype=complex)
    with pytest.raises(SolverError, match="this one is complex"):
        femops.gmres(Z, V.zeros(complex) + 1.0, M="direct")
