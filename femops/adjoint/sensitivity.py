"""Derivative of a residual by a control, as a matrix that is applied, not built."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.controls import control_of
from femops.adjoint.lagrangian import Lagrangian
from femops.adjoint.pieces import pieces_of
from femops.errors import OperatorError
from femops.operators import Operator, Residual
from femops.operators.execution.vectors import checked_vector
from femops.spaces.base import Space
from femops_common.arguments import checked, number_of

Vector = NDArray[Any]


@final
@checked(OperatorError)
class Sensitivity:
    r"""Derivative :math:`S = \partial F / \partial m` of a residual by a control m at a state u.

    ``S @ d`` is the derivative of the residual along a change d of the control. ``S.T @ v`` is the
    derivative of :math:`v^T F` by the control. Each product is one sweep over the elements, which
    stores nothing at quadrature points. S may be multiplied by numbers, as ``-S.T @ u``.
    ``scipy.sparse.linalg.aslinearoperator(S)`` has sums and products with other operators.

    Parameters
    ----------
    F : Residual or Operator
        The residual. Rows of S at constrained dofs are zero.
    u : (size,) array
    wrt : str
        Name of a coefficient that is a field, a constant or an array at points; or "mesh".
    displacements : Space, optional
        For "mesh": space of the nodes' displacement. By default H1 of the mesh's degree.

    Attributes
    ----------
    shape : (F.space.size, number of entries of the control)
    dtype : numpy.dtype
    control_shape : tuple of int
        Shape of d, and of ``S.T @ v``.
    control_space : Space or None
        Space of the control, if it is a field or "mesh".

    Raises
    ------
    OperatorError
        F has no such coefficient, or the coefficient is a function of x. F is a transpose, a
        Jacobian or a block of another operator.
    VectorError
        The state has another shape or type.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> F = femops.residual(lambda u, k: {"grad": k * u.grad}, V, k=2.0)
    >>> u = V.interpolate(lambda x: x[0])
    >>> S = femops.adjoint.Sensitivity(F, u, "k")
    >>> bool(abs(2.0 * (S @ 1.0) - F.residual(u)).max() < 1e-14), bool(abs(S.T @ u - 1.0) < 1e-14)
    (True, True)
    """

    __array_ufunc__ = None  # or NumPy would multiply each entry of an array by S

    def __init__(
        self,
        F: Residual | Operator,
        u: NDArray[Any],
        wrt: str,
        displacements: Space | None = None,
    ) -> None:
        pieces = pieces_of(F)
        self._control = control_of(wrt, pieces, displacements)
        self._lagrangian = Lagrangian(pieces, {wrt: self._control}, F.space)
        self._state = checked_vector(F.space, F.dtype, u, "u").copy()
        self._fixed = F.space.memory.put(F.constrained_dofs)
        self._transposed, self._factor = False, 1.0
        control = self._control
        self.dtype, self.control_shape = F.dtype, control.own_shape
        self.control_space = control.space if control.kind in ("field", "mesh") else None
        self.shape = (F.space.size, int(np.prod(control.own_shape, dtype=int)))

    @property
    def T(self) -> Sensitivity:
        """The transpose."""
        copy = self._times(1.0)
        copy._transposed, copy.shape = not self._transposed, self.shape[::-1]
        return copy

    def _times(self, factor: float) -> Sensitivity:
        copy = object.__new__(Sensitivity)
        copy.__dict__.update(self.__dict__)
        copy._factor = factor * self._factor
        return copy

    def __mul__(self, factor: Any) -> Sensitivity:
        number = number_of(factor)
        return NotImplemented if number is None else self._times(number)

    __rmul__ = __mul__

    def __neg__(self) -> Sensitivity:
        return self._times(-1.0)

    def __repr__(self) -> str:
        rows, columns = self.shape
        by = f"by {self._control.name}{', transposed' if self._transposed else ''}"
        return f"Sensitivity({by}: {rows} x {columns}, {self.dtype})"

    def __matmul__(self, x: Any) -> Vector:
        return self._product(x, transposed=self._transposed)

    def __rmatmul__(self, x: Any) -> Vector:
        return self._product(x, transposed=not self._transposed)

    def _product(self, x: Any, *, transposed: bool) -> Vector:
        found = self._rows(x) if transposed else self._columns(x)
        found *= self._factor
        return found

    def matvec(self, x: Any) -> Vector:
        """Product (m,) with a flat vector (n,), where (m, n) is `shape`. For SciPy."""
        return self._flat(x, transposed=self._transposed)

    def rmatvec(self, x: Any) -> Vector:
        """Product (n,) of the transpose with a vector (m,), where (m, n) is `shape`. For SciPy."""
        return self._flat(x, transposed=not self._transposed)

    def _flat(self, x: Any, *, transposed: bool) -> Vector:
        given = x.reshape(-1) if transposed else x.reshape(self.control_shape)
        return self._product(given, transposed=transposed).reshape(-1)

    def _columns(self, direction: Any) -> Vector:
        """Change (F.space.size,) of the residual along a change (control_shape) of the control."""
        L, control = self._lagrangian, self._control
        along = {control.name: control.vector(direction, self.dtype)}
        found = L.whole(L.derivative(L.adjoints, self._state, None, along), L.adjoints)
        found[self._fixed] = 0.0
        return found

    def _rows(self, weights: Any) -> Vector:
        """Derivative (control_shape) of the inner product of the residual and a vector."""
        L, control = self._lagrangian, self._control
        adjoint = checked_vector(L.space, self.dtype, weights, "v").copy()
        adjoint[self._fixed] = 0.0
        found = L.derivative((control.name,), self._state, adjoint)
        return control.derivative(found[control.name])
