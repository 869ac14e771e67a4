"""Matrix-free high-order finite element operators.

Everything a user needs is an attribute of this package; it is imported when first used, so that
``import femops`` itself takes no time and loads neither compilers nor plotting.

>>> import femops
>>> V = femops.H1(femops.box((2, 2)), order=2)
>>> V.ndofs
25
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    # What type checkers and editors see; `_EXPORTS` says the same to Python. A test compares them.
    from femops.basis import Basis1D as Basis1D
    from femops.basis import Quadrature1D as Quadrature1D
    from femops.basis import gauss as gauss
    from femops.basis import lobatto as lobatto
    from femops.errors import BasisError as BasisError
    from femops.errors import CheckpointError as CheckpointError
    from femops.errors import CommunicatorError as CommunicatorError
    from femops.errors import DeviceError as DeviceError
    from femops.errors import Errors as Errors
    from femops.errors import FemopsError as FemopsError
    from femops.errors import FileError as FileError
    from femops.errors import GeometryError as GeometryError
    from femops.errors import KernelError as KernelError
    from femops.errors import MeshError as MeshError
    from femops.errors import MissingExtraError as MissingExtraError
    from femops.errors import OperatorError as OperatorError
    from femops.errors import ProbeError as ProbeError
    from femops.errors import RankError as RankError
    from femops.errors import SolverError as SolverError
    from femops.errors import SpaceError as SpaceError
    from femops.errors import VectorError as VectorError
    from femops.fields.norms import h1_error as h1_error
    from femops.fields.norms import h1_seminorm_error as h1_seminorm_error
    from femops.fields.norms import integrate as integrate
    from femops.fields.norms import l2_error as l2_error
    from femops.fields.norms import l2_norm as l2_norm
    from femops.fields.probes import Probe as Probe
    from femops.forms import boundary_load as boundary_load
    from femops.forms import boundary_mass as boundary_mass
    from femops.forms import convection as convection
    from femops.forms import diffusion as diffusion
    from femops.forms import divergence as divergence
    from femops.forms import elasticity as elasticity
    from femops.forms import form as form
    from femops.forms import helmholtz as helmholtz
    from femops.forms import load as load
    from femops.forms import mass as mass
    from femops.forms import neo_hookean as neo_hookean
    from femops.forms import nonlinear_form as nonlinear_form
    from femops.forms import p_laplacian as p_laplacian
    from femops.geometry.boundary import BoundaryGeometry as BoundaryGeometry
    from femops.geometry.jacobians import ElementClass as ElementClass
    from femops.geometry.jacobians import Geometry as Geometry
    from femops.geometry.jacobians import classify as classify
    from femops.io import State as State
    from femops.io import TimeSeries as TimeSeries
    from femops.io import load_state as load_state
    from femops.io import picture as picture
    from femops.io import read_mesh as read_mesh
    from femops.io import save as save
    from femops.io import save_state as save_state
    from femops.operators import BlockOperator as BlockOperator
    from femops.operators import GridFunction as GridFunction
    from femops.operators import NonlinearForm as NonlinearForm
    from femops.operators import Operator as Operator
    from femops.operators import by_attribute as by_attribute
    from femops.parallel import DistributedMesh as DistributedMesh
    from femops.parallel import box as box
    from femops.parallel import distribute as distribute
    from femops.pointwise.errors import TraceError as TraceError
    from femops.pointwise.tensors import adjugate as adjugate
    from femops.pointwise.tensors import det as det
    from femops.pointwise.tensors import inner as inner
    from femops.pointwise.tensors import inv as inv
    from femops.pointwise.tensors import maximum as maximum
    from femops.pointwise.tensors import minimum as minimum
    from femops.pointwise.tensors import sym as sym
    from femops.pointwise.tensors import where as where
    from femops.solvers import cg as cg
    from femops.solvers import jacobi as jacobi
    from femops.solvers import newton as newton
    from femops.spaces.h1_l2 import H1 as H1
    from femops.spaces.h1_l2 import L2 as L2
    from femops.spaces.h1_l2 import Space as Space
    from femops.spaces.product import Product as Product
    from femops.spaces.restriction import ElementRestriction as ElementRestriction
    from femops_meshes import Mesh as Mesh
    from femops_meshes import Partition as Partition
    from femops_meshes import ball as ball
    from femops_meshes import cylinder as cylinder
    from femops_meshes import disc as disc
    from femops_meshes import l_shape as l_shape
    from femops_meshes import partition as partition
    from femops_meshes import sample as sample
    from femops_meshes import shell as shell

_EXPORTS: dict[str, tuple[str, ...]] = {
    "femops_meshes": (
        "Mesh",
        "Partition",
        "ball",
        "cylinder",
        "disc",
        "l_shape",
        "partition",
        "sample",
        "shell",
    ),
    "femops.basis": ("Basis1D", "Quadrature1D", "gauss", "lobatto"),
    "femops.geometry.boundary": ("BoundaryGeometry",),
    "femops.errors": (
        "BasisError",
        "CheckpointError",
        "CommunicatorError",
        "DeviceError",
        "Errors",
        "FemopsError",
        "FileError",
        "GeometryError",
        "KernelError",
        "MeshError",
        "MissingExtraError",
        "OperatorError",
        "ProbeError",
        "RankError",
        "SolverError",
        "SpaceError",
        "VectorError",
    ),
    "femops.fields.norms": ("h1_error", "h1_seminorm_error", "integrate", "l2_error", "l2_norm"),
    "femops.forms": (
        "boundary_load",
        "boundary_mass",
        "convection",
        "diffusion",
        "divergence",
        "elasticity",
        "form",
        "helmholtz",
        "load",
        "mass",
        "neo_hookean",
        "nonlinear_form",
        "p_laplacian",
    ),
    "femops.geometry.jacobians": ("ElementClass", "Geometry", "classify"),
    "femops.io": (
        "State",
        "TimeSeries",
        "load_state",
        "picture",
        "read_mesh",
        "save",
        "save_state",
    ),
    "femops.operators": (
        "BlockOperator",
        "GridFunction",
        "NonlinearForm",
        "Operator",
        "by_attribute",
    ),
    "femops.parallel": ("DistributedMesh", "box", "distribute"),
    "femops.pointwise.errors": ("TraceError",),
    "femops.pointwise.tensors": (
        "adjugate",
        "det",
        "inner",
        "inv",
        "maximum",
        "minimum",
        "sym",
        "where",
    ),
    "femops.fields.probes": ("Probe",),
    "femops.spaces.product": ("Product",),
    "femops.spaces.restriction": ("ElementRestriction",),
    "femops.solvers": ("cg", "jacobi", "newton"),
    "femops.spaces.h1_l2": ("H1", "L2", "Space"),
}
"""Module: the names that this package offers from it."""

_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Import `name` from its module when it is first used (PEP 562)."""
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("femops")
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'femops' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *globals(), *_HOME})
