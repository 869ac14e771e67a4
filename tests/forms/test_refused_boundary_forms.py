"""Integrals over the boundary that are refused, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, SpaceError, VectorError
from support.cases.boundary import flux, mesh
from support.cases.kernels import random_vector


def test_refused_spaces_and_attributes():
    V, torus = femops.H1(mesh("square"), 2), femops.H1(femops.box((3, 3), periodic=True), 2)
    other, again = femops.H1(mesh("disc"), 2), femops.H1(V.mesh, 2)
    R = femops.boundary_mass(V)
    refused = [
        (lambda: femops.boundary_mass(V, attributes=[1, 7]), SpaceError, "attribute 7: it has 1,"),
        (
            lambda: femops.boundary_load(V, 1.0, "inlet"),
            SpaceError,
            "no boundary attribute 'inlet'",
        ),
        (lambda: femops.boundary_mass(V, attributes=[]), SpaceError, "no boundary attribute was"),
        (lambda: femops.boundary_mass(torus), SpaceError, "the mesh has no boundary"),
        (lambda: femops.boundary_load(torus, 1.0), SpaceError, "the mesh has no boundary"),
        (lambda: femops.boundary_mass(V, quadrature=2), SpaceError, "q1d = 2 cannot integrate"),
        (lambda: femops.form(flux, "V", boundary="all"), OperatorError, "'V': give a space"),
        (lambda: femops.form(flux, V, other, boundary="all"), OperatorError, "different meshes"),
        (lambda: R + femops.mass(again), OperatorError, "different spaces or types"),
        (lambda: R.update(kappa=1.0), OperatorError, "coefficient 'kappa': they have alpha"),
        (lambda: femops.boundary_load(V, 1.0, dtype="int32"), VectorError, "take float64 or"),
    ]
    for ask, kind, words in refused:
        with pytest.raises(kind, match=words):
            ask()


def test_refused_coefficients():
    V, W = femops.H1(mesh("square"), 2), femops.H1(mesh("square"), 2, ncomp=2)
    nf, nq = 14, 4
    refused = [
        (lambda: femops.boundary_load(V, np.ones((nf, 3))), rf"g has shape \({nf}, 3\)"),
        (lambda: femops.boundary_load(V, [1.0, 2.0]), r"g has shape \(2,\)"),
        (lambda: femops.boundary_load(W, np.ones(3)), r"g has shape \(3,\)"),
        (lambda: femops.boundary_load(V, lambda x, n: n), "g gives an array of shape"),
        (lambda: femops.boundary_load(V, lambda x, y, z: 1.0), "g is called with"),
        (lambda: femops.boundary_load(V, lambda n: n[0]), "write lambda x, n"),
        (lambda: femops.boundary_mass(V, lambda n, x: n[0] * x[0]), "write lambda x, n"),
        (lambda: femops.boundary_load(V, np.nan), "g is nan: give a finite number"),
        (lambda: femops.boundary_load(V, lambda x: np.log(x[0] - 9)), "g is not finite at"),
        (lambda: femops.boundary_load(V, np.full((nf, nq), np.inf)), "not finite"),
        (lambda: femops.boundary_mass(V, np.ones(2)), r"alpha has shape \(2,\)"),
        (lambda: femops.boundary_mass(W, np.ones((3, 3))), r"alpha has shape \(3, 3\)"),
        (lambda: femops.boundary_mass(V, lambda x: np.nan * x[0]), "alpha is not finite"),
        (lambda: femops.boundary_mass(V, 1j), "alpha"),
    ]
    for ask, match in refused:
        with np.errstate(invalid="ignore"), pytest.raises(OperatorError, match=match):
            ask()


def test_refused_forms():
    V = femops.H1(mesh("square"), 2)
    refused = [
        (lambda u: {"value": u.div}, "as many components as dimensions"),
        (lambda u, n: {"grad": u + n[0]}, 'a "grad" of shape'),
        (lambda u: {"value": u * u}, "not linear in u"),
        (lambda u: {"value": u + 1}, "does not depend on the field"),
    ]
    for function, match in refused:
        with pytest.raises(femops.errors.TraceError, match=match):
            femops.form(function, V, boundary="all")
    with pytest.raises(femops.errors.TraceError, match="'n' is the normal"):
        femops.form(lambda u, n: {"value": n * u}, V, boundary="all", n=1.0)
    # elsewhere n is a name like any other
    A = femops.form(lambda u, n: {"value": n * u}, V, n=2.0)
    u = random_vector(V, "float64")
    np.testing.assert_array_equal(A @ u, femops.mass(V, 2.0) @ u)


def test_inverted_elements_are_refused():
    box = femops.box((2, 2), order=2)
    nodes = box.coordinates.copy()
    nodes[0] = nodes[0][:, ::-1]
    V = femops.H1(replace(box, coordinates=nodes), 1)
    with pytest.raises(femops.errors.GeometryError, match="2 boundary faces have a point"):
        femops.boundary_load(V, 1.0)
