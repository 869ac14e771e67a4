"""What objects say of themselves: tables in notebooks, and the source of a lambda."""

import re
from html import unescape

import numpy as np

import femops


def rows(thing):
    """The table of a thing, as a dictionary."""
    found = re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", thing._repr_html_())
    return {unescape(name): unescape(value) for name, value in found}


def test_tables_have_the_numbers():
    V = femops.H1(femops.box((4, 4)), 4, ncomp=2)
    A = femops.elasticity(V).constrained(V.boundary_dofs())
    M = femops.multigrid(A)
    u, info = femops.cg(A, A.rhs(femops.load(V, lambda x: (1.0 + 0 * x[0], 0 * x[0]))), M=M)
    assert rows(info)["iterations"] == str(info.iterations)
    assert rows(info)["converged"] == "yes"
    assert rows(A.cost())["operations of a product"] == f"{A.cost().flops:,}"
    assert rows(M)["order 4"] == "16 elements, 578 dofs"
    values = V.components(u)
    expected = ", ".join(f"{c.min():.6g} to {c.max():.6g}" for c in values.T)
    assert rows(femops.GridFunction(V, u))["nodal values"] == expected
    W = femops.Product(u=V, p=femops.H1(V.mesh, 1))
    assert rows(W) == {"u": repr(V), "p": repr(W.spaces["p"]), "unknowns": f"{W.size:,}"}
    both = femops.form(lambda u, p: {"u": {"value": u}, "p": {"value": u.div}}, W)
    assert rows(both)["blocks"] == "[u, u] [p, u]"


def test_a_solve_by_newton():
    V = femops.H1(femops.box((2, 2)), 2)
    F = femops.residual(lambda u: {"value": u + u**3 - 1.0}, V)
    _, info = femops.newton(F, V.zeros())
    assert rows(info)["steps"] == str(info.iterations)


def square(u):
    return {"value": u}


def test_a_lambda_shows_its_line():
    V = femops.H1(femops.box((2, 2)), 1)
    A = femops.form(lambda u: {"value": 3 * u}, V)
    assert "`A = femops.form(lambda u: {&quot;value&quot;: 3 * u}, V)`" in A._repr_html_()
    assert repr(A).startswith('Operator(`A = femops.form(lambda u: {"value": 3 * u}, V)`: 9 x 9')
    assert "2 `A = femops.form(lambda u" in repr(2 * A)
    assert repr(femops.form(square, V)) == "Operator(square: 9 x 9, float64)"
    F = femops.residual(lambda u: {"value": u**2}, V)
    J = femops.functional(lambda u: np.exp(u.value), V)
    assert repr(F).startswith("Residual(`F = femops.residual(lambda u")
    assert repr(J).startswith("Functional(`J = femops.functional(lambda u")
    code = compile('femops.form(lambda u: {"value": u}, V)', "<nowhere>", "eval")
    assert repr(eval(code)).startswith("Operator(<lambda>: ")
