"""Errors that femops raises.

Every error that femops raises on purpose is a `FemopsError` and also the closest error of Python.
So ``except femops.errors.FemopsError`` and ``except ValueError`` both work. The packages
femops_meshes and femops_kernels have their own base classes, `MeshError` and `KernelError`. A call
with an unknown argument raises an `ArgumentError`. Write ``except femops.errors.Errors`` to catch
all these errors. A message tells the problem, the value received, and a remedy.
"""

from typing import Any

from femops_common.arguments import ArgumentError
from femops_kernels.errors import DeviceError, KernelError
from femops_meshes.errors import MeshError


class FemopsError(Exception):
    """Base class of the errors of the package femops (see also `Errors`)."""


class BasisError(FemopsError, ValueError):
    """A basis or quadrature rule does not exist: a too low degree, or an unknown family."""


class TraceError(FemopsError, TypeError):
    """A form's function does an operation that symbols do not have."""


class NoAttributeError(TraceError, AttributeError):
    """A symbol does not have an attribute. ``hasattr`` returns False for the attribute."""


class SpaceError(FemopsError, ValueError):
    """A space, a function on a space, or a set of dofs is not possible."""


class VectorError(FemopsError, ValueError):
    """A vector has the wrong length, shape or type."""


class GeometryError(FemopsError, ValueError):
    """The map of an element from the reference element is not one-to-one (inverted, collapsed)."""


class ProbeError(FemopsError, ValueError):
    """Points of a probe are not valid, or lie outside the mesh."""


class OperatorError(FemopsError, ValueError):
    """An operator cannot be built, or cannot be applied in this way."""


class LawError(OperatorError):
    """A law raises an error at a point, or reads outside of a table; see `femops.numba.law`."""


class TensorError(FemopsError, ValueError):
    """Small tensors do not fit together, or do not support the requested operation."""


class SingularError(TensorError):
    """Matrices of a batch have no factors or no solution.

    Attributes
    ----------
    members : array of int
        Numbers of these matrices in the batch.
    result : object
        The requested result. Its entries for other members are correct.
    """

    def __init__(self, message: str, members: Any, result: Any) -> None:
        super().__init__(message)
        self.members, self.result = members, result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.members, self.result)


class SolverError(FemopsError, RuntimeError):
    """A solver cannot solve the problem that it was called with."""


class ConvergenceWarning(UserWarning):
    """A solve has ended before it reached the tolerance. Its result is the last iterate.

    All solvers issue it, unless they are called with ``warn=False``. On many ranks rank 0 does.
    `femops.multigrid` and the solvers issue it, too, where many iterations are expected.
    """


class HydroError(FemopsError, RuntimeError):
    """A flow cannot be set up, or cannot continue: inverted elements, or a vanishing time step."""


class FileError(FemopsError, OSError):
    """A file cannot be read or written."""


class CheckpointError(FemopsError, ValueError):
    """A checkpoint is damaged or incomplete, or its fields do not fit."""


class CommunicatorError(FemopsError, ValueError):
    """A communicator cannot be used: it is invalid, or its ranks are unreachable or disagree."""


class RankError(FemopsError, RuntimeError):
    """Another rank failed, so this rank cannot continue."""


class MissingExtraError(FemopsError, ImportError):
    """An optional part needs packages of an extra that is not installed."""


Errors: tuple[type[Exception], ...] = (FemopsError, MeshError, KernelError, ArgumentError)
"""All base classes, for ``except``. They catch the errors of femops and its kernels and meshes."""

__all__ = [
    "ArgumentError",
    "BasisError",
    "CheckpointError",
    "CommunicatorError",
    "ConvergenceWarning",
    "DeviceError",
    "Errors",
    "FemopsError",
    "FileError",
    "GeometryError",
    "HydroError",
    "KernelError",
    "MeshError",
    "MissingExtraError",
    "OperatorError",
    "ProbeError",
    "RankError",
    "SingularError",
    "SolverError",
    "SpaceError",
    "TensorError",
    "TraceError",
    "VectorError",
]
