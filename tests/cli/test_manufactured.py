"""The exact solutions of the command line's problems are solutions."""

import numpy as np
import pytest

import femops
from femops.cli.problems.elasticity import Elasticity
from femops.cli.problems.helmholtz import Helmholtz
from femops.cli.problems.manufactured import Field, Waves
from femops.cli.problems.neo_hookean import STRETCH, NeoHookean
from femops.cli.problems.stokes import Stokes
from femops.errors import SpaceError

H = 1e-4


def box(dim):
    return femops.box((3,) * dim, upper=[2.0, 1.0, 0.5][:dim])


def points(dim):
    return np.random.default_rng(3).uniform(size=(dim, 20))


def differences(f, x, second=False):
    """Of each component along each direction, (..., dim, n)."""
    steps = H * np.eye(len(x))[:, :, None]
    if second:
        results = [(f(x + s) - 2 * f(x) + f(x - s)) / H**2 for s in steps]
    else:
        results = [(f(x + s) - f(x - s)) / (2 * H) for s in steps]
    return np.stack(results, axis=-2)


FIELDS = [(1, "scalar"), (2, "scalar"), (3, "scalar")]
FIELDS += [(dim, kind) for dim in (2, 3) for kind in ("vector", "solenoidal")]


@pytest.mark.parametrize(("dim", "kind"), FIELDS)
def test_derivatives_belong_to_the_field(dim, kind):
    waves, x = Waves.on(box(dim)), points(dim)
    field = Field.vector(waves, 0.3) if kind == "vector" else getattr(Field, kind)(waves)
    np.testing.assert_allclose(field.gradient(x), differences(field.exact, x), atol=1e-5)
    bends = differences(field.exact, x, second=True).sum(axis=-2)
    np.testing.assert_allclose(field.minus_laplacian(x), -bends, atol=1e-4)
    if kind == "solenoidal":
        divergence = np.trace(field.gradient(x))
        assert abs(divergence).max() < 1e-12 < abs(field.gradient(x)).max()


@pytest.mark.parametrize("dim", [2, 3])
def test_stresses_are_those_of_the_energy(dim):
    """The derivative of the strain energy by the displacement gradient, by differences."""
    x = points(dim)
    linear, hyper = (make(box(dim), 1, "partial", 1.3, 0.7) for make in (Elasticity, NeoHookean))

    def quadratic(gradient):
        strain = (gradient + gradient.swapaxes(0, 1)) / 2
        return 0.65 * np.trace(strain) ** 2 + 0.7 * np.sum(strain**2, axis=(0, 1))

    def compressible(gradient):
        deformation = np.moveaxis(np.eye(dim)[..., None] + gradient, -1, 0)
        log = np.log(np.linalg.det(deformation))
        first = np.sum(deformation**2, axis=(1, 2))
        return 0.35 * (first - dim - 2 * log) + 0.65 * log**2

    for problem, energy in ((linear, quadratic), (hyper, compressible)):
        gradient = problem.field.gradient(x)
        expected = np.zeros_like(gradient)
        for i, j in np.ndindex(dim, dim):
            step = np.zeros((dim, dim, 1))
            step[i, j] = H
            expected[i, j] = (energy(gradient + step) - energy(gradient - step)) / (2 * H)
        np.testing.assert_allclose(problem.stress(x), expected, atol=1e-7)
    assert abs(hyper.field.gradient(x)).max() <= STRETCH


@pytest.mark.parametrize("dim", [2, 3])
def test_sources(dim):
    x, mesh = points(dim), box(dim)
    helmholtz = Helmholtz(mesh, 1, "partial", k=3.0)
    bends = differences(helmholtz.field.exact, x, second=True).sum(axis=0)
    expected = -bends - 9.0 * helmholtz.field.exact(x)
    np.testing.assert_allclose(helmholtz.source(x), expected, atol=1e-4)
    stokes = Stokes(mesh, 2, "partial")
    bends = differences(stokes.field.exact, x, second=True).sum(axis=-2)
    expected = differences(stokes.pressure.exact, x) - bends
    np.testing.assert_allclose(stokes.force(x), expected, atol=1e-4)


def test_it_is_periodic_where_the_mesh_is():
    torus = femops.box((3, 4), upper=(2.0, 1.0), periodic=True)
    field = Field.scalar(Waves.on(torus))
    field.check_periodic(femops.H1(torus, 3))
    assert femops.integrate(femops.H1(torus, 6), field.exact) == pytest.approx(0, abs=1e-6)


def test_other_periods_are_refused():
    slanted = femops.box((3, 3), periodic=True, mapping=lambda x: [x[0] + 0.3 * x[1], x[1]])
    with pytest.raises(SpaceError, match="do not lie along the axes"):
        Field.scalar(Waves.on(slanted)).check_periodic(femops.H1(slanted, 2))
