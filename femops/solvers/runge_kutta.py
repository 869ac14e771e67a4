"""Explicit Runge-Kutta methods for du/dt = f(t, u), with few vectors.

Shu and Osher's forms make each stage a mean of Euler steps, so that a limiter may be applied to all
stages. The method of five stages needs two vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.parallel import Communicator, communicator
from femops.solvers.watch import on_all_ranks
from femops.spaces.restriction import FLOAT_TYPES
from femops.spaces.weighted_sums import Term, memory_of_array, short, sums_of
from femops_common.arguments import NotNegative, check_takes, checked, shown

Vector = NDArray[Any]

_ROW = 16  # rows of work space begin at multiples of 16 numbers, which are full cache lines


@final
class StageVectors:
    """Vectors of the length, type and memory of a solution.

    `start` (size,): the vector u, as an array of NumPy or CuPy.

    Shapes: `u` (size,).
    """

    def __init__(self, u: Any) -> None:
        self._memory, self._shape, self._dtype = memory_of_array(u), u.shape, np.dtype(u.dtype)
        self._table: Vector  # work space (count, size)
        self._work, self._free = list[Vector](), list[Vector]()
        self.start = self._adopted(u, "u")
        self.set = sums_of(self._memory, len(self.start))
        self._short = short(self._memory, len(self.start))

    def new(self) -> Vector:
        """Return a new vector without values, or one that was given back."""
        if self._free:
            return self._free.pop()
        made: Vector = self._memory.xp.empty_like(self.start)
        return made

    def give_back(self, vector: Vector) -> None:
        """Let `new` return a vector again, unless it is the user's: new memory takes time."""
        if vector is not self.start:
            self._free.append(vector)

    def work(self, count: int) -> list[Vector]:
        """Return the vectors of the work space, which are the same each time."""
        if not self._work:
            size = self._shape[0]
            row = -(-size // _ROW) * _ROW
            self._table = self._memory.xp.empty((count, row), self._dtype)[:, :size]
            self._work = [self._table[n] for n in range(count)]
        return self._work

    def combine(
        self, out: Vector, factors: Sequence[float], term: Term, newest: Vector | None = None
    ) -> None:
        """Set a vector to a term plus the first k vectors of the work space times ``factors``.

        Shapes: `out` (size,), `factors` (k,), `newest` (size,), which first replaces the k-th one.
        """
        rates = self._work[: len(factors)]
        if self._short:  # one call of NumPy for all of them
            if newest is not None:
                rates[-1][:] = newest
            np.dot(np.array(factors, self._dtype), self._table[: len(factors)], out)
            weight, vector = term
            out += vector if weight == 1.0 else weight * vector
            return
        before = () if newest is None else ((rates[-1], ((1.0, newest),), None),)
        terms = [(a, rate) for a, rate in zip(factors, rates, strict=True) if a]
        self.set(*before, (out, (*terms, term), None))

    def shown(self, vector: Vector) -> Vector:
        """Return a view (size,) for a user's function, read-only if the memory supports this."""
        view = vector.view()
        self._memory.protect(view)
        return view

    def rate(self, f: Callable[[float, Vector], Any]) -> Callable[[float, Vector], Vector]:
        """Return the user's f(t, u), which gets read-only views and whose results are checked."""
        checked_f = self.result(f, "f(t, u)")
        return lambda t, u: checked_f(t, self.shown(u))

    def result(self, function: Callable[..., Any], call: str) -> Callable[..., Vector]:
        """Return a user's function with results that are checked and have the vectors' type."""
        shape, dtype = self._shape, self._dtype
        usual = np.ndarray if self._memory.device is None else None

        def checked_function(*arguments: Any) -> Vector:
            found = function(*arguments)
            if type(found) is usual and found.dtype == dtype and found.shape == shape:
                return found
            if getattr(found, "shape", None) != shape:
                raise SolverError(
                    f"{call} returned {shown(found)}: return an array of shape {shape}"
                )
            return self._adopted(found, call)

        return checked_function

    def change(self, limiter: Callable[[Vector], Any]) -> Callable[[Vector], Vector]:
        """Return a function that replaces a vector by the user's limiter of it."""
        limited = self.result(limiter, "limiter(u)")

        def changed(u: Vector) -> Vector:
            found = limited(u)
            if found is not u:  # the limiter may return the same array each time, or a view of u
                u[...] = found if found.flags.c_contiguous else found.copy()
            return u

        return changed

    def _adopted(self, array: Any, what: str) -> Vector:
        """Return an array of this memory and of the vectors' type, a copy only if needed."""
        found = self._memory.factor(array, what)
        if found.dtype.kind not in "biuf":
            raise SolverError(f"{what} has type {found.dtype}: real numbers are needed")
        return found if found.dtype == self._dtype else found.astype(self._dtype)


_SAFETY, _LEAST, _MOST = 0.9, 0.2, 5.0  # factors of the next step
_BLOCK = 16384  # entries of a vector of the host whose errors are measured at a time, in cache
_SHORTEST = 1e-13  # part of the time, below which a step changes nothing


@final
@dataclass(frozen=True)
class Pair:
    """Pair of explicit methods. The last stage is the first one of the next step."""

    order: int  # order of the solution. The error estimate is of one order less.
    times: Sequence[float]  # (stages,)
    # factors of the earlier stages in each stage after the first; the last row is the solution
    rows: Sequence[Sequence[float]]
    errors: Sequence[float]  # (stages,): factors of the stages in the error


PAIRS = {
    "bs32": Pair(
        3,
        (0.0, 1 / 2, 3 / 4, 1.0),
        ((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
        (-5 / 72, 1 / 12, 1 / 9, -1 / 8),
    ),
    "dp54": Pair(
        5,
        (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
        (
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
            (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        ),
        (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    ),
}
"""Pairs by name: P. Bogacki and L. Shampine, Appl. Math. Lett. 2 (1989); J. Dormand and P. Prince,
J. Comput. Appl. Math. 6 (1980)."""


@final
@dataclass(frozen=True)
class Tolerance:
    """Bound of the error of a step, in the mean square over all entries."""

    # rtol and atol: the bound of an entry's error is atol + rtol times its magnitude
    rtol: float
    atol: float
    comm: Communicator  # ranks that each have a part of the vectors

    def size(self, error: Vector, u: Vector, new: Vector) -> float:
        """Size of an error: 1 if it is as large as allowed, infinite if not finite. Collective."""
        block = _BLOCK if isinstance(error, np.ndarray) else max(len(error), 1)
        own = 0.0
        for begin in range(0, len(error), block):
            part = slice(begin, begin + block)
            bound = np.maximum(abs(u[part]), abs(new[part]))
            bound *= self.rtol
            bound += self.atol
            bound += bound == 0.0
            ratio = error[part] / bound
            own += float(ratio @ ratio)
        count = self.comm.sum(float(len(error)))
        square = self.comm.sum(own) / max(count, 1.0)
        return float(np.sqrt(square)) if np.isfinite(square) else np.inf


def take_steps(
    pair: Pair,
    f: Callable[[float, Vector], Vector],
    vectors: StageVectors,
    span: tuple[float, float],
    dt: float,
    tolerance: Tolerance,
    callback: Callable[[float, Vector], Any] | None,
) -> Vector:
    """Solve du/dt = f(t, u) from the beginning of ``span`` to its end. Collective."""
    t, end = span
    u, work = vectors.start, vectors.work(len(pair.times))
    vectors.set((work[0], ((1.0, f(t, u)),), None))
    least = _SHORTEST * max(abs(t), abs(end))
    while t < end:
        step, last = (end - t, True) if t + 1.0001 * dt >= end else (dt, False)
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is too long
            new, error, rate = _stages(pair, f, t, u, step, vectors)
            size = tolerance.size(error, u, new)
        if size <= 1.0:
            vectors.set((work[0], ((1.0, rate),), None))
            t, u, new = end if last else t + step, new, u
            if callback is not None:
                callback(t, vectors.shown(u))
        if size > 1.0 or callback is None:
            vectors.give_back(new)
        grown = _SAFETY * size ** (-1.0 / pair.order) if size else _MOST
        dt = step * min(max(grown, _LEAST), _MOST)
        if size > 1.0 and dt < least:
            raise SolverError(
                f"soon after t = {t:g} no step is short enough for the tolerances: look whether f "
                "is finite there, or give larger tolerances"
            )
    return u


def _stages(
    pair: Pair,
    f: Callable[[float, Vector], Vector],
    t: float,
    u: Vector,
    dt: float,
    vectors: StageVectors,
) -> tuple[Vector, Vector, Vector]:
    """Return the new solution, its error, and the rate there. ``work[0]`` has the first rate."""
    work, new = vectors.work(len(pair.times)), vectors.new()
    stage, rate = work[-1], None
    for n, (c, row) in enumerate(zip(pair.times[1:], pair.rows, strict=True), 1):
        out = stage if n < len(pair.rows) else new
        vectors.combine(out, [dt * a for a in row], (1.0, u), rate)
        rate = None  # its memory serves f again
        rate = f(t + c * dt, out)
    assert rate is not None
    *factors, last = (dt * a for a in pair.errors)
    vectors.combine(stage, factors, (last, rate))
    return new, stage, rate


Rate = Callable[[float, Vector], Vector]
Change = Callable[[Vector], Vector]

_CHECKED = 16  # steps between checks that the solution is finite
_GROWN = 2.0**20  # growth after which the step is compared with the limit of stability
_BEYOND = 1.25  # times the radius: regions of stability reach no farther in any direction
_POWERS = 30  # steps of the power method for the limit of the step
_MOST_STEPS = 1e9  # weeks, for the fastest f


@dataclass(frozen=True)
class _Method(ABC):
    """An explicit method."""

    radius: float  # largest stable product of the step and a real rate of decay

    @abstractmethod
    def step(
        self, f: Rate, t: float, u: Vector, dt: float, limiter: Change, vectors: StageVectors
    ) -> Vector:
        """Solution at t + dt, a new vector.

        The rates are read before f is called again: f may return the same array each time.
        """


@final
@dataclass(frozen=True)
class _Means(_Method):
    """Method whose stages are means of u and an Euler step from the stage before."""

    kept: Sequence[float]  # share of u in each stage
    times: Sequence[float]  # time of each Euler step, in steps

    def step(
        self, f: Rate, t: float, u: Vector, dt: float, limiter: Change, vectors: StageVectors
    ) -> Vector:
        stage, (work,) = u, vectors.work(1)
        for n, (share, c) in enumerate(zip(self.kept, self.times, strict=True), 1):
            k = f(t + c * dt, stage)
            out = work if n < len(self.times) else vectors.new()
            # a mean in this form has shares of sum 1 in spite of round-off: sums of u do not drift
            vectors.set((out, ((dt, k), (1.0, stage)), (share, u) if share else None))
            del k  # its memory serves f again
            stage = limiter(out)
        return stage


@final
@dataclass(frozen=True)
class _Classical(_Method):
    """The classical method of fourth order."""

    def step(
        self, f: Rate, t: float, u: Vector, dt: float, limiter: Change, vectors: StageVectors
    ) -> Vector:
        total, (stage,) = vectors.new(), vectors.work(1)
        time, given, before = t, u, u
        for c, weight in ((0.5, 6.0), (0.5, 3.0), (1.0, 3.0)):
            k = f(time, given)
            added = total, ((dt / weight, k), (1.0, before)), None
            vectors.set(added, (stage, ((c * dt, k), (1.0, u)), None))
            del k, added  # its memory serves f again
            time, given, before = t + c * dt, limiter(stage), total
        vectors.set((total, ((dt / 6.0, f(time, given)), (1.0, total)), None))
        return limiter(total)


@final
@dataclass(frozen=True)
class _TwoVectors(_Method):
    """Method that keeps the solution and one change."""

    # for each stage: the factors of the last and of the new change, and the time in steps
    kept: Sequence[float]
    added: Sequence[float]
    times: Sequence[float]

    def step(
        self, f: Rate, t: float, u: Vector, dt: float, limiter: Change, vectors: StageVectors
    ) -> Vector:
        stage, (change, work) = u, vectors.work(2)
        stages = zip(self.kept, self.added, self.times, strict=True)
        for n, (a, b, c) in enumerate(stages, 1):
            k = f(t + c * dt, stage)
            out = work if n < len(self.times) else vectors.new()
            changed = change, ((a, change), (dt, k)) if a else ((dt, k),), None
            vectors.set(changed, (out, ((b, change), (1.0, stage)), None))
            del k, changed  # its memory serves f again
            stage = limiter(out)
        return stage


METHODS: dict[str, _Method] = {
    "ssp2": _Means(2.0, (0.0, 0.5), (0.0, 1.0)),
    "ssp3": _Means(2.5, (0.0, 0.75, 1.0 / 3.0), (0.0, 1.0, 0.5)),
    "rk4": _Classical(2.78),
    "lsrk4": _TwoVectors(
        4.65,
        (
            0.0,
            -567301805773.0 / 1357537059087.0,
            -2404267990393.0 / 2016746695238.0,
            -3550918686646.0 / 2091501179385.0,
            -1275806237668.0 / 842570457699.0,
        ),
        (
            1432997174477.0 / 9575080441755.0,
            5161836677717.0 / 13612068292357.0,
            1720146321549.0 / 2090206949498.0,
            3134564353537.0 / 4481467310338.0,
            2277821191437.0 / 14882151754819.0,
        ),
        (
            0.0,
            1432997174477.0 / 9575080441755.0,
            2526269341429.0 / 6820363962896.0,
            2006345519317.0 / 3224310063776.0,
            2802321613138.0 / 2924317926251.0,
        ),
    ),
}
"""Methods by name. The numbers of "lsrk4" are those of Carpenter and Kennedy, NASA TM 109112, 1994,
solution 3."""


@checked(SolverError)
def runge_kutta(
    f: Rate,
    u: Any,
    end: float,
    dt: float,
    *,
    start: float = 0.0,
    method: str = "lsrk4",
    limiter: Change | None = None,
    callback: Callable[[float, Vector], Any] | None = None,
    comm: Any = None,
    rtol: NotNegative = 1e-6,
    atol: NotNegative = 1e-9,
) -> Any:
    r"""Solve :math:`\dot u = f(t, u)` by explicit steps of equal or of chosen length.

    Parameters
    ----------
    f : callable
        ``f(t, u)`` returns the rate of change (size,), as a new array or the same array each time.
        The array u is overwritten later: f must copy it to keep it. On the host u is read-only.
    u : (size,) array
        Solution at ``start``, on the host or a device. It is not changed. The solution has its
        type, and is computed in it.
    end : float
        Time of the result.
    dt : float
        Longest step, in units of time. The steps are shortened so that the last ends at ``end``.
        For a pair, the first step that is tried.
    start : float
        Time of ``u``.
    method : {"ssp2", "ssp3", "rk4", "lsrk4", "bs32", "dp54"}
        Two and three stages of orders 2 and 3, whose stages are means of Euler steps (strong
        stability preserving); the classical method of order 4; five stages of order 4 with two
        vectors. The pairs of Bogacki and Shampine (order 3) and of Dormand and Prince (order 5)
        choose the length of each step by an estimate of its error.
    limiter : callable, optional
        ``limiter(u)`` returns the changed solution, as the array u or another one. It is called
        after each stage. Not for pairs.
    callback : callable, optional
        ``callback(t, u)`` is called after each step, with the solution at t. It may keep the array
        u, which is not changed later. On the host u is read-only.
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Ranks that each have a part of u, as ``V.comm``. With it all ranks get the same error. It is
        needed if f sends messages. By default this process alone.
    rtol, atol : float
        Tolerances of a pair. The error of a step, divided by atol + rtol |u| for each entry, is at
        most 1 in the mean square.

    Returns
    -------
    (size,) array
        Solution at ``end``.

    Raises
    ------
    SolverError
        Times or ``dt`` make no sense, or ask for more than a billion steps. The method is unknown.
        A result of f or of the limiter has another shape than u, or complex numbers. A function
        takes other arguments. The solution is not finite, or grows in steps beyond the limit of
        stability: the message has the longest stable step, estimated from f.
    VectorError
        A result of f or of the limiter is in another memory than u.

    Examples
    --------
    >>> import femops
    >>> import numpy as np
    >>> V = femops.L2(femops.box((16,)), order=3)
    >>> A = femops.upwind_convection(V, velocity=np.array([1.0]))
    >>> M = femops.block_jacobi(femops.mass(V, quadrature=V.order + 1))
    >>> u = V.interpolate(lambda x: np.exp(-100 * (x[0] - 0.3) ** 2))
    >>> u = femops.runge_kutta(lambda t, u: -(M @ (A @ u)), u, end=0.4, dt=0.005)
    >>> bool(femops.l2_error(V, u, lambda x: np.exp(-100 * (x[0] - 0.7) ** 2)) < 1e-3)
    True
    """
    _check_method(method)
    _check_functions(f, limiter, callback, start, u)
    if not 0.0 < dt < np.inf or not start <= end < np.inf:
        raise SolverError(f"dt = {dt:g} from {start:g} to {end:g}: give dt > 0 and end >= start")
    ranks, vectors = communicator(comm), StageVectors(u if start < end else u.copy())
    callback = on_all_ranks(callback, ranks)
    rate, u, start, dt = vectors.rate(f), vectors.start, float(start), float(dt)
    if method in PAIRS:
        if limiter is not None or not (rtol or atol):
            raise SolverError(f"{method} takes no limiter, and a tolerance: rtol, atol or both")
        tolerance, span = Tolerance(rtol, atol, ranks), (start, float(end))
        return take_steps(PAIRS[method], rate, vectors, span, dt, tolerance, callback)
    scheme, change = METHODS[method], _unchanged if limiter is None else vectors.change(limiter)
    count = _steps(start, float(end), dt)
    step, solution = float(end - start) / max(count, 1), u
    growth, reported = _Growth(rate, scheme, step, start, u, ranks), np.geterr()
    with np.errstate(over="ignore", invalid="ignore"):  # the solution is looked at below
        for k in range(count):
            before = solution
            solution = scheme.step(rate, start + k * step, before, step, change, vectors)
            if callback is None and before is not growth.u:
                vectors.give_back(before)
            if (k + 1) % _CHECKED == 0 or k + 1 == count:
                growth.check(start + (k + 1) * step, solution)
            if callback is not None:
                with np.errstate(**reported):
                    callback(start + (k + 1) * step, vectors.shown(solution))
    return solution


def _steps(start: float, end: float, dt: float) -> int:
    """Return the number of steps, or raise if they would never end."""
    steps = (end - start) / dt * (1.0 - 1e-12)
    if steps > _MOST_STEPS:
        raise SolverError(
            f"steps of {dt:g} from {start:g} to {end:g} would never end: give another dt"
        )
    return int(np.ceil(steps))


def _unchanged(u: Vector) -> Vector:
    return u


def _check_method(method: str) -> None:
    if method not in METHODS and method not in PAIRS:
        choices = ", ".join([*METHODS, *PAIRS])
        raise SolverError(f"method {shown(method)}: choose one of {choices}")


def _check_functions(f: Any, limiter: Any, callback: Any, start: float, u: Any) -> None:
    """Raise unless u is a vector, and the functions can be called with their arguments."""
    flat = isinstance(getattr(u, "shape", None), tuple) and len(u.shape) == 1
    if not (flat and hasattr(u, "dtype") and u.dtype in FLOAT_TYPES) or not callable(f):
        raise SolverError(
            "runge_kutta takes a function f(t, u) and one vector u of float64 or float32, got "
            f"{shown(f)} and {shown(u)}"
        )
    for name, given, arguments, takes in (
        ("f", f, (start, u), "t and u"),
        ("limiter", limiter, (u,), "u"),
        ("callback", callback, (start, u), "t and u"),
    ):
        if given is None:
            continue
        if isinstance(given, type) or not callable(given):
            raise SolverError(f"{name} {shown(given)}: give a function")

        def refused(why: str, text: str = f"{name} takes {takes}") -> SolverError:
            return SolverError(f"{text}: {why}")

        check_takes(given, arguments, refused)


@final
class _Growth:
    """Checks that a solution is finite, and that it does not grow by steps that are too long.

    `u` (size,): the solution at the last check, which was finite.
    """

    def __init__(
        self, f: Rate, scheme: _Method, step: float, t: float, u: Vector, comm: Communicator
    ) -> None:
        self._f, self._radius, self._step, self._comm = f, scheme.radius, step, comm
        self._t, self.u = t, u
        self._first = self._last = _largest(u, comm)

    def check(self, t: float, u: Vector) -> None:
        """Raise if the solution at t is not finite, or grows beyond the limit. Collective.

        A solution that has grown much may be right: then a step is not beyond the limit.
        """
        size = _largest(u, self._comm)
        if not np.isfinite(size):
            raise SolverError(self._not_finite())
        if not self._first:  # a start from zero: its size is what f alone brings
            rates = (_largest(self._f(s, self.u), self._comm) for s in (self._t, t))
            self._first = self._last = (t - self._t) * max(rates)
        if size > _GROWN * self._first > 0.0:
            rate = _largest_rate(self._f, t, u, self._comm)
            if np.isfinite(rate) and self._step * rate > _BEYOND * self._radius:
                each = (size / self._last) ** (self._step / (t - self._t))
                raise SolverError(
                    f"the solution grows by a factor of {each:.3g} in each step, to {size:.2g} at "
                    f"t = {t:g}. Steps of {self._step:.3g} are too long: the limit of stability is "
                    f"about {self._radius / rate:.3g} there, take a smaller dt"
                )
        if size > _GROWN * self._first:
            self._first = size
        self._t, self.u, self._last = t, u, size

    def _not_finite(self) -> str:
        """Message about a solution that is not finite after the last check."""
        rate, t, step = _largest_rate(self._f, self._t, self.u, self._comm), self._t, self._step
        text = f"the solution is not finite soon after t = {t:g}, with steps of {step:.3g}"
        if not 0.0 < rate < np.inf:
            return f"{text}: look whether f is finite"
        limit = self._radius / rate
        if step < 0.5 * limit:
            return f"{text}: they are below the limit of stability, {limit:.3g}, so look at f"
        return f"{text}: the limit of stability is about {limit:.3g} there, take a smaller dt"


def _largest_rate(f: Rate, t: float, u: Vector, comm: Communicator) -> float:
    """Estimate the largest eigenvalue of f's derivative by u, in magnitude, by the power method."""
    before, size = f(t, u).copy(), _norm(u, comm)  # f may return the same array each time
    epsilon = 1e-7 * (size or 1.0)
    v = before / (_norm(before, comm) or 1.0)
    rate = 0.0
    for _ in range(_POWERS):
        w = (f(t, u + epsilon * v) - before) / epsilon
        rate = _norm(w, comm)
        if not 0.0 < rate < np.inf:
            break
        v = w / rate
    return rate


def _largest(u: Vector, comm: Communicator) -> float:
    """Largest magnitude on all ranks; infinite if a number is NaN. Collective."""
    own = float(abs(u).max()) if len(u) else 0.0
    return comm.max(np.inf if np.isnan(own) else own)


def _norm(u: Vector, comm: Communicator) -> float:
    """Euclidean norm of a vector of all ranks. Collective."""
    size = _largest(u, comm)
    if not 0.0 < size < np.inf:
        return size
    return size * float(np.sqrt(comm.sum(float(((u / size) ** 2).sum()))))
