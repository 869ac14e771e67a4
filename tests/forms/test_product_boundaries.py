"""Forms on products over the boundary, against blocks that are forms on single spaces."""

import numpy as np
import pytest

import femops
from support.cases.products import held


@pytest.mark.parametrize("level", ["full", "partial"])
def test_boundary_integrals(level):
    """Added to those over the elements, of which none has a block [p, p]."""
    mesh, rng = femops.disc(1), np.random.default_rng(0)
    W = femops.Product(u=femops.H1(mesh, 3, ncomp=2), p=femops.H1(mesh, 2), q=femops.L2(mesh, 1))
    V, P, options = W.spaces["u"], W.spaces["p"], {"boundary": "all", "quadrature": 6}

    def slip(u, p, q, x, n, k):
        return {
            "u": {"value": k * (u @ n) * n * (1 + x[0] ** 2) + p * n},
            "p": {"value": u @ n + p},
            "q": {},
        }

    def inside(u, p, q):
        return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": q - u.div}, "q": {"value": p}}

    B = femops.form(slip, W, k=2.0, level=level, **options)
    A = femops.form(inside, W, level=level)
    normal = femops.form(lambda p, n: {"value": p * n}, P, V, **options).assemble().toarray()
    R, u, p = np.zeros((W.size, W.size)), W.slice("u"), W.slice("p")
    R[u, u] = (
        femops.form(lambda u, n, x: {"value": 2 * (u @ n) * n * (1 + x[0] ** 2)}, V, **options)
        .assemble()
        .toarray()
    )
    R[u, p], R[p, u] = normal, normal.T
    R[p, p] = femops.form(lambda p: {"value": p}, P, **options).assemble().toarray()
    dofs, X = W.positions(u=V.boundary_dofs()[:5], p=[3]), rng.standard_normal((W.size, 4))
    for operator, matrix in ((B, R), (A + 2 * B, A.assemble().toarray() + 2 * R)):
        for found, expected in (
            (operator, matrix),
            (operator.T, matrix.T),
            (operator.constrained(dofs), held(matrix, dofs)),
        ):
            np.testing.assert_allclose(found @ X, expected @ X, rtol=0, atol=1e-11)
            np.testing.assert_allclose(found @ X[:, 0], expected @ X[:, 0], rtol=0, atol=1e-11)
            np.testing.assert_allclose(found.diagonal(), np.diag(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("boundary", "level"), [(None, "element"), ("all", "partial")])
def test_transposes_where_fields_have_no_row(boundary, level):
    """Or test functions no column: each is the other's in the transpose, and is zero there."""
    mesh, rng = femops.disc(1), np.random.default_rng(1)
    W = femops.Product(u=femops.H1(mesh, 2), p=femops.L2(mesh, 1), q=femops.H1(mesh, 1))
    forms = [
        lambda u, p, q: {"u": {"grad": q.grad, "value": u}, "p": {}, "q": {}},
        lambda u, p, q: {"u": {}, "p": {"value": u.grad[0]}, "q": {"grad": p.grad}},
    ]
    x = rng.standard_normal((W.size, 9))
    for function in forms:
        A = femops.form(function, W, boundary=boundary)
        dense = A.assemble().toarray()
        B, tolerance = A.at_level(level), 1e-12 * abs(dense).max()
        for found, expected in ((B, dense), (B.T, dense.T)):
            if level == "partial":
                np.testing.assert_allclose(found @ x, expected @ x, rtol=0, atol=tolerance)
            one = found @ np.ascontiguousarray(x[:, 0])
            np.testing.assert_allclose(one, expected @ x[:, 0], rtol=0, atol=tolerance)
