"""Spaces and forms on meshes of several shapes: exact polynomials, matrices, solvers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import femops
import femops.eigen
import femops_meshes
from femops.errors import OperatorError, SolverError, SpaceError
from femops_meshes.coordinates.mapping import positions
from support.mixed_meshes import MIXED, flat_mesh, form, matrix, mixed_mesh

SHAPES = ("hexahedra", "prisms"), ("prisms", "tetrahedra"), ("prisms",), ()


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_elements_agree_on_the_nodes_that_they_share(shapes, order):
    V = femops.H1(mixed_mesh(2, seed=order, shapes=shapes, curved=2), order)
    x = V.dof_coordinates()
    for part in V.parts:
        nodes = positions(part.mesh.coordinates, part.element.nodes)
        np.testing.assert_allclose(x[part.restriction.indices], nodes, atol=1e-13)
    assert len(np.unique(x.round(9), axis=0)) == V.ndofs  # no node has two dofs
    touched = np.concatenate([part.restriction.indices.ravel() for part in V.parts])
    assert np.array_equal(np.unique(touched), np.arange(V.ndofs))


def _power(p):
    return lambda x: (1.0 + x[0] - 2.0 * x[1] + 0.5 * x[2]) ** p


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_polynomials_are_exact(shapes, order):
    """Patch test: the polynomial of the space's degree solves its own problem."""
    V = femops.H1(mixed_mesh(2, seed=order, shapes=shapes), order)
    u = V.interpolate(_power(order))
    factor = -5.25 * order * (order - 1)
    f = (lambda x: factor * _power(order - 2)(x)) if order > 1 else 0.0
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, f), u)
    found, info = femops.cg(A, b, rtol=1e-13, maxiter=2000, M=femops.jacobi(A))
    assert info.converged
    assert abs(found - u).max() < 1e-9
    assert femops.l2_error(V, u, _power(order)) < 1e-12


@pytest.mark.parametrize("curved", [0, 2])
def test_theorem_of_gauss(curved):
    mesh = mixed_mesh(2, curved=curved)
    V, volume = femops.H1(mesh, 2), mesh.volume()
    flux = femops.boundary_load(V, lambda x, n: (x * n).sum(axis=0))
    assert abs(flux.sum() - 3.0 * volume) < 1e-3 * curved + 1e-12  # normals are no polynomials
    assert abs(femops.integrate(V, 1.0) - volume) < 1e-12
    R, one = femops.boundary_mass(V, 2.0), V.interpolate(1.0)
    area = femops.integrate(V, 1.0, boundary="all", quadrature=6)
    assert abs(one @ (R @ one) - 2.0 * area) < 1e-4 * curved + 1e-12
    N = femops.form(lambda u, n: {"value": u.grad @ n}, V, boundary="all")
    linear = V.interpolate(lambda x: x[0] - 3.0 * x[2])
    if not curved:
        assert abs(one @ (N @ linear)) < 1e-12
        gradient = femops.form(lambda u: {"grad": u.grad}, V) @ linear
        np.testing.assert_allclose(one @ gradient, 0.0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_matrices_are_sums_over_elements(order):
    mesh, rng = mixed_mesh(1, seed=2, curved=2), np.random.default_rng(order)
    V = femops.H1(mesh, order)
    A, dense = femops.form(form, V), matrix(V)
    u, many = rng.standard_normal(V.size), rng.standard_normal((V.size, 5))
    np.testing.assert_allclose(A @ u, dense @ u, atol=1e-12)
    np.testing.assert_allclose(A @ many, dense @ many, atol=1e-12)
    np.testing.assert_allclose(A.assemble().toarray(), dense, atol=1e-12)
    np.testing.assert_allclose(A.diagonal(), dense.diagonal(), atol=1e-12)
    for level in ("element", "full", "matrix-free", "auto"):
        np.testing.assert_allclose(A.at_level(level) @ u, dense @ u, atol=1e-12)
    narrow = A.at_level("partial").update() @ u
    np.testing.assert_allclose(narrow, dense @ u, atol=1e-12)


def test_prisms_of_another_library():
    skfem = pytest.importorskip("skfem")
    mesh = mixed_mesh(2, seed=5, shapes=("prisms",))
    (part,) = mesh.parts
    x = np.zeros((mesh.num_vertices, 3))
    x[part.elements] = part.coordinates
    wedges = skfem.MeshWedge1(x.T.copy(), part.elements.T.copy())
    rule = femops.basis.rule_of(part.cell, 4)  # those of scikit-fem 12 sum to half the volume
    points = rule.points.T.copy(), rule.weights
    basis = skfem.Basis(wedges, skfem.ElementWedge1(), quadrature=points)
    laplacian = skfem.BilinearForm(lambda u, v, w: (u.grad * v.grad).sum(axis=0) + u * v)
    theirs = laplacian.assemble(basis).toarray()
    V = femops.H1(mesh, 1)
    A = femops.form(lambda u: {"grad": u.grad, "value": u}, V).assemble().toarray()
    place = np.zeros(mesh.num_vertices, dtype=int)
    place[part.elements] = V.parts[0].restriction.indices
    np.testing.assert_allclose(A[np.ix_(place, place)], theirs, atol=1e-13)


def test_fields_and_products():
    mesh, rng = mixed_mesh(2, seed=1), np.random.default_rng(0)
    V, Q = femops.H1(mesh, 2, ncomp=3), femops.H1(mesh, 1)
    W = femops.Product(u=V, p=Q)

    def stokes(u, p):
        return {"u": {"grad": u.grad - p * np.eye(3)}, "p": {"value": -u.div}}

    S, x = femops.form(stokes, W), rng.standard_normal(W.size)
    np.testing.assert_allclose(S @ x, S.assemble() @ x, atol=1e-12)
    _, p = W.split(x)
    block = S["u", "p"]
    np.testing.assert_allclose(block @ p, S["u", "p"].assemble() @ p, atol=1e-12)
    v = V.interpolate(lambda x: (x[0] ** 2, x[0] * x[1], -x[2]))
    known = W.join(u=v, p=Q.interpolate(lambda x: x[0]))
    one = W.join(u=0.0 * v, p=Q.interpolate(1.0))
    total = femops.integrate(Q, lambda x: -(2 * x[0] + x[0] - 1.0))  # -div v
    assert abs(one @ (S @ known) - total) < 1e-12
    F = femops.residual(lambda u, p: {"u": {"value": p * u}, "p": {"value": p**2}}, W)
    J, eps = F.jacobian(x), 1e-6
    step = rng.standard_normal(W.size)
    ahead, behind = F.residual(x + eps * step), F.residual(x - eps * step)
    np.testing.assert_allclose(J @ step, (ahead - behind) / (2 * eps), atol=1e-8)

    def squares(u):
        return {"value": u, "e": u**2, "m": 1.0 * u}

    F = femops.residual(squares, Q, integrals=["e"], minima=["m"])
    w = Q.interpolate(lambda x: x[2] - x[0])  # the least value is in a prism
    _, values = F.evaluate(w)
    assert abs(values["e"] - femops.l2_norm(Q, w) ** 2) < 1e-12
    lowest = [part.values(w).min() for part in Q.parts]
    assert abs(values["m"] - min(lowest)) < 0.1
    assert np.argmin(lowest) == 1
    cells = np.cumsum([part.mesh.num_elements for part in Q.parts])
    assert cells[0] <= F.element_of("m") < cells[1]
    energy = femops.functional(lambda u: 0.5 * u**2, Q)
    w = Q.interpolate(lambda x: x[0])
    assert abs(energy(w) - 0.5 * femops.integrate(Q, lambda x: x[0] ** 2)) < 1e-12
    assert abs(energy.derivative.residual(w) @ w - 2.0 * energy(w)) < 1e-12


def test_coefficients_and_projections():
    mesh = mixed_mesh(2, seed=3)
    V, K = femops.H1(mesh, 2), femops.L2(mesh, 1)
    field = femops.GridFunction(K, K.interpolate(lambda x: 1 + x[2]))
    u = V.interpolate(lambda x: x[0] * x[1])
    A, B = femops.diffusion(V, kappa=field), femops.diffusion(V, kappa=lambda x: 1 + x[2])
    np.testing.assert_allclose(A @ u, B @ u, atol=1e-13)
    twice = A.update(kappa=femops.GridFunction(K, 2.0 * field.vector))
    np.testing.assert_allclose(twice @ u, 2.0 * (B @ u), atol=1e-13)
    kappa = femops.by_attribute(mesh, {1: 3.0})
    np.testing.assert_allclose(
        femops.diffusion(V, kappa=kappa) @ u, 3.0 * (femops.diffusion(V) @ u), atol=1e-13
    )
    with pytest.raises(OperatorError, match="shape"):
        femops.diffusion(V, kappa=np.ones((mesh.num_elements, 4)))
    gradient = femops.project(femops.L2(mesh, 1, ncomp=3), lambda u: u.grad, V, u)
    assert (
        femops.l2_error(femops.L2(mesh, 1, ncomp=3), gradient, lambda x: (x[1], x[0], 0.0 * x[0]))
        < 1e-12
    )
    again = femops.project(V, lambda x: x[0] * x[1], rtol=1e-12)
    np.testing.assert_allclose(again, u, atol=1e-9)
    fine = femops.H1(mesh.refine(), 2)
    np.testing.assert_allclose(
        fine.interpolate((V, u)), fine.interpolate(lambda x: x[0] * x[1]), atol=1e-12
    )


@pytest.mark.parametrize("mesh", [mixed_mesh(1, curved=2), flat_mesh()], ids=["space", "plane"])
def test_values_at_points_are_a_list_with_an_array_for_each_part(mesh):
    V, W = femops.H1(mesh, 2), femops.H1(mesh, 1, ncomp=mesh.dim)
    u = V.interpolate(lambda x: 2.0 + x[0] * x[1])
    values, field = V.values(u), femops.GridFunction(V, u)
    points = [femops.geometry.Geometry(p.mesh, p.quadrature()) for p in V.parts]
    assert all(
        one.shape == (part.mesh.num_elements, geometry.num_points)
        for one, part, geometry in zip(values, V.parts, points, strict=True)
    )
    A, b = femops.mass(V, rho=field), femops.load(V, field)
    assert np.array_equal(femops.mass(V, rho=values) @ u, A @ u)
    assert np.array_equal(femops.load(V, tuple(values)), b)
    squares = femops.mass(V).update(rho=[one**2 for one in values])
    flux = femops.form(lambda u, k: {"grad": k @ u.grad}, V, k=[_eye(mesh.dim, v) for v in values])
    np.testing.assert_allclose(flux @ u, femops.diffusion(V, kappa=field) @ u, atol=1e-12)
    assert u @ (squares @ V.interpolate(1.0)) == pytest.approx(u @ (A @ u), rel=1e-12)
    twisted = [(1.0 + 2.0j) * one for one in values]
    C = femops.form(lambda u, k: {"value": k * u}, V, k=twisted, dtype=complex)
    np.testing.assert_allclose(C @ u.astype(complex), (1.0 + 2.0j) * (A @ u), atol=1e-13)
    turned = femops.form(lambda u, k: {"value": k * u}, V, k=lambda x: 1j * x[0], dtype=complex)
    real = femops.mass(V, rho=lambda x: x[0] + 10.0)
    np.testing.assert_allclose(
        (turned @ u.astype(complex)).imag, real @ u - 10.0 * (femops.mass(V) @ u), atol=1e-12
    )
    slopes = W.gradient(W.interpolate(lambda x: 3.0 * x[::-1]))
    if mesh.order == 1:
        np.testing.assert_allclose(np.concatenate(slopes, axis=None).reshape(-1, 2, 2)[:, 0, 1], 3)
    where, found = V.sample(u, 4)
    for x, one, (_, alone) in zip(where, found, (p.sample(u, 4) for p in V.parts), strict=True):
        assert np.array_equal(one, alone)
        if mesh.order == 1:
            np.testing.assert_allclose(one, 2.0 + x[..., 0] * x[..., 1], atol=1e-12)
    for bad in (values[0], values[:1], [1.0, 2.0, 3.0, 4.0]):
        with pytest.raises(
            OperatorError, match="list of the values at the quadrature points of ea"
        ):
            femops.mass(V, rho=bad)
    with pytest.raises(OperatorError, match="values at the quadrature points, "):
        femops.mass(V, rho=[one[:, 1:] for one in values])
    with pytest.raises(OperatorError, match="a function of x, or a field"):
        femops.boundary_mass(V, np.ones((4, 4)))
    with pytest.raises(SpaceError, match="a rule each"):
        V.quadrature(4)
    for name in ("basis", "p1d"):
        with pytest.raises(AttributeError, match=r"V\.parts"):
            getattr(V, name)


def _eye(dim, values):
    """Matrices: the unit matrix times each value."""
    return values[..., np.newaxis, np.newaxis] * np.eye(dim)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_multigrid(order):
    mesh = mixed_mesh(4 if order < 4 else 2, seed=1)
    V = femops.H1(mesh, order)
    A = femops.diffusion(V, kappa=lambda x: 1 + x[0]).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, 1.0), 0.0)
    u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-9)
    assert info.converged
    assert info.iterations <= 12
    exact, _ = femops.cg(A, b, M=femops.jacobi(A), rtol=1e-12, maxiter=2000)
    np.testing.assert_allclose(u, exact, atol=1e-8 * abs(exact).max())


def test_eigenpairs_are_those_of_dense_matrices():
    V = femops.H1(flat_mesh(), 2)
    A, M = femops.diffusion(V), femops.mass(V)
    due = scipy.linalg.eigh(A.assemble().toarray(), M.assemble().toarray(), eigvals_only=True)
    found = femops.eigen.lobpcg(A, M, k=3, tol=1e-10)  # constants are the first
    np.testing.assert_allclose(found.values, due[:3], atol=1e-8)
    x = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [3, 0], [2, 1.0]])
    two = femops.MixedMesh.from_arrays(
        x, {"quadrilaterals": [[0, 1, 2, 3]], "triangles": [[4, 5, 6]]}
    )
    W = femops.H1(two.refine(2), 2)
    held = W.boundary_dofs(where=lambda x: x[0] < 1.5)  # of the first body alone
    A, M = femops.diffusion(W).constrained(held), femops.mass(W)
    free = np.setdiff1d(np.arange(W.size), held)
    dense = [B.assemble().toarray()[np.ix_(free, free)] for B in (A, M)]
    due = scipy.linalg.eigh(*dense, eigvals_only=True)
    assert abs(due[0]) < 1e-10
    found = femops.eigen.lobpcg(A, M, k=2, tol=1e-10)
    np.testing.assert_allclose(found.values, due[:2], atol=1e-8)
    assert np.array_equal(W.from_nodal(np.arange(W.size * 1.0)), np.arange(W.size))


def test_boundaries_by_attribute():
    mesh = mixed_mesh(2)
    V = femops.H1(mesh, 2)
    low = V.boundary_dofs(where=lambda x: x[2] < 1e-9)
    assert abs(V.dof_coordinates()[low, 2]).max() < 1e-12
    assert len(low) == 9 * 5
    with pytest.raises(SpaceError, match="boundary attribute 7"):
        V.boundary_dofs(7)
    with pytest.raises(SpaceError, match="boundary attribute 7"):
        femops.boundary_mass(V, 1.0, attributes=7)


def test_what_is_not_done_says_so():
    mesh = mixed_mesh(1)
    V = femops.H1(mesh, 2)
    with pytest.raises(SolverError, match="hexahedra, prisms and tetrahedra"):
        femops.low_order(femops.diffusion(V))
    with pytest.raises(AttributeError, match=r"V\.parts"):
        _ = V.restriction


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("order", [1, 2])
def test_discontinuous_functions(shapes, order):
    """Interior penalty reproduces polynomials across faces between all shapes."""
    V = femops.L2(mixed_mesh(2, seed=order, shapes=shapes), order)
    u, rng = V.interpolate(_power(order)), np.random.default_rng(order)
    jump = femops.form(lambda u, n: {"jump": u.jump + u.jump.grad @ n}, V, faces="interior")
    assert abs(jump @ u).max() < 1e-12
    A = femops.interior_penalty(V)
    matrix, v = A.assemble(), rng.standard_normal(V.size)
    np.testing.assert_allclose(A @ v, matrix @ v, atol=1e-11)
    np.testing.assert_allclose(A.diagonal(), matrix.diagonal(), atol=1e-11)
    assert abs(matrix - matrix.T).max() < 1e-12
    factor = -5.25 * order * (order - 1)
    f = (lambda x: factor * _power(order - 2)(x)) if order > 1 else (lambda x: 0.0 * x[0])
    b = femops.load(V, f) + femops.dirichlet_load(V, _power(order))
    found, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-12)
    assert info.iterations < 25
    assert abs(found - u).max() < 1e-9


@pytest.mark.parametrize("shapes", SHAPES)
def test_fluxes_of_finite_volumes(shapes):
    """The theorem of Gauss in each element: jumps of constants times normals are volumes."""
    V, rng = femops.L2(mixed_mesh(2, seed=9, shapes=shapes), 0), np.random.default_rng(0)
    c, one = rng.standard_normal(V.size), V.interpolate(1.0)

    def through(value):
        return lambda u, n, x: {value: (u.jump if value == "mean" else u) * (x @ n)}

    inside = femops.form(through("mean"), V, faces="interior")
    outside = femops.form(through("value"), V, boundary="all")
    total = one @ (inside @ c) + one @ (outside @ c)
    assert abs(total - 3.0 * femops.integrate(V, c)) < 1e-12
    h = femops.form(lambda u, n, h: {"value": h * u}, V, boundary="all")
    area = femops.integrate(V, 1.0, boundary="all")
    if "tetrahedra" not in shapes and shapes:  # outer faces are across edges of length 1/2
        assert abs(one @ (h @ one) - 0.5 * area) < 1e-12


def test_prisms_whose_axes_are_across():
    """Two prisms share a quadrilateral, along the axis of one and across that of the other."""
    x = np.array(
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [-1, 0, 0], [-1, 1, 0]]
    )
    turns = [[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3], [3, 5, 4, 0, 2, 1], [4, 3, 5, 1, 0, 2]]
    for one, other in np.ndindex(4, 4):
        pair = [
            np.array([0, 1, 2, 3, 4, 5])[turns[one]],
            np.array([2, 5, 7, 0, 3, 6])[turns[other]],
        ]
        mesh = femops_meshes.MixedMesh.from_arrays(x.astype(float), {"prisms": pair})
        V, W = femops.L2(mesh, 2), femops.H1(mesh, 2)
        u, f = V.interpolate(_power(2)), lambda x: -10.5 + 0.0 * x[0]
        b = femops.load(V, f) + femops.dirichlet_load(V, _power(2))
        np.testing.assert_allclose(femops.interior_penalty(V) @ u, b, atol=1e-11)
        assert femops.l2_error(W, W.interpolate(_power(2)), _power(2)) < 1e-13


def test_squares_and_triangles():
    mesh = flat_mesh()
    for order in (1, 2, 4):
        V, D = femops.H1(mesh, order), femops.L2(mesh, order)

        def power(x, p=order):
            return (1.0 + x[0] - 2.0 * x[1]) ** p

        def f(x, p=order):
            return -5.0 * p * (p - 1) * (1.0 + x[0] - 2.0 * x[1]) ** max(p - 2, 0)

        A, u = femops.diffusion(V).constrained(V.boundary_dofs()), V.interpolate(power)
        found, _ = femops.cg(A, A.rhs(femops.load(V, f), u), rtol=1e-13, M=femops.multigrid(A))
        np.testing.assert_allclose(found, u, atol=1e-9 * abs(u).max())
        b = femops.load(D, f) + femops.dirichlet_load(D, power)
        residual = femops.interior_penalty(D) @ D.interpolate(power) - b
        assert abs(residual).max() < 1e-9 * abs(b).max()


@pytest.mark.parametrize("dim", [2, 3])
def test_fields_on_faces_between_shapes(dim):
    """A field is read on the part of each side: as coefficient, and as state of a Jacobian."""
    mesh, rng = MIXED[dim](), np.random.default_rng(dim)
    V = femops.L2(mesh, 2)

    def flux(u, n):
        return {"jump": (u.minus**2 + u.minus * u.plus + u.plus**2) * n[0]}

    def kappa(x):
        return 1 + x[0]

    u, v = rng.standard_normal((2, V.size))
    F = femops.residual(flux, V, faces="interior")
    ahead, behind = F.residual(u + v), F.residual(u - v)  # of a quadratic function
    np.testing.assert_allclose(F.jacobian(u) @ v, (ahead - behind) / 2, atol=1e-11)
    field = femops.GridFunction(V, V.interpolate(kappa))
    A, B = femops.interior_penalty(V, field), femops.interior_penalty(V, kappa)
    np.testing.assert_allclose(A @ u, B @ u, atol=1e-10)


def test_functionals_beside_a_residual_are_of_all_parts():
    mesh, rng = mixed_mesh(2, seed=4), np.random.default_rng(0)
    W = femops.Product(c=femops.H1(mesh, 2), T=femops.L2(mesh, 0))

    def reaction(c, T):
        return {"c": {"value": T * c}, "T": {}, "heat": c, "coldest": T}

    F = femops.residual(reaction, W, integrals=["heat"], minima=["coldest"])
    for _ in range(4):
        T = 2.0 + rng.random(mesh.num_elements)  # dofs are elements, part by part
        z = W.join(c=W.spaces["c"].interpolate(lambda x: x[0]), T=T)
        found = F.evaluate(z)[1]
        assert abs(found["heat"] - femops.integrate(W.spaces["c"], lambda x: x[0])) < 1e-12
        assert (found["coldest"], F.element_of("coldest")) == (T.min(), T.argmin())


@pytest.mark.parametrize("order", [1, 2])
def test_masses_of_prisms_that_taper_are_exact(order):
    mesh = femops.box((1, 1, 2), cells="prisms").mapped(
        lambda x: np.array([x[0] * (1 + x[2]), x[1] * (1 + x[2] / 2), x[2] * (1 + x[0])])
    )
    V = femops.H1(mesh, order)
    L = femops.L2(mesh, order - 1)
    np.testing.assert_allclose(femops.load(L, 1.0).sum(), mesh.volume(), rtol=1e-13)
    exact = femops.mass(V, quadrature=order + 5).assemble()
    assert abs(femops.mass(V).assemble() - exact).max() < 1e-14


def test_fields_have_the_values_of_both_sides_of_faces_between_shapes():
    """Reference: a field that is a component of the unknown, multiplied at the points."""
    mesh, rng = mixed_mesh(1, seed=3), np.random.default_rng(0)
    V, K = femops.L2(mesh, 1), femops.L2(mesh, 1)
    u, k = rng.standard_normal(V.size), 2.0 + rng.random(K.size)
    W = femops.Product(u=V, k=K)

    def flux(u, k):
        return {"jump": k.minus * u.minus - 2.0 * k.plus * u.plus}

    A = femops.form(flux, V, faces="interior", k=femops.GridFunction(K, k))
    both = femops.residual(lambda u, k: {"u": flux(u, k), "k": {}}, W, faces="interior")
    expected = W.split(both.residual(W.join(u=u, k=k)))[0]
    np.testing.assert_allclose(A @ u, expected, atol=1e-12)
    np.testing.assert_allclose(A.assemble() @ u, expected, atol=1e-12)
    J, eps = both.jacobian(W.join(u=u, k=k)), 1e-6
    step = rng.standard_normal(W.size)
    ahead, behind = (both.residual(W.join(u=u, k=k) + s * step) for s in (eps, -eps))
    np.testing.assert_allclose(J @ step, (ahead - behind) / (2.0 * eps), atol=1e-8)
    B = femops.interior_penalty(V, femops.GridFunction(K, 3.0 + 0.0 * k))
    np.testing.assert_allclose(B @ u, femops.interior_penalty(V, 3.0) @ u, atol=1e-11)


def test_gradients_by_fields_and_numbers():
    mesh, rng, eps = mixed_mesh(1, seed=3), np.random.default_rng(0), 1e-6
    V, K = femops.H1(mesh, 1), femops.L2(mesh, 0)
    k, c, u = 2.0 + rng.random(K.size), 1.5, rng.standard_normal(V.size)
    step = rng.standard_normal(K.size)

    def goal(k, c):
        field = femops.GridFunction(K, k)
        return femops.functional(lambda u, k, c: c**2 * k * u**2, V, k=field, c=c)

    found = femops.gradient(goal(k, c), None, u, ["k", "c"])
    slope = (goal(k + eps * step, c)(u) - goal(k - eps * step, c)(u)) / (2.0 * eps)
    assert abs(found["k"] @ step - slope) < 1e-7 * abs(slope)
    slope = (goal(k, c + eps)(u) - goal(k, c - eps)(u)) / (2.0 * eps)
    assert abs(found["c"] - slope) < 1e-7 * abs(slope)
