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
from femops_meshes.arguments import checked

Vector = NDArray[Any]


@final
@checked(OperatorError)
class Sensitivity:
    r"""Derivative :math:`S = \partial F / \partial m` of a residual by a control m at a state u.

    ``S @ d`` is the derivative of the residual along a change d of the control. ``S.T @ v`` is the
    derivative of :math:`v^T F` by the control. Each product is one sweep over the elements, which
    stores nothing at quadrature points. ``scipy.sparse.linalg.aslinearoperator(S)`` has both.

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
        self._transposed = False
        control = self._control
        self.dtype, self.control_shape = F.dtype, control.own_shape
        self.control_space = control.space if control.kind in ("field", "mesh") else None
        self.shape = (F.space.size, int(np.prod(control.own_shape, dtype=int)))

    @property
    def T(self) -> Sensitivity:
        """The transpose."""
        twin = object.__new__(Sensitivity)
        twin.__dict__.update(self.__dict__)
        twin._transposed, twin.shape = not self._transposed, self.shape[::-1]
        return twin

    def __repr__(self) -> str:
        rows, columns = self.shape
        by = f"by {self._control.name}{', transposed' if self._transposed else ''}"
        return f"Sensitivity({by}: {rows} x {columns}, {self.dtype})"

    def __matmul__(self, x: Any) -> Vector:
        return self._rows(x) if self._transposed else self._columns(x)

    def matvec(self, x: Any) -> Vector:
        """Product with a flat vector, for SciPy."""
        return self._flat(x, transposed=self._transposed)

    def rmatvec(self, x: Any) -> Vector:
        """Product of the transpose with a flat vector, for SciPy."""
        return self._flat(x, transposed=not self._transposed)

    def _flat(self, x: Any, *, transposed: bool) -> Vector:
        if transposed:
            return self._rows(x.reshape(-1)).reshape(-1)
        return self._columns(x.reshape(self.control_shape))

    def _columns(self, direction: Any) -> Vector:
        """Change of the residual along a change of the control."""
        L, control = self._lagrangian, self._control
        along = {control.name: control.vector(direction, self.dtype)}
        found = L.whole(L.derivative(L.adjoints, self._state, None, along), L.adjoints)
        found[self._fixed] = 0.0
        return found

    def _rows(self, weights: Any) -> Vector:
        """Derivative of the residual times a vector."""
        L, control = self._lagrangian, self._control
        adjoint = checked_vector(L.space, self.dtype, weights, "v").copy()
        adjoint[self._fixed] = 0.0
        found = L.derivative((control.name,), self._state, adjoint)
        return control.derivative(found[control.name])
