"""Functions of NumPy on arrays of complex symbols, against the same functions of numbers."""

import numpy as np
import pytest

import femops
from femops.errors import TraceError

V = femops.L2(femops.box((1, 1)), 0)
PLANE = femops.H1(V.mesh, 1, ncomp=2)
K, VECTOR = 0.7 - 1.3j, np.array([1.0 + 1.0j, 2.0 - 3.0j])
MATRIX = np.array([[1.0 + 2.0j, 0.5j], [0.3 - 1.0j, 2.0]])

FUNCTIONS = {
    "real": lambda k, v, m: np.real(m)[1, 0],
    "imag of a row": lambda k, v, m: m[1].imag[0],
    "stack": lambda k, v, m: np.stack([k, 2j * k]).real[1],
    "stack with a number": lambda k, v, m: np.stack([1j, k]).imag[0],
    "stack of rows": lambda k, v, m: np.stack([v, 2j * v]).real[1, 0],
    "concatenate": lambda k, v, m: np.concatenate([v, m[0]]).real[2],
    "hstack": lambda k, v, m: np.hstack([v, 2 * k]).real[2],
    "block": lambda k, v, m: np.block([[m, m]]).real[0, 1],
    "diag": lambda k, v, m: np.diag(v).real[1, 1],
    "triu": lambda k, v, m: np.triu(m).real[0, 1],
    "broadcast": lambda k, v, m: np.broadcast_to(v, (2, 2)).real[0, 1],
    "einsum": lambda k, v, m: np.einsum("ij,j->i", m, v).real[0],
    "tensordot": lambda k, v, m: np.tensordot(m, m, 1).real[0, 1],
    "outer": lambda k, v, m: np.outer(v, v).imag[0, 1],
    "product": lambda k, v, m: (m @ v).imag[1],
    "vdot": lambda k, v, m: np.vdot(v, 1j * v),
    "angle": lambda k, v, m: np.angle(k),
    "angles in degrees": lambda k, v, m: np.angle(v, deg=True)[1],
    "norm": lambda k, v, m: np.linalg.norm(v),
    "norm of a matrix": lambda k, v, m: np.linalg.norm(m),
    "norm of imaginary numbers": lambda k, v, m: np.linalg.norm(1j * v.real),
    "inverse": lambda k, v, m: femops.inv(m).real[0, 1],
    "adjugate": lambda k, v, m: femops.adjugate(m).imag[0, 1],
    "sym": lambda k, v, m: femops.sym(m).real[0, 1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numpy(name):
    factor = FUNCTIONS[name]

    def form(u, k, v, m):
        return {"value": factor(k, v, m) * u}

    A = femops.form(form, V, dtype=complex, k=K, v=VECTOR, m=MATRIX)
    assert abs((A @ np.ones(1))[0] - factor(K, VECTOR, MATRIX)) < 1e-13


REFUSED = (
    lambda u: {"value": np.real(u)},
    lambda u: {"value": u[:].imag},
    lambda u: {"grad": np.real(u.sym_grad)},
    lambda u: {"grad": u.sym_grad.real},
    lambda u: {"grad": np.stack([u, 1j * u[:]]).real},
    lambda u: {"value": np.vdot(u, [1j, 1.0]) * np.ones(2)},
)


@pytest.mark.parametrize("function", REFUSED)
def test_parts_of_fields_are_refused(function):
    with pytest.raises(TraceError, match="not linear over complex"):
        femops.form(function, PLANE, dtype=complex)


@pytest.mark.parametrize("test", [np.isreal, np.iscomplex, np.isrealobj, np.iscomplexobj])
def test_types_are_not_known(test):
    with pytest.raises(TraceError, match="asked whether it is real"):
        femops.form(lambda u, k: {"value": test(k) * u}, V, dtype=complex, k=K)
    with pytest.raises(TraceError, match="takes no options"):
        femops.form(
            lambda u, v: {"value": np.linalg.norm(v, axis=0) * u}, V, dtype=complex, v=VECTOR
        )
