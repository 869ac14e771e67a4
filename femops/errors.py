"""The errors femops raises.

Every error femops raises on purpose is a `FemopsError` and at the same time the Python error it
is closest to, so both ``except femops.errors.FemopsError`` and ``except ValueError`` work. The two
packages below femops know nothing of it and have bases of their own, `MeshError` and
`KernelError`. A call with an argument that a function does not have is an `ArgumentError`. A
program that wants to catch whatever may come writes ``except femops.errors.Errors``.

A message says what is wrong, what was got, and how to mend it.
"""

from typing import Any

from femops_kernels.errors import DeviceError, KernelError
from femops_meshes.errors import ArgumentError, MeshError


class FemopsError(Exception):
    """Base of the errors of the package femops (see also `Errors`)."""


class BasisError(FemopsError, ValueError):
    """A basis or quadrature that does not exist: too low a degree, an unknown family."""


class TraceError(FemopsError, TypeError):
    """A form's function does an operation that symbols do not have."""


class NoAttributeError(TraceError, AttributeError):
    """An attribute that a symbol does not have. ``hasattr`` returns False for it."""


class SpaceError(FemopsError, ValueError):
    """A space, a function on it, or a set of its dofs that cannot be."""


class VectorError(FemopsError, ValueError):
    """A vector of the wrong length, shape or type."""


class GeometryError(FemopsError, ValueError):
    """Elements whose map from the reference element is not one-to-one (inverted, collapsed)."""


class ProbeError(FemopsError, ValueError):
    """Points that are none, or that lie outside the mesh."""


class OperatorError(FemopsError, ValueError):
    """An operator that cannot be built, or cannot be applied in this way."""


class TensorError(FemopsError, ValueError):
    """Small tensors that do not fit together, or cannot be worked on as asked."""


class SingularError(TensorError):
    """Matrices of a batch that have no factors or solution.

    Attributes
    ----------
    members : array of int
        Numbers of these matrices.
    result : object
        What was asked for, where the entries of other members are right.
    """

    def __init__(self, message: str, members: Any, result: Any) -> None:
        super().__init__(message)
        self.members, self.result = members, result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.members, self.result)


class SolverError(FemopsError, RuntimeError):
    """A solver was called with something it cannot solve."""


class ConvergenceWarning(UserWarning):
    """A solve has ended, but not at the tolerance: its result is the last iterate.

    All solvers warn, unless they are called with ``warn=False``; on ranks rank 0 does.
    """


class HydroError(FemopsError, RuntimeError):
    """A flow that cannot be set up, or cannot go on: inverted elements, a step gone to zero."""


class FileError(FemopsError, OSError):
    """A file that cannot be read or written."""


class CheckpointError(FemopsError, ValueError):
    """A checkpoint that is damaged or lacks what is asked for, or whose fields do not fit."""


class CommunicatorError(FemopsError, ValueError):
    """A communicator that cannot be used: none at all, or ranks out of reach or in disagreement."""


class RankError(FemopsError, RuntimeError):
    """Another rank failed, so this one cannot go on."""


class MissingExtraError(FemopsError, ImportError):
    """An optional part is used without the packages of its extra."""


Errors: tuple[type[Exception], ...] = (FemopsError, MeshError, KernelError, ArgumentError)
"""All bases: ``except femops.errors.Errors`` catches what femops and the packages below raise."""

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
