"""Preconditioners that follow from forms: iterations, their bounds over meshes and coefficients."""

import pickle

import numpy as np
import pytest

import femops
from femops.errors import ArgumentError, SolverError
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


def test_carried_fields_in_single_precision_copied_and_transposed(many):
    W, _, load = product(6)
    U = W.spaces["u"]
    w = femops.GridFunction(U, U.interpolate(lambda x: (x[1], 0 * x[0])))
    A = femops.form(carried, W, w=w, dtype="float32")
    A = A.constrained(W.positions(u=U.boundary_dofs([1, 2, 3])))
    M, b = femops.preconditioner(A), A.rhs(load.astype("float32"))
    assert solved(A, b, M, rtol=1e-4) <= 15
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(M)) @ b, M @ b)
    assert solved(A.T, b, M.T, rtol=1e-4) <= 20


def carried(u, p, w):
    return {"u": {"value": u.grad @ w, "grad": 0.05 * u.grad - p * I2}, "p": {"value": -u.div}}


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


def biot(u, p, alpha, k):
    stress = u.grad + u.grad.T + u.div * I2 - alpha * p * I2
    return {"u": {"grad": stress}, "p": {"value": alpha * u.div, "grad": k * p.grad}}


def viscous(u, p, k):
    return {"u": {"grad": k * (u.grad + u.grad.T)}, "p": {}}


def coupled(u, p, a):
    return {"u": {"grad": -a * p * I2}, "p": {"value": -a * u.div}}


def pushed(u, p):
    return {"u": {"grad": -p * I2}, "p": {}}


def dense(u, p, k):
    return {"u": {"value": k * u.value}, "p": {}}


def dilated(u, p, g):
    return {"u": {"grad": g * u.div * I2}, "p": {}}


@pytest.mark.parametrize("alpha", [1.0, -1e3, 1e-6, lambda x: 1.0 + x[0], lambda x: x[0] - 0.5])
def test_couplings_have_coefficients(many, alpha):
    """Coefficients of the coupling alone were not found, and their signs not read."""
    W, held, load = product(6)
    A = femops.form(biot, W, alpha=alpha, k=1e-6).constrained(held)
    assert solved(A, load) <= 35


@pytest.mark.parametrize("a", [1e-6, lambda x: 1.0 + x[0]])
def test_forms_that_are_added_count_together(many, a):
    """Each form has expressions of its own, and coefficients whose names may be the same."""
    W, held, load = product(6)
    A = femops.form(viscous, W, k=2.0) + femops.form(coupled, W, a=a)
    assert solved(A.constrained(held), load) <= 22
    B = femops.form(pushed, W)
    assert solved((femops.form(viscous, W, k=2.0) + B + B.T).constrained(held), load) <= 22
    A = A + femops.form(dense, W, k=1e3) + femops.form(dilated, W, g=100.0)
    assert solved(A.constrained(held), load) <= 22


def test_signs_of_whole_equations_do_not_matter(many):
    W, held, load = product(6)
    A = femops.form(CASES["stokes"][0], W)
    counts = [solved((factor * A).constrained(held), load) for factor in (1.0, -3.0)]
    assert counts[0] == counts[1]
    assert solved((-1.0 * A).constrained(held), load, solver=femops.minres) <= 50
    V = femops.H1(W.mesh, 2)
    D = (-1.0 * femops.diffusion(V)).constrained(V.boundary_dofs())
    assert "negative" in femops.preconditioner(D).reasons[""]
    assert solved(D, femops.load(V, 1.0)) <= 10


@pytest.mark.parametrize("rate", [1e4, 1e8])
def test_open_boundaries_of_unsteady_flow(many, rate):
    """A pressure is not zero at an open boundary, but weakly: the diagonal there has units."""
    W, held, load = product(8)
    A = femops.form(CASES["unsteady"][0], W, r=rate).constrained(held)
    assert solved(A, load) <= 20
    assert solved(A, load, solver=femops.minres) <= 60
    x, y = (femops.gmres(A, A.rhs(load), M=M, rtol=1e-8)[0] for M in ("auto", "direct"))
    assert np.linalg.norm(x - y) < 1e-5 * np.linalg.norm(y)
    U = W.spaces["u"]  # sides that hold one component each
    ends = [(U.boundary_dofs([k]), k % 2) for k in (1, 2, 3, 4)]
    slip = np.concatenate([dofs[dofs % 2 == axis] for dofs, axis in ends])
    A = femops.form(CASES["unsteady"][0], W, r=rate).constrained(W.positions(u=slip))
    assert solved(A, load) <= 20


@pytest.mark.parametrize("order", [0, 1])
def test_discontinuous_pressures_of_unsteady_flow(many, order):
    for n in (6, 12):
        mesh = femops.box((n, n))
        U, Q = femops.H1(mesh, order + 2, ncomp=2), femops.L2(mesh, order)
        W = femops.Product(u=U, p=Q)
        load = W.join(u=femops.load(U, lambda x: (x[1] ** 2, -x[0])))
        A = femops.form(CASES["unsteady"][0], W, r=1e4)
        M = femops.preconditioner(A.constrained(W.positions(u=U.boundary_dofs([1, 2, 3]))))
        assert "jumps" in M.reasons["p"]
        assert solved(M.operator, load, M) <= 25
        x, y = np.random.default_rng(0).standard_normal((2, W.size))
        assert abs(y @ (M @ x) - x @ (M.T @ y)) < 1e-5 * abs(y @ (M @ x))
        assert solved(M.operator, load, solver=femops.minres) <= 80


def test_components_as_fields_and_tensors_of_densities(many):
    mesh = femops.box((8, 8))
    V, Q = femops.H1(mesh, 2), femops.H1(mesh, 1)
    W = femops.Product(u=V, v=V, p=Q)

    def parts(u, v, p):
        return {
            "u": {"value": 1e4 * u, "grad": u.grad - p * I2[0]},
            "v": {"value": 1e4 * v, "grad": v.grad - p * I2[1]},
            "p": {"value": -u.grad[0] - v.grad[1]},
        }

    held = V.boundary_dofs([1, 2, 3])
    A = femops.form(parts, W).constrained(W.positions(u=held, v=held))
    assert solved(A, W.join(u=femops.load(V, lambda x: x[1] ** 2))) <= 22

    D = femops.Product(u=femops.L2(mesh, 2, ncomp=2), p=V)

    def darcy(u, p, K):
        return {"u": {"value": K @ u.value + p.grad}, "p": {"grad": u.value}}

    for K in (np.diag([1e6, 1.0]), np.array([[500.5, 499.5], [499.5, 500.5]])):
        A = femops.form(darcy, D, K=K).constrained(D.positions(p=V.boundary_dofs()))
        assert solved(A, D.join(p=femops.load(V, 1.0))) <= 16


def test_strong_coupling_of_few_unknowns_has_factors():
    V = femops.H1(femops.box((6, 6)), 2)
    W = femops.Product(a=V, b=V)

    def exchange(a, b):
        rest = {"value": 1e6 * (a - b), "grad": a.grad}
        return {"a": rest, "b": {"value": 1e6 * (b - a), "grad": 10.0 * b.grad}}

    ends = W.positions(a=V.boundary_dofs(), b=V.boundary_dofs())
    A = femops.form(exchange, W).constrained(ends)
    assert "strong" in femops.preconditioner(A).reasons[""]
    assert solved(A, W.join(a=femops.load(V, 1.0))) == 1


def test_names_for_all_solvers(many):
    W, held, load = product(6)
    A = femops.form(CASES["stokes"][0], W).constrained(held)
    M = femops.block_triangular(A, p=femops.preconditioner(A).made.parts["p"], u="multigrid")
    assert solved(A, load, M) <= 25
    with pytest.raises(SolverError, match="p has no equation of its own"):
        femops.block_triangular(A, p="jacobi", u="multigrid")
    with pytest.raises(SolverError, match=r"give femops.multigrid\(A\['u', 'u'\]\)"):
        femops.block_diagonal(W, u="multigrid", p="jacobi")
    V = femops.H1(W.mesh, 2)
    D, B = femops.diffusion(V), femops.mass(V)
    held = D.constrained(V.boundary_dofs())
    for name in ("auto", "multigrid", "direct", "jacobi"):
        found = femops.eigen.lobpcg(held, B, k=2, preconditioner=name).values
        assert np.allclose(found, np.pi**2 * np.array([2.0, 5.0]), rtol=1e-2)
    # constants are an eigenvector that factors alone would leave out
    assert abs(femops.eigen.lobpcg(D, B, k=2, preconditioner="direct").values[0]) < 1e-6
    with pytest.raises(SolverError, match="preconditioner is 'ilu': give 'auto'"):
        femops.eigen.lobpcg(D, B, k=2, preconditioner="ilu")
    with pytest.raises(ArgumentError, match="did you mean preconditioner"):
        femops.newton(None, None, M="auto")
    with pytest.raises(ArgumentError, match="did you mean M"):
        femops.gmres(A, load, preconditioner="auto")
    with pytest.raises(ArgumentError, match="it needs none, and M is the mass"):
        femops.eigen.chebyshev_subspace(D, B, preconditioner="auto")


def test_names_for_complex_operators():
    V = femops.H1(femops.box((4, 4)), 2)
    Z = femops.form(lambda u: {"value": (1.0 + 1j) * u, "grad": u.grad}, V, dtype=complex)
    H = femops.form(lambda u: {"value": u, "grad": u.grad}, V, dtype=complex)
    exact = np.random.default_rng(0).standard_normal((V.size, 2)) @ [1.0, 1j]
    for A, solver in ((Z, femops.gmres), (H, femops.gmres), (H, femops.minres), (H, femops.cg)):
        for name in ("auto", "multigrid", "direct", "jacobi"):
            if A is Z and name == "multigrid":
                continue  # not symmetric
            x, info = solver(A, A @ exact, M=name, rtol=1e-10)
            assert info.converged
            assert np.linalg.norm(x - exact) < 1e-7 * np.linalg.norm(exact)
    with pytest.raises(SolverError, match=r"A\.real is that on real and imaginary parts"):
        femops.direct(Z)
