"""Integrals and norms."""

import math
import tracemalloc

import numpy as np
import pytest

import femops
from femops import H1, L2, h1_error, h1_seminorm_error, integrate, l2_error, l2_norm
from femops.errors import SpaceError, VectorError
from support.cases.meshes import MESHES, bend


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("name", MESHES)
def test_one_integrates_to_the_volume(name, p):
    mesh = MESHES[name]()
    space = H1(mesh, p)
    volume = mesh.volume()
    assert femops.integrate(space, space.interpolate(1.0)) == pytest.approx(volume, rel=1e-13)
    assert femops.integrate(space, 1.0) == pytest.approx(volume, rel=1e-13)
    assert l2_norm(space, space.interpolate(2.0)) == pytest.approx(2 * volume**0.5, rel=1e-13)


VOLUMES = {
    "disc": (lambda n: femops.disc(n, radius=2.0, order=4), 4 * math.pi),
    "ball": (lambda n: femops.ball(n, order=4), 4 / 3 * math.pi),
    "cylinder": (lambda n: femops.cylinder(n, layers=1, height=3.0, order=4), 3 * math.pi),
    "ring": (lambda n: femops.shell(n, 1, inner=1.0, outer=2.0, order=4, dim=2), 3 * math.pi),
    "shell": (lambda n: femops.shell(n, 1, inner=1.0, outer=2.0, order=4), 28 / 3 * math.pi),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_round_domains_converge_to_their_volumes(name):
    make, exact = VOLUMES[name]
    errors = [abs(femops.integrate(H1(make(n), 1), 1.0) / exact - 1) for n in (1, 2)]
    # sides of degree 4 are at least fifth order
    assert errors[0] < 1e-2
    assert errors[1] < errors[0] / 20


def test_integral_over_a_polynomial_map_is_exact():
    # x' = x (1 + y^2): the integral of x' over the image is that of x (1 + y^2)^2 over the square
    mesh = femops.box((2, 2), mapping=lambda x: np.array([x[0] * (1 + x[1] ** 2), x[1]]), order=3)
    space = H1(mesh, 3)
    u = space.interpolate(lambda x: x[0])
    assert femops.integrate(space, u) == pytest.approx(0.5 * (1 + 2 / 3 + 1 / 5), rel=1e-13)


def test_components_are_integrated_one_by_one():
    space = H1(femops.box((2, 2)), 2, ncomp=2)
    u = space.interpolate(lambda x: [x[0], 2.0])
    np.testing.assert_allclose(femops.integrate(space, u), [0.5, 2.0], rtol=1e-14)
    np.testing.assert_allclose(integrate(space, lambda x: [x[0], 2.0]), [0.5, 2.0], rtol=1e-14)
    assert l2_norm(space, u) == pytest.approx(math.sqrt(1 / 3 + 4), rel=1e-14)
    assert l2_error(space, u, lambda x: [x[0], 1.0]) == pytest.approx(1, rel=1e-13)
    gradient = h1_seminorm_error(space, u, [[1.0, 0.0], [0.0, 3.0]])
    assert gradient == pytest.approx(3, rel=1e-12)


def test_errors_of_known_differences():
    space = H1(femops.box((2, 2, 2)), 2)
    u = space.interpolate(lambda x: x[0])
    zero = (0.0, 0.0, 0.0)
    assert l2_error(space, u, 0.0) == pytest.approx(math.sqrt(1 / 3), rel=1e-13)
    assert h1_seminorm_error(space, u, zero) == pytest.approx(1, rel=1e-13)
    assert h1_error(space, u, 0.0, zero) == pytest.approx(math.sqrt(4 / 3), rel=1e-13)
    assert l2_error(space, u, lambda x: x[0]) < 1e-14
    assert h1_seminorm_error(space, u, (1.0, 0.0, 0.0)) < 1e-13


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "family"), [(H1, "gll"), (H1, "bernstein"), (L2, "gauss")])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
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


def test_memory_is_bounded():
    space = H1(femops.box((40, 40, 10)), 2)
    u = space.interpolate(1.0)
    space.restriction.owner  # noqa: B018
    tracemalloc.start()
    l2_error(space, u, lambda x: x[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All points at once would take 16000 * 125 * 9 * 8 = 144 MB for the Jacobians alone.
    assert peak < 40e6


def test_what_cannot_be_integrated():
    space = H1(femops.box((2, 2)), 2)
    with pytest.raises(VectorError, match="24 entries, the space has 25"):
        femops.integrate(space, np.zeros(24))
    with pytest.raises(SpaceError, match="the integrand gives"):
        femops.integrate(space, lambda x: x)
    with pytest.raises(SpaceError, match="exact_gradient gives an array of shape"):
        h1_seminorm_error(space, space.zeros(), lambda x: x[0])
    with pytest.raises(SpaceError, match="q1d = 2 cannot"):
        l2_norm(space, space.zeros(), 2)
    with pytest.raises(SpaceError, match="exact is not finite"):
        l2_error(space, space.zeros(), np.nan)


# --- over the boundary ----------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", [H1, L2])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_sides_of_a_box(kind, dim):
    """Of the attributes asked for, by number and by name, from inside the elements."""
    mesh = femops.box((2, 3, 2)[:dim], upper=(2.0, 3.0, 5.0)[:dim])
    mesh = mesh.with_names(boundary={"low": 1, "ends": (1, 2)})
    space = kind(mesh, 2)
    u = space.interpolate(lambda x: 1 + x[0] ** 2 + x[-1] * (dim > 1))
    area, mean = math.prod((3.0, 5.0)[: dim - 1]), 0.5 * (0.0, 3.0, 5.0)[dim - 1]
    low, high = area * (1 + mean), area * (5 + mean)
    assert femops.integrate(space, u, boundary="low") == pytest.approx(low, rel=1e-13)
    assert femops.integrate(space, u, boundary=2) == pytest.approx(high, rel=1e-13)
    assert femops.integrate(space, u, boundary="ends") == pytest.approx(low + high, rel=1e-13)
    assert femops.integrate(space, u, boundary=[1, 2]) == pytest.approx(low + high, rel=1e-13)
    every = femops.integrate(space, u, boundary="all")
    assert every == femops.integrate(space, u, boundary=True)
    assert every == pytest.approx(
        sum(femops.integrate(space, u, boundary=k) for k in space_sides(mesh))
    )


def space_sides(mesh):
    return np.unique(mesh.boundary_attributes).tolist()


def test_curved_boundaries_against_loads():
    """Those of a function by its quadrature; of a vector, as the load of the boundary has it."""
    V = H1(femops.ball(2, order=3), 3, ncomp=2)
    u = np.random.default_rng(0).standard_normal(V.size)
    load = V.components(femops.boundary_load(V, 1.0, quadrature=8))
    expected = (load * V.components(u)).sum(axis=0)
    found = femops.integrate(V, u, 8, boundary="all")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    volume = femops.integrate(V, lambda x, n: [(x * n).sum(0) / 3, n[0]], boundary="all")
    assert volume == pytest.approx([4 / 3 * np.pi, 0.0], rel=1e-5, abs=1e-12)
    assert femops.integrate(V, (1.0, 2.0), boundary=True) @ (2.0, -1.0) == pytest.approx(
        0, abs=1e-10
    )


@pytest.mark.parametrize("ncomp", [1, 2])
@pytest.mark.parametrize("boundary", [None, "all"])
def test_integrals_of_many_vectors(ncomp, boundary):
    """Each has the bits that it has alone."""
    V = H1(femops.disc(1), 3, ncomp=ncomp)
    many = np.random.default_rng(0).standard_normal((V.size, 3))
    found = femops.integrate(V, many, boundary=boundary)
    alone = [femops.integrate(V, many[:, k].copy(), boundary=boundary) for k in range(3)]
    assert found.shape == (3,) if ncomp == 1 else (2, 3)
    np.testing.assert_array_equal(found, np.stack(alone, axis=-1))


def test_boundaries_that_are_refused():
    V = H1(femops.box((2, 2)).with_names(boundary={"wall": 1}), 1)
    for boundary, message in (
        (7, "no boundary attribute 7"),
        ("walls", "no boundary attribute 'walls': it has wall, 1, 2, 3, 4"),
        ([], "no boundary attribute was chosen"),
    ):
        with pytest.raises(SpaceError, match=message):
            femops.integrate(V, V.zeros(), boundary=boundary)
    with pytest.raises(SpaceError, match="has no boundary"):
        femops.integrate(H1(femops.box((3, 3), periodic=True), 1), 1.0, boundary="all")
    with pytest.raises(femops.errors.VectorError, match="a vector of this space is flat"):
        femops.integrate(V, np.zeros((3, 3)), boundary="all")
