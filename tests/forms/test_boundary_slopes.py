"""Integrals over the boundary of fields' derivatives, and of L2 spaces, against the oracle."""

import numpy as np
import pytest

import femops
from support.cases.boundary import mesh, random_form
from support.cases.products import LEVELS, held
from support.oracles import boundary as oracle

CASES = (
    *((kind, "H1") for kind in ("segment", "square", "disc", "cube", "ball")),
    *((kind, family) for kind in ("line", "disc", "ball") for family in ("L2", "Bernstein")),
)


def spaces(kind, family):
    """Trial and test space that differ where they may."""
    m = mesh(kind)
    if family == "H1":
        return femops.H1(m, 3), femops.H1(m, 2, ncomp=2)
    if family == "L2":
        return femops.L2(m, 2, ncomp=2), femops.H1(m, 3)
    return femops.L2(m, 1, family="bernstein"), femops.L2(m, 2)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "family"), CASES)
def test_any_coupling(kind, family):
    """From one space to another, one vector and many, and the transpose."""
    V, W = spaces(kind, family)
    form, weak = random_form(V, W, seed=len(kind) + len(family))
    attributes = None if kind in ("segment", "ball", "disc") else [1, 2]
    boundary = "all" if attributes is None else attributes
    q1d = 5 if V.mesh.dim > 1 else 1
    A = femops.form(form, V, W, boundary=boundary, quadrature=5)
    dense = oracle.matrix_of_slots(V, W, attributes, weak, q1d)
    scale = np.abs(dense).sum(axis=1).max()
    check(A, dense, 1e-13 * scale)
    check(A.T, dense.T, 1e-13 * scale, many=False)


def check(A, dense, tolerance, many=True):
    """Products with many vectors and with one."""
    X = np.random.default_rng(1).standard_normal((A.shape[1], 9))
    atol = tolerance * abs(X).max()
    if many:
        np.testing.assert_allclose(A @ X, dense @ X, rtol=0, atol=atol)
    np.testing.assert_allclose(A @ X[:, 0], dense @ X[:, 0], rtol=0, atol=atol)


@pytest.mark.sample(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["segment", "disc", "ball"])
def test_levels_and_sums(kind, level):
    """Square operators at all levels, alone and with others over elements and faces."""
    V = femops.H1(mesh(kind), 3)
    form, weak = random_form(V, V, seed=7, sparse=True)
    q1d = 5 if V.mesh.dim > 1 else 1
    dense = oracle.matrix_of_slots(V, V, None, weak, q1d)
    plain = femops.diffusion(V) + femops.boundary_mass(V, 3.0)
    factor = np.abs(plain.assemble()).max() / np.abs(dense).max()
    A = femops.form(form, V, boundary="all", quadrature=5, level=level)
    B = factor * A + plain.at_level(level)
    whole = factor * dense + plain.assemble().toarray()
    for found, expected in ((A, dense), (B, whole)):
        tolerance = 1e-13 * np.abs(expected).sum(axis=1).max()
        check(found, expected, tolerance)
        np.testing.assert_allclose(found.diagonal(), np.diag(expected), rtol=0, atol=tolerance)
        dofs = V.boundary_dofs()[::2]
        check(found.constrained(dofs), held(expected, dofs), tolerance)


STRAIGHT = {
    "box": lambda dim: femops.box((2, 3, 2)[:dim], upper=(1.0, 2.0, 0.5)[:dim]),
    "sheared": lambda dim: femops.box((2, 2, 1)[:dim], mapping=lambda x: x + 0.3 * x[::-1] ** 1),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", STRAIGHT)
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_constant_coefficients_on_straight_elements(dim, kind):
    """Numbers are kept by face: of values of an L2 space, of derivatives alone, of all."""
    mesh = STRAIGHT[kind](dim)
    V, L = femops.H1(mesh, 2), femops.L2(mesh, 2)
    forms = [
        (lambda u: {"value": 2 * u}, L, lambda n, h: np.diag([2.0, *[0.0] * dim])),
        (lambda u: {"grad": 3 * u.grad}, V, lambda n, h: np.diag([0.0, *[3.0] * dim])),
        (
            lambda u, n, h: {"value": u / h - u.grad @ n, "grad": -u * n},
            V,
            lambda n, h: np.block(
                [[np.array([[1 / h]]), -n[None]], [-n[:, None], np.zeros((dim, dim))]]
            ),
        ),
    ]
    q1d = 4 if dim > 1 else 1
    for form, W, D in forms:
        dense = oracle.matrix_of_slots(
            W, W, None, lambda x, n, h, D=D: D(n, h)[:, None, :, None], q1d
        )
        for level in ("partial", "element"):
            A = femops.form(form, W, boundary="all", quadrature=4, level=level)
            check(A, dense, 1e-12 * abs(dense).max() / 4, many=level == "partial")


def test_same_bits_on_any_width():
    """Faces of one element, as at edges and corners, add to the same dofs."""
    cube = femops.box((3, 2, 4), comm=femops.parallel.Serial(), reproducible=True)
    for V in (femops.H1(cube, 1, ncomp=2), femops.L2(cube, 1)):
        form, _ = random_form(V, V, seed=3)
        u, results = np.random.default_rng(4).standard_normal(V.size), []
        for lanes in (2, 16):
            A = femops.form(form, V, boundary="all", lanes=lanes)
            results.append(A @ u)
        assert all(np.array_equal(results[0], other) for other in results[1:])


def test_functionals_of_values_and_derivatives():
    """Of several fields; tests/operators/test_functionals.py has the derivatives of such."""
    m = mesh("disc")
    W = femops.Product(u=femops.H1(m, 3, ncomp=2), p=femops.L2(m, 2))

    def drag(u, p, n, x):
        stress = u.grad + u.grad.T - p * np.eye(2)
        return (stress @ n)[0] * (1 + x[1]) + p**2 * (u @ n) ** 2

    J = femops.functional(drag, W, boundary="all", quadrature=7)
    rng = np.random.default_rng(5)
    state = rng.standard_normal(W.size)
    expected = 0.0
    u, p = (state[W.slice(name)] for name in ("u", "p"))
    sides = (oracle.faces(W.spaces[name], None, 7) for name in ("u", "p"))
    for of_u, of_p in zip(*sides, strict=True):
        for q in range(len(of_u.x)):
            nodes = u.reshape(-1, 2)[of_u.nodes]
            value, grad = of_u.values[q] @ nodes, nodes.T @ of_u.slopes[q]
            pressure, n = of_p.values[q] @ p[of_p.nodes], of_u.normal[q]
            stress = grad + grad.T - pressure * np.eye(2)
            here = (stress @ n)[0] * (1 + of_u.x[q][1]) + pressure**2 * (value @ n) ** 2
            expected += of_u.measure[q] * here
    assert abs(J(state) - expected) < 1e-12 * abs(expected)


def test_nitsche():
    """Weak boundary values converge as strong ones do, with multigrid as for these."""
    errors = []
    for cells in (2, 4):
        V = femops.H1(femops.disc(cells), 3)

        def exact(x):
            return np.sin(x[0]) * np.exp(x[1])

        def nitsche(u, n, h):
            return {"value": 40 * u / h - u.grad @ n, "grad": -u * n}

        A = femops.diffusion(V) + femops.form(nitsche, V, boundary="all")
        assert A.symmetric
        g = V.interpolate(exact)
        b = femops.form(nitsche, V, boundary="all") @ g
        b += femops.form(lambda u, n: {"value": u.grad @ n}, V, boundary="all") @ g
        u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-12)
        assert info.converged
        assert info.iterations < 15
        errors.append(np.abs(u - g).max())
    assert errors[1] < errors[0] / 10
