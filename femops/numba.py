"""Numba: functions of a point in compiled loops, and operators in loops that users compile."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable
from functools import cache
from inspect import isfunction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import MissingExtraError, OperatorError
from femops.operators import Operator
from femops_common.arguments import checked, number_of, shown
from femops_kernels.cpu.applier import Applier
from femops_kernels.cpu.in_order import in_order

try:
    import numba
    from numba import literal_unroll
    from numba.core.compiler_lock import global_compiler_lock as _lock
except ImportError as error:
    raise MissingExtraError(f"femops.numba needs Numba ({error}): pip install numba") from error

__all__ = ["applier", "pointwise"]

if hasattr(os, "register_at_fork"):
    # A fork waits while another thread compiles: in the child that thread would keep Numba's lock.
    _after = {"after_in_parent": _lock.release, "after_in_child": _lock.release}
    os.register_at_fork(before=_lock.acquire, **_after)
_APPLY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@checked(OperatorError)
def applier(A: Operator) -> Any:
    """Product with an operator, as a function that code compiled by Numba calls.

    The call does not enter Python: Krylov methods, time steps and optimisers may run in one
    ``@numba.njit`` function. The result has the bits of ``A @ x``.

    The function has memory of its own, so it may run beside other solves. Threads that call it at
    the same time take turns: make a function for each thread. It works on as many threads as
    `A.apply` does when it is made. In a process that is forked off later, it works on one thread.

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

    A call raises ValueError for arrays of other lengths and arrays that share memory, and TypeError
    for arrays of another type. Numba loses errors inside ``prange``.

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
    busy = "another thread is in this function, and femops knows no locks of this system"

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


_POINTS = 4096  # points of a piece that one thread works on


@checked(OperatorError)
def pointwise(f: Callable[..., Any], *parameters: Any, normals: bool = False) -> Any:
    """Function of x for coefficients, loads and values, from a function of one point.

    f may have branches, and loops until convergence. Numba compiles the loop over the points, and
    the threads of femops share it. (NumPy's functions of all points are as fast where there are
    neither.)

    Parameters
    ----------
    f : callable
        ``f(x, *parameters)``, which Numba can compile: a Python function, whose indices are
        checked, or one that ``numba.njit`` has compiled. x is an array (dim,), a copy that f may
        change. f returns a number, or a tuple of k numbers: real, or complex.
    *parameters : float
        Numbers that f takes after x, such as the time. Another call with other numbers compiles
        nothing. (Numba takes global variables for constants.)
    normals : bool
        Whether f takes the normal (dim,) of a face after x: ``f(x, n, *parameters)``.

    Returns
    -------
    callable
        Function of x (dim, n), and of the normals (dim, n) if there are any, that returns (n,) or
        (k, n) numbers.

    Raises
    ------
    OperatorError
        f is not a function, Numba cannot compile it or has compiled it with ``parallel=True``, a
        parameter is not a number, or f returns something else than numbers.

    Examples
    --------
    >>> import femops, femops.numba
    >>> def root(x, a):
    ...     u = 1.0
    ...     while abs(u**3 + u - a * x[0]) > 1e-14:
    ...         u -= (u**3 + u - a * x[0]) / (3 * u**2 + 1)
    ...     return u
    >>> V = femops.H1(femops.box((8, 8)), order=3)
    >>> u = V.interpolate(femops.numba.pointwise(root, 2.0))
    >>> print(f"{u.max():.6f}")
    1.000000
    """
    of_numba: Any = f if isinstance(f, numba.core.dispatcher.Dispatcher) else None
    if of_numba is None and not isfunction(f):
        raise OperatorError(
            f"f is {shown(f)}: give a function of a point x, written by def or lambda"
        )
    if of_numba is not None and of_numba.targetoptions.get("parallel"):
        raise OperatorError(
            f"{f.__name__} is compiled with parallel=True: leave that out, as the threads of "
            "femops share the points"
        )
    given = tuple(number_of(one) for one in parameters)
    for one, number in zip(parameters, given, strict=True):
        if number is None:
            raise OperatorError(f"a parameter is {shown(one)}: give a number")
    compiled = _compiled(f) if of_numba is None else of_numba
    kind, count = _result(compiled, 1 + normals, len(given))
    loop = _loop(compiled, normals, count > 0)

    def values(x: Any, n: Any) -> NDArray[Any]:
        x, n = (np.asarray(one, dtype=np.float64) for one in (x, n))
        if x.ndim != 2 or x.shape != n.shape:
            beside = f" and normals of shape {n.shape}" if normals else ""
            raise OperatorError(f"x has shape {x.shape}{beside}: give points (dim, n)")
        out = np.empty((max(count, 1), x.shape[1]), kind)

        def work(begin: int) -> None:
            piece = np.s_[:, begin : begin + _POINTS]
            loop(x[piece], n[piece], out[piece], given)

        deque(in_order(work, range(0, x.shape[1], _POINTS)), maxlen=0)
        return out if count else out[0]

    return values if normals else lambda x: values(x, x)


@cache
def _compiled(f: Callable[..., Any]) -> Any:
    return numba.njit(f, boundscheck=True)  # or x[2] in 2-D would read other memory


@cache
def _result(f: Any, vectors: int, parameters: int) -> tuple[type, int]:
    """Type of a function's numbers, and their count; 0 if it returns no tuple."""
    name = f.py_func.__name__
    arguments = (numba.float64[::1],) * vectors + (numba.float64,) * parameters
    try:
        f.compile(arguments)
    except (numba.core.errors.NumbaError, RuntimeError, TypeError) as error:
        raise OperatorError(f"Numba cannot compile {name} for these arguments: {error}") from error
    found = f.overloads[arguments].signature.return_type
    several = isinstance(found, numba.types.BaseTuple)
    kinds = [*found.types] if several else [found]
    numbers = numba.types.Number | numba.types.Boolean
    if not kinds or not all(isinstance(one, numbers) for one in kinds):
        raise OperatorError(f"{name} returns {found}: let it return a number, or a tuple of them")
    real = not any(isinstance(one, numba.types.Complex) for one in kinds)
    return (float if real else complex), len(kinds) * several


@cache
def _loop(f: Any, normals: bool, several: bool) -> Any:
    """Compile the loop over the points of a function."""

    def one(point: Any, normal: Any, given: Any) -> Any:
        return f(point, normal, *given) if normals else f(point, *given)

    def put_number(found: Any, out: Any, k: int) -> None:
        out[0, k] = found

    def put_numbers(found: Any, out: Any, k: int) -> None:
        c = 0
        for number in literal_unroll(found):
            out[c, k] = number
            c += 1  # noqa: SIM113  (Numba unrolls no `enumerate`)

    at, put = numba.njit(one), numba.njit(put_numbers if several else put_number)

    def loop(x: Any, n: Any, out: Any, given: Any) -> None:
        point, normal = np.empty(len(x)), np.empty(len(n))
        for k in range(x.shape[1]):
            point[:], normal[:] = x[:, k], n[:, k]
            put(at(point, normal, given), out, k)

    return numba.njit(loop, nogil=True)
