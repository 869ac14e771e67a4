"""Preconditioners of operators on several fields, built from one preconditioner for each field."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.solvers.any_preconditioner import AnyOrNamed, AnyOrText, as_preconditioner, named
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.product import Product
from femops_common.arguments import checked

Vector = NDArray[Any]


@final
class BlockDiagonal(Preconditioner):
    """Preconditioner that treats each field separately. `block_diagonal` makes it.

    Attributes
    ----------
    parts : dict of Preconditioner
        Preconditioner of each field, by name.
    """

    _given_as = "femops.block_diagonal(W, ...)"

    def __init__(self, W: Product, parts: dict[str, Preconditioner], dtype: Any) -> None:
        self._W, self.parts = W, parts
        self.symmetric = all(part.symmetric for part in parts.values())
        super().__init__(dtype, W)

    def _apply(self, x: Vector, result: Vector) -> None:
        for name, M in self.parts.items():
            part = self._W.slice(name)
            result[part] = M @ x[part]

    def _adjoint(self) -> Preconditioner:
        parts = {name: part.T for name, part in self.parts.items()}
        return BlockDiagonal(self._W, parts, self.dtype)


@final
class BlockTriangular(Preconditioner):
    """Preconditioner that solves for one field after the other. `block_triangular` makes it.

    Attributes
    ----------
    operator : Operator
        The operator. Its blocks update the right-hand sides of later fields.
    parts : dict of Preconditioner
        Preconditioner of each field, by name, in the order of the solves.
    """

    _given_as = "femops.block_triangular(A, ...)"
    symmetric = False

    def __init__(self, A: Operator, parts: dict[str, Preconditioner]) -> None:
        assert isinstance(A.space, Product)
        self.operator, self.parts, self._W = A, parts, A.space
        names = list(parts)
        self._before: dict[str, list[tuple[str, Operator]]] = {}
        for k, test in enumerate(names):
            blocks = [(trial, A[test, trial]) for trial in names[:k]]
            self._before[test] = [(name, block) for name, block in blocks if block is not None]
        super().__init__(A.dtype, A.space)

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild copies and pickles from the operator and the parts."""
        return BlockTriangular, (self.operator, self.parts)

    def _apply(self, x: Vector, result: Vector) -> None:
        xp, found = self.space.memory.xp, dict[str, Vector]()
        for name, M in self.parts.items():
            right = x[self._W.slice(name)]
            for trial, block in self._before[name]:
                right = right - block.apply(found[trial])
            found[name] = xp.ascontiguousarray(M @ right, dtype=self.dtype)
            result[self._W.slice(name)] = found[name]

    def _adjoint(self) -> Preconditioner:
        parts = {name: part.T for name, part in reversed(self.parts.items())}
        return BlockTriangular(self.operator.T, parts)


@checked(SolverError)
def block_diagonal(W: Product, /, **parts: AnyOrText) -> BlockDiagonal:
    """Preconditioner of operators on a product space that treats each field separately.

    PETSc calls it an additive field split. If all parts are symmetric positive definite, the
    preconditioner is too. `minres` and `cg` need that.

    Parameters
    ----------
    W : Product
        The space of the operator.
    **parts : Preconditioner, LinearOperator or matrix
        Preconditioner of each field, by name: `femops.multigrid` or `femops.jacobi` of an operator
        on the field's space, or any other M that `cg` takes.

    Returns
    -------
    BlockDiagonal
        A SciPy ``LinearOperator``. It works on ranks and devices if all parts do.

    Raises
    ------
    SolverError
        A field has no preconditioner, a name is no field, or a part has the wrong shape.

    Examples
    --------
    Stokes flow: a multigrid cycle for the velocity, the diagonal of a mass for the pressure.

    >>> import femops, numpy as np
    >>> mesh = femops.box((4, 4))
    >>> V, Q = femops.H1(mesh, order=2, ncomp=2), femops.H1(mesh, order=1)
    >>> W = femops.Product(u=V, p=Q)
    >>> def stokes(u, p):
    ...     return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}
    >>> A = femops.form(stokes, W).constrained(W.positions(u=V.boundary_dofs()))
    >>> M = femops.block_diagonal(
    ...     W, u=femops.multigrid(A["u", "u"]), p=femops.jacobi(femops.mass(Q))
    ... )
    >>> b = A.rhs(W.join(u=femops.load(V, lambda x: (x[1], 0.0))))
    >>> x, info = femops.minres(A, b, M=M, rtol=1e-8)
    >>> info.converged
    True
    """
    made = _parts(W, parts, np.dtype(np.float64), "block_diagonal")
    kinds = {part.dtype for part in made.values()}
    return BlockDiagonal(W, made, np.result_type(*kinds))


@checked(SolverError)
def block_triangular(A: Operator, /, **parts: AnyOrNamed) -> BlockTriangular:
    """Preconditioner of an operator on a product space that solves for one field after the other.

    The order of the arguments is the order of the solves. Before a field's solve, the operator's
    blocks times the fields solved so far are subtracted from the right-hand side. With ``u=M_u,
    p=M_p`` the result is u = M_u r_u and p = M_p (r_p - A_pu u), a lower triangle. With ``p=M_p,
    u=M_u`` it is an upper triangle. PETSc calls it a multiplicative field split. It is not
    symmetric: use `gmres`.

    Parameters
    ----------
    A : Operator
        On a product of spaces.
    **parts : Preconditioner, LinearOperator, matrix or name
        Preconditioner of each field, by name, as for `block_diagonal`. ``"multigrid"``,
        ``"jacobi"``, ``"direct"`` or ``"auto"`` is made of the block of the field. The second of
        two should approximate the inverse of the Schur complement A_pp - A_pu A_uu^-1 A_up, with
        its sign.

    Returns
    -------
    BlockTriangular
        A SciPy ``LinearOperator``. It works on ranks and devices if all parts do.

    Raises
    ------
    SolverError
        The operator has one field only, a field has no preconditioner, a name is no field, or a
        part has the wrong shape.

    Examples
    --------
    Stokes flow. The Schur complement is negative, and about minus the mass of the pressure.

    >>> import femops, numpy as np
    >>> mesh = femops.box((4, 4))
    >>> V, Q = femops.H1(mesh, order=2, ncomp=2), femops.H1(mesh, order=1)
    >>> W = femops.Product(u=V, p=Q)
    >>> def stokes(u, p):
    ...     return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}
    >>> A = femops.form(stokes, W).constrained(W.positions(u=V.boundary_dofs()))
    >>> M = femops.block_triangular(
    ...     A, u=femops.multigrid(A["u", "u"]), p=femops.jacobi(-femops.mass(Q))
    ... )
    >>> b = A.rhs(W.join(u=femops.load(V, lambda x: (x[1], 0.0))))
    >>> x, info = femops.gmres(A, b, M=M, rtol=1e-8)
    >>> info.converged
    True
    """
    if not isinstance(A.space, Product) or A.test_space is not A.space:
        raise SolverError(
            f"{A!r} has no blocks: give an operator on a femops.Product, or use M of one field as "
            "it is"
        )
    own = {name: _of_block(A, name, M) for name, M in parts.items()}
    return BlockTriangular(A, _parts(A.space, own, A.dtype, "block_triangular"))


def _of_block(A: Operator, name: str, M: Any) -> Any:
    """Preconditioner of a field that a name stands for. Any other M is returned unchanged."""
    if not isinstance(M, str) or name not in A.space.names:
        return M
    block = A[name, name]
    if block is None:
        raise SolverError(
            f"{name} has no equation of its own, of which {M!r} could be made: give "
            f"M = femops.preconditioner(A), which makes its Schur complement, or {name}=-femops."
            "multigrid(femops.mass(V)) of its space V"
        )
    return named(M, block, positive=False)


def _parts(
    W: Product, given: dict[str, Any], dtype: np.dtype[Any], function: str
) -> dict[str, Preconditioner]:
    """Return the preconditioner of each field, in the order of ``given``."""
    unknown = [name for name in given if name not in W.spaces]
    missing = [name for name in W.names if given.get(name) is None]
    if unknown or missing:
        whole = ", ".join(f"{name}=..." for name in W.names)
        wrong = f"has no field {unknown[0]!r}" if unknown else f"needs one for {missing[0]!r}"
        raise SolverError(
            f"{function} takes a preconditioner for each field, {W!r} {wrong}: give {whole}; "
            f"femops.jacobi of a mass on its space is the simplest"
        )
    found = {}
    for name, M in given.items():
        if isinstance(M, str):
            raise SolverError(
                f"{name} is {M!r}, and {function} knows no operator: give femops.{M}(A[{name!r}, "
                f"{name!r}]), or take femops.preconditioner(A, symmetric=True)"
                if M in {"multigrid", "jacobi", "direct"}
                else f"{name} is {M!r}, and {function} knows no operator: take "
                "femops.preconditioner(A, symmetric=True)"
            )
        part = as_preconditioner(M, W.spaces[name], dtype, name)
        assert part is not None  # it was not missing
        found[name] = part
    return found
