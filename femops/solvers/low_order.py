"""Matrix of order 1 on the nodes of an operator, for the preconditioners of other libraries."""

from __future__ import annotations

from scipy.sparse import csr_array

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.assembly.low_order import low_order_matrix
from femops.operators.complex_operator import ComplexOperator, of_complex_rows
from femops.spaces.h1_l2 import H1
from femops.spaces.product import Product
from femops_common.arguments import checked
from femops_meshes.mesh import check_cubes


@checked(SolverError)
def low_order(A: Operator | ComplexOperator) -> csr_array:
    """Matrix of order 1 on the nodes of an operator, for preconditioners of other libraries.

    The nodes cut each element into small elements. The matrix has the same forms on the small
    elements, with continuous multilinear functions: one for each dof of A, in the same order. The
    number of entries per row does not grow with the order, and the matrix is spectrally equivalent
    to A. So algebraic multigrid, an incomplete factorisation or a direct solver for the matrix is a
    preconditioner for A. The matrix has A's geometry, coefficients, boundary terms and essential
    conditions. On a locally refined mesh the rows of dofs that hanging nodes read are longer.

    Parameters
    ----------
    A : Operator or ComplexOperator
        On an H1 space with nodal basis, in one space.

    Returns
    -------
    csr_array
        The matrix (size, size) of A's type. On many ranks the rank's rows (size, global size), as
        `Operator.assemble` has them. For order 1 the matrix of A.

    Raises
    ------
    SolverError
        A maps between two spaces, is on a product of spaces or a space other than H1, has a basis
        whose coefficients are not values at nodes, or has integrals over faces between elements.
    OperatorError
        The matrix does not fit into memory.

    Examples
    --------
    >>> import femops
    >>> from scipy.sparse.linalg import LinearOperator, splu
    >>> V = femops.H1(femops.box((4, 4)), order=6)
    >>> A = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> low = femops.low_order(A)
    >>> bool(low.nnz < A.assemble().nnz / 4)
    True
    >>> M = LinearOperator(A.shape, splu(low.tocsc()).solve, dtype=A.dtype)
    >>> u, info = femops.cg(A, femops.load(V, 1.0) * (A.diagonal() != 1.0), M=M)
    >>> info.iterations < 20
    True
    """
    if isinstance(A, ComplexOperator):
        return of_complex_rows(low_order(A.real))
    space = A.space
    if isinstance(space, Product):
        raise SolverError(
            f"{A!r} is on a product of spaces: take the matrix of a block, as "
            "femops.low_order(A['u', 'u'])"
        )
    if A.test_space is not space:
        raise SolverError(f"{A!r} maps between two spaces: low_order needs a square operator")
    check_cubes(space.mesh, "femops.low_order", SolverError)
    if not isinstance(space, H1) or space.basis.family != "gll":
        raise SolverError(
            f"{space!r} has no nodes that neighbours share: low_order needs an H1 space of the "
            "default basis"
        )
    if any(term.fields.two_sided for _, term in A.summands):
        raise SolverError(
            f"{A!r} has integrals over faces between elements: leave them out, as "
            "femops.low_order(B) of the other terms B"
        )
    if space.order == 1:
        return A.assemble()
    return low_order_matrix(A.at_level("partial").summands, A.constraints, A.dtype)
