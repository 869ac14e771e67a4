"""Preconditioners of other libraries, wrapped for femops' solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import SolverError
from femops.operators.complex_operator import ComplexOperator
from femops.parallel.comm import check
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_common.arguments import Kind, refusal

Vector = NDArray[Any]
_CURE = (
    "femops.jacobi(A), femops.multigrid(A), a LinearOperator or a matrix (of a diagonal d "
    "scipy.sparse.diags_array(d))"
)


def _multiplies(M: Any) -> bool:
    """True if M has rows and columns, and products with vectors."""
    shape = getattr(M, "shape", None)
    table = isinstance(shape, tuple) and len(shape) == 2
    return table and (hasattr(M, "matvec") or hasattr(M, "__matmul__"))


AnyPreconditioner = Annotated[Any, Kind(lambda M: M is None or _multiplies(M), _CURE)]
"""A preconditioner of femops or of another library, a matrix, or None."""

NAMED: dict[str, Callable[..., Preconditioner]] = {}
"""Makers of preconditioners by name. `femops.solvers.structure` fills it."""

NAMES = ("auto", "multigrid", "direct", "jacobi")

_NAMED = f"{', '.join(map(repr, NAMES))}, {_CURE}"
AnyOrNamed = Annotated[
    Any, Kind(lambda M: M is None or (isinstance(M, str) and M in NAMES) or _multiplies(M), _NAMED)
]
"""As `AnyPreconditioner`, or one of `NAMES`."""

AnyOrText = Annotated[Any, Kind(lambda M: M is None or isinstance(M, str) or _multiplies(M), _CURE)]
"""As `AnyPreconditioner`, or a text that the function refuses itself."""


def named(M: Any, A: Any, *, positive: bool = True) -> Any:
    """Return the preconditioner that a name stands for, made of A. Return any other M unchanged.

    ``positive`` is True for a solver that needs a symmetric positive preconditioner. That of a
    complex A is for vectors of pairs of real numbers, unless it is the diagonal. Collective.
    """
    if not isinstance(M, str):
        return M
    check_name(M)
    if M == "jacobi":
        return NAMED[M](A)
    if isinstance(A, ComplexOperator):
        A = A.real  # the real system has its vectors
    return NAMED[M](A, symmetric=positive) if M == "auto" else NAMED[M](A)


def check_name(M: str, name: str = "M") -> None:
    """Raise unless a text is the name of a preconditioner."""
    if M not in NAMES:
        raise SolverError(refusal(name, M, _NAMED))


@final
class Given(Preconditioner):
    """Preconditioner from another library. `as_preconditioner` makes it."""

    _given_as = _CURE

    def __init__(self, M: Any, dtype: np.dtype[Any], space: Space | Product, name: str) -> None:
        self._M, self._name = M, name
        self.symmetric = bool(getattr(M, "symmetric", True))
        super().__init__(dtype, space)

    def __getstate__(self) -> dict[str, Any]:
        return {"M": self._M, "dtype": self.dtype, "space": self.space, "name": self._name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Given.__init__(self, **state)

    def _apply(self, x: Vector, result: Vector) -> None:
        product = multiplied(self._M, x)
        with check(self.space.comm):  # a rank that raises alone would leave the others waiting
            result[:] = checked_product(product, self.space, self._name, self.dtype)

    def _adjoint(self) -> Preconditioner:
        if not hasattr(self._M, "T"):
            raise SolverError(f"{self._name} has no transpose: give a LinearOperator with rmatvec")
        return Given(self._M.T, self.dtype, self.space, f"the transpose of {self._name}")


def checked_product(
    product: Any, space: Space | Product, name: str, dtype: np.dtype[Any]
) -> Vector:
    """Check the product of a user's M with a vector of a space, and return it flat, (size,)."""
    n, memory = space.size, space.memory
    found = memory.factor(product, f"the product with {name}")
    if found.shape not in {(n,), (n, 1), (1, n)}:
        raise SolverError(
            f"{name} times a vector of shape ({n},) has shape {found.shape}: return ({n},)"
        )
    if found.dtype.kind not in ("biufc" if dtype.kind == "c" else "biuf"):
        raise SolverError(
            f"{name} times a vector of {dtype} has type {found.dtype}: return real numbers"
        )
    if not memory.xp.isfinite(found).all():
        raise SolverError(
            f"products with {name} are not finite: is what it inverts singular, or out of the "
            "range of its type?"
        )
    return found.reshape(-1)


def multiplied(M: Any, x: Vector) -> Any:
    """Return the product of a user's M with a vector. M may write into its argument, a copy."""
    if isinstance(M, Preconditioner):
        return M @ x
    # operators of femops refuse `matvec` on many ranks
    by_operator = isinstance(M, LinearOperator) or not hasattr(M, "matvec")
    return M @ x.copy() if by_operator else M.matvec(x.copy())


def as_preconditioner(
    M: Any, space: Space | Product, dtype: np.dtype[Any], name: str = "M"
) -> Preconditioner | None:
    """Return M as a preconditioner for vectors of a space; None stays None.

    A preconditioner of femops is returned unchanged. On several ranks M must be made by femops, or
    be a LinearOperator whose product maps the rank's entries of a vector to the rank's entries of
    the result.

    Parameters
    ----------
    M : Preconditioner, LinearOperator, matrix, object with ``shape`` and ``matvec``, or None
    space : Space or Product
    dtype : dtype
        Type of the vectors.
    name : str
        Name of M in messages.

    Raises
    ------
    SolverError
        M has no products, has another shape or device, is complex, or is a matrix on several ranks.
    """
    if M is None:
        return None
    check_preconditioner(M, space, dtype, name)
    if isinstance(M, Preconditioner):
        return M
    return Given(M, dtype, space, name)


def check_preconditioner(
    M: Any, space: Space | Product, dtype: np.dtype[Any], name: str = "M"
) -> None:
    """Raise unless a user's M can be a preconditioner; see `as_preconditioner`.

    A complex M passes if ``dtype`` is complex.
    """
    if not _multiplies(M):
        raise SolverError(refusal(name, M, _CURE))
    if M.shape != (space.size, space.size):
        rows, columns = M.shape
        raise SolverError(
            f"{name} is {rows} x {columns}, A {space.size} x {space.size}: make {name} of an "
            "operator on the space of A, as femops.jacobi(A) is"
        )
    if isinstance(M, Preconditioner):
        if M.device is not space.device:
            raise SolverError(
                f"A and {name} are not on the same device: make {name} with {M.given_as}"
            )
        return
    kind, allowed = getattr(M, "dtype", None), "biufc" if dtype.kind == "c" else "biuf"
    if kind is not None and np.dtype(kind).kind not in allowed:
        raise SolverError(f"{name} has type {kind}, A {dtype}: give a real preconditioner")
    if space.comm.size > 1 and not isinstance(M, LinearOperator):
        raise SolverError(
            f"{refusal(name, M, 'femops.jacobi(A) or femops.multigrid(A)')}, or a LinearOperator "
            f"whose product takes and gives what the rank owns ({space.comm.size} ranks)"
        )
