"""Operators, preconditioners and residuals for the solvers of PETSc and SLEPc.

All functions work on any number of ranks: PETSc's objects have the ranks of the mesh, and each rank
has the entries of a vector that it owns. Vectors are not copied. PETSc calls femops for products,
preconditioners and residuals; the matrix of an operator is never made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.errors import MissingExtraError, SolverError
from femops.operators import Operator, Residual
from femops.operators.execution.vectors import checked_vector
from femops.operators.matrix_free import MatrixFree
from femops.parallel.comm import Mpi
from femops.solvers import low_order
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_common.arguments import checked, shown

try:
    from petsc4py import PETSc
except (ImportError, ValueError) as error:  # ValueError: it was built for NumPy 1
    raise MissingExtraError(
        f"femops.petsc needs petsc4py ({error}), built for NumPy 2: see docs/petsc.md"
    ) from error

__all__ = ["aij", "ksp", "mat", "pc", "snes", "vec"]

Vector = NDArray[Any]
Preconditioning = Callable[[Operator], Any]


@checked(SolverError)
def vec(V: Space | Product, x: NDArray[Any] | None = None) -> Any:
    """Vector of PETSc whose entries are those of an array.

    Parameters
    ----------
    V : Space or Product
    x : (size,) array, optional
        float64 and contiguous. PETSc reads it and writes to it. By default new zeros.

    Returns
    -------
    petsc4py.PETSc.Vec
        ``v.array`` is ``x``.

    Raises
    ------
    SolverError
        The vectors of V are on a device, or PETSc has no real numbers of double precision.
    VectorError
        x has another shape, type or memory layout.
    """
    _check(V, np.dtype(np.float64), "V")
    entries = V.zeros() if x is None else checked_vector(V, np.dtype(np.float64), x, "x")
    return PETSc.Vec().createWithArray(entries, size=(V.size, V.global_size), comm=_comm(V))


@checked(SolverError)
def mat(A: MatrixFree) -> Any:
    """Shell matrix of PETSc, whose products are those of an operator.

    It has products with the operator and its transpose, and the diagonal.

    Parameters
    ----------
    A : Operator

    Returns
    -------
    petsc4py.PETSc.Mat
        Of type "python". PETSc's ``getPythonContext().operator`` is A, which may be replaced by
        another operator on the same spaces.

    Raises
    ------
    SolverError
        A is no operator, not in float64, or on a device.

    Examples
    --------
    >>> import femops, femops.petsc
    >>> V = femops.H1(femops.box((4, 4)), order=3)
    >>> A = femops.petsc.mat(femops.mass(V))
    >>> one = femops.petsc.vec(V, V.interpolate(1.0))
    >>> bool(abs((A * one).sum() - 1.0) < 1e-12)
    True
    """
    _check(A.space, A.dtype, "A")
    rows, columns = ((space.size, space.global_size) for space in (A.test_space, A.space))
    shell = PETSc.Mat().createPython((rows, columns), _Shell(A), comm=_comm(A.space))
    shell.setOption(PETSc.Mat.Option.SYMMETRIC, A.symmetric)
    shell.setUp()
    return shell


@checked(SolverError)
def aij(matrix: csr_array, V: Space | Product) -> Any:
    """Sparse matrix of PETSc with the entries of a matrix in compressed rows.

    Parameters
    ----------
    matrix : csr_array (size, global size)
        Rows of this rank's dofs, as `low_order` and `Operator.assemble` return them.
    V : Space or Product
        Space of its vectors. A product on several ranks has another order of columns, and is
        refused.

    Returns
    -------
    petsc4py.PETSc.Mat
        Of type "aij". Its blocks have the size of V's components.

    Raises
    ------
    SolverError
        The matrix has another shape, or V is a product on several ranks.
    """
    _check(V, np.dtype(np.float64), "V")
    if isinstance(V, Product) and V.comm.size > 1:
        raise SolverError(f"{V!r} is a product on {V.comm.size} ranks: take a matrix of one space")
    if getattr(matrix, "shape", None) != (V.size, V.global_size):
        raise SolverError(
            f"the matrix is {shown(matrix)}: give rows of shape ({V.size}, {V.global_size}), as "
            "femops.low_order(A)"
        )
    size = [(V.size, V.global_size)] * 2
    made = PETSc.Mat().createAIJ(size, csr=_rows(matrix), comm=_comm(V))
    made.setBlockSize(1 if isinstance(V, Product) else V.ncomp)
    return made


@checked(SolverError)
def pc(M: Preconditioner) -> Any:
    """Preconditioner of PETSc that applies a preconditioner of femops.

    Parameters
    ----------
    M : Preconditioner
        As `multigrid`, `jacobi` and `block_triangular` make it.

    Returns
    -------
    petsc4py.PETSc.PC
        Of type "python", for ``KSP.setPC``.

    Raises
    ------
    SolverError
        M is no preconditioner of femops, not in float64, or on a device.
    """
    _check(M.space, M.dtype, "M")
    made = PETSc.PC().create(_comm(M.space))
    made.setType(PETSc.PC.Type.PYTHON)
    made.setPythonContext(_Applied(M))
    return made


@checked(SolverError)
def ksp(A: Operator, M: Any = None) -> Any:
    """Krylov solver of PETSc for an operator.

    Parameters
    ----------
    A : Operator
    M : Preconditioner, csr_array or petsc4py.PETSc.Mat, optional
        A preconditioner of femops, or a matrix from which PETSc makes one of its own, as
        ``femops.low_order(A)``. The choice is PETSc's: ``getPC().setType("gamg")`` or its options.
        By default none.

    Returns
    -------
    petsc4py.PETSc.KSP
        Of type "cg" if A is symmetric, else "gmres". Call ``setFromOptions()``, to let PETSc's
        options change it.

    Raises
    ------
    SolverError
        See `mat`, `pc` and `aij`.

    Examples
    --------
    >>> import femops, femops.petsc
    >>> V = femops.H1(femops.box((4, 4)), order=3)
    >>> A = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> solver = femops.petsc.ksp(A, femops.multigrid(A))
    >>> u, b = V.zeros(), A.rhs(femops.load(V, 1.0))
    >>> solver.solve(femops.petsc.vec(V, b), femops.petsc.vec(V, u))
    >>> bool(abs(A @ u - b).max() < 1e-3 * abs(b).max())
    True
    """
    shell, solver = mat(A), PETSc.KSP().create(_comm(A.space))
    solver.setType(PETSc.KSP.Type.CG if A.symmetric else PETSc.KSP.Type.GMRES)
    if isinstance(M, Preconditioner):
        solver.setPC(pc(M))
        solver.setOperators(shell, shell)
    elif M is None:
        solver.getPC().setType(PETSc.PC.Type.NONE)
        solver.setOperators(shell, shell)
    elif isinstance(M, PETSc.Mat):
        solver.setOperators(shell, M)
    else:
        below = aij(M, A.space)
        below.setOption(PETSc.Mat.Option.SYMMETRIC, A.symmetric)
        solver.setOperators(shell, below)
    return solver


@checked(SolverError)
def snes(
    F: Residual,
    u: NDArray[Any],
    b: NDArray[Any] | None = None,
    preconditioner: Preconditioning = low_order,
) -> Any:
    """Nonlinear solver of PETSc for R(u; v) = b(v).

    ``solver.solve(None, femops.petsc.vec(V, u))`` solves, from u, and leaves the solution there.

    Parameters
    ----------
    F : Residual
        With its constrained dofs. The first guess has their values.
    u : (size,) array
        State at which the first preconditioner is made, as the first guess. It is not changed.
    b : (size,) array, optional
        Load vector, zero if omitted.
    preconditioner : callable
        ``preconditioner(J)`` is called with each Jacobian, an operator. It returns a matrix, as
        `low_order` does, from which PETSc makes a preconditioner, or a preconditioner of femops, as
        `multigrid` does.

    Returns
    -------
    petsc4py.PETSc.SNES

    Raises
    ------
    SolverError
        ``preconditioner`` returned something else. See also `mat`, `pc` and `aij`.
    VectorError
        A vector has another shape or type.
    """
    _check(F.space, F.dtype, "F")
    space = F.space
    load = space.zeros() if b is None else checked_vector(space, F.dtype, b, "b").copy()
    load[F.constrained_dofs] = 0.0
    solver = PETSc.SNES().create(_comm(space))
    J = F.jacobian(u)
    system = _System(F, load, preconditioner, mat(J))
    first = preconditioner(J)
    if isinstance(first, Preconditioner):
        solver.getKSP().setPC(pc(first))
        below = system.shell
    else:
        below = aij(first, space)
        below.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    solver.setFunction(system.function, vec(space))
    solver.setJacobian(system.jacobian, system.shell, below)
    return solver


@final
class _Shell:
    """Methods that PETSc calls for a matrix of type "python"."""

    def __init__(self, operator: MatrixFree) -> None:
        self.operator = operator

    def mult(self, _: Any, x: Any, y: Any) -> None:
        """Compute y = A x of the entries that this rank owns."""
        self.operator.apply(x.array_r, y.array)

    def multTranspose(self, _: Any, x: Any, y: Any) -> None:
        """Compute y = A^T x of the entries that this rank owns."""
        self.operator.T.apply(x.array_r, y.array)

    def getDiagonal(self, _: Any, diagonal: Any) -> None:
        """Store the diagonal."""
        diagonal.array[:] = self.operator.diagonal()


@final
class _Applied:
    """Methods that PETSc calls for a preconditioner of type "python"."""

    def __init__(self, M: Preconditioner) -> None:
        self.M = M

    def apply(self, _: Any, x: Any, y: Any) -> None:
        """Compute y = M x of the entries that this rank owns."""
        self.M.apply(x.array_r, y.array)

    def applyTranspose(self, _: Any, x: Any, y: Any) -> None:
        """Compute y = M^T x of the entries that this rank owns."""
        self.M.T.apply(x.array_r, y.array)


@final
class _System:
    """Functions that PETSc calls to solve R(u) = b.

    Shapes: `load` (size,).
    """

    def __init__(
        self, F: Residual, load: Vector, preconditioner: Preconditioning, shell: Any
    ) -> None:
        self._F, self._load, self._preconditioner = F, load, preconditioner
        self.shell = shell

    def function(self, _: Any, x: Any, f: Any) -> None:
        """Compute f = R(x) - b."""
        residual = f.array
        self._F.residual(x.array_r, residual)
        residual -= self._load

    def jacobian(self, solver: Any, x: Any, shell: Any, below: Any) -> None:
        """Put the Jacobian at x into the shell, and its preconditioner where PETSc finds it."""
        J = self._F.jacobian(x.array_r)
        shell.getPythonContext().operator = J
        made = self._preconditioner(J)
        if isinstance(made, Preconditioner):
            solver.getKSP().getPC().getPythonContext().M = made
        else:
            below.zeroEntries()
            below.setValuesCSR(*_rows(made))
            below.assemble()
        shell.assemble()


def _rows(matrix: csr_array) -> tuple[Vector, Vector, Vector]:
    """Row starts, columns and values of a matrix, in PETSc's types."""
    starts, columns = (a.astype(PETSc.IntType) for a in (matrix.indptr, matrix.indices))
    return starts, columns, matrix.data.astype(PETSc.ScalarType, copy=False)


def _comm(space: Space | Product) -> Any:
    """Communicator of the ranks that hold a space, as PETSc takes it."""
    comm = space.comm
    return comm.raw if isinstance(comm, Mpi) else PETSc.COMM_SELF


def _check(space: Space | Product, dtype: np.dtype[Any], what: str) -> None:
    """Raise unless PETSc can take vectors of a space and type."""
    if space.memory.device is not None:
        raise SolverError(f"{what} is on {space.memory.name}: femops.petsc takes vectors of a host")
    if dtype != PETSc.ScalarType:
        numbers = np.dtype(PETSc.ScalarType)
        raise SolverError(f"{what} is in {dtype}, this PETSc in {numbers}: use the same")
