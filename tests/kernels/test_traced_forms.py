"""Forms given as functions, against an oracle that calls the same functions with plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, gmres, minres

import femops
from femops_kernels.cpu.machine import max_threads, set_threads
from support.cases.kernels import bend, random_vector, smooth, tensor, turned, wave
from support.cases.levels import wind
from support.oracles.forms import Dense, FormOracle, Nodal
from support.oracles.naive import Array

TOLERANCE = {"float64": 1e-13, "float32": 1e-5}

# --- coefficients ---------------------------------------------------------------------------------


def skewed(x: Array) -> Array:
    """A tensor that is not symmetric."""
    result = tensor(x)
    for i in range(len(x)):
        for j in range(len(x)):
            result[i, j] += 0.4 * (i - j) * np.cos(x[0] + x[-1])
    return result


def swing(x: Array) -> Array:
    """A scalar that takes both signs."""
    return np.sin(5 * x[0] + 2) + 0.1


@final
@dataclass(frozen=True)
class AsArray:
    """A function to be given as an array at the quadrature points."""

    function: Callable[[Array], Array]


@final
@dataclass(frozen=True)
class AsField:
    """A function to be given as a field: interpolated in a space of some order and components."""

    function: Callable[[Array], Array]
    order: int
    ncomp: int = 1


# --- forms ----------------------------------------------------------------------------------------


def mass(u: Any, rho: Any) -> Any:
    return {"value": rho * u}


def convection(u: Any, beta: Any) -> Any:
    return {"value": u.grad @ beta}


def convection_diffusion(u: Any, kappa: Any, beta: Any) -> Any:
    return {"value": u.grad @ beta, "grad": kappa * u.grad}


def tensor_diffusion(u: Any, kappa: Any) -> Any:
    """Of one component: the sum over j of kappa_ij d_j u is multiplied by d_i v."""
    return {"grad": kappa @ u.grad}


def vector_diffusion(u: Any, kappa: Any) -> Any:
    return {"grad": u.grad @ kappa.T}


def elasticity(u: Any, lam: Any, mu: Any) -> Any:
    return {"grad": lam * u.div * np.eye(len(u.grad)) + 2 * mu * u.sym_grad}


def divergence(u: Any) -> Any:
    return {"value": u.div}


def helmholtz(u: Any, k: Any, kappa: Any) -> Any:
    return {"value": -(k**2) * u, "grad": kappa * u.grad}


def slope(u: Any, c: Any) -> Any:
    return {"value": c * u.grad[0]}


def gradient(q: Any) -> Any:
    return {"value": q.grad}


def curl_curl(u: Any, nu: Any) -> Any:
    """The product of the curls is half the product of the antisymmetric parts."""
    return {"value": 0.5 * u, "grad": nu * (u.grad - u.grad.T)}


def reaction(u: Any, x: Any, c: Any, d: Any) -> Any:
    rate = np.exp(-c) + np.sqrt(d + x[0] ** 2) + femops.minimum(c, d)
    return {"value": femops.where(c > d, rate, 2.0 + rate) * u}


def plain_reaction(u: Any, x: Any, c: Any, d: Any) -> Any:
    rate = np.exp(-c) + np.sqrt(d + x[0] ** 2) + min(c, d)
    return {"value": (rate if c > d else 2.0 + rate) * u}


def zero_value(u: Any, kappa: Any) -> Any:
    return {"value": 0.0, "grad": kappa * u.grad}


def zero_flux(u: Any, rho: Any) -> Any:
    return {"value": rho * u, "grad": np.zeros(2)}


def one_direction(u: Any, kappa: Any) -> Any:
    return {"grad": [kappa * u.grad[0], 0.0]}


# --- cases ----------------------------------------------------------------------------------------


def make_mesh(kind: str, dim: int) -> femops.Mesh:
    """A small curved mesh, its elements shuffled and turned."""
    if kind == "unstructured":
        return turned(femops.disc(1) if dim == 2 else femops.ball(1, order=2))
    counts = {1: (5,), 2: (3, 2), 3: (2, 1, 1)}[dim]
    return turned(femops.box(counts, order=3, mapping=bend))


Spec = tuple[str, int, int]


def make_space(mesh: femops.Mesh, spec: Spec) -> Any:
    """A space from family, order and components."""
    kind, order, ncomp = spec
    if kind == "l2":
        return femops.L2(mesh, order, ncomp=ncomp)
    return femops.H1(mesh, order, ncomp=ncomp, family=kind)


@final
@dataclass(frozen=True)
class Case:
    """A form on a mesh between two spaces."""

    name: str
    function: Callable[..., Any]
    dim: int
    trial: Spec
    test: Spec | None = None
    mesh: str = "box"
    given: dict[str, Any] = field(default_factory=dict)
    make: Callable[..., Any] | None = None
    plain: Callable[..., Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def spaces(self) -> tuple[Any, Any]:
        """Trial and test space; one and the same if there is no other."""
        mesh = make_mesh(self.mesh, self.dim)
        trial = make_space(mesh, self.trial)
        return trial, trial if self.test is None else make_space(mesh, self.test)


def build(case: Case, trial: Any, test: Any) -> tuple[Any, Dense]:
    """The operator of a case and its dense matrix."""
    oracle = FormOracle.of(trial, test)
    given, plain = dict(case.given), dict(case.given)
    for name, what in case.given.items():
        if isinstance(what, AsArray):
            plain[name] = oracle.at_points(what.function)
            given[name] = plain[name].values
        elif isinstance(what, AsField):
            space = femops.H1(trial.mesh, what.order, ncomp=what.ncomp)
            vector = space.interpolate(what.function)
            plain[name] = oracle.field(Nodal.of(space), vector)
            given[name] = femops.GridFunction(space, vector)
    dense = oracle.matrix(case.plain or case.function, **plain)
    if case.make is not None:
        spaces = (trial,) if case.test is None else (trial, test)
        return case.make(*spaces, **given, **case.options), dense
    return femops.form(case.function, trial, test, **case.options, **given), dense


H, L = "gll", "l2"
CONSTANT = np.array([[2.0, 0.5], [-0.3, 1.0]])
LAME = {"lam": 1.3, "mu": 0.7}
VARIABLE = {"lam": smooth, "mu": AsField(lambda x: 1.5 + 0.2 * x[0], 1)}
WAVES = {"k": 3.0, "kappa": 0.7}
SINGLE = {"dtype": "float32"}

CASES = [
    Case("convection-1d", convection, 1, (H, 4, 1), given={"beta": wind}),
    Case("convection-constant", convection, 2, (H, 3, 1), given={"beta": [1.0, -2.0]}),
    Case("convection-function", convection, 2, (H, 3, 1), None, "unstructured", {"beta": wind}),
    Case("convection-field", convection, 2, (H, 3, 1), given={"beta": AsField(wind, 2, 2)}),
    Case("convection-array", convection, 2, (H, 3, 1), given={"beta": AsArray(wind)}),
    Case("convection-3d", convection, 3, (H, 2, 1), None, "unstructured", {"beta": wind}),
    Case(
        "convection-diffusion",
        convection_diffusion,
        2,
        (H, 3, 1),
        given={"kappa": smooth} | {"beta": wind},
    ),
    Case("skewed", tensor_diffusion, 2, (H, 2, 1), None, "unstructured", {"kappa": skewed}),
    Case("skewed-constant", tensor_diffusion, 2, (H, 2, 1), given={"kappa": CONSTANT}),
    Case("skewed-array", tensor_diffusion, 2, (H, 2, 1), given={"kappa": AsArray(skewed)}),
    Case("elasticity", elasticity, 2, (H, 3, 2), given=LAME),
    Case("elasticity-variable", elasticity, 2, (H, 3, 2), None, "unstructured", VARIABLE),
    Case("elasticity-array", elasticity, 2, (H, 3, 2), given=LAME | {"mu": AsArray(smooth)}),
    Case("elasticity-3d", elasticity, 3, (H, 2, 3), given=VARIABLE),
    Case("elasticity-float32", elasticity, 3, (H, 1, 3), given=VARIABLE, options=SINGLE),
    Case("vector-diffusion", vector_diffusion, 3, (H, 2, 3), given={"kappa": tensor}),
    Case("vector-skewed", vector_diffusion, 2, (H, 2, 2), given={"kappa": AsArray(skewed)}),
    Case("slope-1d", slope, 1, (H, 4, 1), (L, 3, 1), given={"c": smooth}),
    Case("divergence", divergence, 2, (H, 3, 2), (L, 2, 1), "unstructured"),
    Case("divergence-3d", divergence, 3, (H, 2, 3), (L, 1, 1), "unstructured"),
    Case("divergence-float32", divergence, 2, (H, 2, 2), (L, 1, 1), options=SINGLE),
    Case("gradient", gradient, 2, (H, 1, 1), ("bernstein", 4, 2), "unstructured"),
    Case("curl-curl", curl_curl, 2, (H, 3, 2), None, "unstructured", {"nu": smooth}),
    Case("curl-curl-3d", curl_curl, 3, (H, 1, 3), given={"nu": AsArray(smooth)}),
    Case(
        "reaction",
        reaction,
        2,
        (H, 3, 1),
        None,
        "unstructured",
        {"c": swing, "d": smooth},
        plain=plain_reaction,
    ),
    Case("zero-value", zero_value, 2, (H, 3, 1), given={"kappa": smooth}),
    Case("zero-flux", zero_flux, 2, (H, 3, 1), given={"rho": AsField(smooth, 2)}),
    Case("one-direction", one_direction, 2, (H, 3, 1), given={"kappa": smooth}),
]
BUILT_IN = [
    Case("femops.mass", mass, 2, (H, 3, 1), given={"rho": AsField(smooth, 2)}, make=femops.mass),
    Case(
        "femops.convection",
        convection,
        2,
        (H, 3, 1),
        given={"beta": AsField(wind, 2, 2)},
        make=femops.convection,
    ),
    Case(
        "femops.convection-constant",
        convection,
        2,
        (H, 3, 1),
        given={"beta": (1.0, -2.0)},
        make=femops.convection,
    ),
    Case(
        "femops.diffusion-skewed",
        tensor_diffusion,
        2,
        (H, 2, 1),
        given={"kappa": skewed},
        make=femops.diffusion,
    ),
    Case(
        "femops.diffusion-vector",
        vector_diffusion,
        2,
        (H, 2, 2),
        given={"kappa": AsArray(skewed)},
        make=femops.diffusion,
    ),
    Case(
        "femops.elasticity",
        elasticity,
        2,
        (H, 3, 2),
        None,
        "unstructured",
        VARIABLE,
        make=femops.elasticity,
    ),
    Case("femops.helmholtz-1d", helmholtz, 1, (H, 4, 1), given=WAVES, make=femops.helmholtz),
    Case(
        "femops.helmholtz",
        helmholtz,
        2,
        (H, 3, 1),
        None,
        "unstructured",
        {"k": smooth, "kappa": AsArray(smooth)},
        make=femops.helmholtz,
    ),
    Case(
        "femops.helmholtz-vector",
        helmholtz,
        3,
        (H, 2, 2),
        given={"k": AsField(smooth, 2), "kappa": smooth},
        make=femops.helmholtz,
    ),
    Case(
        "femops.helmholtz-float32",
        helmholtz,
        3,
        (H, 2, 1),
        None,
        "unstructured",
        WAVES,
        make=femops.helmholtz,
        options=SINGLE,
    ),
    Case("femops.divergence-1d", divergence, 1, (H, 4, 1), (L, 3, 1), make=femops.divergence),
    Case(
        "femops.divergence",
        divergence,
        2,
        (H, 3, 2),
        (H, 2, 1),
        "unstructured",
        make=femops.divergence,
    ),
    Case(
        "femops.divergence-float32",
        divergence,
        3,
        (H, 2, 3),
        (L, 1, 1),
        make=femops.divergence,
        options=SINGLE,
    ),
]


# --- against the oracle ---------------------------------------------------------------------------


def check(operator: Any, dense: Dense) -> None:
    """Products, transpose, matrix and diagonal."""
    tolerance = TOLERANCE[str(operator.dtype)]
    u = random_vector(operator.space, operator.dtype, 1)
    v = random_vector(operator.test_space, operator.dtype, 2)
    au, av = operator.apply(u), operator.T.apply(v)
    assert au.shape == v.shape == (operator.test_space.size,)
    assert av.shape == u.shape == (operator.space.size,)
    assert au.dtype == av.dtype == operator.dtype
    assert dense.error(au, u) < tolerance
    assert dense.T.error(av, v) < tolerance
    pairing = np.vdot(v.astype(float), au) - np.vdot(av.astype(float), u)
    assert abs(pairing) < tolerance * (abs(v) @ abs(dense.matrix) @ abs(u))
    assert (operator.H @ v).tobytes() == av.tobytes()
    assert operator.T.T.apply(u).tobytes() == au.tobytes()
    most = abs(dense.matrix).max()
    assert abs(operator.assemble().toarray() - dense.matrix).max() < tolerance * most
    assert abs(operator.T.assemble().toarray() - dense.matrix.T).max() < tolerance * most
    many = np.stack([u, -2 * u], axis=1)
    assert (operator @ many)[:, 0].tobytes() == au.tobytes()
    assert dense.error((operator @ many)[:, 1], many[:, 1]) < tolerance
    back = np.stack([v, v], axis=1)
    assert operator.rmatmat(back)[:, 1].tobytes() == av.tobytes()
    if operator.space is operator.test_space:
        diagonal = operator.diagonal()
        assert diagonal.shape == u.shape
        assert abs(diagonal - np.diag(dense.matrix)).max() < tolerance * most


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", [*CASES, *BUILT_IN], ids=str)
def test_form(case: Case) -> None:
    operator, dense = build(case, *case.spaces())
    assert operator.dtype == case.options.get("dtype", "float64")
    check(operator, dense)


def test_nothing_is_symmetric_that_should_not_be() -> None:
    """Or the transposes above would not have been tried."""
    symmetric = set()
    for case in CASES:
        trial, test = case.spaces()
        if trial is test and case.dim < 3:
            operator, _ = build(case, trial, test)
            if operator.T is operator:
                symmetric.add(case.name)
    assert symmetric == {
        *("elasticity", "elasticity-variable", "elasticity-array"),
        *("curl-curl", "reaction", "zero-value", "zero-flux", "one-direction"),
    }


def test_sums_are_fused_and_transposed() -> None:
    case = next(c for c in CASES if c.name == "convection-diffusion")
    space, _ = case.spaces()
    both, dense = build(case, space, space)
    split = femops.diffusion(space, smooth) + femops.convection(space, wind)
    assert len(split.compiled.sweeps) == len(both.compiled.sweeps) == 1
    check(split, dense)


def test_an_operator_plus_its_transpose() -> None:
    case = next(c for c in CASES if c.name == "convection-function")
    operator, dense = build(case, *case.spaces())
    u = random_vector(operator.space, "float64")
    for sign in (1.0, -0.5):
        both = operator + sign * operator.T
        assert (dense + sign * dense.T).error(both.apply(u), u) < 1e-13


def test_elasticity_plus_mass() -> None:
    space, _ = next(c for c in CASES if c.name == "vector-skewed").spaces()
    oracle = FormOracle.of(space)
    dense = 3.0 * oracle.matrix(elasticity, lam=smooth, mu=0.7)
    dense = dense + 2.0 * oracle.matrix(mass, rho=smooth)
    stiffness = femops.elasticity(space, smooth, 0.7)
    check(3.0 * stiffness + 2.0 * femops.mass(space, smooth), dense)


# --- rows and columns taken out -------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed() -> tuple[Any, Dense]:
    case = next(c for c in CASES if c.name == "divergence")
    return build(case, *case.spaces())


@pytest.mark.parametrize("chosen", ["columns", "rows", "both", "none", "all"])
def test_eliminated(mixed: tuple[Any, Dense], chosen: str) -> None:
    operator, dense = mixed
    columns = operator.space.boundary_dofs() if chosen in ("columns", "both") else []
    rows = [0, 5, operator.shape[0] - 1] if chosen in ("rows", "both") else []
    if chosen == "all":
        held = operator.eliminated(rows=np.arange(operator.shape[0]))
        assert not held.apply(random_vector(operator.space, "float64")).any()
        assert held.assemble().nnz == 0
        return
    check(operator.eliminated(rows, columns), dense.eliminated(rows, columns))
    check(operator.T.eliminated(columns, rows), dense.T.eliminated(columns, rows))
    twice = operator.eliminated(rows=rows).eliminated(columns=columns)
    u = random_vector(operator.space, "float64")
    assert twice.apply(u).tobytes() == operator.eliminated(rows, columns).apply(u).tobytes()


def test_what_stands_at_eliminated_columns_does_not_matter(mixed: tuple[Any, Dense]) -> None:
    operator = mixed[0]
    columns = operator.space.boundary_dofs()
    held = operator.eliminated(columns=columns)
    u = random_vector(operator.space, "float64")
    expected = held.apply(u)
    u.reshape(-1)[columns] = np.nan
    assert held.apply(u).tobytes() == expected.tobytes()


def test_right_hand_side_of_eliminated_columns(mixed: tuple[Any, Dense]) -> None:
    operator, dense = mixed
    columns, g = operator.space.boundary_dofs(), random_vector(operator.space, "float64", 4)
    b = random_vector(operator.test_space, "float64", 5)
    only = np.zeros(g.size)
    only[columns] = g.ravel()[columns]
    rhs = operator.eliminated(columns=columns).rhs(b, g)
    assert dense.error(b - rhs, only) < 1e-13


def test_rows_of_a_symmetric_operator_are_columns_of_its_transpose() -> None:
    space = femops.H1(make_mesh("box", 2), 3)
    operator = femops.mass(space, smooth).eliminated(rows=[0, 7])
    dense = FormOracle.of(space).matrix(mass, rho=smooth).eliminated([0, 7], [])
    check(operator, dense)


def test_constraints_of_an_operator_that_is_not_symmetric() -> None:
    case = next(c for c in CASES if c.name == "convection-function")
    operator, dense = build(case, *case.spaces())
    dofs = operator.space.boundary_dofs()
    held = dense.eliminated(dofs, dofs).matrix
    held[dofs, dofs] = 1.0
    check(operator.constrained(dofs), Dense(held))


def test_constrained_and_eliminated_do_not_mix() -> None:
    operator = femops.mass(femops.H1(make_mesh("box", 2), 3))
    with pytest.raises(femops.OperatorError, match="is constrained"):
        operator.constrained([1]).eliminated(rows=[2])
    with pytest.raises(femops.OperatorError, match="unconstrained"):
        operator.eliminated(columns=[2]).constrained([1])


# --- lanes, threads, bits -------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [2, 4, 16])
def test_lanes_of_a_mixed_operator(lanes: int) -> None:
    mesh = make_mesh("unstructured", 2)
    trial, test = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    operator = femops.form(divergence, trial, test, lanes=lanes)
    dense, u = FormOracle.of(trial, test).matrix(divergence), random_vector(trial, "float64")
    assert dense.error(operator.apply(u), u) < 1e-13


def test_threads_give_the_same_bits() -> None:
    box = femops.box((23, 21), order=2, periodic=(True, True), mapping=wave)
    mesh = turned(box)
    trial, test = femops.H1(mesh, 3, ncomp=2), femops.L2(mesh, 2)
    operator = femops.form(divergence, trial, test)
    assert operator.compiled.sweeps[0].source.nchunks > 2
    u, v = random_vector(trial, "float64"), random_vector(test, "float64")
    results, backward = [], []
    for threads in (1, 2, 3):
        set_threads(threads)
        results.append(operator.apply(u).tobytes())
        backward.append(operator.T.apply(v).tobytes())
    set_threads(max_threads())
    assert len(set(results)) == len(set(backward)) == 1
    flux = np.vdot(operator.apply(u), v) - np.vdot(u, operator.T.apply(v))
    assert abs(flux) < 1e-12 * np.linalg.norm(operator.apply(u)) * np.linalg.norm(v)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("convection-function", {"beta": [0.5, 2.0]}),
        ("convection-diffusion", {"kappa": 3.0}),
        ("convection-diffusion", {"kappa": 3.0, "beta": lambda x: -x}),
        ("elasticity", {"mu": smooth}),
        ("skewed", {"kappa": CONSTANT}),
        ("reaction", {"c": 0.1, "d": swing}),
    ],
)
def test_update_is_a_new_operator_bit_for_bit(name: str, new: dict[str, Any]) -> None:
    case = next(c for c in CASES if c.name == name)
    given = case.given | new
    if name == "reaction":
        given["d"] = new["d"] = lambda x: 2.0 + swing(x)
    space, _ = case.spaces()
    old = femops.form(case.function, space, **case.given)
    fresh = femops.form(case.function, space, **given)
    u = random_vector(space, "float64")
    before = old.apply(u)
    updated = old.update(**new)
    assert updated.apply(u).tobytes() == fresh.apply(u).tobytes() != before.tobytes()
    assert updated.T.apply(u).tobytes() == fresh.T.apply(u).tobytes()
    assert updated.diagonal().tobytes() == fresh.diagonal().tobytes()
    assert old.apply(u).tobytes() == before.tobytes()
    dofs = space.boundary_dofs()
    held = (2.0 * old).constrained(dofs).update(**new)
    assert held.apply(u).tobytes() == (2.0 * fresh).constrained(dofs).apply(u).tobytes()


def test_update_reaches_the_terms_of_a_sum() -> None:
    space = femops.H1(make_mesh("box", 2), 3)
    total = femops.diffusion(space, 1.0) + femops.convection(space, wind)
    u = random_vector(space, "float64")
    fresh = femops.diffusion(space, smooth) + femops.convection(space, wind)
    assert total.update(kappa=smooth).apply(u).tobytes() == fresh.apply(u).tobytes()
    with pytest.raises(femops.OperatorError, match="'rho'"):
        total.update(rho=2.0)
    with pytest.raises(femops.OperatorError, match="make a new operator"):
        total.update(kappa=skewed)
    with pytest.raises(femops.OperatorError, match="finite"):
        total.update(kappa=np.nan)


def test_the_transpose_of_divergence_is_minus_the_gradient() -> None:
    space = femops.H1(make_mesh("unstructured", 2), 3, ncomp=2)
    pressures = femops.H1(space.mesh, 3)
    inside = np.setdiff1d(np.arange(space.size), space.boundary_dofs())
    q = random_vector(pressures, "float64")
    back = (femops.divergence(space, pressures).T @ q).ravel()
    dense = FormOracle.of(pressures, space).matrix(gradient)
    assert abs(back + dense.matrix @ q)[inside].max() < 1e-12 * dense.scale(q)


def test_helmholtz_is_minres_business() -> None:
    """Beyond a resonance it is indefinite: cg says so, minres solves."""
    space = femops.H1(make_mesh("box", 2), 3)
    operator = femops.helmholtz(space, 9.0).constrained(space.boundary_dofs())
    b = operator.rhs(femops.load(space, 1.0))
    assert operator.symmetric
    with pytest.raises(femops.SolverError, match="positive definite"):
        femops.cg(operator, b)
    x, info = minres(operator, b, rtol=1e-13, maxiter=2000)
    assert info == 0
    np.testing.assert_allclose(operator @ x, b, rtol=0, atol=1e-10 * abs(b).max())


# --- with SciPy's solvers -------------------------------------------------------------------------


def test_gmres_finds_the_direct_solution() -> None:
    space = femops.H1(make_mesh("unstructured", 2), 3)
    dofs = space.boundary_dofs()
    plain = femops.diffusion(space, 0.3) + femops.convection(space, wind)
    operator = plain.constrained(dofs)
    rhs = operator.rhs(femops.load(space, 1.0), space.interpolate(smooth))
    x, info = gmres(operator, rhs, rtol=1e-12, restart=space.size)
    assert info == 0
    dense = FormOracle.of(space).matrix(convection_diffusion, kappa=0.3, beta=wind)
    matrix = dense.eliminated(dofs, []).matrix
    matrix[dofs, dofs] = 1.0
    b = femops.load(space, 1.0)
    b[dofs] = space.interpolate(smooth)[dofs]
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=0, atol=1e-9)


def test_minres_solves_stokes() -> None:
    """Taylor-Hood elements, the lid of a bent cavity driven: velocity and pressure in one block."""
    mesh = turned(femops.box((3, 3), order=2, mapping=bend))
    V, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    dofs, lid = V.boundary_dofs(), V.interpolate(lambda x: np.stack([x[1] ** 2, 0.1 + 0 * x[0]]))
    A = femops.diffusion(V, 2.0).constrained(dofs)
    B = femops.form(lambda u: {"value": -u.div}, V, Q)
    f = femops.load(V, lambda x: np.stack([np.sin(3 * x[1]), x[0]]))
    held = B.eliminated(columns=dofs)
    n = V.size

    def stokes(x: Array) -> Array:
        u, p = x[:n], x[n:]
        return np.concatenate([A @ u + held.T @ p, held @ u])

    block = LinearOperator((n + Q.size,) * 2, matvec=stokes, dtype=float)
    g = held.rhs(Q.zeros(), lid)
    g -= g.mean()  # the values on the boundary let as much out as in, but for this
    b = np.concatenate([A.rhs(f, lid).ravel(), g])
    x, info = minres(block, b, rtol=1e-13, maxiter=2000)
    assert info == 0

    full = FormOracle.of(V).matrix(vector_diffusion, kappa=2.0 * np.eye(2)).matrix
    rows = FormOracle.of(V, Q).matrix(lambda u: {"value": -u.div}).matrix
    values = np.zeros(n)
    values[dofs] = lid.ravel()[dofs]
    free = np.setdiff1d(np.arange(n), dofs)
    saddle = np.block(
        [
            [full[np.ix_(free, free)], rows[:, free].T],
            [rows[:, free], np.zeros((Q.size, Q.size))],
        ]
    )
    out = -rows @ values
    right = np.concatenate([(f.ravel() - full @ values)[free], out - out.mean()])
    expected = np.linalg.lstsq(saddle, right, rcond=1e-11)[0]
    np.testing.assert_allclose(x[dofs], values[dofs], rtol=0, atol=1e-8)
    np.testing.assert_allclose(x[free], expected[: len(free)], rtol=0, atol=1e-7)
    pressures = x[n:], expected[len(free) :]
    np.testing.assert_allclose(*(p - p.mean() for p in pressures), rtol=0, atol=1e-6)


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scalar() -> Any:
    return femops.H1(femops.box((3, 2), mapping=bend), 3)


@pytest.fixture(scope="module")
def pair(scalar: Any) -> Any:
    return femops.H1(scalar.mesh, 2, ncomp=2)


def test_spaces_on_two_meshes_are_refused(pair: Any) -> None:
    other = femops.L2(femops.box((3, 2), mapping=bend), 1)
    with pytest.raises(femops.OperatorError, match="different meshes"):
        femops.divergence(pair, other)
    velocity = femops.GridFunction(femops.H1(other.mesh, 1), np.ones(12))
    with pytest.raises(femops.OperatorError, match="another mesh"):
        femops.mass(pair, velocity)


def test_wrong_components_are_refused(scalar: Any, pair: Any) -> None:
    with pytest.raises(femops.TraceError, match=r"ncomp = dim"):
        femops.form(divergence, scalar)
    with pytest.raises(femops.TraceError, match=r'"value" of shape \(\).*needs \(2,\)'):
        femops.form(divergence, pair)
    with pytest.raises(femops.TraceError, match=r'"value" of shape \(2,\).*needs \(\)'):
        femops.form(gradient, scalar)
    with pytest.raises(femops.TraceError, match=r'"grad" of shape'):
        femops.form(lambda u: {"grad": u}, scalar)
    with pytest.raises(femops.OperatorError, match="ncomp=2"):
        femops.elasticity(scalar)
    with pytest.raises(femops.OperatorError, match="ncomp=2 and Q with ncomp=1"):
        femops.divergence(scalar, scalar)
    with pytest.raises(femops.OperatorError, match="ncomp=2 and Q with ncomp=1"):
        femops.divergence(pair, pair)
    with pytest.raises(femops.OperatorError, match="two spaces"):
        femops.form(divergence, pair, scalar).diagonal()
    with pytest.raises(femops.OperatorError, match="eliminated"):
        femops.form(divergence, pair, scalar).constrained([0])


@pytest.mark.parametrize(
    ("beta", "what"),
    [
        (1.0, "shape"),
        (np.ones(3), "shape"),
        (np.ones((6, 25, 3)), "shape"),
        (lambda x: x[0], "shape"),
        (lambda x: np.stack([x[0]] * 3), "shape"),
        ([1.0, np.nan], "finite"),
        (lambda x: np.stack([1 / (0 * x[0] + np.inf), np.inf + x[0]]), "finite"),
        (np.full((6, 25, 2), np.nan), "finite"),
        ("north", "beta"),
        (None, "beta"),
        (lambda x: 1j * x, "beta"),
        ([[1.0], [2.0, 3.0]], "beta"),
    ],
)
def test_velocities_that_make_no_sense(scalar: Any, beta: Any, what: str) -> None:
    with pytest.raises(femops.OperatorError, match=what):
        femops.convection(scalar, beta)


def test_fields_that_make_no_sense(scalar: Any) -> None:
    with pytest.raises(femops.OperatorError, match=r"field of shape \(\)"):
        femops.convection(scalar, femops.GridFunction(scalar, scalar.zeros()))
    with pytest.raises(femops.OperatorError, match="not finite"):
        femops.mass(scalar, femops.GridFunction(scalar, np.nan * scalar.zeros()))
    with pytest.raises(femops.VectorError, match="entries"):
        femops.GridFunction(scalar, np.zeros(3))


@pytest.mark.parametrize("value", [np.nan, np.inf, "a", None, 1j, lambda x: np.nan * x[0]])
def test_values_that_make_no_sense_for_a_form(scalar: Any, value: Any) -> None:
    with pytest.raises(femops.OperatorError, match="rho"):
        femops.form(mass, scalar, rho=value)


def test_a_coefficient_of_a_wrong_shape_for_a_form(scalar: Any) -> None:
    with pytest.raises(femops.TraceError, match=r"shape \(3,\).*needs \(\)"):
        femops.form(mass, scalar, rho=np.ones(3))
    with pytest.raises(femops.TraceError, match=r"u\.grad @ beta"):
        femops.form(convection, scalar, beta=np.ones(3))


@pytest.mark.parametrize("mu", [0.0, -1.0, lambda x: x[0] - 0.5, AsField(lambda x: -1 - x[0], 1)])
def test_mu_must_be_positive(pair: Any, mu: Any) -> None:
    if isinstance(mu, AsField):
        space = femops.H1(pair.mesh, mu.order)
        mu = femops.GridFunction(space, space.interpolate(mu.function))
    with pytest.raises(femops.OperatorError, match=r"mu is .*positive"):
        femops.elasticity(pair, 1.0, mu)
    with pytest.raises(femops.OperatorError, match=r"mu is .*positive"):
        femops.elasticity(pair).update(mu=mu)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"k": np.nan}, "k is not finite"),
        ({"k": np.ones(2)}, "k has shape"),
        ({"kappa": lambda x: x}, "kappa .*shape"),
        ({"kappa": lambda x: np.inf * x[0]}, "kappa .*finite"),
    ],
)
def test_wave_numbers_that_make_no_sense(scalar: Any, given: dict[str, Any], what: str) -> None:
    with pytest.raises(femops.OperatorError, match=what):
        femops.helmholtz(scalar, **given)


def test_names_of_coefficients(scalar: Any) -> None:
    with pytest.raises(femops.TraceError, match=r"no coefficient 'rho'.*pass rho="):
        femops.form(mass, scalar)
    with pytest.raises(femops.TraceError, match="takes no coefficient 'kappa'"):
        femops.form(mass, scalar, rho=1.0, kappa=2.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda u: {"value": u * u},
        lambda u: {"value": abs(u)},
        lambda u: {"value": femops.maximum(u, 0.0)},
        lambda u: {"grad": u * u.grad},
        lambda u: {"value": u / (1.0 + u.grad[0])},
        lambda u: {"value": np.exp(u)},
        lambda u: {"value": femops.where(u > 0.0, u, 2 * u)},
    ],
)
def test_forms_that_are_not_linear_are_refused(scalar: Any, function: Any) -> None:
    with pytest.raises(femops.TraceError, match="not linear"):
        femops.form(function, scalar)


@pytest.mark.parametrize(
    "function",
    [
        lambda u: {"value": u + 1.0},
        lambda u, x: {"value": u, "grad": x},
        lambda u, x: {"value": x[0] * u - 2 * x[0]},
    ],
)
def test_affine_forms_are_refused(scalar: Any, function: Any) -> None:
    with pytest.raises(femops.TraceError, match=r"femops\.load"):
        femops.form(function, scalar)


def test_an_if_names_its_line(scalar: Any) -> None:
    def stepped(u: Any, x: Any) -> Any:
        if x[0] > 0.5:
            return {"value": u}
        return {"value": 2 * u}

    with pytest.raises(femops.TraceError, match=r"if x\[0\] > 0\.5:.*femops\.where"):
        femops.form(stepped, scalar)


@pytest.mark.parametrize("result", [None, 1.0, {}, {"flux": 1.0}, {"value": 1, "gradient": 2}])
def test_results_that_are_no_form(scalar: Any, result: Any) -> None:
    with pytest.raises(femops.TraceError, match='"value"'):
        femops.form(lambda u: result, scalar)


# --- traps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        (
            lambda u, k: {"value": np.array([k * u[0], femops.minimum(k, 3.0) * u[1]])},
            lambda u, k: {"value": np.array([k * u[0], min(k, 3.0) * u[1]])},
        ),
        (
            lambda u, k: {"value": np.array([u[0], femops.where(k > 3.0, u[1], 0.0)])},
            lambda u, k: {"value": np.array([u[0], u[1] if k > 3.0 else 0.0])},
        ),
        (
            lambda u, k: {"value": np.array([u[0], femops.maximum(k, 2.0) * u[1] / 2.0])},
            lambda u, k: {"value": np.array([u[0], max(k, 2.0) * u[1] / 2.0])},
        ),
    ],
    ids=["minimum", "where", "maximum"],
)
def test_branches_that_samples_miss(pair: Any, function: Any, plain: Any) -> None:
    operator = femops.form(function, pair, k=7.0)
    u = random_vector(pair, "float64")
    assert FormOracle.of(pair).matrix(plain, k=7.0).error(operator.apply(u), u) < 1e-13


def test_small_numbers_are_not_dropped(scalar: Any) -> None:
    def stiff(u: Any, k: Any) -> Any:
        return {"value": 1e-3 * k * u, "grad": 1e10 * u.grad}

    operator = femops.form(stiff, scalar, k=1e9)
    ones = np.ones(scalar.size)
    total = FormOracle.of(scalar).matrix(mass, rho=1e6).matrix.sum()
    assert operator.apply(ones).sum() == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("function", [lambda u: {"value": 0.0}, lambda u: {"grad": 0.0 * u.grad}])
def test_a_form_that_is_zero_is_refused(scalar: Any, function: Any) -> None:
    with pytest.raises(femops.TraceError, match="zero"):
        femops.form(function, scalar)


def test_an_affine_part_that_samples_miss(scalar: Any) -> None:
    def hidden(u: Any, x: Any) -> Any:
        return {"value": u + femops.where(x[0] > 2.0, 1.0, 0.0)}

    with pytest.raises(femops.TraceError, match=r"femops\.load"):
        femops.form(hidden, scalar)


def test_functions_with_a_domain(scalar: Any) -> None:
    operator = femops.form(lambda u, k: {"value": np.log(k - 2.0) * u}, scalar, k=5.0)
    u = random_vector(scalar, "float64")
    dense = FormOracle.of(scalar).matrix(mass, rho=np.log(3.0))
    assert dense.error(operator.apply(u), u) < 1e-13


@pytest.mark.parametrize("name", ["weight", "inverse", "u"])
def test_any_name_will_do_for_a_coefficient(scalar: Any, name: str) -> None:
    function = {
        "weight": lambda w, weight: {"value": weight * w},
        "inverse": lambda w, inverse: {"value": inverse * w},
        "u": lambda w, u: {"value": u * w},
    }[name]
    operator = femops.form(function, scalar, **{name: smooth})
    u = random_vector(scalar, "float64")
    assert FormOracle.of(scalar).matrix(mass, rho=smooth).error(operator.apply(u), u) < 1e-13


def test_a_coefficient_called_x_is_refused(scalar: Any) -> None:
    with pytest.raises(femops.TraceError, match="'x'"):
        femops.form(lambda u, x: {"value": x * u}, scalar, x=2.0)


def test_a_function_that_gives_numbers_beside_arrays(scalar: Any) -> None:
    operator = femops.form(convection, scalar, beta=lambda x: [1.0 + x[1], 2.0])
    u = random_vector(scalar, "float64")
    dense = FormOracle.of(scalar).matrix(convection, beta=lambda x: np.array([1.0 + x[1], 2.0]))
    assert dense.error(operator.apply(u), u) < 1e-13


@pytest.mark.parametrize("chosen", ["elasticity", "div", "number", "function", "field"])
def test_one_dimension(chosen: str) -> None:
    space = femops.H1(make_mesh("box", 1), 4)
    oracle = FormOracle.of(space)
    other = femops.GridFunction(space, space.interpolate(smooth))
    operator, dense = {
        "elasticity": lambda: (femops.elasticity(space), oracle.matrix(zero_value, kappa=3.0)),
        "div": lambda: (femops.form(divergence, space), oracle.matrix(divergence)),
        "number": lambda: (femops.convection(space, 2.0), oracle.matrix(slope, c=2.0)),
        "function": lambda: (femops.convection(space, smooth), oracle.matrix(slope, c=smooth)),
        "field": lambda: (
            femops.convection(space, other),
            oracle.matrix(slope, c=oracle.field(Nodal.of(space), other.vector)),
        ),
    }[chosen]()
    u = random_vector(space, "float64")
    assert dense.error(operator.apply(u), u) < 1e-13


def test_a_partial_function_is_a_function(scalar: Any) -> None:
    operator = femops.form(partial(mass, rho=2.0), scalar)
    u = random_vector(scalar, "float64")
    assert FormOracle.of(scalar).matrix(mass, rho=2.0).error(operator.apply(u), u) < 1e-13
