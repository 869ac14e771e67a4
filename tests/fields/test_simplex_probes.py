"""Points located in triangles and tetrahedra, and fields between meshes of different cells."""

import functools

import numpy as np
import pytest

import femops
from femops import H1, L2, Mesh, Probe
from femops.geometry.location import Boxes, _halved, _newton_in_parts
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import positions
from femops_meshes.topology.entities import SIMPLICES
from support.simplex_meshes import SIMPLEX_MESHES, curved

SEED = 7


@functools.cache
def mesh_of(name):
    return SIMPLEX_MESHES[name]()


def somewhere(mesh, n, rng):
    """Elements, reference coordinates and positions of random points inside elements."""
    elements = rng.integers(mesh.num_elements, size=n)
    shares = rng.dirichlet(np.ones(mesh.dim + 1), n)
    x = [positions(mesh.coordinates[[e]], shares[[k], 1:])[0, 0] for k, e in enumerate(elements)]
    return elements, shares[:, 1:], np.array(x)


@pytest.mark.parametrize("name", SIMPLEX_MESHES)
def test_points_are_found_where_they_are(name):
    mesh, rng = mesh_of(name), np.random.default_rng(SEED)
    elements, reference, x = somewhere(mesh, 200, rng)
    probe = Probe(mesh, x)
    np.testing.assert_array_equal(probe.elements, elements)
    np.testing.assert_allclose(probe.reference, reference, atol=1e-11)


@pytest.mark.parametrize("name", SIMPLEX_MESHES)
def test_the_lowest_element_takes_shared_nodes(name):
    mesh = mesh_of(name)
    V = H1(mesh, 3)
    x = V.dof_coordinates()
    probe = Probe(mesh, x)
    first = np.full(V.ndofs, mesh.num_elements)
    owners = np.repeat(np.arange(mesh.num_elements), V.element.size)
    np.minimum.at(first, V.restriction.indices.ravel(), owners)
    np.testing.assert_array_equal(probe.elements, first)
    assert (probe.reference >= 0).all()
    assert (probe.reference.sum(axis=1) <= 1 + 1e-15).all()
    u = np.random.default_rng(SEED).standard_normal(V.size)
    np.testing.assert_allclose(probe(V, u), u, atol=1e-9)


@pytest.mark.parametrize("name", SIMPLEX_MESHES)
def test_values_gradients_and_loads(name):
    """A polynomial of the reference element on curved ones: judged by the map's own chain rule."""
    mesh, rng = mesh_of(name), np.random.default_rng(SEED)
    _, _, x = somewhere(mesh, 30, rng)
    probe = Probe(mesh, x)
    V = H1(mesh, mesh.order, ncomp=mesh.dim)  # contains the positions
    u = V.interpolate(lambda x: 2 * x[::-1] + 1)
    np.testing.assert_allclose(probe(V, u), 2 * x[:, ::-1] + 1, atol=1e-11)
    slopes = np.broadcast_to(2 * np.eye(mesh.dim)[::-1], (30, mesh.dim, mesh.dim))
    np.testing.assert_allclose(probe.gradient(V, u), slopes, atol=1e-9)
    sources = rng.standard_normal((30, mesh.dim))
    due = (sources * probe(V, u)).sum()
    assert abs(probe.load(V, sources) @ u - due) < 1e-10 * abs(due)
    both = probe(V, u * (1 + 2j))
    np.testing.assert_allclose(both, (1 + 2j) * probe(V, u))


@pytest.mark.parametrize("dim", [2, 3])
def test_values_beside_scikit_fem(dim):
    skfem = pytest.importorskip("skfem")
    mesh = mesh_of({2: "triangles", 3: "tetrahedra"}[dim])
    made = {2: skfem.MeshTri, 3: skfem.MeshTet}[dim]
    kind = {2: skfem.ElementTriP2, 3: skfem.ElementTetP2}[dim]
    vertices = np.empty((mesh.num_vertices, dim))
    vertices[mesh.elements] = mesh.coordinates
    other = skfem.CellBasis(made(vertices.T.copy(), mesh.elements.T.copy()), kind())
    x = np.random.default_rng(SEED).random((40, dim))

    def f(x):
        return np.sin(3 * x[0]) * np.cos(2 * x[1])

    V = H1(mesh, 2)
    u = V.interpolate(f)
    found = Probe(mesh, x)(V, u)
    due = other.interpolator(f(other.doflocs))(x.T)
    np.testing.assert_allclose(found, due, atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_inside_or_outside(dim):
    mesh = mesh_of({2: "disc of triangles", 3: "ball of tetrahedra"}[dim])
    x = np.random.default_rng(SEED).uniform(-1, 1, (300, dim))
    away = np.linalg.norm(x, axis=1)
    x, away = x[np.abs(away - 1) > 0.02], away[np.abs(away - 1) > 0.02]
    probe = Probe(mesh, x, outside="nan")
    np.testing.assert_array_equal(probe.found, away < 1)
    V = H1(mesh, 1)
    np.testing.assert_array_equal(np.isnan(probe(V, V.zeros())), away > 1)
    assert np.isnan(probe.reference[~probe.found]).all()


def test_just_inside_and_just_outside_a_straight_side():
    mesh = Mesh.from_arrays([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]])
    t = np.linspace(0, 1, 9)
    side = np.stack([t, 1 - t], axis=1)
    assert Probe(mesh, side).found.all()
    assert Probe(mesh, side + 3e-11).found.all()  # within the tolerance
    assert Probe(mesh, side[1:-1] - 1e-9).found.all()
    assert not Probe(mesh, side + 1e-9, outside="nan").found.any()


def test_an_element_beyond_the_box_of_its_nodes():
    mesh = femops.box((1, 1)).simplices()
    mesh = mesh.curved(3).mapped(lambda x: np.array([x[0], x[1] + 3 * x[0] * (1 - x[0])]))
    top = [[0.5, 1.75 - 1e-6]]
    assert top[0][1] > mesh.bounding_box()[1][1]
    at = Probe(mesh, top)
    there = positions(mesh.coordinates[at.elements], at.reference)[0]
    np.testing.assert_allclose(there, top, atol=1e-12)


@pytest.mark.parametrize(("dim", "degree"), [(2, 1), (2, 4), (3, 1), (3, 3)])
def test_halves_of_maps(dim, degree):
    """A search by halves finds the same places, and coefficients of halves keep the corners."""
    from femops.geometry.location import _bernstein

    mesh = curved(dim, degree)
    elements, reference, x = somewhere(mesh, 50, np.random.default_rng(SEED))
    reach = Boxes(mesh).reach[elements]
    held, xi = _newton_in_parts(mesh.coordinates[elements], x, reach)
    assert np.array_equal(held, np.arange(50))
    np.testing.assert_allclose(xi, reference, atol=1e-10)
    whole = _bernstein(mesh.coordinates)
    parts = _halved(whole).reshape(mesh.num_elements, 2**dim, *whole.shape[1:])
    corners = {tuple(row) for row in parts[0, :, : dim + 1].reshape(-1, dim).round(12).tolist()}
    assert {tuple(row) for row in whole[0, : dim + 1].round(12).tolist()} <= corners


def test_strongly_bent_triangles():
    """A ring, of which Newton's method from the middle of an element does not find all points."""

    def around(x):
        angle, radius = 1.8 * np.pi * x[0] + 0.2, 1.3 - x[1]
        return np.array([radius * np.cos(angle), radius * np.sin(angle)])

    mesh = femops.box((2, 1), mapping=around, order=6).simplices()
    x = somewhere(mesh, 300, np.random.default_rng(SEED))[2]
    probe = Probe(mesh, x)
    there = np.array(
        [
            positions(mesh.coordinates[[e]], xi[np.newaxis])[0, 0]
            for e, xi in zip(probe.elements, probe.reference, strict=True)
        ]
    )
    np.testing.assert_allclose(there, x, atol=1e-9)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5, 8])
def test_values_at_points(dim, degree):
    """Those of the tables, and with the same bits whatever other points there are."""
    rng, cell = np.random.default_rng(SEED), SIMPLICES[dim]
    element = L2(mesh_of({2: "triangles", 3: "tetrahedra"}[dim]), degree).element
    x = rng.dirichlet(np.ones(dim + 1), 30)[:, 1:]
    u = rng.standard_normal((1, element.size))
    e_vec = np.repeat(u, 30, axis=0)
    due = simplices.tables(cell, degree, x) @ u[0]
    np.testing.assert_allclose(element.values_at(x, e_vec), due[0], atol=1e-12)
    np.testing.assert_allclose(element.slopes_at(x, e_vec), due[1:], atol=1e-10)
    for take in (element.values_at, lambda *given: np.stack(element.slopes_at(*given), axis=1)):
        together = take(x, e_vec)
        for some in (slice(k, k + 1 + k % 3) for k in range(30)):
            assert np.array_equal(together[some], take(x[some], e_vec[some]))


# --- fields of other meshes -----------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", [H1, L2])
def test_polynomials_go_from_cubes_to_simplices_and_back(dim, kind):
    cubes = femops.box((3, 2, 2)[:dim])
    some = mesh_of({2: "triangles", 3: "tetrahedra"}[dim])

    def f(x):
        return x[0] ** 2 - x[0] * x[-1] + 3

    V, W = kind(cubes, 2), kind(some, 2)
    v, w = V.interpolate(f), W.interpolate(f)
    np.testing.assert_allclose(W.interpolate((V, v)), w, atol=1e-12)
    np.testing.assert_allclose(V.interpolate(femops.GridFunction(W, w)), v, atol=1e-12)


@pytest.mark.parametrize("name", ["curved triangles", "curved tetrahedra"])
def test_a_field_is_the_same_function_on_a_refined_mesh(name):
    coarse = mesh_of(name)
    fine = coarse.refine()
    V, W = H1(coarse, 3, ncomp=2), H1(fine, 3, ncomp=2)
    rng = np.random.default_rng(SEED)
    u = rng.standard_normal(V.size)
    w = W.interpolate((V, u))
    x = somewhere(coarse, 40, rng)[2]
    np.testing.assert_allclose(Probe(fine, x)(W, w), Probe(coarse, x)(V, u), atol=1e-9)
    np.testing.assert_allclose(V.interpolate((W, w)), u, atol=1e-9)


def test_a_field_of_another_degree_on_the_same_mesh():
    mesh = mesh_of("curved tetrahedra")
    V, W, Q = H1(mesh, 2), H1(mesh, 4), L2(mesh, 3)
    u = np.random.default_rng(SEED).standard_normal(V.size)
    np.testing.assert_allclose(V.interpolate((W, W.interpolate((V, u)))), u, atol=1e-13)
    np.testing.assert_allclose(V.interpolate((Q, Q.interpolate((V, u)))), u, atol=1e-13)
