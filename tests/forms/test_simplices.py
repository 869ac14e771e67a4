"""Forms on triangles and tetrahedra: dense sums, scikit-fem's matrices, exact integrals."""

import itertools

import numpy as np
import pytest

import femops
from femops.basis import PointRule, gauss, simplex_rule
from femops.errors import BasisError, SpaceError
from support.oracles import simplices as oracle
from support.simplex_meshes import MESHES, curved, graded, periodic

LEVELS = "partial", "matrix-free", "element", "full"
ORDERS = [(2, p) for p in range(1, 7)] + [(3, p) for p in range(1, 5)]


def error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def vector(space, seed=0):
    return np.random.default_rng(seed).standard_normal(space.size)


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize(("dim", "p"), [(2, 1), (2, 3), (2, 5), (3, 1), (3, 2), (3, 3)])
def test_forms_equal_dense_sums(name, dim, p):
    mesh = MESHES[name](dim)
    rule = simplex_rule(dim, 30 if name == "curved" else 11)
    for V in (femops.H1(mesh, p, ncomp=2), femops.L2(mesh, p)):
        u = vector(V)

        def form(u, x):
            return {"value": (1 + x[0]) * u, "grad": (2 + x[-1]) * u.grad + 0.5 * u.grad}

        def dense(value, slope, x):
            return (1 + x[:, :1]) * value, (2.5 + x[:, -1, None, None]) * slope

        expected = oracle.product(V, dense, u, points=16 if name == "curved" else 8)
        for level in LEVELS:
            A = femops.form(form, V, level=level, quadrature=rule)
            # the integrands are not polynomials on curved elements
            assert error(A @ u, expected) < (1e-9 if name == "curved" else 2e-13)


@pytest.mark.parametrize(("dim", "p"), ORDERS)
def test_constant_coefficients_are_multiplied_in_modes(dim, p):
    """The same rule without a degree is taken at its points."""
    mesh = graded(dim)
    rule = simplex_rule(dim, 2 * p + 1)
    plain = PointRule(rule.points, rule.weights, simplex=True)
    V, W = femops.H1(mesh, p), femops.H1(mesh, max(p - 1, 1), ncomp=dim)
    jumps = np.random.default_rng(1).uniform(1, 1e6, mesh.num_elements)
    k = femops.GridFunction(femops.L2(mesh, 0), jumps)
    for A, B in (
        (femops.diffusion(V, k, quadrature=one) for one in (rule, plain)),
        (femops.mass(V, k, quadrature=one) for one in (rule, plain)),
        (femops.elasticity(W, 2.0, 0.3, quadrature=one) for one in (rule, plain)),
        (
            femops.diffusion(V, quadrature=one) + femops.mass(V, 3.0, quadrature=one)
            for one in (rule, plain)
        ),
    ):
        u = vector(A.space)
        assert error(A @ u, B @ u) < 1e-12
        assert error(A @ u, A.assemble() @ u) < 1e-12
        assert error(A.diagonal(), A.assemble().diagonal()) < 1e-12
        X = np.stack([u, 2 * u, vector(A.space, 3)], axis=1)
        assert error(A @ X, np.stack([A @ x for x in X.T], axis=1)) < 1e-13


@pytest.mark.parametrize(("dim", "p"), [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2)])
def test_matrices_of_scikit_fem(dim, p):
    skfem = pytest.importorskip("skfem")
    from skfem.helpers import dot, grad

    mesh = graded(dim)
    points = np.zeros((mesh.num_vertices, dim))
    points[mesh.elements] = mesh.coordinates[:, : dim + 1]
    theirs = (skfem.MeshTri if dim == 2 else skfem.MeshTet)(points.T.copy(), mesh.elements.T.copy())
    kind = getattr(skfem, f"Element{'Tri' if dim == 2 else 'Tet'}P{p}")()
    basis = skfem.Basis(theirs, kind, intorder=2 * p + 3)
    stiffness = skfem.BilinearForm(lambda u, v, w: dot(grad(u), grad(v))).assemble(basis)
    mass = skfem.BilinearForm(lambda u, v, w: u * v * (1 + w.x[0])).assemble(basis)
    V = femops.H1(mesh, p)
    x = V.dof_coordinates()
    inside = x + 1e-13 * (points.mean(axis=0) - x)
    change = basis.probes(inside.T).toarray()
    for A, B in (
        (femops.diffusion(V), stiffness),
        (femops.mass(V, lambda x: 1 + x[0]), mass),
    ):
        assert error(change.T @ (A.assemble() @ change), B.toarray()) < 1e-10


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("make", [graded, curved])
def test_boundaries(make, dim):
    """Gauss' theorem for a random function, and areas."""
    mesh = make(dim)
    V = femops.H1(mesh, 3)
    u = vector(V)
    flux = [femops.boundary_load(V, lambda x, n, d=d: n[d], quadrature=8) @ u for d in range(dim)]
    slopes = V.gradient(u, 8)
    weights = np.concatenate(
        [b.weighted_det for b in femops.geometry.Geometry(mesh, V.quadrature(8))]
    )
    for d in range(dim):
        assert abs(flux[d] - (weights * slopes[..., d]).sum()) < 1e-10 * np.abs(u).sum()
    for level in LEVELS:
        B = femops.boundary_mass(V, lambda x: 1 + x[0] ** 2, level=level, quadrature=7)
        expected = femops.boundary_mass(V, lambda x: 1 + x[0] ** 2, quadrature=9).assemble() @ u
        if make is graded:
            assert error(B @ u, expected) < 1e-12
        one = np.ones(V.size)
        area = femops.integrate(V, lambda x: 1 + x[0] ** 2, boundary="all", quadrature=9)
        assert one @ (B @ one) == pytest.approx(area, rel=1e-6 if make is curved else 1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_faces_have_costs_and_a_level_is_chosen(dim):
    """Faces of tetrahedra have rules of triangles: work is counted at their points."""
    V, W = femops.H1(curved(dim), 2), femops.L2(curved(dim), 2)

    def flux(u, n):
        return {"value": u.grad @ n}

    for make in (
        lambda **level: femops.boundary_mass(V, lambda x: 1 + x[0], **level),
        lambda **level: femops.form(flux, V, boundary=True, **level),
        lambda **level: femops.interior_penalty(W, **level),
    ):
        A, B = make(level="auto"), make()
        u = vector(A.space)
        assert error(A @ u, B @ u) < 1e-13
        assert B.cost().data_flops > 0


@pytest.mark.parametrize(("dim", "p"), [(2, 2), (2, 4), (3, 2), (3, 3)])
def test_patch_test(dim, p):
    """Polynomials of degree p are solutions, whatever the shape and numbers of the elements."""
    mesh = graded(dim)
    V = femops.H1(mesh, p)
    exact = lambda x: (1 + x[0] - 2 * x[-1]) ** p  # noqa: E731
    second = lambda x: -p * (p - 1) * 5 * (1 + x[0] - 2 * x[-1]) ** (p - 2)  # noqa: E731
    u = V.interpolate(exact)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    found, info = femops.cg(A, A.rhs(femops.load(V, second), u), M=femops.multigrid(A), rtol=1e-12)
    assert info.converged
    assert error(found, u) < 1e-9
    assert femops.l2_error(V, u, exact) < 1e-12


@pytest.mark.parametrize(("dim", "p"), [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])
def test_convergence_on_curved_domains(dim, p):
    exact = lambda x: np.sin(2 * x[0]) * np.exp(x[-1])  # noqa: E731
    factor = 3.0
    errors = []
    for n in (4, 8):
        domain = femops.disc(n // 2, order=p) if dim == 2 else femops.ball(n // 2, order=p)
        V = femops.H1(domain.simplices(), p)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        b = femops.load(V, lambda x: factor * exact(x))
        u, info = femops.cg(A, A.rhs(b, V.interpolate(exact)), M=femops.multigrid(A))
        assert info.converged
        assert info.iterations < 15
        errors.append(femops.l2_error(V, u, exact))
    assert np.log2(errors[0] / errors[1]) > p + 0.55


@pytest.mark.parametrize("dim", [2, 3])
def test_functionals(dim):
    V = femops.H1(curved(dim), 2)
    u = vector(V)
    square = femops.functional(lambda u, x: x[0] * u * u, V)(u)
    values = V.values(u)
    geometry = femops.geometry.Geometry(V.mesh, V.quadrature())
    x = np.concatenate([block.points for block in geometry])[..., 0]
    weights = np.concatenate([block.weighted_det for block in geometry])
    assert square == pytest.approx((weights * x * values**2).sum(), rel=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_projection_keeps_polynomials(dim):
    mesh, f = curved(dim, degree=2), lambda x: 1 + x[0] ** 2 - x[0] * x[-1]
    straight = graded(dim)
    for V in (femops.H1(straight, 3), femops.L2(straight, 2)):
        assert error(femops.project(V, f), V.interpolate(f)) < 1e-10
    V = femops.L2(mesh, 2)
    values, x = femops.project(V, f, quadrature=8), V.quadrature(8)
    geometry = femops.geometry.Geometry(mesh, x)
    points = np.concatenate([block.points for block in geometry])
    gap = V.values(values, 8) - f(np.moveaxis(points, 2, 0))
    weights = np.concatenate([block.weighted_det for block in geometry])
    moments = V.element.sums(x.places, weights * gap)
    assert np.abs(moments).max() < 1e-13


def test_rules_are_positive_and_exact():
    for dim, degree in itertools.product((2, 3), (0, 1, 4, 7, 12, 20)):
        rule = simplex_rule(dim, degree)
        assert rule.weights.min() > 0
        x, w = oracle.collapsed(dim, degree // 2 + 2)
        theirs, mine = (oracle.monomials(dim, degree, points)[0] for points in (x, rule.points))
        np.testing.assert_allclose(rule.weights @ mine, w @ theirs, rtol=1e-11)


def test_loads_on_faces_take_rules_of_triangles():
    V = femops.H1(graded(3), 2)
    g = lambda x: x[0] ** 2 - x[1]  # noqa: E731
    for rule in (simplex_rule(2, 5), simplex_rule(2, 9)):
        load = femops.boundary_load(V, g, quadrature=rule)
        assert error(load, femops.boundary_mass(V, quadrature=rule) @ V.interpolate(g)) < 1e-13


def test_bad_input_is_refused():
    mesh = graded(2)
    V = femops.H1(mesh, 2)
    for call, error_class, message in (
        (lambda: femops.mass(V, quadrature=gauss(4)), BasisError, "simplex_rule"),
        (lambda: femops.mass(V, quadrature=2), SpaceError, "degree 3"),
        (lambda: femops.mass(V, quadrature=1024), BasisError, r"1024\*\*2 points: .* most 64"),
        (lambda: femops.boundary_mass(V, quadrature=2), SpaceError, "at least 3"),
        (lambda: femops.boundary_mass(V, quadrature=gauss(1)), SpaceError, "at least 3"),
        (
            lambda: femops.integrate(V, V.zeros(), boundary="all", quadrature=-1),
            SpaceError,
            "at least 3",
        ),
        (lambda: femops.H1(mesh, 9), SpaceError, "order 8"),
        (lambda: femops.H1(mesh, 2, family="bernstein"), SpaceError, "bernstein"),
        (lambda: PointRule([[0.7, 0.7]], [0.5], simplex=True), BasisError, "at most 1"),
        (lambda: PointRule([[0.2, 0.2]], [1.0], simplex=True), BasisError, "1/2"),
        (lambda: simplex_rule(4, 2), BasisError, "dim"),
        (lambda: simplex_rule(2, 99), BasisError, "degree"),
        (
            lambda: femops.mass(femops.H1(femops.box((2, 2)), 1), quadrature=simplex_rule(2, 3)),
            BasisError,
            "quadrilaterals",
        ),
    ):
        with pytest.raises(error_class, match=message):
            call()


@pytest.mark.parametrize(("dim", "p"), [(2, 1), (2, 3), (3, 1), (3, 2)])
def test_interior_penalty_equals_sums_over_faces(dim, p):
    mesh = graded(dim)
    V = femops.L2(mesh, p)
    u, v = vector(V), vector(V, 1)
    penalty = 7.0

    def sums(jumps, means, n, heights):
        size = penalty * np.mean([1 / h for h in heights])
        terms = size * jumps[0] * jumps[1]
        return terms - (means[0] @ n) * jumps[1] - (means[1] @ n) * jumps[0]

    expected = sum(oracle.face_sums(V, u, v, sums)) + v @ (femops.diffusion(V) @ u)
    for level in LEVELS:
        A = femops.interior_penalty(V, penalty=penalty, level=level)
        assert v @ (A @ u) == pytest.approx(expected, rel=1e-11)
    matrix = femops.interior_penalty(V).assemble().toarray()
    assert error(matrix, matrix.T) < 1e-14
    assert np.linalg.eigvalsh(matrix)[0] > 1e-3
    assert error(femops.interior_penalty(V).diagonal(), matrix.diagonal()) < 1e-14


@pytest.mark.parametrize("make", [graded, curved])
@pytest.mark.parametrize(("dim", "p"), [(2, 2), (3, 1)])
def test_discontinuous_solutions(make, dim, p):
    """Interior penalty has polynomial solutions; on curved elements it is stable."""
    V = femops.L2(make(dim), p)
    exact = lambda x: (1 + x[0] - 2 * x[-1]) ** p  # noqa: E731
    second = lambda x: -p * (p - 1) * 5.0 + 0 * x[0]  # noqa: E731
    A = femops.interior_penalty(V)
    b = femops.load(V, second) + femops.dirichlet_load(V, exact)
    M = femops.multigrid(A)
    u, info = femops.cg(A, b, M=M, rtol=1e-12)
    assert info.converged
    assert info.iterations < (20 if make is curved else 80)  # the graded mesh is stretched
    if make is graded:
        assert error(u, V.interpolate(exact)) < 1e-8
    assert np.linalg.eigvalsh(A.assemble().toarray())[0] > 1e-3


@pytest.mark.parametrize("dim", [2, 3])
def test_upwind_convection_keeps_mass(dim):
    """Without a boundary nothing is gained; constants are not changed; energy only falls."""
    V = femops.L2(periodic(dim), 2)
    wind = np.array([1.0, 0.0, 0.0])[:dim]
    A = femops.upwind_convection(V, wind)
    u = vector(V)
    assert abs(np.ones(V.size) @ (A @ u)) < 1e-12
    assert np.abs(A @ np.ones(V.size)).max() < 1e-13
    assert u @ (A @ u) > 0


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", [femops.H1, femops.L2])
def test_derivatives_on_the_boundary(dim, kind):
    V = kind(graded(dim), 2)
    u = V.interpolate(lambda x: x[0] ** 2 + 2 * x[-1])
    for level in LEVELS:
        flux = femops.form(lambda u, n: {"value": u.grad @ n}, V, boundary="all", level=level)
        assert np.ones(V.size) @ (flux @ u) == pytest.approx(2 * V.mesh.volume(), rel=1e-12)
        x = vector(V)
        assert error(flux @ x, flux.assemble() @ x) < 1e-13
