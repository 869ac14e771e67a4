"""Spaces: functions in them, their boundary, and their errors."""

import numpy as np
import pytest

import femops
from femops import H1, L2
from femops.basis import gauss, lobatto
from femops.errors import BasisError, SpaceError, VectorError
from femops_meshes import scrambled
from femops_meshes.coordinates.mapping import positions
from support.cases.meshes import PERIODIC, bend, scrambled_box

SPACES = [
    (H1, "gll"),
    (H1, "bernstein"),
    (L2, "gauss"),
    (L2, "gll"),
    (L2, "bernstein"),
    (L2, "hermite"),
]


def polynomial(p, dim):
    """A polynomial of degree p in each direction, and its gradient (dim, n)."""
    c = np.random.default_rng(p).normal(size=(p + 1,) * dim + (1,) * (3 - dim))

    def value(x, c):
        return np.polynomial.polynomial.polyval3d(*x, *np.zeros((3 - dim, *x[0].shape)), c)

    def gradient(x):
        return [value(x, np.polynomial.polynomial.polyder(c, axis=d)) for d in range(dim)]

    return lambda x: value(x, c), gradient


def affine_box(dim):
    return femops.box((2, 3, 2)[:dim], mapping=lambda x: 1.5 * x - 0.2)


@pytest.mark.parametrize(("kind", "family"), SPACES)
@pytest.mark.parametrize(("dim", "p"), [(1, 1), (1, 7), (2, 2), (2, 7), (3, 1), (3, 4)])
def test_polynomials_are_reproduced(kind, family, dim, p):
    f, gradient = polynomial(p, dim)
    space = kind(affine_box(dim), p, family=family)
    u = space.interpolate(f)
    where, values = space.sample(u, 4)
    expected = f(np.moveaxis(where, -1, 0))
    np.testing.assert_allclose(values, expected, rtol=0, atol=2e-13 * np.abs(expected).max())
    rule = space.quadrature()
    points = femops.geometry.Geometry(space.mesh, rule).points(0, space.mesh.num_elements)
    x = np.moveaxis(points, -1, 0)
    np.testing.assert_allclose(space.values(u), f(x), atol=1e-12 * np.abs(expected).max())
    slopes = np.stack(gradient(x), axis=-1)
    np.testing.assert_allclose(space.gradient(u), slopes, atol=1e-11 * np.abs(slopes).max())


def test_bernstein_interpolates_at_the_gauss_lobatto_points():
    mesh = scrambled_box((2, 2), 3, bend, 2)
    for p in (1, 20):
        nodal, other = (H1(mesh, p, family=family) for family in ("gll", "bernstein"))
        u, v = (
            space.interpolate(lambda x: np.exp(x[0]) * np.cos(3 * x[1])) for space in (nodal, other)
        )
        np.testing.assert_allclose(other.sample(v, 5)[1], nodal.sample(u, 5)[1], atol=1e-12)


def test_gradient_on_a_curved_mesh_against_differences():
    """du/dx . dx along a reference line is the difference of u along it."""
    mesh = scrambled_box((2, 1, 2), 4, bend, 3)
    space = H1(mesh, 3)
    u = np.random.default_rng(1).normal(size=space.shape)
    h, start = 1e-6, gauss(4).points
    rules = [femops.basis.Quadrature1D(start + s * h, gauss(4).weights, "moved") for s in (-1, 1)]
    x0, x1 = (femops.geometry.Geometry(mesh, rule).points(0, 4) for rule in rules)
    v0, v1 = (space.values(u, rule) for rule in rules)
    along = np.einsum("eqi,eqi->eq", space.gradient(u, gauss(4)), x1 - x0)
    np.testing.assert_allclose((v1 - v0) / (2 * h), along / (2 * h), atol=2e-7)


@pytest.mark.parametrize(("kind", "family"), SPACES)
def test_components_are_scalars_side_by_side(kind, family):
    mesh = scrambled_box((2, 2, 1), 5, bend, 2)
    space, scalar = kind(mesh, 2, ncomp=3, family=family), kind(mesh, 2, family=family)
    u = space.interpolate(lambda x: [x[0] ** 2, x[1], np.sin(x[2])])
    assert space.shape == u.shape == (space.size,) == (3 * scalar.ndofs,)
    assert space.values(u).shape == (4, 64, 3)
    assert space.gradient(u).shape == (4, 64, 3, 3)
    assert space.sample(u, 3)[1].shape == (4, 27, 3)
    parts = [lambda x: x[0] ** 2, lambda x: x[1], lambda x: np.sin(x[2])]
    for c, f in enumerate(parts):
        one = scalar.interpolate(f)
        np.testing.assert_allclose(u[c::3], one, atol=1e-14)
        np.testing.assert_allclose(space.values(u)[..., c], scalar.values(one), atol=1e-13)
        np.testing.assert_allclose(space.gradient(u)[..., c, :], scalar.gradient(one), atol=1e-12)


@pytest.mark.parametrize("name", ["ring", "band", "tube"])
def test_periodic_interpolation_takes_the_first_elements_place(name):
    mesh = PERIODIC[name][0]()
    space = H1(mesh, 3)
    u = space.interpolate(lambda x: x[0])
    nodes = positions(mesh.coordinates, space.basis.nodes)
    first = np.unique(space.restriction.indices, return_index=True)[1]
    expected = nodes.reshape(-1, mesh.dim)[first]
    np.testing.assert_array_equal(space.dof_coordinates(), expected)
    np.testing.assert_array_equal(u, expected[:, 0])


def test_functions_of_a_space_have_its_components():
    space = H1(femops.box((2, 2)), 2, ncomp=2)
    np.testing.assert_array_equal(space.interpolate((1.0, 2.0))[6:8], [1, 2])
    with pytest.raises(SpaceError, match=r"f gives an array of shape \(25,\)"):
        space.interpolate(lambda x: x[0])


# --- the boundary --------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_boundary_of_a_box_is_where_a_coordinate_is_extreme(dim):
    """By attribute the sides of the box, two for each direction."""
    mesh = scrambled(femops.box((2, 3, 2)[:dim]), 6)
    for p in (1, 2, 5):
        space = H1(mesh, p)
        x = space.dof_coordinates()
        at = [np.abs(x[:, d] - end) < 1e-12 for d in range(dim) for end in (0.0, 1.0)]
        np.testing.assert_array_equal(space.boundary_dofs(), np.flatnonzero(np.any(at, axis=0)))
        for k, side in enumerate(at):
            np.testing.assert_array_equal(space.boundary_dofs(k + 1), np.flatnonzero(side))
        two = np.flatnonzero(at[0] | at[1])
        np.testing.assert_array_equal(space.boundary_dofs({1, 2}), two)
        assert space.boundary_dofs([]).size == 0


def test_boundary_of_components_indexes_the_flat_vector():
    mesh = femops.box((2, 2))
    nodes = H1(mesh, 2).boundary_dofs()
    space = H1(mesh, 2, ncomp=3)
    every = space.boundary_dofs()
    np.testing.assert_array_equal(every, (3 * nodes[:, None] + np.arange(3)).ravel())
    np.testing.assert_array_equal(space.boundary_dofs(components=1), 3 * nodes + 1)
    np.testing.assert_array_equal(
        space.boundary_dofs(components=(2, 0)), (3 * nodes[:, None] + [0, 2]).ravel()
    )
    u = space.zeros()
    u[space.boundary_dofs(components=1)] = 1
    assert np.all(space.components(u)[nodes, 1] == 1)
    assert u.sum() == len(nodes)


def test_all_is_the_whole_boundary_unless_a_part_has_that_name():
    mesh = femops.box((2, 2))
    space = H1(mesh, 2)
    np.testing.assert_array_equal(space.boundary_dofs("all"), space.boundary_dofs())
    assert femops.boundary_load(space, 1.0, "all").sum() == pytest.approx(4.0)
    ones = space.interpolate(1.0)
    assert ones @ (femops.boundary_mass(space, 1.0, "all") @ ones) == pytest.approx(4.0)
    named = H1(mesh.with_names(boundary={"all": 1}), 2)
    np.testing.assert_array_equal(named.boundary_dofs("all"), space.boundary_dofs(1))
    assert femops.boundary_load(named, 1.0, "all").sum() == pytest.approx(1.0)


def test_periodic_sides_are_no_boundary():
    mesh = femops.box((3, 3), periodic=(True, False))
    space = H1(mesh, 2)
    x = space.dof_coordinates()
    outside = (x[:, 1] == 0) | (x[:, 1] == 1)
    np.testing.assert_array_equal(space.boundary_dofs(), np.flatnonzero(outside))
    assert H1(femops.box((3, 3), periodic=True), 2).boundary_dofs().size == 0


def test_unknown_attributes_and_components_list_the_known():
    mesh = femops.box((2, 2))
    space = H1(mesh, 1, ncomp=2)
    for attributes in (99, [1, 99], "left", [1.5], 0):
        with pytest.raises(
            SpaceError, match=r"has no boundary attribute .*: it has 1, 2"
        ) as raised:
            space.boundary_dofs(attributes)
        assert "leave" not in str(raised.value)
    for call, message in (
        (lambda: space.boundary_dofs([1, "all"]), "'all': .* leave it out for all of them"),
        (lambda: space.boundary_dofs(components=["all"]), r"component 'all': .* leave it out"),
        (lambda: space.boundary_dofs(components=2), "has no component 2: it has 0, 1"),
        (lambda: L2(mesh, 1).boundary_dofs(), "L2"),
    ):
        with pytest.raises(SpaceError, match=message):
            call()


@pytest.mark.parametrize("make", [H1, L2])
def test_dofs_of_elements_by_attribute_and_name(make):
    mesh = femops.box((4, 3)).with_names({"low": lambda x: x[0] < 0.5})
    space = make(mesh, 2, ncomp=2)
    low = [i for i, x in enumerate(mesh.element_centers()) if x[0] < 0.5]
    nodes = np.unique(space.restriction.indices[low])
    np.testing.assert_array_equal(space.element_dofs("low", components=1), 2 * nodes + 1)
    both = np.union1d(2 * nodes, 2 * nodes + 1)
    np.testing.assert_array_equal(space.element_dofs(mesh.element_names["low"]), both)
    np.testing.assert_array_equal(space.element_dofs(), np.arange(space.size))
    with pytest.raises(SpaceError, match="no element attribute 'left': it has low, 1, 2"):
        space.element_dofs("left")


def test_a_name_of_elements_is_not_one_of_the_boundary():
    space = H1(femops.box((2, 2)).with_names({"steel": 1}, boundary={"wall": 2}), 1)
    with pytest.raises(SpaceError, match=r"attribute 'steel': .*; elements have this name"):
        space.boundary_dofs("steel")
    with pytest.raises(SpaceError, match=r"attribute 'wall': .*; faces have this name"):
        space.element_dofs("wall")


# --- vectors, rules, arguments -------------------------------------------------------------------


def test_zeros_and_check_vector():
    space = H1(femops.box((2, 2)), 2, ncomp=2)
    assert space.zeros().shape == (50,)
    assert space.zeros(np.float32).dtype == np.float32
    u = np.arange(50.0)
    assert space.check_vector(u) is u
    with pytest.raises(VectorError, match="type int64 was asked for"):
        space.zeros(int)


def test_components_are_a_view():
    space = H1(femops.box((2, 2)), 2, ncomp=2)
    u = np.arange(50.0)
    view = space.components(u)
    assert view.shape == (25, 2)
    view[3] = 0
    assert not u[6:8].any()
    assert u[8] == 8
    for order in "CF":  # many vectors, in any layout
        many = np.zeros((50, 3), order=order)
        space.components(many)[4, 1, 2] = 1
        assert many[9, 2] == many.sum() == 1
    mask = np.ones(100, dtype=bool)
    space.components(mask[::2])[:, 0] = False
    assert mask.sum() == 75
    flat = r"a vector of this space is flat, \(50,\): "
    for wrong, cure in {
        (25, 2): r"use u.reshape\(-1\)",
        (2, 25): r"use u.T.reshape\(-1\)",
        (25, 3): r"make one with V.zeros\(\)",
        (50, 2, 2): r"use one column, u\[:, k\]",
    }.items():
        with pytest.raises(VectorError, match=flat + cure):
            space.components(np.zeros(wrong))
    with pytest.raises(VectorError, match="u is a list: give an array"):
        space.components([0.0] * 50)


@pytest.mark.parametrize("use", ["check_vector", "values", "gradient", "sample"])
def test_wrong_vectors(use):
    space = H1(femops.box((2, 2)), 2)
    more = (2,) if use == "sample" else ()
    for u, match in (
        (np.zeros(24), r"u has 24 entries, the space has 25: make one with V.zeros\(\)"),
        (np.zeros((25, 1)), r"u has shape \(25, 1\); a vector of this space is flat, \(25,\)"),
        (np.zeros((25, 2)), r"is flat, \(25,\): use one column, u\[:, k\]; many .* A @ X"),
        (np.zeros(()), r"u has shape \(\); a vector of this space is flat"),
        (np.zeros(25, dtype=np.int32), "u has type int32"),
        (np.zeros(25, dtype=np.float16), "u has type float16"),
        (list(range(25)), "u is a list"),
        (None, "u is None"),
        (femops.GridFunction(space, np.zeros(25)), "give u.vector"),
    ):
        with pytest.raises(VectorError, match=match):
            getattr(space, use)(u, *more)


def test_float32_vectors_are_evaluated_in_float64():
    space = H1(femops.box((2, 2)), 2)
    u = space.interpolate(lambda x: x[0]).astype(np.float32)
    assert space.values(u).dtype == np.float64
    np.testing.assert_allclose(space.values(u), space.values(u.astype(float)), atol=0)


def test_quadrature():
    space = H1(femops.box((2, 2)), 4)
    assert space.quadrature().q1d == 6
    assert space.quadrature(5).q1d == 5
    assert space.quadrature(lobatto(5)).name == "lobatto"
    message = "q1d = 3 cannot integrate order 4: use at least 5"
    for wrong in (3, gauss(3)):
        with pytest.raises(SpaceError, match=message):
            space.quadrature(wrong)
        with pytest.raises(SpaceError, match=message):
            space.values(space.zeros(), wrong)
    with pytest.raises(SpaceError, match=r"q1d is 4\.5"):
        space.quadrature(4.5)


def test_wrong_arguments():
    mesh = femops.box((2, 2))
    for make, match in (
        (lambda: H1(mesh, 0), "the order of an H1 space is 0.*at least 1"),
        (lambda: H1(mesh, 1.5), "whole number"),
        (lambda: H1(mesh, 2, ncomp=0), "the number of components is 0"),
        (lambda: H1(mesh, 2, family="gauss"), "'gll' or 'bernstein'"),
        (lambda: L2(mesh, -1), "the order of an L2 space is -1.*at least 0"),
        (lambda: L2(mesh, 0, family="gll"), "at least 1"),
        (lambda: L2(mesh, 1, family="x"), "family is 'x': give 'gll', 'gauss'"),
        (lambda: H1("ball.mesh", 1), "mesh is 'ball.mesh': give a mesh, .*read_mesh"),
        (lambda: H1(mesh, 1).sample(np.zeros(9), 1), "n is 1: give a whole number from 2"),
    ):
        with pytest.raises(SpaceError, match=match):
            make()


def test_order_zero_l2_is_one_dof_an_element():
    space = L2(femops.box((2, 3)), 0, ncomp=2)
    assert space.ndofs == 6
    u = space.interpolate(lambda x: x)
    centers = space.mesh.element_centers()
    np.testing.assert_allclose(space.components(u), centers, atol=1e-15)
    np.testing.assert_array_equal(space.gradient(u), 0)


@pytest.mark.parametrize(("dim", "p", "n"), [(1, 1, 2), (2, 3, 5), (3, 2, 3)])
def test_sampling_grid(dim, p, n):
    space = H1(affine_box(dim), p)
    u = space.interpolate(lambda x: x.sum(axis=0))
    where, values = space.sample(u, n)
    ne = space.mesh.num_elements
    assert where.shape == (ne, n**dim, dim)
    np.testing.assert_allclose(values, where.sum(axis=-1), atol=1e-13)
    steps = np.diff(where.reshape(ne, *[n] * dim, dim)[..., 0], axis=-1)
    np.testing.assert_allclose(steps - steps[..., :1], 0, atol=1e-13)
    assert np.all(steps > 0)


def test_reprs():
    space = H1(femops.box((2, 2)), 3, ncomp=2)
    words = "(order=3, ncomp={}, family='gll': 4 elements in 2-D, 49 dofs{})"
    assert repr(space) == "H1" + words.format(2, ", vectors of 98")
    assert repr(H1(space.mesh, 3)) == "H1" + words.format(1, "")


def test_errors_are_one_family():
    assert issubclass(SpaceError, femops.errors.FemopsError)
    assert issubclass(BasisError, ValueError)
    for base in (femops.errors.FemopsError, femops.errors.MeshError, femops.errors.KernelError):
        assert base in femops.errors.Errors
