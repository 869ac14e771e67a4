"""Elasticity by Young's modulus and Poisson's ratio."""

import numpy as np
import pytest

import femops
from femops.errors import OperatorError


def test_uniaxial_stress():
    """A bar that is free sideways: the stress is E times the strain, and no other."""
    V = femops.H1(femops.box((2, 3, 2), upper=(2.0, 1.0, 0.5)), order=2, ncomp=3)
    E, nu, strain = 7.0, 0.3, 0.01
    A = femops.elasticity(V, E=E, nu=nu)
    u = V.interpolate(lambda x: (strain * x[0], -nu * strain * x[1], -nu * strain * x[2]))
    force = V.components(A @ u)
    assert u @ (A @ u) == pytest.approx(E * strain**2 * V.mesh.volume())
    assert np.abs(force[:, 1:]).max() < 1e-14
    end = V.dof_coordinates()[:, 0] == 2.0
    assert force[end, 0].sum() == pytest.approx(E * strain * 0.5)


@pytest.mark.parametrize("level", ["partial", "matrix-free"])
def test_the_same_as_lame_s_parameters(level):
    V = femops.H1(femops.read_mesh(femops.sample("disc.mesh")), order=3, ncomp=2)
    E, nu = (lambda x: 2.0 + x[0]), (lambda x: 0.2 + 0.1 * x[1] ** 2)

    def mu(x):
        return E(x) / (2 * (1 + nu(x)))

    def lam(x):
        return E(x) * nu(x) / ((1 + nu(x)) * (1 - 2 * nu(x)))

    A, B = (
        femops.elasticity(V, **given, level=level)
        for given in ({"E": E, "nu": nu}, {"lam": lam, "mu": mu})
    )
    u = V.interpolate(lambda x: (np.sin(x[1]), x[0] ** 2))
    assert np.abs(A @ u - B @ u).max() < 1e-13
    assert A.coefficients == {"E", "nu"}
    assert "(elasticity:" in repr(A)
    stiffer = A.update(E=lambda x: 3 * E(x))
    assert np.abs(stiffer @ u - 3 * (B @ u)).max() < 1e-12


def test_constants_are_stored_once():
    V = femops.H1(femops.ball(2), order=2, ncomp=3)
    young, lame = femops.elasticity(V, E=1.0, nu=0.25), femops.elasticity(V, 0.4, 0.4)
    assert np.abs(young.diagonal() - lame.diagonal()).max() < 1e-13
    assert young.cost().stored_bytes <= lame.cost().stored_bytes + 16


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"E": 1.0}, "both E and nu"),
        ({"nu": 0.3}, "both E and nu"),
        ({"E": 1.0, "nu": 0.3, "mu": 1.0}, "both E and nu"),
        ({"E": 1.0, "nu": 0.5}, "nu is 0.5: give a Poisson's ratio between"),
        ({"E": 1.0, "nu": lambda x: 0.5 + 0.0 * x[0]}, "elasticity is not finite"),
    ],
)
def test_what_is_no_material_is_refused(given, message):
    V = femops.H1(femops.box((2, 2)), order=2, ncomp=2)
    with pytest.raises(OperatorError, match=message):
        femops.elasticity(V, **given)
