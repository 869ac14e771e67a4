"""Kernels of elements whose functions are products of those of two factors: prisms."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.basis import PointRule, rule_of
from femops_meshes.coordinates import simplices
from femops_meshes.topology.entities import PRISM

K = np.array([[2.0, 0.3, -0.1], [0.5, 1.0, 0.2], [0.0, -0.4, 3.0]])
b = np.array([1.0, -2.0, 0.5])


def _form(u):
    return {"value": 0.7 * u + u.grad @ b, "grad": K @ u.grad}


def _dense(V):
    """Matrix of `_form`, by sums over the points of each element."""
    (part,) = V.parts
    rule, e_vec, dense = part.quadrature(), np.eye(part.element.size), np.zeros((V.size, V.size))
    values = part.element.values(rule.places, e_vec)
    slopes = np.array([part.element.values(rule.places, e_vec, d) for d in range(3)])
    geometry = femops.geometry.Geometry(part.mesh, rule)
    block = geometry.block(0, part.mesh.num_elements)
    for e, dofs in enumerate(part.restriction.indices):
        w, grads = block.weighted_det[e], np.einsum("dnq,qdi->inq", slopes, block.inverse[e])
        local = np.einsum("q,nq,mq->nm", w, values, 0.7 * values + np.tensordot(b, grads, 1))
        local += np.einsum("q,ij,inq,jmq->nm", w, K, grads, grads, optimize=True)
        dense[np.ix_(dofs, dofs)] += local
    return dense


@pytest.mark.parametrize("order", [1, 2, 4])
def test_affine_prisms_are_sums_over_elements(order):
    """Of constant coefficients: coefficients in an orthonormal basis take the place of points."""
    V, rng = femops.H1(femops.box((1, 3, 3), cells="prisms"), order), np.random.default_rng(order)
    dense, A, many = _dense(V), femops.form(_form, V), rng.standard_normal((V.size, 11))
    np.testing.assert_allclose(A @ many[:, 0], dense @ many[:, 0], atol=1e-12)
    np.testing.assert_allclose(A @ many, dense @ many, atol=1e-12)
    z = many[:, 1] + 1j * many[:, 2]
    complex_form = femops.form(lambda u: {"grad": 1j * (K @ u.grad)}, V, dtype="complex128")
    real = femops.form(lambda u: {"grad": K @ u.grad}, V)
    np.testing.assert_allclose(complex_form @ z, 1j * (real @ z.real) - real @ z.imag, atol=1e-12)
    short = femops.form(_form, V, dtype="float32")
    error = abs(short @ many[:, 0].astype(np.float32) - dense @ many[:, 0]).max()
    assert error < 2e-5 * abs(dense @ many[:, 0]).max()
    W = femops.H1(V.mesh, order, ncomp=3)  # each component of its own
    T, w = femops.form(lambda u: {"grad": u.grad @ K.T}, W), rng.standard_normal(W.size)
    each = np.stack([real @ c for c in W.components(w).T], axis=1)
    np.testing.assert_allclose(W.components(T @ w), each, atol=1e-12)


def test_functions_and_points_are_products():
    rule, order = rule_of(PRISM, 3), 3
    (base, line), (of, along) = simplices.factors(PRISM, order, rule.points)
    whole, count = simplices.tables(PRISM, order, rule.points), base.shape[1]
    k, i = np.divmod(np.arange(len(rule.points)), count)
    given = [(base[0], line[0]), (base[1], line[0]), (base[2], line[0]), (base[0], line[1])]
    for table, (flat, up) in zip(whole, given, strict=True):
        np.testing.assert_allclose(table, flat[i][:, of] * up[k][:, along], atol=1e-14)
    turned = np.random.default_rng(0).permutation(len(rule.points))
    assert simplices.factors(PRISM, order, rule.points[turned]) is None


def test_points_that_are_no_products_take_whole_tables():
    V = femops.H1(femops.box((1, 1, 3), cells="prisms"), 2)
    rule, rng = V.parts[0].quadrature(), np.random.default_rng(1)
    order = rng.permutation(len(rule.points))
    mixed = PointRule(rule.points[order], rule.weights[order], prism=True)

    def form(u, x):
        return {"value": x[1] * u, "grad": (1 + x[0]) * u.grad}

    u = rng.standard_normal(V.size)
    by_factors, by_tables = (femops.form(form, V, quadrature=q) for q in (rule, mixed))
    np.testing.assert_allclose(by_factors @ u, by_tables @ u, atol=1e-13)
    assert by_factors.cost().flops < 0.6 * by_tables.cost().flops


def test_work_of_a_prism():
    """The count of multiply-adds, by hand."""
    V = femops.H1(femops.box((1, 1, 1), cells="prisms"), 2)
    # 6 lines of 3 nodes: 9 products to values, 6 to derivatives; 3 layers: 3 rows of 6 for x and y
    # each; 2 layers: 6 rows of 6 for z; both ways, and 2 operations each, in 2 elements
    fewest = 2 * 2 * 2 * (6 * (9 + 6) + 3 * 2 * 3 * 6 + 2 * 6 * 6)
    flops = femops.diffusion(V).cost().flops
    assert fewest < flops < fewest + 2 * 18 * 60  # beside them a matrix at each mode
