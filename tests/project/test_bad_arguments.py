"""Arguments that are wrong in ways that users meet: one error each, which says what to give."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import femops
from femops.basis import MOST_DEGREE
from femops.errors import SpaceError
from femops_common import arguments

V = femops.H1(femops.box((2, 2)), 2)
A = femops.mass(V)
B = femops.load(V, 1.0)
W = femops.Product(u=V, p=V)
F = femops.residual(lambda u: {"value": u.value}, V)

WRONG = [
    (lambda: femops.H1(V.mesh, 500), "is 500: it must be at most 64"),
    (lambda: femops.read_mesh(3), "path is 3: give the path of a mesh file"),
    (
        lambda: femops.read_mesh(femops.sample("disc.mesh"), refine="a"),
        "refine is 'a': give a whole number",
    ),
    (lambda: femops.H1(3, 2), r"mesh is 3: give a mesh, as femops.box\(counts\)"),
    (
        lambda: femops.H1(V.mesh, 2, family=np.zeros(0)),
        "family is an array of shape .0,.: give 'gll' or 'bernstein'",
    ),
    (lambda: femops.load(V.mesh, 1.0), r"V is a Mesh: give a space, as femops.H1\(mesh, order\)"),
    (lambda: femops.newton(F, 0.0), "u0 is 0.0: give a NumPy array"),
    (lambda: femops.io.TimeSeries(None), "path is None: give a text or a path"),
    (lambda: femops.mass(V, lanes=[]), "lanes is a list: give a whole number or None"),
    (lambda: femops.cg(A, B, merged=-1), "merged is -1: give True or False or None"),
    (
        lambda: femops.cg(A, B, maxiter=10**30),
        "maxiter is a number of more than 64 bits: give a whole number >= 0 or None",
    ),
    (lambda: femops.newton(F, B, maxiter=1.5), "maxiter is 1.5: give a whole number"),
    (lambda: femops.basis.gauss(2**63 - 1), "give a whole number from 1 to 1024"),
    (lambda: femops.mass(V, quadrature=10**9), "q1d is 10*: give a whole number from 1"),
    (lambda: femops.ball(order=2**63 - 1), "give a whole number from 1 to 64"),
    (lambda: femops.cg(A, B, rtol=5), "rtol is 5: give a number from 0 to 1"),
    (lambda: femops.box(4, 4), r"give .* together, as box\(\(4, 4\)\)"),
    (lambda: femops.H1(V.mesh, 2, 10**30), "ncomp is a number of more than 64"),
    (lambda: femops.H1(V.mesh, 2, 10**15), "a space .* needs at least .* GiB of mem"),
    (lambda: femops.ball(10**5), "making 7.* elements needs at least .* GiB"),
    (lambda: femops.cylinder(layers=10**12), "elements needs at least .* GiB"),
    (lambda: femops.shell(10**6), "elements needs at least .* GiB"),
    (lambda: femops.l_shape(10**5, 3), "elements needs at least .* GiB"),
    (
        lambda: femops.read_mesh(femops.sample("disc.mesh"), refine=-1),
        "refine is -1: give a whole number",
    ),
    (lambda: femops.cg(A, B, rtol="a"), "rtol is 'a': give a number"),
    (lambda: femops.cg(A, B, atol=np.nan), "atol is nan: give a finite number"),
    (lambda: femops.newton(F, V.zeros(), rtol="a"), "rtol is 'a': give a number"),
    (lambda: femops.by_attribute(V.mesh, [1, 2]), "values is a list: give a dict"),
    (lambda: femops.neo_hookean(V), "neo_hookean takes a space with ncomp=2"),
    (lambda: femops.H1(V.mesh, degree=2), r"^H1\(\) got .* 'degree': did you mean order"),
    (lambda: femops.cg(A, B, tol=1e-8), "'tol': did you mean rtol"),
    (lambda: femops.minres(A, B, m=None), "'m': did you mean M"),
    (lambda: femops.mass(V, quadratur=3), "'quadratur': did you mean quadrature"),
    (lambda: femops.mass(V, lumped=True), r"quadrature=femops\.basis\.lobatto\(V\.p1d\)"),
    (
        lambda: femops.neo_hookean(V, E=1.0, nu=0.3),
        r"lam = E nu / \(\(1 \+ nu\) \(1 - 2 nu\)\) and mu = E / \(2 \(1 \+ nu\)\)",
    ),
    (lambda: femops.io.TimeSeries.save(B, 0.0, V, B), "give .* by name, as u=u"),
    (lambda: A.rhs(B, value=1.0), "'value': did you mean values"),
    (lambda: femops.CGSolver(A).solve(B, tol=1e-8), "'tol': did you mean rtol"),
    (lambda: A.constrained(dof=[1]), "'dof': did you mean dofs"),
    (lambda: A.eliminated(cols=[1]), "'cols': did you mean columns"),
    (lambda: V.interpolate(B, 3), r"interpolate\(\) takes 1 argument by position"),
    (lambda: F.jacobian(B, levels="full"), "'levels': did you mean level"),
    (
        lambda: femops.eigen.chebyshev_subspace(A, nev=3),
        r"^chebyshev_subspace\(\) got an unexpected keyword argument 'nev': it takes A, M, k",
    ),
    (
        lambda: femops.form(lambda u: {"value": u}, V, quadratur=3),
        "takes no coefficient 'quadratur': did you mean quadrature",
    ),
    (
        lambda: femops.form(lambda u: {"grad": u.gradient}, V),
        "u has no gradient: did you mean grad",
    ),
    (lambda: femops.jacobi(A, wxyz=1), "'wxyz': it takes A$"),
    (
        lambda: femops.save("u.vtu", V, B),
        r"^save\(\) takes 2 arguments by position .*, not 3: give the others by name, as u=u$",
    ),
    (
        lambda: femops.cg(A, B, B, 1e-8),
        r"^cg\(\) takes 3 arguments by position \(A, b, x0\), not 4: .* as rtol=",
    ),
    (lambda: A.constrained([0], 0.0), r"by position \(dofs\), not 2: values are given to A\.rhs"),
    (
        lambda: femops.plot(W, W.zeros()),
        r"what is a Product: give a space, .*; W\.spaces\['u'\] is a space of a product, W\.split",
    ),
    (lambda: femops.cg(F, B), r"A is a Residual: give .*; femops\.newton\(F, u0, b\) solves"),
    (lambda: F @ B, r"a residual is no matrix: F\.residual\(u\) is its value"),
    (lambda: F(B), r"a residual is not called: F\.residual\(u\) is its value"),
    (
        lambda: femops.integrate(V, femops.GridFunction(V, B)),
        r"u is a GridFunction: .*femops\.integrate\(u\.space, u\.vector\)",
    ),
    (lambda: femops.elasticity(V, 1.0, 1.0), "elasticity takes a space with ncomp=2"),
]


def test_wrong_arguments():
    for call, message in WRONG:
        with pytest.raises(femops.errors.Errors, match=message):
            call()


def test_what_is_just_right():
    assert femops.H1(V.mesh, MOST_DEGREE).ndofs == (2 * MOST_DEGREE + 1) ** 2
    for rtol in (1, 0.5, np.float32(1e-3), np.int64(0)):
        assert femops.cg(A, B, rtol=rtol, maxiter=3, warn=False)[1].iterations <= 3
    assert femops.read_mesh(femops.sample("disc.mesh"), refine=np.int64(1)).num_elements > 4


def test_sizes_are_compared_with_the_memory(monkeypatch):
    """Before it runs out, and only what must be there at once is counted."""
    mesh = femops.box((10, 10, 10))
    monkeypatch.setattr(arguments, "_SMALL", 0)
    monkeypatch.setattr(arguments, "available_memory", lambda: 1000 * 17**3 * 8)
    with pytest.raises(SpaceError, match=r"order 16 with 1 component.* on 1000 elements"):
        femops.H1(mesh, 16)
    with pytest.raises(femops.errors.GeometryError, match="element of 729000000 points needs"):
        femops.load(femops.H1(mesh, 1), 1.0, quadrature=900)
    assert femops.H1(mesh, 2).ndofs == 21**3


def test_signatures_show_which_values_are_allowed():
    assert "[int, a whole number from 1 to 64]" in str(inspect.signature(femops.disc))


def test_checks_are_read_from_the_signature():
    """Help shows it as it was written, and arguments that are missing are Python's error."""
    parameters = inspect.signature(femops.load).parameters
    assert [*parameters] == ["V", "f", "flux", "quadrature", "dtype"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'V'"):
        femops.load()
    with pytest.raises(AttributeError, match="no attribute 'multigird': did you mean multigrid"):
        femops.multigird  # noqa: B018
    assert femops.solvers.minres is femops.minres
