"""Forms: load vectors, and arguments that make no sense."""

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, TraceError
from femops_kernels.cpu.machine import lane_width
from support import fixtures
from support.cases.kernels import bend, diagonal, smooth
from support.oracles.forms import FormOracle
from support.oracles.naive import Oracle

problem = fixtures.problem


# --- load vectors ---------------------------------------------------------------------------------


def test_one_number_for_each_point_of_a_load():
    """As many numbers as points may be as many as components: they are one for each point."""
    V = femops.H1(femops.box((1,)), 1, ncomp=2)
    rule = femops.basis.gauss(2)

    def vary(x):
        return x[0]

    same = femops.load(V, lambda x: (x[0], x[0]), quadrature=rule)
    np.testing.assert_allclose(femops.load(V, vary, quadrature=rule), same, rtol=1e-15)
    np.testing.assert_allclose(same, [1 / 6, 1 / 6, 1 / 3, 1 / 3])


@pytest.mark.parametrize(("dim", "family"), [(1, "gll"), (2, "bernstein"), (3, "gll")])
def test_load_vectors(dim, family):
    mesh = femops.box((3, 2, 2)[:dim], order=2, mapping=bend)
    cases = [(1, smooth), (1, 2.5), (2, smooth), (2, np.array([1.0, -2.0]))]
    for ncomp, f in [*cases, *([(dim, diagonal)] if dim > 1 else [])]:
        space = femops.H1(mesh, 3, ncomp=ncomp, family=family)
        oracle = Oracle(mesh.coordinates, space.restriction.indices, family, ncomp=ncomp)
        expected = oracle.load(f)
        got = femops.load(space, f)
        assert got.shape == space.shape
        np.testing.assert_allclose(got, expected.reshape(got.shape), atol=1e-14)
    total = femops.load(space, np.ones(space.ncomp)).sum()
    assert total == pytest.approx(space.ncomp * oracle.volume(), rel=1e-13)
    assert femops.load(space, 1.0, dtype="float32").dtype == np.float32


@pytest.mark.parametrize(("dim", "ncomp"), [(1, 1), (2, 1), (2, 3), (3, 3)])
def test_loads_of_the_gradient(dim, ncomp):
    """Against the oracle's form of a flux, applied to the constant 1; alone and beside f."""
    shape = (dim,) if ncomp == 1 else (ncomp, dim)
    space = femops.H1(femops.box((3, 2, 1)[:dim], order=2, mapping=bend), 2, ncomp=ncomp)
    scalar = femops.H1(space.mesh, 2)
    numbers = 1.0 + np.arange(np.prod(shape)).reshape(shape)

    def flux(x):
        return np.sin(np.multiply.outer(numbers, x[0]) + x[-1])

    oracle = FormOracle.of(scalar, space)
    dense = oracle.matrix(lambda one, F: {"grad": F * one.value}, F=flux)
    expected = (dense.matrix @ np.ones(scalar.size)).reshape(space.shape)
    values = oracle.at_points(flux).values
    for given in (flux, values):
        np.testing.assert_allclose(femops.load(space, flux=given), expected, atol=1e-13)
    both = femops.load(space, 2.0) + expected
    np.testing.assert_allclose(femops.load(space, 2.0, flux=flux), both, atol=1e-13)
    dense = oracle.matrix(lambda one, F: {"grad": F * one.value}, F=numbers)
    expected = (dense.matrix @ np.ones(scalar.size)).reshape(space.shape)
    np.testing.assert_allclose(femops.load(space, flux=numbers), expected, atol=1e-13)


def test_loads_that_make_no_sense_are_refused(problem):
    refused = [
        ({"f": lambda x: x}, "shape"),
        ({"f": np.nan}, "f is nan: give a finite number"),
        ({"flux": lambda x: x[0]}, r"flux .*shape"),
        ({"flux": np.full(2, np.inf)}, "flux has entries that are not finite"),
        ({}, "give f, flux or both"),
    ]
    for given, words in refused:
        with pytest.raises(OperatorError, match=words):
            femops.load(problem.space, **given)


# --- arguments ------------------------------------------------------------------------------------


def test_a_coefficient_that_makes_no_sense_is_refused(problem):
    refused = [
        (lambda x: x[:1], "shape"),
        (lambda x: x[0, :3], "shape"),
        (np.ones(3), "shape"),
        (np.inf, "finite"),
        (lambda x: np.full(x.shape[1], np.nan), "finite"),
        ("steel", "kappa"),
        (lambda x: 1j * x[0], "kappa"),
        (None, "kappa"),
        ({1: 2.0}, "give femops.by_attribute"),
    ]
    for kappa, words in refused:
        with pytest.raises(OperatorError, match=words):
            femops.diffusion(problem.space, kappa)


def test_a_number_for_each_element_is_a_function_of_order_0(problem):
    mesh = problem.space.mesh
    numbers = 1.0 + np.arange(mesh.num_elements)
    with pytest.raises(OperatorError, match=r"give femops.GridFunction\(femops.L2\(mesh"):
        femops.diffusion(problem.space, numbers)
    field = femops.GridFunction(femops.L2(mesh, order=0), numbers)
    rule = problem.space.quadrature()
    at_points = np.repeat(numbers[:, None], rule.q1d**mesh.dim, axis=1)
    same = femops.diffusion(problem.space, at_points, quadrature=rule)
    operator = femops.diffusion(problem.space, field)
    assert np.allclose(operator @ problem.u, same @ problem.u, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("form", [femops.mass, femops.diffusion])
def test_a_negative_coefficient_is_taken(problem, form):
    space, dofs = problem.space, problem.space.boundary_dofs()
    negative = form(space, -2.0)
    assert np.allclose(negative @ problem.u, (-2 * form(space)) @ problem.u, rtol=1e-13, atol=0)
    for M in (None, femops.jacobi(negative)):
        with pytest.raises(femops.errors.SolverError, match="is a coefficient negative"):
            femops.cg(negative.constrained(dofs), problem.u, M=M)


def test_a_tensor_that_is_symmetric_up_to_round_off_is_taken(problem):
    def nearly(x):
        kappa = np.zeros((2, 2, *x.shape[1:]))
        kappa[0, 0] = kappa[1, 1] = smooth(x)
        kappa[0, 1] = 1e-16 * np.sin(x[0])
        return kappa

    dense = problem.oracle.diffusion(smooth)
    operator = femops.diffusion(problem.space, nearly)
    assert dense.error(operator.apply(problem.u), problem.u) < 1e-13


def test_options_that_make_no_sense_are_refused(problem):
    refused = [({"quadrature": 3}, r"q1d = 3.* at least 4"), ({"quadrature": 0}, "q1d is 0")]
    refused += [({"dtype": dtype}, dtype) for dtype in ("float16", "int64", "complex128")]
    refused += [({"lanes": lanes}, "2, 4, 8, 16") for lanes in (0, 1, 3, 32, -8)]
    for given, words in refused:
        with pytest.raises(femops.errors.Errors, match=words):
            femops.mass(problem.space, **given)


@pytest.mark.parametrize("lanes", [2, 16])
def test_lanes_by_the_environment(problem, lanes, monkeypatch):
    monkeypatch.setenv("FEMOPS_LANES", str(lanes))
    assert lane_width() == lanes
    result = femops.mass(problem.space, smooth).apply(problem.u)
    expected = femops.mass(problem.space, smooth, lanes=lanes).apply(problem.u)
    assert result.tobytes() == expected.tobytes()
    assert problem.dense_mass.error(result, problem.u) < 1e-13


def test_a_bad_environment_is_refused(problem, monkeypatch):
    for lanes in ("3", "many", "-2", "8.0"):
        monkeypatch.setenv("FEMOPS_LANES", lanes)
        with pytest.raises(femops.errors.Errors, match="FEMOPS_LANES"):
            femops.mass(problem.space)


# --- positions ------------------------------------------------------------------------------------


def test_the_position_may_meet_the_field_at_every_level():
    """Stored, or computed on the way, as the level can."""
    V = femops.H1(femops.disc(1), 1, ncomp=2)

    def layered(u, x):
        return {"grad": x[0] * u.div * np.eye(2) + 2 * x[1] * u.sym_grad}

    A = femops.form(layered, V)
    u = np.random.default_rng(4).standard_normal(V.shape)
    expected = A.assemble() @ u.ravel()
    for level in ("element", "partial", "matrix-free"):
        result = (A.at_level(level) @ u).ravel()
        np.testing.assert_allclose(result, expected, atol=1e-13 * abs(expected).max())


NAMES = ["function", "trial", "test", "boundary", "quadrature"]
NAMES += ["dtype", "data_dtype", "lanes", "level"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["", " = 2.0"])
def test_coefficients_called_like_an_argument_of_form(name, value):
    """An error at once, whether one is given by the name or not; fields may be called anything."""
    mesh = femops.box((2, 2))
    V = femops.H1(mesh, 1)
    scope = {}
    exec(f"def own(u, x, *, {name}{value}): return {{'value': {name} * u}}", scope)
    argument = f"'{name}' is an argument of femops.form: rename the coefficient"
    message = rf"own\(u, x, {name}\): {argument}"
    given = {"level": "matrix-free", "lanes": 2, "dtype": "float32"}
    for options in ({}, {name: given[name]} if name in given else {}):
        with pytest.raises(TraceError, match=message):
            femops.form(scope["own"], V, **options)
    exec(f"def pair(a, b, {name}{value}): return {{'a': {{'value': b}}, 'b': {{}}}}", scope)
    with pytest.raises(TraceError, match=rf"'{name}' is an argument of femops.form"):
        femops.form(scope["pair"], femops.Product(a=V, b=V))
    if name in ("function", "quadrature", "dtype", "lanes"):
        with pytest.raises(TraceError, match=r"is an argument of femops.residual"):
            femops.residual(scope["own"], V)
    exec(f"def fine({name}, c): return {{'value': c * {name}}}", scope)
    u = V.interpolate(lambda x: x[0])
    same = femops.mass(V, 3.0) @ u
    assert np.array_equal(femops.form(scope["fine"], V, c=3.0) @ u, same)


def test_what_is_no_argument_of_a_residual():
    V = femops.H1(femops.box((2, 2)), 1)
    F = femops.residual(lambda u, level: {"value": level * u**3}, V, level=2.0)
    assert F.residual(V.zeros() + 1.0).sum() == pytest.approx(2.0)
    with pytest.raises(TraceError, match=r"'space' is an argument of femops.residual"):
        femops.residual(lambda u, space: {"value": space * u**3}, V)
