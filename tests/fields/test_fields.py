"""Integrals and norms."""

import math
import tracemalloc

import numpy as np
import pytest

import femops
from femops import H1, L2, GridFunction, h1_error, h1_seminorm_error, integrate, l2_error, l2_norm
from femops.errors import SpaceError, VectorError
from femops.geometry import domain
from support.cases.meshes import MESHES, bend


@pytest.mark.parametrize("name", MESHES)
def test_one_integrates_to_the_volume(name):
    mesh = MESHES[name]()
    space = H1(mesh, 2)
    volume = mesh.volume()
    assert integrate(space, space.interpolate(1.0)) == pytest.approx(volume, rel=1e-13)
    assert integrate(space, 1.0) == pytest.approx(volume, rel=1e-13)
    assert l2_norm(space, space.interpolate(2.0)) == pytest.approx(2 * volume**0.5, rel=1e-13)


def test_components_are_integrated_one_by_one():
    space = H1(femops.box((2, 2)), 2, ncomp=2)
    u = space.interpolate(lambda x: [x[0], 2.0])
    np.testing.assert_allclose(integrate(space, u), [0.5, 2.0], rtol=1e-14)
    np.testing.assert_allclose(integrate(space, lambda x: [x[0], 2.0]), [0.5, 2.0], rtol=1e-14)
    assert l2_norm(space, u) == pytest.approx(math.sqrt(1 / 3 + 4), rel=1e-14)
    assert l2_error(space, u, lambda x: [x[0], 1.0]) == pytest.approx(1, rel=1e-13)
    gradient = h1_seminorm_error(space, u, [[1.0, 0.0], [0.0, 3.0]])
    assert gradient == pytest.approx(3, rel=1e-12)


@pytest.mark.parametrize("power", [-1000, -530, 0, 510, 1020])
def test_norms_of_functions_of_any_size(power):
    """Squares would underflow or overflow. One element is zero, and one is much smaller."""
    space = L2(femops.box((3, 2)), 1)
    u = np.random.default_rng(0).random(space.size)
    u[:4], u[4:8], factor = 0.0, 1e-9 * u[4:8], 2.0**power
    assert l2_norm(space, factor * u) == factor * l2_norm(space, u)
    assert l2_error(space, factor * u, 0.25 * factor) == factor * l2_error(space, u, 0.25)
    slopes = (0.5 * factor, 0.0)
    found = h1_seminorm_error(space, factor * u, slopes)
    assert found == factor * h1_seminorm_error(space, u, (0.5, 0.0))


def test_errors_of_known_differences():
    space = H1(femops.box((2, 2, 2)), 2)
    u = space.interpolate(lambda x: x[0])
    zero = (0.0, 0.0, 0.0)
    assert l2_error(space, u, 0.0) == pytest.approx(math.sqrt(1 / 3), rel=1e-13)
    assert h1_seminorm_error(space, u, zero) == pytest.approx(1, rel=1e-13)
    assert h1_error(space, u, 0.0, zero) == pytest.approx(math.sqrt(4 / 3), rel=1e-13)
    assert l2_error(space, u, lambda x: x[0]) < 1e-14
    assert h1_seminorm_error(space, u, (1.0, 0.0, 0.0)) < 1e-13


@pytest.mark.parametrize(
    ("kind", "family", "dim", "p"),
    [(H1, "gll", 1, 4), (H1, "bernstein", 2, 3), (H1, "gll", 3, 1), (L2, "gauss", 2, 2)],
)
def test_interpolation_converges_at_the_right_rate(kind, family, dim, p):
    def f(x):
        return np.sin(2 * x[0] + 0.3) * np.prod(np.cos(x[1:]), axis=0)

    def gradient(x):
        rest = np.prod(np.cos(x[1:]), axis=0)
        others = [-np.tan(x[d]) * f(x) for d in range(1, dim)]
        return [2 * np.cos(2 * x[0] + 0.3) * rest, *others]

    # The map must be as smooth under refinement as the function: refined, not resampled.
    mesh = femops.box((2,) * dim, mapping=bend, order=2)
    errors = []
    for refined in (mesh.refine(), mesh.refine(2)):
        space = kind(refined, p, family=family)
        u = space.interpolate(f)
        errors.append((l2_error(space, u, f), h1_error(space, u, f, gradient)))
    l2_rate, h1_rate = (math.log2(a / b) for a, b in zip(*errors, strict=True))
    assert p + 0.8 < l2_rate < p + 1.6
    assert p - 0.2 < h1_rate < p + 0.6


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(domain, "BLOCK_POINTS", 4096)
    space = H1(femops.box((10, 10, 10)), 2)
    u = space.interpolate(1.0)
    space.restriction.owner  # noqa: B018
    tracemalloc.start()
    l2_error(space, u, lambda x: x[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All points at once would take 1000 * 125 * 9 * 8 = 9 MB for the Jacobians alone.
    assert peak < 4e6


def test_what_cannot_be_integrated():
    space = H1(femops.box((2, 2)), 2)
    zero = space.zeros()
    for call, error, message in (
        (lambda: integrate(space, np.zeros(24)), VectorError, "24 entries, the space has 25"),
        (lambda: integrate(space, lambda x: x), SpaceError, "the integrand gives"),
        (
            lambda: h1_seminorm_error(space, zero, lambda x: x[0]),
            SpaceError,
            "exact_gradient gives an array of shape",
        ),
        (lambda: l2_norm(space, zero, 2), SpaceError, "q1d = 2 cannot"),
        (lambda: l2_error(space, zero, zero), SpaceError, r"exact is an ndarray.*l2_norm\(W, w"),
        (
            lambda: h1_error(space, zero, GridFunction(space, zero), 0.0),
            SpaceError,
            "exact is a GridFunction: give a function of x",
        ),
        (lambda: l2_error(space, zero, np.nan), SpaceError, "exact is nan: give a finite number"),
    ):
        with pytest.raises(error, match=message):
            call()


# --- over the boundary ----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "dim"), [(H1, 1), (L2, 2), (H1, 3)])
def test_sides_of_a_box(kind, dim):
    """Of the attributes asked for, by number and by name, from inside the elements."""
    mesh = femops.box((2, 3, 2)[:dim], upper=(2.0, 3.0, 5.0)[:dim])
    mesh = mesh.with_names(boundary={"low": 1, "ends": (1, 2)})
    space = kind(mesh, 2)
    u = space.interpolate(lambda x: 1 + x[0] ** 2 + x[-1] * (dim > 1))
    area, mean = math.prod((3.0, 5.0)[: dim - 1]), 0.5 * (0.0, 3.0, 5.0)[dim - 1]
    low, high = area * (1 + mean), area * (5 + mean)
    for sides, expected in (("low", low), (2, high), ("ends", low + high), ([1, 2], low + high)):
        assert integrate(space, u, boundary=sides) == pytest.approx(expected, rel=1e-13)
    every = integrate(space, u, boundary="all")
    assert every == integrate(space, u, boundary=True)
    assert every == pytest.approx(
        sum(integrate(space, u, boundary=side) for side in range(1, 2 * dim + 1))
    )


def test_curved_boundaries_against_loads():
    """Those of a function by its quadrature; of a vector, as the load of the boundary has it."""
    V = H1(femops.ball(2, order=3), 3, ncomp=2)
    u = np.random.default_rng(0).standard_normal(V.size)
    load = V.components(femops.boundary_load(V, 1.0, quadrature=8))
    expected = (load * V.components(u)).sum(axis=0)
    found = integrate(V, u, 8, boundary="all")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    volume = integrate(V, lambda x, n: [(x * n).sum(0) / 3, n[0]], boundary="all")
    assert volume == pytest.approx([4 / 3 * np.pi, 0.0], rel=1e-5, abs=1e-12)
    assert integrate(V, (1.0, 2.0), boundary=True) @ (2.0, -1.0) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("ncomp", [1, 2])
@pytest.mark.parametrize("boundary", [None, "all"])
def test_integrals_of_many_vectors(ncomp, boundary):
    """Each has the bits that it has alone."""
    V = H1(femops.disc(1), 3, ncomp=ncomp)
    many = np.random.default_rng(0).standard_normal((V.size, 3))
    found = integrate(V, many, boundary=boundary)
    alone = [integrate(V, many[:, k].copy(), boundary=boundary) for k in range(3)]
    assert found.shape == (3,) if ncomp == 1 else (2, 3)
    np.testing.assert_array_equal(found, np.stack(alone, axis=-1))


def test_boundaries_that_are_refused():
    V = H1(femops.box((2, 2)).with_names(boundary={"wall": 1}), 1)
    closed = H1(femops.box((3, 3), periodic=True), 1)
    for space, u, boundary, error, message in (
        (V, V.zeros(), 7, SpaceError, "no boundary attribute 7"),
        (V, V.zeros(), "walls", SpaceError, "no boundary attribute 'walls': it has wall, 1, 2"),
        (V, V.zeros(), [], SpaceError, "no boundary attribute was chosen"),
        (V, np.zeros((3, 3)), "all", VectorError, "a vector of this space is flat"),
        (closed, 1.0, "all", SpaceError, "has no boundary"),
    ):
        with pytest.raises(error, match=message):
            integrate(space, u, boundary=boundary)
