"""Operators as functions of Numba, for loops that users compile."""

from __future__ import annotations

import ctypes
from typing import Any

from femops.errors import MissingExtraError, OperatorError
from femops.operators import Operator
from femops_common.arguments import checked
from femops_kernels.cpu.applier import Applier

try:
    import numba
except ImportError as error:
    raise MissingExtraError(f"femops.numba needs Numba ({error}): pip install numba") from error

__all__ = ["applier"]

_APPLY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@checked(OperatorError)
def applier(A: Operator) -> Any:
    """Product with an operator, as a function that code compiled by Numba calls.

    The call does not enter Python: Krylov methods, time steps and optimisers may run in one
    ``@numba.njit`` function. The result has the bits of ``A @ x``.

    The function has memory of its own, so it may run beside other solves. Only one thread may call
    it at a time: make a function for each thread. It works on as many threads as `A.apply` does
    when it is made. In a process that is forked off later, it works on one thread.

    Parameters
    ----------
    A : Operator
        Operator on the host, of one process, at any level. An operator that `Operator.update`
        makes needs an applier of its own.

    Returns
    -------
    callable
        ``apply(x, y)`` sets y, an array of shape (A.shape[0],), to A x, where x has the shape
        (A.shape[1],). Both are contiguous and of the operator's type, and share no memory. Other
        threads of Python run during a call.

    Raises
    ------
    OperatorError
        A is not an operator, is complex, is on a device, or is distributed over ranks.

    A call raises ValueError for arrays of other lengths and arrays that share memory, RuntimeError
    if another thread is calling the function, and TypeError for arrays of another type.

    Examples
    --------
    >>> import numba, numpy as np, femops, femops.numba
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> A = femops.diffusion(V) + femops.mass(V)
    >>> apply = femops.numba.applier(A)
    >>> @numba.njit
    ... def largest_eigenvalue(x, steps):
    ...     y = np.empty_like(x)
    ...     for _ in range(steps):
    ...         apply(x, y)
    ...         x = y / np.linalg.norm(y)
    ...     apply(x, y)
    ...     return x @ y
    >>> bool(largest_eigenvalue(np.ones(V.size), 50) > 1.0)
    True
    """
    if A.space.device is not None or A.test_space.device is not None:
        raise OperatorError(f"{A!r} is on a device: Numba's code runs on the host")
    if A.space.comm.size > 1:
        raise OperatorError(
            f"{A!r} is distributed over {A.space.comm.size} ranks, whose messages need Python: "
            "call A.apply"
        )
    compiled: Any = A._level_data.compiled()  # A itself does not use its buffers
    rows, columns = A.shape
    return _function(Applier(compiled), rows, columns, numba.from_dtype(A.dtype))


def _function(made: Applier, rows: int, columns: int, real: Any) -> Any:
    """Compile the call of an applier for vectors of a type."""
    run, state = _APPLY(made.address), made.state
    lengths = f"the operator takes x of length {columns} and y of length {rows}"
    shared = "x and y share memory: give y memory of its own"
    busy = "another thread is in this function: make an applier for each thread"

    def apply(x: Any, y: Any) -> None:
        if x.size != columns or y.size != rows:
            raise ValueError(lengths)
        source, target = x.ctypes.data, y.ctypes.data
        if source < target + y.nbytes and target < source + x.nbytes:
            raise ValueError(shared)
        if run(state, source, target) == 0:
            raise RuntimeError(busy)

    out = numba.types.Array(real, 1, "C")
    given = [out, numba.types.Array(real, 1, "C", readonly=True)]
    compiled = numba.njit([numba.void(one, out) for one in given], nogil=True)(apply)
    compiled.kept = made  # Numba's code has only addresses of it
    return compiled
