"""Block Jacobi's preconditioner: the inverse of each element's block of a matrix."""

from __future__ import annotations

from abc import ABC
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.assembly.csr import require_memory
from femops.operators.assembly.diagonal import terms_on_diagonal
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.levels.inverse import block_inverse
from femops.parallel.comm import check
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.h1_l2 import L2
from femops_common.arguments import checked
from femops_kernels.compiled import CompiledOperator

# Product of the norms of a scaled block and of its inverse, from which on the block is singular.
_SINGULAR = 0.1 / np.finfo(np.float64).eps


class BlockJacobi(Preconditioner, ABC):
    """Preconditioner that multiplies by inverse blocks of elements. `block_jacobi` makes it."""

    _given_as = "femops.block_jacobi(A)"


@final
class DenseBlocks(BlockJacobi):
    """Block Jacobi that stores the inverse of each block.

    `inverse` (ne, n, n): inverse of each element's block, in the memory of the operator's vectors.
    An element's n dofs are in the order of the vector.
    """

    def __init__(self, inverse: NDArray[Any], space: L2, *, symmetric: bool) -> None:
        self.inverse, self.symmetric = inverse, symmetric
        super().__init__(inverse.dtype, space)

    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        shape = (*self.inverse.shape[:2], 1)
        self.space.memory.xp.matmul(self.inverse, x.reshape(shape), out=result.reshape(shape))


@final
class FactoredBlocks(BlockJacobi):
    """Block Jacobi that multiplies by 1-D matrices; see `block_inverse`."""

    def __init__(self, A: Operator, compiled: CompiledOperator) -> None:
        self._operator, self._compiled = A, compiled
        super().__init__(A.dtype, A.space)

    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        self._compiled.apply(x, result)

    def __reduce__(self) -> tuple[Any, ...]:
        return block_jacobi, (self._operator,)


@checked(SolverError)
def block_jacobi(A: Operator) -> BlockJacobi:
    """Block Jacobi preconditioner of an operator on discontinuous functions. Collective.

    For an operator without integrals over faces, such as `femops.mass`, it is the inverse. A mass
    operator is inverted by 1-D matrices in the time of a product, if its rule has p + 1 points, or
    its elements are parallelepipeds and its coefficient is constant in each of them. Blocks of all
    other operators are inverted as dense matrices.

    Parameters
    ----------
    A : Operator
        On an `L2` space, from the space to itself.

    Returns
    -------
    BlockJacobi
        A SciPy ``LinearOperator``. `DenseBlocks` store a dense matrix for each element,
        `FactoredBlocks` at most a number for each quadrature point.

    Raises
    ------
    SolverError
        A is not on an L2 space, has constrained dofs, or an element's block is singular to
        round-off, or has no inverse in the operator's type.
    RankError
        An element's block of another rank is singular.
    OperatorError
        The blocks do not fit into memory.

    Examples
    --------
    >>> import femops
    >>> V = femops.L2(femops.read_mesh(femops.sample("disc.mesh")), order=2)
    >>> B, f = femops.mass(V), V.interpolate(lambda x: x[0])
    >>> bool(abs(femops.block_jacobi(B) @ (B @ f) - f).max() < 1e-12)
    True
    """
    space = A.space
    if not isinstance(space, L2) or A.test_space is not space:
        raise SolverError(
            f"block_jacobi takes an operator of an L2 space to itself, got {A!r}: "
            "use femops.jacobi or femops.multigrid"
        )
    if space.mixed:
        raise SolverError(
            "block_jacobi does not take meshes of several shapes, or of prisms, yet: use "
            "femops.jacobi or femops.multigrid"
        )
    if len(A.constraints.rows):
        raise SolverError("block_jacobi takes no constrained dofs: prescribe values by a load")
    compiled = block_inverse(A.summands)
    if compiled is not None:
        return FactoredBlocks(A, compiled)
    inverse, good = _inverses(_blocks(A, space), A.dtype)
    bad = ~good
    with check(space.comm):
        if bad.any():
            raise SolverError(
                f"{np.count_nonzero(bad)} elements have singular blocks, first number "
                f"{int(bad.argmax())}: add a mass term, or take interior penalty"
            )
    memory = space.memory
    return DenseBlocks(memory.put(inverse), space, symmetric=A.symmetric)


def _inverses(
    blocks: NDArray[np.float64], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Inverses (ne, n, n) of blocks in a type, and a flag (ne,) for each that is one.

    Blocks are singular if they are so to round-off, whatever the sizes of their rows and columns:
    if the norms of the scaled block and of its inverse have a large product.
    """
    with np.errstate(all="ignore"):
        rows = np.abs(blocks).max(axis=2, keepdims=True)
        columns = np.abs(blocks / rows).max(axis=1, keepdims=True)
        scaled = blocks / rows / columns
        scaled[~np.isfinite(scaled).all(axis=(1, 2))] = np.nan
        try:
            inverses = np.linalg.inv(scaled)
        except np.linalg.LinAlgError:
            inverses = np.array([_inverse(block) for block in scaled])
        norms = [np.abs(each).sum(axis=2).max(axis=1) for each in (scaled, inverses)]
        regular = norms[0] * norms[1] < _SINGULAR
        turned = (0, 2, 1)
        inverses = (inverses / columns.transpose(turned) / rows.transpose(turned)).astype(dtype)
    return inverses, regular & np.isfinite(inverses).all(axis=(1, 2))


def _inverse(block: NDArray[np.float64]) -> NDArray[Any]:
    """Inverse of a block. NaN if it is singular."""
    try:
        inverse: NDArray[Any] = np.linalg.inv(block)
    except np.linalg.LinAlgError:
        inverse = np.full_like(block, np.nan)
    return inverse


def _blocks(A: Operator, space: L2) -> NDArray[np.float64]:
    """Blocks (ne, n, n) of the elements, in the order of the vector."""
    ne, n = space.mesh.num_elements, space.element.size * space.ncomp
    remedy = "p + 1 points for a mass operator, a smaller mesh or order, or femops.jacobi"
    require_memory(3 * 8 * ne * n * n, "block_jacobi", remedy)
    blocks = np.zeros((ne, n, n))
    for factor, term in terms_on_diagonal(A.summands):
        assembly, dofs = ElementAssembly(term), term.test.pattern()
        for start, stop in assembly.blocks():
            element, place = np.divmod(dofs[start:stop], n)
            at = element[:, :1, np.newaxis], place[:, :, np.newaxis], place[:, np.newaxis, :]
            np.add.at(blocks, at, factor * assembly.matrices(start, stop))
    return blocks
