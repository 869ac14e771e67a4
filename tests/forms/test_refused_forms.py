"""Forms that are refused, and traps of those that are not."""

from functools import partial

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, TraceError
from support.cases.kernels import bend, random_vector, smooth
from support.cases.traced import (
    convection,
    divergence,
    gradient,
    make_mesh,
    mass,
    slope,
    zero_value,
)
from support.oracles.forms import FormOracle, Nodal

# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scalar():
    return femops.H1(femops.box((3, 2), mapping=bend), 3)


@pytest.fixture(scope="module")
def pair(scalar):
    return femops.H1(scalar.mesh, 2, ncomp=2)


def test_spaces_on_two_meshes_are_refused(pair):
    other = femops.L2(femops.box((3, 2), mapping=bend), 1)
    with pytest.raises(OperatorError, match="different meshes"):
        femops.divergence(pair, other)
    velocity = femops.GridFunction(femops.H1(other.mesh, 1), np.ones(12))
    with pytest.raises(OperatorError, match="another mesh"):
        femops.mass(pair, velocity)


def test_arguments_that_are_no_form(scalar):
    cells = {"cells": mass}
    refused = [
        (lambda: femops.form({"edges": mass}, scalar), "functions over 'edges': the domains are"),
        (lambda: femops.form({}, scalar), "functions over no domain: the domains are cells"),
        (lambda: femops.form(cells, scalar, boundary=1, rho=1.0), 'of "boundary": there is none'),
        (lambda: femops.form(cells, scalar, faces="interior"), "leave out faces="),
        (lambda: femops.form(mass, scalar, faces="outer", rho=1.0), 'give "interior", or boundary'),
        (
            lambda: femops.form(mass, scalar, faces="interior", boundary=1, rho=1.0),
            "exclude each other: add two forms",
        ),
        (lambda: femops.form(3, scalar), "function is 3: give a function or a dict"),
    ]
    for ask, words in refused:
        with pytest.raises(OperatorError, match=words):
            ask()
    with pytest.raises(TraceError, match="no function takes the coefficient 'mu': make it an arg"):
        femops.form(cells, scalar, mu=1.0, rho=1.0)


@pytest.mark.parametrize("make", [femops.mass, lambda V, **o: femops.residual(lambda u: u, V, **o)])
def test_lanes_that_no_kernel_has_are_refused(scalar, make):
    with pytest.raises(OperatorError, match=r"lanes are 3 wide: choose one of \(2, 4, 8, 16\)"):
        make(scalar, lanes=3)


def test_constants_that_are_not_finite_are_refused(scalar):
    A = femops.interior_penalty(femops.L2(scalar.mesh, 2))
    for value in (np.nan, np.inf):
        with pytest.raises(OperatorError, match=f"penalty is {value}: give a finite number"):
            A.update(penalty=value)
    with pytest.raises(OperatorError, match="kappa has entries that are not finite: give"):
        femops.diffusion(scalar, np.array([[1.0, np.nan], [0.0, 1.0]]))


def test_wrong_components_are_refused(scalar, pair):
    mixed = femops.form(divergence, pair, scalar)
    refused = [
        (lambda: femops.form(divergence, scalar), TraceError, r"ncomp = dim"),
        (lambda: femops.form(divergence, pair), TraceError, r'"value" of shape \(\).*needs \(2,\)'),
        (lambda: femops.form(gradient, scalar), TraceError, r'"value" of shape \(2,\).*needs \(\)'),
        (lambda: femops.elasticity(scalar), OperatorError, "ncomp=2"),
        (lambda: femops.divergence(scalar, scalar), OperatorError, "ncomp=2 and Q with ncomp=1"),
        (lambda: femops.divergence(pair, pair), OperatorError, "ncomp=2 and Q with ncomp=1"),
        (mixed.diagonal, OperatorError, "two spaces"),
        (lambda: mixed.constrained([0]), OperatorError, "eliminated"),
    ]
    for ask, kind, words in refused:
        with pytest.raises(kind, match=words):
            ask()


def test_coefficients_that_make_no_sense(scalar):
    velocities = [
        (1.0, "shape"),
        (np.ones(3), "shape"),
        (np.ones((6, 25, 3)), "shape"),
        (lambda x: x[0], "shape"),
        (lambda x: np.stack([x[0]] * 3), "shape"),
        ([1.0, np.nan], "finite"),
        ([[1.0], [2.0, 3.0]], "beta"),
    ]
    for beta, words in velocities:
        with pytest.raises(OperatorError, match=words):
            femops.convection(scalar, beta)
    with pytest.raises(OperatorError, match=r"a vector of a space\? Give femops.GridFunction"):
        femops.diffusion(scalar, scalar.zeros())
    numbers = [
        ({"k": np.nan}, "k is nan: give a finite number"),
        ({"k": np.ones(2)}, "k has shape"),
        ({"kappa": lambda x: x}, "kappa .*shape"),
        ({"kappa": lambda x: np.inf * x[0]}, "kappa .*finite"),
    ]
    for given, words in numbers:
        with pytest.raises(OperatorError, match=words):
            femops.helmholtz(scalar, **given)


def test_fields_that_make_no_sense(scalar):
    with pytest.raises(OperatorError, match=r"field of shape \(\)"):
        femops.convection(scalar, femops.GridFunction(scalar, scalar.zeros()))
    with pytest.raises(OperatorError, match="not finite"):
        femops.mass(scalar, femops.GridFunction(scalar, np.nan * scalar.zeros()))
    with pytest.raises(femops.errors.VectorError, match="entries"):
        femops.GridFunction(scalar, np.zeros(3))


def test_a_coefficient_of_a_wrong_shape_for_a_form(scalar):
    with pytest.raises(TraceError, match=r"shape \(3,\).*needs \(\)"):
        femops.form(mass, scalar, rho=np.ones(3))
    with pytest.raises(TraceError, match=r"u\.grad @ beta"):
        femops.form(convection, scalar, beta=np.ones(3))


@pytest.mark.parametrize("kind", ["zero", "number", "function", "field"])
def test_coefficients_of_any_sign(pair, kind):
    """In all forms alike: what is not definite is for solvers to find."""
    Q = femops.H1(pair.mesh, 1)
    values = Q.interpolate(lambda x: -1 - x[0])
    mu, minus = {
        "zero": (0.0, 0.0),
        "number": (-1.0, 1.0),
        "function": (lambda x: x[0] - 0.5, lambda x: 0.5 - x[0]),
        "field": tuple(femops.GridFunction(Q, v) for v in (values, -values)),
    }[kind]
    u = random_vector(pair, "float64", 1)
    for make in (femops.elasticity, femops.neo_hookean):
        one, other = (make(pair, sign, c) for sign, c in ((1.0, mu), (-1.0, minus)))
        if make is femops.neo_hookean:
            one, other = (F.jacobian(0.01 * u) for F in (one, other))
        np.testing.assert_allclose(one @ u, -(other @ u), rtol=0, atol=1e-13 * abs(one @ u).max())


ENTRIES = {
    "mass": lambda V, W, f: femops.mass(V, f),
    "diffusion": lambda V, W, f: femops.diffusion(V, f),
    "convection": lambda V, W, f: femops.convection(V, f),
    "helmholtz": lambda V, W, f: femops.helmholtz(V, f),
    "elasticity": lambda V, W, f: femops.elasticity(W, 1.0, f),
    "update": lambda V, W, f: femops.diffusion(V, 1.0).update(kappa=f),
    "form": lambda V, W, f: femops.form(lambda u, c: {"grad": c * u.grad}, V, c=f),
    "neo_hookean": lambda V, W, f: femops.neo_hookean(W, 1.0, f).residual(W.zeros()),
    "load": lambda V, W, f: femops.load(V, f),
    "flux": lambda V, W, f: femops.load(V, flux=f),
    "boundary_mass": lambda V, W, f: femops.boundary_mass(V, f),
    "boundary_load": lambda V, W, f: femops.boundary_load(V, f),
    "normals": lambda V, W, f: femops.boundary_load(V, lambda x, n: f(n)),
    "interpolate": lambda V, W, f: V.interpolate(f),
    "components": lambda V, W, f: W.interpolate(f),
    "integrate": lambda V, W, f: femops.integrate(V, f),
    "l2_error": lambda V, W, f: femops.l2_error(V, V.zeros(), f),
    "h1_seminorm_error": lambda V, W, f: femops.h1_seminorm_error(V, V.zeros(), f),
    "boundary_dofs": lambda V, W, f: V.boundary_dofs(lambda x: np.asarray(f(x)) > 0.5),
    "where": lambda V, W, f: V.boundary_dofs([1], where=lambda x: np.asarray(f(x)) > 0.5),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_functions_that_are_not_made_point_by_point(scalar, pair, entry):
    """Wherever femops takes a function; tests/spaces/test_functions.py has more such functions."""
    for wrong, words in (
        (lambda x: 1 + x[:, 0], r"asked for|at \d* points"),
        (lambda x: x[0] / x[0].max(), r"asked for|at \d* points"),
        (lambda x: 1.0 if x[0] > 0.5 else 2.0, r"called with all points.*line.*np\.where"),
    ):
        with pytest.raises(femops.errors.FemopsError, match=words):
            ENTRIES[entry](scalar, pair, wrong)


# --- traps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "plain"),
    [
        (lambda k: femops.minimum(k, 3.0), 3.0),
        (lambda k: femops.where(k > 3.0, 1.0, 0.0), 1.0),
        (lambda k: femops.maximum(k, 2.0) / 2.0, 3.5),
    ],
    ids=["minimum", "where", "maximum"],
)
def test_branches_that_samples_miss(pair, factor, plain):
    A = femops.form(lambda u, k: {"value": np.array([u[0], factor(k) * u[1]])}, pair, k=7.0)
    u, dense = random_vector(pair, "float64"), FormOracle.of(pair)
    expected = dense.matrix(lambda u: {"value": np.array([u[0], plain * u[1]])})
    assert expected.error(A.apply(u), u) < 1e-13


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda u: {"value": u + 1.0}, r"femops\.load"),
        (lambda u, x: {"value": u, "grad": x}, r"femops\.load"),
        (lambda u, x: {"value": x[0] * u - 2 * x[0]}, r"femops\.load"),
        (lambda u, x: {"value": u + femops.where(x[0] > 2.0, 1.0, 0.0)}, r"femops\.load"),
        (lambda u: {"value": 0.0}, "zero whatever the field"),
        (lambda u: {"grad": 0.0 * u.grad}, "zero whatever the field"),
        (lambda u: {"value": np.inf * u}, "a constant is inf"),
    ],
)
def test_affine_and_vanishing_forms_are_refused(scalar, function, words):
    with pytest.raises(TraceError, match=words):
        femops.form(function, scalar)


def _written_into_numbers(u):
    F = np.eye(2)
    F[0, 1] += u.value
    return {"value": F[0, 1] * u.value}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_written_into_numbers, r"`F\[0, 1\] \+= u.value`.*no place for symbols.*dtype=object"),
        (lambda u: {"value": np.interp(u.value, [0, 1], [0, 2])}, r"femops\.interp"),
        (lambda u, x: {"value": np.where(x[0] > 0.5, u, 0.0)}, r"femops\.where\(condition"),
        (lambda u, x: {"value": np.select([x[0] > 0.5], [u])}, r"femops\.where\(condition"),
    ],
)
def test_functions_of_numpy_that_make_numbers_of_symbols(scalar, function, words):
    with pytest.raises(TraceError, match=words):
        femops.residual(function, scalar)


def test_functions_with_a_domain(scalar):
    operator = femops.form(lambda u, k: {"value": np.log(k - 2.0) * u}, scalar, k=5.0)
    u = random_vector(scalar, "float64")
    dense = FormOracle.of(scalar).matrix(mass, rho=np.log(3.0))
    assert dense.error(operator.apply(u), u) < 1e-13


def test_any_name_will_do_for_a_coefficient(scalar):
    u, dense = random_vector(scalar, "float64"), FormOracle.of(scalar).matrix(mass, rho=smooth)
    for A in (
        femops.form(lambda w, weight: {"value": weight * w}, scalar, weight=smooth),
        femops.form(lambda w, inverse: {"value": inverse * w}, scalar, inverse=smooth),
        femops.form(lambda w, u: {"value": u * w}, scalar, u=smooth),
    ):
        assert dense.error(A.apply(u), u) < 1e-13


def test_a_coefficient_called_x_is_refused(scalar):
    with pytest.raises(TraceError, match="'x'"):
        femops.form(lambda u, x: {"value": x * u}, scalar, x=2.0)


def test_a_function_that_gives_numbers_beside_arrays(scalar):
    operator = femops.form(convection, scalar, beta=lambda x: [1.0 + x[1], 2.0])
    u = random_vector(scalar, "float64")
    dense = FormOracle.of(scalar).matrix(convection, beta=lambda x: np.array([1.0 + x[1], 2.0]))
    assert dense.error(operator.apply(u), u) < 1e-13


@pytest.mark.parametrize("chosen", ["elasticity", "div", "number", "function", "field"])
def test_one_dimension(chosen):
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


def test_a_partial_function_is_a_function(scalar):
    u = random_vector(scalar, "float64")
    operator = femops.form(partial(mass, rho=2.0), scalar)
    assert FormOracle.of(scalar).matrix(mass, rho=2.0).error(operator.apply(u), u) < 1e-13
