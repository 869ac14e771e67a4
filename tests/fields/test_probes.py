"""Functions at points in space, judged by the oracle's product formulas and by geometry."""

import functools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops import H1, L2, Mesh, Probe
from femops.errors import FemopsError, GeometryError, ProbeError, SpaceError, VectorError
from femops.geometry import domain
from femops.geometry.location import Boxes
from support.cases.meshes import MESHES, PERIODIC, bend
from support.oracles import naive as oracle

RNG = np.random.default_rng(20)


def around(x):
    """Most of a ring out of the unit square."""
    angle, radius = 1.8 * np.pi * x[0] + 0.2, 1.3 - x[1]
    return np.array([radius * np.cos(angle), radius * np.sin(angle)])


def swirl(x):
    away = x[:2] - 0.5
    angle = 3.0 * np.hypot(*away)
    cosine, sine = np.cos(angle), np.sin(angle)
    turned = [cosine * away[0] - sine * away[1], sine * away[0] + cosine * away[1]]
    return np.array([*turned, *(x[2:] + 0.2 * np.sin(5 * x[0]))])


STRONG = {
    "ring of one": lambda: femops.box((1, 1), mapping=around, order=10),
    "swirl": lambda: femops.box((2, 2), mapping=swirl, order=8),
    "swirl in space": lambda: femops.box((2, 2, 1), mapping=swirl, order=6),
    "graded segment": lambda: femops.box((5,), mapping=lambda x: x**3 + 0.01 * x, order=3),
    "far away": lambda: femops.box((3, 2), mapping=lambda x: bend(x) + 1e3, order=2),
    "thin layers": lambda: femops.shell(2, 1, inner=1.0, outer=1.001, order=3, dim=2),
    "thin shell": lambda: femops.shell(1, 1, inner=1.0, outer=1.01, order=4),
}
ALL = MESHES | STRONG | {name: make for name, (make, _) in PERIODIC.items()}


@functools.cache
def mesh_of(name):
    return ALL[name]()


def local(family, p, xi):
    """Values (n,) and reference gradient (n, dim) of an element's basis at xi (dim,)."""
    lines = [oracle.line(family, p, np.array([x])) for x in xi]
    values, gradient = np.ones(1), [np.ones(1) for _ in xi]
    for d, (value, slope) in enumerate(lines):
        values = np.kron(value[0], values)
        gradient = [np.kron((slope if k == d else value)[0], g) for k, g in enumerate(gradient)]
    return values.astype(float), np.stack(gradient, axis=1).astype(float)


def positions(mesh, elements, reference):
    rows = zip(elements, reference, strict=True)
    return np.array([local("gll", mesh.order, xi)[0] @ mesh.coordinates[e] for e, xi in rows])


def somewhere(mesh, n, rng=RNG):
    """Elements, reference coordinates and positions of random points."""
    elements = rng.integers(mesh.num_elements, size=n)
    reference = rng.random((n, mesh.dim))
    return elements, reference, positions(mesh, elements, reference)


def size(mesh):
    return np.abs(mesh.coordinates).max()


@settings(max_examples=25)
@given(st.sampled_from([*ALL]), st.randoms(use_true_random=False), st.data())
def test_points_are_found_where_they_are(name, random, data):
    mesh = mesh_of(name)
    element = random.randrange(mesh.num_elements)
    fraction = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.5, 1.0, 1e-9, 1 - 1e-12]))
    xi = np.array([data.draw(fraction) for _ in range(mesh.dim)])
    x = positions(mesh, [element], [xi])
    probe = Probe(mesh, x)
    assert probe.elements[0] <= element
    assert ((probe.reference >= 0) & (probe.reference <= 1)).all()
    there = positions(mesh, probe.elements, probe.reference)
    # 1e-10 of an element is how far from it a point still counts as in it: only on its faces
    near = xi.min() < 1e-6 or xi.max() > 1 - 1e-6
    np.testing.assert_allclose(there, x, rtol=0, atol=(1e-10 if near else 1e-12) * size(mesh))
    if not near:
        assert probe.elements[0] == element


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ALL)
def test_the_lowest_element_takes_shared_points(name):
    mesh = mesh_of(name)
    lattice = np.stack(np.meshgrid(*[[0.0, 0.5, 1.0]] * mesh.dim), axis=-1).reshape(-1, mesh.dim)
    some = np.sort(RNG.permutation(mesh.num_elements)[:40])
    # of all elements, the positions of the points of the lattice
    whole = np.stack([local("gll", mesh.order, xi)[0] @ mesh.coordinates for xi in lattice], axis=1)
    x = whole[some]
    found = Probe(mesh, x.reshape(-1, mesh.dim)).elements.reshape(x.shape[:2])
    for row, column in np.ndindex(found.shape):
        same = np.abs(whole - x[row, column]).max(axis=2).min(axis=1) < 1e-9 * size(mesh)
        assert found[row, column] == np.flatnonzero(same)[0]


SPACES = [
    (H1, "gll", 1, 1),
    (H1, "gll", 4, 2),
    (H1, "bernstein", 3, 1),
    (L2, "gauss", 0, 1),
    (L2, "gauss", 3, 3),
    (L2, "gll", 2, 1),
    (L2, "bernstein", 5, 2),
]


@pytest.mark.parametrize("name", ["segment", "disc", "curved scrambled cube", "torus"])
def test_values_and_gradients_against_the_oracle(name):
    mesh = mesh_of(name)
    elements, reference, x = somewhere(mesh, 10)
    probe = Probe(mesh, x)
    maps = [local("gll", mesh.order, xi)[1] for xi in reference]
    inverses = [
        np.linalg.inv(mesh.coordinates[e].T @ J) for e, J in zip(elements, maps, strict=True)
    ]
    for kind, family, p, ncomp in SPACES:
        space = kind(mesh, p, ncomp=ncomp, family=family)
        u = RNG.standard_normal(space.shape)
        values, gradients = probe(space, u), probe.gradient(space, u)
        table = space.l_vec(u)
        assert values.shape == ((10, ncomp) if ncomp > 1 else (10,))
        assert gradients.shape == (*values.shape, space.dim)
        for k, (e, xi) in enumerate(zip(elements, reference, strict=True)):
            basis, slopes = local(family, p, xi)
            dofs, scale = table[space.restriction.indices[e]], 1e-12 * np.abs(u).max()
            np.testing.assert_allclose(values[k], basis @ dofs, rtol=0, atol=scale * space.p1d)
            slopes = slopes @ inverses[k]
            scale *= np.abs(slopes).sum(axis=0).max()
            np.testing.assert_allclose(gradients[k], dofs.T @ slopes, rtol=0, atol=scale)


def test_one_point_and_none():
    space = H1(femops.box((2, 2)), 2, ncomp=2)
    u = space.interpolate(lambda x: [x[0], x[1]])
    single = Probe(space.mesh, np.array([0.25, 0.75]))(space, u.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, [[0.25, 0.75]], rtol=1e-6)
    none = Probe(space.mesh, np.zeros((0, 2)))
    assert none(space, u).shape == (0, 2)
    assert none.gradient(space, u).shape == (0, 2, 2)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(domain, "BLOCK_POINTS", 4096)
    mesh = femops.box((1, 1, 1), order=8)
    x = RNG.uniform(0.1, 0.4, (40, 3))
    tracemalloc.start()
    Probe(mesh, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Five points at a time; all at once would take 2.8 MB.
    assert peak < 0.7e6


# --- what holds a point and what does not ---------------------------------------------------------


ROUND = {
    "l-shape": (femops.l_shape(2), lambda x: ~(x > 0).all(axis=1)),
    "fichera": (femops.l_shape(1, dim=3), lambda x: ~(x > 0).all(axis=1)),
    "disc": (femops.disc(1, order=6), lambda x: np.linalg.norm(x, axis=1) < 1),
    "ball": (femops.ball(1, order=5), lambda x: np.linalg.norm(x, axis=1) < 1),
    "ring": (
        femops.shell(1, 1, inner=0.4, order=8, dim=2),
        lambda x: np.abs(np.linalg.norm(x, axis=1) - 0.7) < 0.3,
    ),
}


@pytest.mark.parametrize(("mesh", "holds"), ROUND.values(), ids=ROUND)
def test_inside_or_outside(mesh, holds):
    x = RNG.uniform(-1, 1, (200, mesh.dim))
    away = np.linalg.norm(x, axis=1)
    # where the polynomials of the mesh are no circle: closer than this it is not known
    x = x[(np.abs(away - 1) > 5e-3) & (np.abs(away - 0.4) > 5e-3)]
    probe = Probe(mesh, x, outside="nan")
    np.testing.assert_array_equal(probe.found, holds(x))
    assert 0 < np.count_nonzero(probe.found) < len(x)
    space = H1(mesh, 1, ncomp=2)
    values = probe(space, space.interpolate([1.0, 2.0]))
    np.testing.assert_array_equal(np.isnan(values).all(axis=1), ~probe.found)
    assert np.isnan(probe.gradient(space, space.zeros())[~probe.found]).all()
    assert np.isnan(probe.reference[~probe.found]).all()
    assert (probe.elements[~probe.found] == -1).all()


def test_just_inside_and_just_outside_a_curved_side():
    mesh = mesh_of("ring of one")
    t = RNG.random(8)
    for side, xi in ((-1, 0.0), (1, 1.0)):
        reference = np.stack([t, np.full_like(t, xi)], axis=1)
        x = positions(mesh, np.zeros(8, int), reference)
        outward = side * -x / np.linalg.norm(x, axis=1)[:, None]
        assert Probe(mesh, x - 1e-7 * outward).found.all()
        assert Probe(mesh, x).found.all()
        assert not Probe(mesh, x + 1e-7 * outward, outside="nan").found.any()


def test_the_tolerance_takes_no_points_of_neighbours_that_are_far_thinner():
    """1e-10 of the height is more than the width of an element."""
    mesh = femops.box((4, 1), upper=(1.0, 1e12))
    x = RNG.uniform(0, 1, 50)
    probe = Probe(mesh, np.stack([x, 1e12 * RNG.uniform(0, 1, 50)], axis=1))
    np.testing.assert_array_equal(probe.elements, np.floor(4 * x))
    space = femops.H1(mesh, 1)
    np.testing.assert_allclose(probe(space, space.interpolate(lambda x: x[0])), x, atol=1e-14)
    beside = Probe(mesh, [[1.0 + 1e-4, 1e11]])  # in the tolerance of all elements
    assert 0 <= beside.elements[0] < 4


def test_an_element_beyond_the_box_of_its_nodes():
    mesh = femops.box((1, 1), mapping=lambda x: np.array([x[0], x[1] + 3 * x[0] * (1 - x[0])]))
    mesh = mesh.curved(3).mapped(lambda x: np.array([x[0], x[1] + 3 * x[0] * (1 - x[0])]))
    top = [[0.5, 1.75 - 1e-6]]
    assert top[0][1] > mesh.bounding_box()[1][1]
    np.testing.assert_allclose(Probe(mesh, top).reference, [[0.5, 1 - 1e-6]], rtol=1e-12)


@pytest.mark.parametrize("name", ["segment", "square", "ball", "ring of one", "thin layers"])
def test_the_tree_finds_what_a_search_of_all_boxes_finds(name):
    mesh = mesh_of(name)
    boxes = Boxes(mesh)
    lower, upper = mesh.coordinates.min(axis=1), mesh.coordinates.max(axis=1)
    x = RNG.uniform(lower.min(axis=0), upper.max(axis=0), (200, mesh.dim))
    pairs = set(zip(*(a.tolist() for a in boxes.find(x)), strict=True))
    inside = (lower[None] <= x[:, None]) & (x[:, None] <= upper[None])
    point, element = np.nonzero(inside.all(axis=2))
    assert set(zip(point.tolist(), element.tolist(), strict=True)) <= pairs
    assert len(pairs) < 3 * len(point) + 100


# --- what cannot be -------------------------------------------------------------------------------


def test_what_is_no_point():
    mesh = femops.box((2, 2))
    outside = r"1 of 2 points are outside .* number 1, \(9, 0\.25\): .* from \(0, 0\) to \(1, 1\)"
    with pytest.raises(ProbeError, match=outside):
        Probe(mesh, [[0.5, 0.5], [9, 0.25]])
    for points, match in (
        (np.zeros((3, 3)), r"points have shape \(3, 3\) and type float64: in 2-D give real"),
        (np.zeros(3), r"points have shape \(3,\)"),
        (0.5, r"points have shape \(\)"),
        (np.zeros((1, 1, 2)), r"points have shape \(1, 1, 2\)"),
        (np.zeros((1, 2), complex), "type complex128"),
        ([["a", "b"]], "type <U1"),
        ([[0.1, 0.2], [0.3]], "points are not an array"),
        ([[0.1, 0.2], [np.nan, 0.3]], r"1 of 2 points are not finite, .* number 1, \(nan, 0\.3\)"),
        ([np.inf, 0.2], "1 of 1 points are not finite"),
    ):
        with pytest.raises(ProbeError, match=match):
            Probe(mesh, points, outside="nan")
    assert issubclass(ProbeError, ValueError)
    assert issubclass(ProbeError, FemopsError)


def test_what_else_is_refused():
    mesh = femops.box((2, 2))
    probe, space, other = Probe(mesh, [0.5, 0.5]), H1(mesh, 2), H1(femops.box((2, 2)), 2)
    u = space.zeros()
    for call, error, match in (
        (lambda: Probe(mesh, [0, 0], outside="zero"), ProbeError, "'zero': give 'error' or 'nan'"),
        (lambda: Probe(space, [0.5, 0.5]), ProbeError, "mesh is an H1: give a mesh"),
        (lambda: probe(other, u), SpaceError, "on another mesh than the probe"),
        (lambda: probe.gradient(u, space), SpaceError, "given an ndarray for a space"),
        (lambda: probe(space, np.zeros(3)), VectorError, "3 entries, the space has 25"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_there_are_values_but_no_gradients_in_inverted_elements():
    mesh = femops.box((2, 2))
    coordinates = mesh.coordinates.copy()
    coordinates[1] = coordinates[1][[1, 0, 3, 2]]  # turned inside out, past the checks
    mesh = replace(mesh, coordinates=coordinates)
    space = L2(mesh, 2)
    u = space.interpolate(lambda x: x[0] * x[1])
    x = mesh.element_centers()[:2]
    probe = Probe(mesh, x)
    np.testing.assert_allclose(probe(space, u), x[:, 0] * x[:, 1], rtol=1e-13)
    with pytest.raises(GeometryError, match=r"det J is -0\.25 in element 1 at point 1, \(0\."):
        probe.gradient(space, u)


def test_values_where_the_map_is_singular():
    # The last corner lies on the line between its neighbours: det J vanishes there.
    mesh = Mesh.from_arrays([[0, 0], [1, 0], [0, 1], [0.5, 0.5]], [[0, 1, 2, 3]])
    space = H1(mesh, 2)
    values = Probe(mesh, [[0.1, 0.1], [0.5, 0.5]])(space, space.interpolate(lambda x: x[0]))
    np.testing.assert_allclose(values, [0.1, 0.5], rtol=1e-9)


def test_a_probe_shows_what_it_is_and_does_not_change():
    probe = Probe(femops.box((2, 2)), [[0.5, 0.5], [2, 2]], outside="nan")
    assert repr(probe) == "Probe(2 points in 4 elements in 2-D, 1 outside)"
    for array in (probe.points, probe.elements, probe.reference):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize("family", ["gll", "bernstein"])
def test_a_value_has_the_same_bits_whatever_other_points_there_are(family):
    """As ranks that have some of the points must not differ by how many."""
    rng = np.random.default_rng(5)
    V = femops.H1(femops.box((1, 1, 1)), 4, family=family)
    e_vec = np.repeat(rng.standard_normal((1, V.p1d**3)), 20, axis=0)
    points = rng.random((20, 3))
    element = V.element
    for take in (element.values_at, lambda *given: np.stack(element.slopes_at(*given), axis=1)):
        together = take(points, e_vec)
        for k in range(20):
            alone = take(points[k : k + 1], e_vec[k : k + 1])
            assert np.array_equal(together[k], alone[0])


@pytest.mark.parametrize("ncomp", [1, 2])
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_complex_functions(ncomp, dtype):
    V = femops.H1(femops.disc(2), 3, ncomp=ncomp)
    rng = np.random.default_rng(1)
    u = (rng.normal(size=V.size) + 1j * rng.normal(size=V.size)).astype(dtype)
    probe = femops.Probe(V.mesh, [[0.1, 0.2], [5.0, 0.0], [0.5, -0.5]], outside="nan")
    for evaluate in (probe, probe.gradient):
        found = evaluate(V, u)
        assert found.dtype == np.complex128
        np.testing.assert_allclose(found.real, evaluate(V, u.real.copy()), atol=1e-12)
        np.testing.assert_allclose(found.imag, evaluate(V, u.imag.copy()), atol=1e-12)
    at = femops.Probe(V.mesh, [[0.1, 0.2], [0.5, -0.5]])
    sources = np.array([1 + 2j, 3j])[:, np.newaxis] * np.ones(ncomp)
    b = at.load(V, sources if ncomp > 1 else sources[:, 0], dtype=dtype)
    assert b.dtype == dtype
    due = (sources * at(V, u).reshape(sources.shape)).sum()
    assert abs(b @ u - due) < 1e-5 * abs(due)
    with pytest.raises(VectorError, match="has 3 entries"):
        probe(V, np.zeros(3, dtype))
