"""Numba: functions of a point in compiled loops, and operators in loops that users compile."""

from __future__ import annotations

import ctypes
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import MissingExtraError, OperatorError
from femops.operators import History, Operator
from femops.pointwise.law_function import LawFunction
from femops_common.arguments import checked, number_of, shown
from femops_kernels.cpu.applier import Applier
from femops_kernels.cpu.in_order import in_order
from femops_kernels.cpu.laws import evaluated
from femops_kernels.errors import KernelError
from femops_kernels.exclusive import held_in_forks
from femops_kernels.laws.law import Law
from femops_kernels.laws.reader import read

try:
    import numba
    from numba import literal_unroll
    from numba.core.compiler_lock import global_compiler_lock as _lock
except ImportError as error:
    raise MissingExtraError(f"femops.numba needs Numba ({error}): pip install numba") from error
if numba.version_info.short < (0, 62):
    raise MissingExtraError(
        f"femops.numba needs Numba 0.62 or newer, and this is {numba.__version__}: "
        'pip install "numba>=0.62"'
    )

history = History
__all__ = ["applier", "history", "law", "pointwise"]

held_in_forks(_lock)  # while another thread compiles: in the child it would keep Numba's lock
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


# --- laws -----------------------------------------------------------------------------------------


def law(
    function: Callable[..., Any] | None = None,
    *,
    results: int | None = None,
    derivatives: str | Callable[..., Any] = "forward",
) -> Any:
    """Function of numbers at a point that forms may call, with loops, branches and tables.

    A form's function is called once, with symbols, and cannot loop until convergence. A law can:
    Numba compiles it, and its code becomes part of the form's kernels. There it runs for all slots
    of a SIMD vector at once: a loop runs until no slot is left in it, and a branch is left out
    while no slot takes it. A law is a decorator, ``@femops.numba.law``.

    Parameters
    ----------
    function : callable
        ``function(a, b, ...)`` of numbers, which returns a number or a tuple of numbers. It takes
        no arrays and allocates nothing. It may read global NumPy arrays (tables), which are
        constants. It is a Python function, or one that ``numba.njit`` or ``numba.cfunc`` has
        compiled. Python functions divide by zero as NumPy does, without an error.
    results : int, optional
        Number of results, to be checked.
    derivatives : {"forward", "none"} or callable
        How `femops.residual`, `femops.gradient` and others differentiate the law. "forward":
        through its operations, loops and branches included. So a loop should do its last step near
        the solution: an iteration that does not begin has no derivative. A callable takes the same
        numbers as the law, and returns the derivative of each result by each number, row by row, as
        a tuple (nested or not). "none": the law has none, and whatever needs one raises an error.

    Returns
    -------
    LawFunction
        Function that takes symbols in a form, and numbers or arrays elsewhere. It computes in
        float64, in float32 forms too. Where the law raises an error, and where an index is outside
        of a table, its results are NaN. In a function that the law calls, a column outside of its
        row is seen if Numba compiled the function with ``boundscheck=True``.

    Raises
    ------
    OperatorError
        Numba cannot compile the function for float64 numbers, it returns something else than
        numbers, or not as many as ``results``, or it does what a point cannot do: call Python,
        write to arrays.

    Notes
    -----
    Where elements do not fill the last SIMD vector, a law also runs for slots whose numbers are
    zero, and their results are not used. A loop that does not end there is left after 2**20
    rounds, which takes its time: give loops a largest number of steps, as ``for _ in range(50)``.
    At a point of the mesh the law has failed then. (Devices leave no loop.)

    Products of two numbers and sums are not fused, so that all lanes have the same bits. Karrenberg
    and Hack (2011) describe how whole functions run on SIMD vectors.

    Examples
    --------
    >>> import femops, femops.numba
    >>> @femops.numba.law
    ... def speed(gradient, limit):
    ...     v = gradient  # v + v³ / limit² = gradient
    ...     for _ in range(50):
    ...         step = (v + v**3 / limit**2 - gradient) / (1 + 3 * v**2 / limit**2)
    ...         v -= step
    ...         if abs(step) < 1e-14 * abs(v):
    ...             break
    ...     return v
    >>> V = femops.H1(femops.box((4,)), order=3)
    >>> F = femops.residual(lambda u, x: {"grad": [speed(u.grad[0], 2.0)]}, V)
    >>> J = F.jacobian(V.interpolate(lambda x: x[0] ** 2))
    """
    if function is None:
        return partial(law, results=results, derivatives=derivatives)
    f, several, made = _law(function)
    if results is not None and made.results != results:
        raise OperatorError(f"{made.title} returns {made.results} numbers, results is {results!r}")
    if callable(derivatives):
        _, _, rule = _law(derivatives)
        wanted = made.inputs, made.inputs * made.results
        if (rule.inputs, rule.results) != wanted:
            raise OperatorError(
                f"{rule.title} takes {rule.inputs} numbers and returns {rule.results}: the "
                f"derivatives of {made.title} take {wanted[0]} and return {wanted[1]}"
            )
        made = replace(made, rule=rule)
    elif derivatives == "none":
        made = replace(made, rule=False)
    elif derivatives != "forward":
        raise OperatorError(
            f"derivatives is {shown(derivatives)}: give 'forward', 'none' or a function"
        )
    return LawFunction(made, f, several=several)


def _law(function: Any) -> tuple[Any, bool, Law]:
    """Compile a function of numbers: Numba's function, whether it returns a tuple, and its law."""
    function = getattr(function, "_pyfunc", function)  # of `numba.cfunc`
    if isinstance(function, LawFunction):
        return function.function, function._several, replace(function.law, rule=True)
    f = _scalar(function)
    title = f.py_func.__name__
    parameters = inspect.signature(f.py_func).parameters.values()
    if not parameters or any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in parameters):
        raise OperatorError(f"{title} takes {[*map(str, parameters)]}: let it take numbers by name")
    signature = (numba.float64,) * len(parameters)
    with _no_vectors():  # a fork waits for all that LLVM does here
        returned = _compiled_for(f, signature)
        places = _places(title, returned)
        name = f.overloads[signature].fndesc.mangled_name
        text = f.inspect_llvm(signature)
        try:
            made = read(title, text, name, len(parameters), places)
        except KernelError as error:
            raise OperatorError(str(error)) from error
    return f, isinstance(returned, numba.types.BaseTuple), made


def _scalar(function: Any) -> Any:
    """Function for Numba to compile, with the options of one that it has compiled before.

    That one may be from Numba's cache, which keeps no text, or have vectors and threads.
    """
    if inspect.isfunction(function):
        return numba.njit(function, error_model="numpy", boundscheck=True)
    if not isinstance(function, numba.core.dispatcher.Dispatcher):
        raise OperatorError(
            f"{shown(function)} is not a function of numbers: give one, written by def or lambda"
        )
    # with checks of each index: a check of its place in memory would let a column lead to a row
    options = {**function.targetoptions, "parallel": False, "boundscheck": True}
    return numba.jit(function.py_func, locals=function.locals, **options)


@contextmanager
def _no_vectors() -> Iterator[None]:
    """Let Numba make no vectors from loops: lanes are vectors already."""
    config = numba.core.config
    with _lock:
        kept = config.LOOP_VECTORIZE, config.SLP_VECTORIZE
        config.LOOP_VECTORIZE = config.SLP_VECTORIZE = 0
        try:
            yield
        finally:
            config.LOOP_VECTORIZE, config.SLP_VECTORIZE = kept


def _places(title: str, returned: Any) -> list[tuple[int, str]]:
    """Bytes at which the numbers of a result begin in memory, and their kinds."""
    found: list[tuple[int, str]] = []

    def place(one: Any, offset: int) -> int:
        """Note the places of a result's numbers from an offset; the offset of its end."""
        offset = -(-offset // alignment(one)) * alignment(one)
        if not isinstance(one, numba.types.BaseTuple):
            found.append((offset, _KINDS[numba.types.unliteral(one)]))
            return offset + alignment(one)
        for part in one.types:
            offset = place(part, offset)
        return -(-offset // alignment(one)) * alignment(one)

    def alignment(one: Any) -> int:
        if isinstance(one, numba.types.BaseTuple):
            return max(map(alignment, one.types), default=1)
        kind = _KINDS.get(numba.types.unliteral(one))
        if kind is None:
            raise wrong
        return int(kind[1:]) // 8

    wrong = OperatorError(f"{title} returns {returned}: let it return numbers (float, int or bool)")
    place(returned, 0)
    if not found:
        raise wrong
    return found


_KINDS = {
    numba.float64: "f64",
    numba.float32: "f32",
    numba.int64: "i64",
    numba.int32: "i32",
    numba.boolean: "i8",
}
"""Types that a law may return, and the kinds of their numbers in memory."""


# --- functions of a point -------------------------------------------------------------------------

_POINTS = 4096  # points of a piece that one thread works on


@checked(OperatorError)
def pointwise(f: Callable[..., Any], *parameters: Any, normals: bool = False) -> Any:
    """Function of x for coefficients, loads and values, from a function of one point.

    f may have branches, and loops until convergence. Numba compiles it. Where it reads its vectors
    entry by entry, it runs for all slots of a SIMD vector at once, as a `law` does; else for one
    point after the other. The threads of femops share the points.

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
    if of_numba is None and not inspect.isfunction(f):
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
        vectors = (x, n) if normals else (x,)
        on_lanes = _on_lanes(compiled, len(x), len(vectors), len(given)) if kind is float else None
        if on_lanes is not None:
            found = evaluated(on_lanes, *(row for one in vectors for row in one), *given)
            if on_lanes.failing and (failed := np.isnan(found).any(axis=0)).any():
                # f has raised an error, or returned NaN: it does so again
                loop(x[:, failed], n[:, failed], np.empty((len(found), failed.sum())), given)
            return np.array(found) if count else found[0]
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


def _compiled_for(f: Any, arguments: tuple[Any, ...]) -> Any:
    """Compile a function for arguments; the type that it returns."""
    try:
        f.compile(arguments)
    except (numba.core.errors.NumbaError, RuntimeError, TypeError) as error:
        raise OperatorError(
            f"Numba cannot compile {f.py_func.__name__} for these arguments: {error}"
        ) from error
    return f.overloads[arguments].signature.return_type


@cache
def _on_lanes(f: Any, dim: int, vectors: int, parameters: int) -> Law | None:
    """Law of a function that takes tuples for its vectors. None if it does not, or is no law."""
    if not _takes_entries(f, vectors):
        return None

    def normal_too(numbers: Any) -> Any:
        return f(numbers[:dim], numbers[dim : 2 * dim], *numbers[2 * dim :])

    def point_alone(numbers: Any) -> Any:
        return f(numbers[:dim], *numbers[dim:])

    at = numba.njit(normal_too if vectors == 2 else point_alone)
    count = dim * vectors + parameters
    signature = (numba.types.UniTuple(numba.float64, count),)
    title = str(f.py_func.__name__)
    try:
        with _no_vectors():
            returned = _compiled_for(at, signature)
            name, text = at.overloads[signature].fndesc.mangled_name, at.inspect_llvm(signature)
            return read(title, text, name, count, [*_places(title, returned)])
    except (KernelError, OperatorError):
        return None


def _takes_entries(f: Any, vectors: int) -> bool:
    """True if a function uses its vectors by their entries alone: tuples add in another way."""
    code = numba.core.compiler.run_frontend(f.py_func)
    names = {*code.arg_names[:vectors]}
    for one in (one for block in code.blocks.values() for one in block.body):
        used = {variable.name for variable in one.list_vars()} & names
        value: Any = getattr(one, "value", None)
        if not used or isinstance(one, numba.core.ir.Del) or isinstance(value, numba.core.ir.Arg):
            continue
        entry = getattr(value, "op", None) in ("getitem", "static_getitem")
        if not entry or one.target.name in names or used != {value.value.name}:
            return False
    return True


@cache
def _result(f: Any, vectors: int, parameters: int) -> tuple[type, int]:
    """Type of a function's numbers, and their count; 0 if it returns no tuple."""
    name = f.py_func.__name__
    found = _compiled_for(f, (numba.float64[::1],) * vectors + (numba.float64,) * parameters)
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
