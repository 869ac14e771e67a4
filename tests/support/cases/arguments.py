"""Good calls of all that femops offers, and values that fit no argument: what a fuzz test mixes."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np
import scipy.sparse

import femops


@final
class Strange:
    """An object whose every use fails in its own way."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no {name}")

    def __repr__(self) -> str:
        raise ValueError("no repr")


@final
class Alone:
    """A class that is made of nothing."""

    def __init__(self) -> None:
        pass


@final
class Odd(enum.Enum):
    """An enumeration."""

    ONE = 1


def hostile() -> dict[str, Any]:
    """Values of many types, by name; new ones each time."""
    mesh = femops.box((2,))
    space = femops.L2(mesh, 0)
    return {
        "None": None,
        "True": True,
        "0": 0,
        "1": 1,
        "-1": -1,
        "5": 5,
        "10**30": 10**30,
        "-10**30": -(10**30),
        "2**63 - 1": 2**63 - 1,
        "10**5000": 10**5000,
        "1.5": 1.5,
        "-0.5": -0.5,
        "nan": float("nan"),
        "inf": float("inf"),
        "1e308": 1e308,
        "1j": 1j,
        "fraction": Fraction(1, 3),
        "numpy int": np.int8(1),
        "numpy float": np.float16(1.5),
        "numpy nan": np.float64("nan"),
        "numpy bool": np.bool_(True),
        "numpy complex": np.complex64(1j),
        "text": "abc",
        "no text": "",
        "NUL": "a\0b",
        "surrogate": "\ud800",
        "long text": "x" * 300,
        "bytes": b"abc",
        "list": [],
        "list of None": [None],
        "list of lists": [[1, 2], [3]],
        "list of texts": ["a", "b"],
        "list of numbers": [1, 2],
        "tuple": (),
        "tuple of numbers": (2, 2),
        "dict": {},
        "dict of numbers": {"a": 1},
        "set": set(),
        "range": range(3),
        "generator": (k for k in range(3)),
        "slice": slice(None),
        "Ellipsis": ...,
        "NotImplemented": NotImplemented,
        "object": object(),
        "strange": Strange(),
        "enum": Odd.ONE,
        "class": Alone,
        "abstract class": femops.Space,
        "module": np,
        "function": len,
        "lambda": lambda: None,
        "lambda of one": lambda x: None,
        "lambda of all": lambda *a, **k: "abc",
        "path": Path("nowhere/at/all"),
        "no numbers": np.zeros(0),
        "number": np.zeros(()),
        "numbers": np.zeros(3),
        "table": np.ones((3, 2)),
        "integers": np.arange(3),
        "nans": np.full(9, np.nan),
        "complex": np.zeros(9, complex),
        "objects": np.array([None, "a", 1.0], dtype=object),
        "texts": np.array(["a", "b"]),
        "dates": np.zeros(3, "datetime64[s]"),
        "records": np.zeros(3, [("a", float), ("b", int)]),
        "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
        "sparse": scipy.sparse.eye_array(3),
        "dtype": np.dtype("int8"),
        "mesh": mesh,
        "space": space,
        "product": femops.Product(a=space, b=space),
        "operator": femops.mass(space),
        "rule": femops.basis.gauss(2),
        "field": femops.GridFunction(space, space.zeros()),
        "error": ValueError("x"),
    }


@final
@dataclass(frozen=True)
class Call:
    """A function or method with arguments that are good.

    Attributes
    ----------
    function : callable
    arguments : dict
        By name, those that are left out too: they stand under their defaults.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]

    @staticmethod
    def of(function: Callable[..., Any], *given: Any, **named: Any) -> Call:
        """The call with these arguments, and the defaults of others."""
        bound = inspect.signature(function).bind(*given, **named)
        bound.apply_defaults()
        return Call(function, bound.arguments)

    def names(self) -> Iterator[str]:
        """Arguments that can be replaced."""
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                yield from self.arguments.get(name, ())
            else:
                yield name

    def replaced(self, name: str, value: Any) -> Any:
        """What the function returns with another value for an argument."""
        given, named = [], {}
        for key, parameter in inspect.signature(self.function).parameters.items():
            mine = value if key == name else self.arguments.get(key)
            if parameter.kind == parameter.VAR_KEYWORD:
                named |= self.arguments.get(key, {})
                named |= {name: value} if name in named else {}
            elif parameter.kind == parameter.VAR_POSITIONAL:
                given += mine or ()
            elif parameter.kind == parameter.POSITIONAL_ONLY:
                given.append(mine)
            else:
                named[key] = mine
        return self.function(*given, **named)


CORNERS = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


def signature_of(kind: type) -> list[str]:
    """Names of the arguments of a class."""
    return list(inspect.signature(kind).parameters)


def _function(u: Any) -> dict[str, Any]:
    return {"value": u}


def _damped(u: Any, k2: Any) -> Any:
    return {"grad": u.grad, "value": k2 * u}


def _pair(u: Any, p: Any) -> dict[str, Any]:
    return {"u": {"value": u}, "p": {"value": p}}


def _energy(u: Any) -> dict[str, Any]:
    return {"value": u.value**3}


def _energy_density(u: Any) -> Any:
    return u.value**4


def _heat(u: Any, k: Any) -> Any:
    return {"value": u, "grad": k * u.grad}


def _rate(t: float, u: Any) -> Any:
    return t * u


def _square(m: Any) -> Any:
    return m**2


def _einsum(subscripts, a, b, batch=0, out=None, alpha=1.0, beta=0.0):
    return femops.tensor.einsum(subscripts, a, b, batch=batch, out=out, alpha=alpha, beta=beta)


def tensor_calls() -> dict[str, Call]:
    """A good call of each function and class for small tensors."""
    of, tensor, a = Call.of, femops.tensor, np.ones((3, 2, 2)) + np.eye(2)
    batch, group, i = tensor.Batch((2, 2), 3), tensor.Group([np.eye(2)]), tensor.Index("i")
    return {
        "einsum": of(_einsum, "ij,jk->ik", a, a),
        "tensor.limit": of(
            lambda subscripts, a, b, beta: femops.tensor.limit(subscripts, a, b, beta=beta),
            "ij,jk->ik",
            a,
            a,
            0.0,
        ),
        "tensor.gemm": of(tensor.gemm, a, a),
        "tensor.Batch": of(tensor.Batch, (2, 2), 3),
        "tensor.Batch.wrap": of(tensor.Batch.wrap, a),
        "tensor.Batch.assign": of(batch.assign, 0.0),
        "tensor.Batch.copy": of(batch.copy),
        "tensor.Batch.getitem": of(batch.__getitem__, 1),
        "tensor.Batch.indexed": of(lambda key: batch[i, key], 0),
        "tensor.Strided": of(tensor.Strided),
        "tensor.Tiled": of(tensor.Tiled, (2, 2)),
        "tensor.Interleaved": of(tensor.Interleaved, 2),
        "tensor.Mapped": of(tensor.Mapped, lambda i, j: 2 * i + j),
        "tensor.Index": of(tensor.Index, "i", 0, 2),
        "tensor.Group": of(tensor.Group, [np.eye(2)]),
        "tensor.Group.append": of(group.append, np.eye(2)),
        "tensor.group_gemm": of(
            tensor.group_gemm, tensor.Group([np.eye(2)]), tensor.Group([np.eye(2)])
        ),
        "tensor.cholesky": of(tensor.cholesky, a),
        "tensor.lu": of(tensor.lu, a),
        "tensor.solve": of(tensor.solve, a, a),
        "tensor.solve_triangular": of(tensor.solve_triangular, a, a),
        "tensor.eigh": of(tensor.eigh, a),
    }


@cache
def calls(folder: Path) -> dict[str, Call]:
    """A good call of each function and class of femops, and of methods that users call."""
    mesh = femops.box((2, 2))
    V, Q, W = femops.H1(mesh, 2), femops.L2(mesh, 1), femops.H1(mesh, 2, ncomp=2)
    D, D2 = femops.L2(mesh, order=1), femops.L2(mesh, order=1, ncomp=2)
    u, x = V.zeros(), np.eye(2)
    A = femops.mass(V)
    C, z = femops.form(_damped, V, k2=1j, dtype="complex128"), V.zeros(complex)
    F = femops.residual(_energy, V)
    P = femops.Product(u=V, p=Q)
    B = femops.form(_pair, P)
    J = femops.functional(_energy_density, V)
    heat = femops.residual(_heat, V, k=1.0) + femops.residual(_energy, V)
    probe = femops.Probe(mesh, [[0.5, 0.5]])
    rule = femops.basis.gauss(3)
    series = femops.io.TimeSeries(folder / "series.pvd", existing="replace")
    state = femops.io.save_state(folder / "a.state", {"u": (V, u)})
    path = mesh_file(folder)
    of = Call.of
    return {
        **tensor_calls(),
        "Basis1D": of(femops.basis.Basis1D, "gll", 2),
        "Quadrature1D": of(femops.basis.Quadrature1D, rule.points, rule.weights, "a"),
        "PointRule": of(femops.basis.PointRule, [[0.5, 0.5]], [1.0]),
        "gauss": of(femops.basis.gauss, 2),
        "lobatto": of(femops.basis.lobatto, 2),
        "h1_error": of(femops.h1_error, V, u, 0.0, [0.0, 0.0]),
        "h1_seminorm_error": of(femops.h1_seminorm_error, V, u, [0.0, 0.0]),
        "integrate": of(femops.integrate, V, u),
        "integrate over the boundary": of(femops.integrate, V, u, boundary="all"),
        "l2_error": of(femops.l2_error, V, u, 0.0),
        "l2_norm": of(femops.l2_norm, V, u),
        "Probe": of(femops.Probe, mesh, [[0.5, 0.5]]),
        "boundary_load": of(femops.boundary_load, V, 1.0),
        "point_load": of(femops.point_load, V, [0.25] * V.dim, 1.0),
        "boundary_mass": of(femops.boundary_mass, V),
        "convection": of(femops.convection, V, [1.0, 0.0]),
        "diffusion": of(femops.diffusion, V),
        "divergence": of(femops.divergence, W, Q),
        "interior_penalty": of(femops.interior_penalty, D),
        "elastic_interior_penalty": of(femops.elastic_interior_penalty, D2),
        "dirichlet_load": of(femops.dirichlet_load, D, 1.0),
        "upwind_convection": of(femops.upwind_convection, D, [1.0, 0.0]),
        "form": of(femops.form, _function, V),
        "helmholtz": of(femops.helmholtz, V),
        "load": of(femops.load, V, 1.0),
        "mass": of(femops.mass, V),
        "neo_hookean": of(femops.neo_hookean, W),
        "functional": of(femops.functional, _energy_density, V),
        "gradient": of(femops.gradient, J, heat, u, "k"),
        "gradients": of(femops.adjoint.gradients, J, heat, u, "k"),
        "Sensitivity": of(femops.adjoint.Sensitivity, heat, u, "k"),
        "moved": of(femops.adjoint.moved, W, W.zeros()),
        "taylor": of(femops.adjoint.taylor, _square, 1.0, 1.0, 2.0),
        "project": of(femops.project, Q, _energy_density, V, u),
        "residual of a product": of(femops.residual, _pair, P),
        "residual": of(femops.residual, _energy, V),
        "p_laplacian": of(femops.p_laplacian, V, 3.0),
        "BoundaryGeometry": of(femops.geometry.BoundaryGeometry, mesh, rule),
        "Geometry": of(femops.geometry.Geometry, mesh, rule),
        "classify": of(femops.geometry.classify, mesh),
        "State": of(femops.io.State, {}, {}),
        "TimeSeries": of(femops.io.TimeSeries, folder / "other.pvd", "replace"),
        "load_state": of(femops.io.load_state, state, {"u": V}),
        "picture": of(femops.io.picture, folder / "a.png", V, u),
        "movie": of(femops.io.movie, folder / "a.gif", [("t = 0", V, u)], seconds=1.0),
        "to_pyvista": of(femops.io.to_pyvista, V, u),
        "plot": of(femops.plot, V, u),
        "MultiVector": of(femops.MultiVector, V, femops.MultiVector.zeros(V, 2).panels),
        "MultiVector.zeros": of(femops.MultiVector.zeros, V, 2),
        "MultiVector.random": of(femops.MultiVector.random, V, 2),
        "MultiVector.from_columns": of(femops.MultiVector.from_columns, V, np.zeros((V.size, 2))),
        "minres": of(femops.minres, A, u),
        "gmres": of(femops.gmres, A, u),
        "direct": of(femops.direct, A),
        "preconditioner": of(femops.preconditioner, A),
        "read_mesh": of(femops.read_mesh, path),
        "save": of(femops.save, folder / "a.vtu", V, u=u),
        "save_state": of(femops.io.save_state, folder / "b.state", {"u": (V, u)}),
        "by_attribute": of(femops.by_attribute, mesh, {1: 1.0}),
        "box": of(femops.box, (2, 2)),
        "distribute": of(femops.distribute, mesh, None),
        "adjugate": of(femops.adjugate, x),
        "det": of(femops.det, x),
        "eigh_sym": of(femops.eigh_sym, x),
        "inner": of(femops.inner, x, x),
        "inv": of(femops.inv, x),
        "interp": of(femops.interp, 1.0, [0.0, 2.0], [1.0, 3.0]),
        "maximum": of(femops.maximum, 1.0, 2.0),
        "minimum": of(femops.minimum, 1.0, 2.0),
        "svd_min": of(femops.svd_min, x),
        "sym": of(femops.sym, x),
        "where": of(femops.where, True, 1.0, 2.0),
        "CGSolver": of(femops.CGSolver, A),
        "CGSolver.solve": of(femops.CGSolver(A).solve, u),
        "cg": of(femops.cg, A, u),
        "block_diagonal": of(femops.block_diagonal, P, u=np.eye(V.size), p=np.eye(Q.size)),
        "block_triangular": of(femops.block_triangular, B, u=np.eye(V.size), p=np.eye(Q.size)),
        "jacobi": of(femops.jacobi, A),
        "block_jacobi": of(femops.block_jacobi, femops.mass(D)),
        "runge_kutta": of(femops.runge_kutta, _rate, u, 0.1, 0.05),
        "multigrid": of(femops.multigrid, A),
        "newton": of(femops.newton, F, u),
        "solve": of(femops.solve, A, u),
        "load_steps": of(femops.load_steps, lambda load, u: (u, None), u),
        "continuation": of(femops.continuation, F, u, u),
        "GridFunction": of(femops.GridFunction, V, u),
        "History": of(femops.History, V),
        "H1": of(femops.H1, mesh, 2),
        "L2": of(femops.L2, mesh, 2),
        "Product": of(femops.Product, u=V, p=Q),
        "ElementRestriction": of(femops.ElementRestriction, [[0, 1]], 2),
        "ball": of(femops.ball, 1),
        "cylinder": of(femops.cylinder, 1, 1),
        "disc": of(femops.disc, 1),
        "l_shape": of(femops.l_shape, 1),
        "partition": of(femops.partition, mesh, 2),
        "sample": of(femops.sample, "ball.mesh"),
        "shell": of(femops.shell, 1, 1),
        "V.boundary_dofs": of(V.boundary_dofs),
        "V.element_dofs": of(V.element_dofs),
        "V.interpolate": of(V.interpolate, 1.0),
        "V.zeros": of(V.zeros),
        "V.components": of(V.components, u),
        "V.check_vector": of(V.check_vector, u),
        "V.values": of(V.values, u),
        "V.gradient": of(V.gradient, u),
        "V.sample": of(V.sample, u, 2),
        "V.quadrature": of(V.quadrature, 3),
        "V.l_vec": of(V.l_vec, u),
        "P.split": of(P.split, P.zeros()),
        "P.join": of(P.join, u=u),
        "P.interpolate": of(P.interpolate, u=1.0),
        "P.positions": of(P.positions, u=[0]),
        "P.slice": of(P.slice, "u"),
        "A.apply": of(A.apply, u),
        "A @": of(A.__matmul__, u),
        "A.dot": of(A.dot, u),
        "A.matvec": of(A.matvec, u),
        "A.constrained": of(A.constrained, [0]),
        "A.eliminated": of(A.eliminated, [0], [0]),
        "A.at_level": of(A.at_level, "partial"),
        "A.rhs": of(A.rhs, u),
        "A.update": of(A.update, rho=2.0),
        "A.assemble": of(A.assemble),
        "A.cost": of(A.cost),
        "B.constrained": of(B.constrained, [0]),
        "B.rhs": of(B.rhs, P.zeros()),
        "B.at_level": of(B.at_level, "partial"),
        "B.__getitem__": of(B.__getitem__, ("u", "u")),
        "F.residual": of(F.residual, u),
        "F.jacobian": of(F.jacobian, u),
        "F.constrained": of(F.constrained, [0]),
        "probe": of(probe, V, u),
        "probe.load": of(probe.load, V, 1.0),
        "probe.gradient": of(probe.gradient, V, u),
        "mesh.refine": of(mesh.refine, 1),
        "mesh.curved": of(mesh.curved, 2),
        "mesh.mapped": of(mesh.mapped, lambda x: x),
        "mesh.with_attributes": of(mesh.with_attributes, [1, 1, 1, 1]),
        "mesh.with_names": of(mesh.with_names, {"a": 1}),
        "mesh.with_names of predicates": of(mesh.with_names, {"a": lambda x: x[0] < 9.0}),
        "Mesh.from_arrays": of(femops.Mesh.from_arrays, CORNERS, [[0, 1, 2, 3]]),
        "Mesh": of(femops.Mesh, *(getattr(mesh, name) for name in signature_of(femops.Mesh))),
        "rule.tensor_weights": of(rule.tensor_weights, 2),
        "basis.interpolation": of(V.basis.interpolation, rule.points),
        "basis.gradient": of(V.basis.gradient, rule.points),
        "gather": of(V.restriction.gather, u),
        "scatter_add": of(V.restriction.scatter_add, V.restriction.gather(u)),
        "series.save": of(series.save, 0.0, V, u=u),
        "geometry.points": of(femops.geometry.Geometry(mesh, rule).points, 0, 1),
        "elasticity": of(femops.elasticity, W),
        "low_order": of(femops.low_order, A),
        "C.apply": of(C.apply, z),
        "C @": of(C.__matmul__, z),
        "C.constrained": of(C.constrained, [0]),
        "C.eliminated": of(C.eliminated, [0], [0]),
        "C.at_level": of(C.at_level, "partial"),
        "C.rhs": of(C.rhs, z),
        "C.update": of(C.update, k2=2.0),
        "complex gmres": of(femops.gmres, C, z),
    }


def mesh_file(folder: Path) -> Path:
    """A file with a mesh."""
    femops.save(folder / "a.mesh", femops.box((2, 2)))
    return folder / "a.mesh"
