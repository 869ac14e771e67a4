"""Gradients through steps in time, with checkpoints by a schedule."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.controls import control_of
from femops.adjoint.equations import LinearEquations
from femops.adjoint.gradient import gradient
from femops.adjoint.integrand import MESH
from femops.adjoint.lagrangian import Lagrangian
from femops.adjoint.pieces import pieces_of
from femops.errors import OperatorError, SolverError, VectorError
from femops.operators import Functional, Residual
from femops.operators.execution.vectors import checked_vector
from femops.operators.matrix_free import ONE_SPACE
from femops.solvers.newton import newton, rounding_of
from femops.solvers.newton_steps import Linear, Preconditioning
from femops.spaces.base import GridFunction
from femops.spaces.memory import Memory
from femops.spaces.product import Product
from femops_common.arguments import Count, Fraction, checked, shown

Vector = NDArray[Any]
STORED = frozenset({"RAM", "DISK"})
"""Places where a schedule can store states for later."""


@final
class Checkpoints:
    """States by storage and step."""

    def __init__(self, folder: Path, memory: Memory) -> None:
        self._folder, self._memory = folder, memory
        self._kept: dict[tuple[str, int], dict[str, Any]] = {}

    def write(self, storage: str, n: int, arrays: Mapping[str, Vector]) -> None:
        """Keep states of a step by name, beside those that the storage has of this step.

        Nobody changes states in place, so memory takes them without a copy.
        """
        kept = self._kept.setdefault((storage, n), {})
        for name, array in arrays.items():
            kept[name] = array
            if storage == "DISK":
                kept[name] = self._folder / f"{name}-{n}.npy"
                np.save(kept[name], self._memory.get(array))

    def read(self, storage: str, n: int) -> dict[str, Vector]:
        """States of a step by name."""
        kept = self._kept[storage, n]
        if storage != "DISK":
            return dict(kept)
        return {name: self._memory.put(np.load(path)) for name, path in kept.items()}

    def delete(self, storage: str, n: int) -> None:
        """Delete the states of a step."""
        kept = self._kept.pop((storage, n))
        if storage == "DISK":
            for path in kept.values():
                path.unlink()


def actions_of(schedule: Any, count: int) -> Iterator[Any]:
    """Actions of a schedule for some number of steps."""
    again = f"checkpoint_schedules.Revolve({count}, 10), for instance"
    if isinstance(schedule, type) or not hasattr(schedule, "max_n"):
        raise OperatorError(f"schedule is {shown(schedule)}: give {again}")
    if schedule.max_n not in (None, count):
        raise OperatorError(
            f"schedule is {shown(schedule)} for {schedule.max_n} steps, but there are {count}: "
            f"give {again}"
        )
    actions = iter(schedule)
    first = next(actions, None)
    if first is None or type(first).__name__ != "Forward" or first.n0 != 0:
        raise OperatorError(
            f"schedule is {shown(schedule)} that has been used: a schedule serves one gradient, "
            f"give a new one, {again}"
        )
    return chain([first], actions)


Coefficients = Callable[[int], Mapping[str, Any]]
INITIAL = "initial"
"""Name of the state before the first step among the controls."""


@final
@checked(OperatorError)
class Steps:
    r"""Steps in time, each of which solves an equation, and gradients of a goal.

    Step n solves :math:`F(u^n; u^{n-1}, m) = 0` by `femops.newton`: an implicit method, or an
    explicit one, in which F is linear in :math:`u^n`. The goal is :math:`J(u^N) + \sum_n j(u^n)`.

    Parameters
    ----------
    F : Residual
        One coefficient of F is the state before the step, a `GridFunction` on F's space. The other
        coefficients are the same in all steps, except those of ``at``. A coefficient has no
        gradient. If F needs the gradient of the state before the step, a second field must equal
        this state.
    count : int
        Number of steps N, at least 1.
    final, running : Functional, optional
        J and j. At least one is given.
    old : str or dict of str
        Name of that coefficient; on a product, the name for each field that has one.
    at : callable, optional
        ``at(n)`` returns coefficients of F and of j at step n = 1, ..., N by name, such as the
        time. It is called again on the way back.
    begin : callable, optional
        ``begin(n, u)`` returns the first guess (size,) of step n, with the values at the
        constrained dofs. Its argument u is a copy of the state before the step. Each value at a
        constrained dof must depend on n alone, or be that of u. By default the first guess is u.
        The function is called again on the way back, also with other states.
    linear, preconditioner
        See `femops.newton`. They solve for the adjoint, too.
    rtol : float
        Relative residual of each step's equation and of the adjoint's. A step also ends if rounding
        alone leaves a residual of this size, as near a steady state.

    Raises
    ------
    OperatorError
        No step or no goal, a goal on another space or of the state before the step, or an unknown
        coefficient.

    Examples
    --------
    Decay at an unknown rate, by implicit Euler steps:

    >>> import femops
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> def euler(u, old, rate, dt):
    ...     return {"value": (u - old) / dt + rate * u}
    >>> u0 = V.zeros() + 1.0
    >>> F = femops.residual(euler, V, old=femops.GridFunction(V, u0), rate=2.0, dt=0.1)
    >>> steps = femops.adjoint.Steps(F, 5, final=femops.functional(lambda u: u, V))
    >>> value, slopes = steps.gradient(u0, ["rate", "initial"])
    >>> bool(abs(value - 1.2**-5) < 1e-9), bool(abs(slopes["rate"] + 5 * 0.1 * 1.2**-6) < 1e-9)
    (True, True)
    """

    def __init__(
        self,
        F: Residual,
        count: Count,
        *,
        final: Functional | None = None,
        running: Functional | None = None,
        old: str | Mapping[str, str] = "old",
        at: Coefficients | None = None,
        begin: Callable[[int, Vector], Vector] | None = None,
        linear: Linear = "auto",
        preconditioner: Preconditioning = "jacobi",
        rtol: Fraction = 1e-10,
    ) -> None:
        if count < 1:
            raise OperatorError(f"count is {count}: give a number of steps, at least 1")
        if final is None and running is None:
            raise OperatorError("final and running are None: give one of them, or both")
        self._goals = [goal for goal in (final, running) if goal is not None]
        self._F, self._count, self._final, self._running = F, int(count), final, running
        self._at, self._begin, self._rtol = at, begin, float(rtol)
        self._linear, self._preconditioner = linear, preconditioner
        self._old = _old_names(F, old)
        for goal in self._goals:
            if goal.space is not F.space or goal.dtype != F.dtype:
                raise OperatorError(
                    f"{goal!r} and {F!r} are on different spaces or types: {ONE_SPACE}"
                )
            for name in _known(goal).intersection(self._old.values()):
                raise OperatorError(
                    f"{goal!r} has the coefficient {name}, in F the state before the step, of "
                    "which no goal is: rename it, or make the state before the step a second field"
                )

    def run(self, u0: Vector) -> tuple[float, Vector]:
        """Do all steps.

        Parameters
        ----------
        u0 : (size,) array

        Returns
        -------
        value : float
            The goal.
        u : (size,) array
            State after the last step.

        Raises
        ------
        OperatorError
            ``at`` returns something else than values of coefficients.
        SolverError
            A step's equation is not solved.
        VectorError
            A state of another shape or type.
        """
        u, value = self._checked(u0, "u0"), 0.0
        for n in range(1, self._count + 1):
            now = self._coefficients(n)
            u = self._step(n, u, now)
            value += self._rate(u, now)
        return value + (0.0 if self._final is None else self._final(u)), u

    @checked(OperatorError)
    def gradient(
        self, u0: Vector, wrt: str | Sequence[str], schedule: Any = None
    ) -> tuple[float, dict[str, Vector]]:
        """Do all steps, and then back from the last to the first.

        Parameters
        ----------
        u0 : (size,) array
        wrt : str or sequence of str
            Coefficients that are the same in all steps, or "mesh", see `femops.gradient`, and
            "initial" for the state before the first step.
        schedule : checkpoint_schedules.CheckpointSchedule, optional
            Which states are kept, in memory or on disk, and which are computed again. All are kept
            in memory if omitted. With the package checkpoint-schedules
            ``checkpoint_schedules.Revolve(N, 10)`` keeps ten, for instance. A schedule is for N
            steps, and serves one gradient. Files are in a folder of `tempfile.gettempdir`, which
            is deleted at the end.

        Returns
        -------
        value : float
            The goal.
        derivatives : dict of arrays
            By name, in the shapes of `femops.gradient`.

        Raises
        ------
        OperatorError
            A control that nothing depends on, that ``at`` changes, or that has different values in
            F and in a goal. A schedule for another number of steps, or one that has been used.
            Values at constrained dofs that ``begin`` computes from u.
        SolverError
            An equation is not solved.
        VectorError
            A state of another shape or type.
        """
        names = [wrt] if isinstance(wrt, str) else list(wrt)
        if not names or not all(isinstance(name, str) for name in names):
            given = shown(wrt) if names else "empty"
            raise OperatorError(f"wrt is {given}: give names of coefficients, or 'initial'")
        self._check_varying({*self._coefficients(1), *self._old.values()}, names)
        self._check_controls(names)
        with tempfile.TemporaryDirectory(prefix="femops-steps-") as folder:
            sweep = _Sweep(self, names, Path(folder))
            sweep.follow(self._checked(u0, "u0"), schedule)
        return sweep.value, {name: sweep.found[name] for name in names}

    def _checked(self, u: Any, what: str) -> Vector:
        """Copy of a state that the user gives, and may overwrite later. Collective."""
        space = self._F.space
        found: Vector = checked_vector(space, self._F.dtype, u, what).copy()
        if space.comm.max(int(not space.memory.xp.isfinite(found).all())):  # all raise, or none
            raise VectorError(f"{what} has entries that are not finite: give numbers")
        return found

    def _check_controls(self, names: Sequence[str]) -> None:
        """Raise unless there is a derivative by each name, before any step is done."""
        pieces = pieces_of(self._F)
        for goal in self._goals:
            pieces += pieces_of(goal)
        if INITIAL in names and any(INITIAL in piece.coefficients for piece in pieces):
            raise OperatorError(
                f"{INITIAL} is a coefficient, and the state before the first step: rename the "
                "coefficient"
            )
        for name in names:
            if name != INITIAL:
                control_of(name, pieces, None)

    def _coefficients(self, n: int, controls: Sequence[str] = ()) -> dict[str, Any]:
        """Coefficients that ``at`` returns for step n. A control among them is refused."""
        given = {} if self._at is None else self._at(n)
        if not isinstance(given, Mapping):
            raise OperatorError(
                f"at({n}) returned {shown(given)}: return a dict, of values by name"
            )
        known = _known(self._F).union(() if self._running is None else _known(self._running))
        for name in given:
            if name in self._old.values() or name not in known:
                raise OperatorError(
                    f"at({n}) returned a value of {shown(name)}: return values of coefficients of "
                    f"F or running, {', '.join(sorted(known - {*self._old.values()})) or 'none'}"
                )
        self._check_varying({*given}, controls)
        return dict(given)

    def _check_varying(self, varying: set[str], controls: Sequence[str]) -> None:
        both = varying.intersection(controls)
        if both:
            raise OperatorError(
                f"{min(both)} has another value in each step: give 'initial', or parameters "
                "that are the same in all steps"
            )

    def _equation(self, now: Mapping[str, Any], u: Vector) -> Residual:
        """The equation of a step from a state."""
        spaces, whole = self._F.parts[0].form.fields.spaces, self._F.space
        parts: dict[str, Vector] = (
            dict(zip(whole.names, whole.split(u), strict=True))
            if isinstance(whole, Product)
            else dict.fromkeys(spaces, u)
        )
        fields = {
            coefficient: GridFunction(spaces[field].volume, whole.memory.get(parts[field]))
            for field, coefficient in self._old.items()
        }
        known = _known(self._F)
        return self._F.update(**fields, **{n: value for n, value in now.items() if n in known})

    def _guess(self, n: int, u: Vector) -> Vector:
        """First guess of a step from the state before it."""
        if self._begin is None:
            return u
        return self._checked(self._begin(n, u.copy()), f"begin({n}, u)")

    def _step(self, n: int, u: Vector, now: Mapping[str, Any]) -> Vector:
        """Do a step."""
        F, guess = self._equation(now, u), self._guess(n, u)
        try:
            solved, info = newton(
                F,
                guess,
                rtol=self._rtol,
                atol=rounding_of(F, guess),
                linear=self._linear,
                preconditioner=self._preconditioner,
                warn=False,
            )
        except SolverError as error:
            raise SolverError(f"step {n}: {error}") from error
        if not info.converged:
            raise SolverError(
                f"step {n} is not solved: |F| is {info.residual:.2g}, not {info.tolerance:.2g} "
                f"({info.reason}). rtol is {self._rtol:g}: give a larger one, a better first guess "
                "by begin, or shorter steps"
            )
        return solved

    def _running_at(self, now: Mapping[str, Any]) -> Functional | None:
        """The running goal of a step."""
        if self._running is None:
            return None
        known = _known(self._running)
        mine = {name: value for name, value in now.items() if name in known}
        return self._running.update(**mine) if mine else self._running

    def _rate(self, u: Vector, now: Mapping[str, Any]) -> float:
        goal = self._running_at(now)
        return 0.0 if goal is None else goal(u)


def _known(given: Residual | Functional) -> set[str]:
    """Names of the coefficients of a residual or a functional."""
    parts = given.parts if isinstance(given, Residual) else given.derivative.parts
    return {name for part in parts for name in part.form.coefficients}


def _old_names(F: Residual, old: str | Mapping[str, str]) -> dict[str, str]:
    """Name of the coefficient for each field's state before the step."""
    fields = [*F.parts[0].form.fields.spaces]
    named = {fields[0]: old} if isinstance(old, str) else dict(old)
    values = [*named.values()]
    known = all(n in fields for n in named) and all(n in [*_known(F)] for n in values)
    twice = any(values.count(n) > 1 for n in values)
    if not named or not known or twice or (isinstance(old, str) and len(fields) > 1):
        raise OperatorError(
            f"old is {named if isinstance(old, Mapping) else shown(old)}: give the name of the "
            "coefficient that is the state before the step, on a product a dict with such a name, "
            f"another for each field that has one; F has {', '.join(sorted(_known(F))) or 'none'}"
        )
    return named


@final
class _Sweep:
    """One way forward and back."""

    def __init__(self, steps: Steps, names: list[str], folder: Path) -> None:
        self._steps = steps
        solvers = steps._linear, steps._preconditioner, steps._rtol, "partial", "Steps.gradient"
        self._equations = LinearEquations(steps._F, *solvers)
        self._names = [name for name in names if name != INITIAL]
        self.value, self.found = 0.0, dict[str, Any]()
        self._pairs: dict[int, tuple[Vector, Vector]] = {}  # states around steps, for the way back
        self._checkpoints = Checkpoints(folder, steps._F.space.memory)
        self._adjoint: Vector | None = None
        self._done = 0  # steps whose goals are in the value

    def follow(self, u: Vector, schedule: Any) -> None:
        """Do what a schedule says, or keep all states."""
        self._u = u
        count = self._steps._count
        if schedule is None:
            self._forward(0, count, pairs="WORK")
            self._back(count, 0)
            return
        for action in actions_of(schedule, count):
            kind = type(action).__name__
            if kind == "Forward":
                last, storage = min(action.n1, count), action.storage.name
                if action.write_ics:
                    self._checkpoints.write(storage, action.n0, {"state": self._u})
                self._forward(action.n0, last, pairs=storage if action.write_adj_deps else None)
                if last == count and schedule.max_n is None:
                    schedule.finalize(count)
            elif kind == "Reverse":
                self._back(action.n1, action.n0)
            elif kind in ("Copy", "Move"):
                self._take(action, move=kind == "Move")
            elif kind == "EndReverse":
                return
        if INITIAL not in self.found:
            raise OperatorError(
                f"schedule is {shown(schedule)}, which ends before the first step is reached: give "
                f"checkpoint_schedules.Revolve({count}, 10), for instance"
            )

    def _forward(self, first: int, last: int, *, pairs: str | None) -> None:
        """Do steps, and keep the states around each in the storage ``pairs``."""
        steps = self._steps
        for n in range(first, last):
            now = steps._coefficients(n + 1, self._names)
            before, self._u = self._u, steps._step(n + 1, self._u, now)
            if n + 1 > self._done:  # for the first time
                self._done = n + 1
                self.value += steps._rate(self._u, now)
                if n + 1 == steps._count and steps._final is not None:
                    self.value += steps._final(self._u)
            if pairs in STORED:
                self._checkpoints.write(pairs, n, {"before": before, "after": self._u})
            elif pairs:
                self._pairs[n] = before, self._u

    def _take(self, action: Any, *, move: bool) -> None:
        """Copy or move a checkpoint to another storage, or to work."""
        source, target, n = action.from_storage.name, action.to_storage.name, action.n
        if target in STORED:
            self._checkpoints.write(target, n, self._checkpoints.read(source, n))
        elif target == "WORK":
            arrays = self._checkpoints.read(source, n)
            self._u = arrays.get("state", self._u)
            if "before" in arrays:
                self._pairs[n] = arrays["before"], arrays["after"]
        if move:
            self._checkpoints.delete(source, n)

    # --- the way back ----------------------------------------------------------------------------

    def _back(self, last: int, first: int) -> None:
        for n in range(last - 1, first - 1, -1):
            self._step_back(n + 1, *self._pairs.pop(n))

    def _step_back(self, n: int, before: Vector, after: Vector) -> None:
        """From the derivative by the state after a step to that by the state before it."""
        steps, now = self._steps, self._steps._coefficients(n)
        if self._adjoint is None:
            self._adjoint = steps._F.space.memory.xp.zeros_like(after)
            self._add(steps._final, after)
        self._add(steps._running_at(now), after)
        F = steps._equation(now, before)
        equations = self._equations
        multiplier = equations.solve(
            equations.jacobian(F, after).T, self._adjoint.copy(), f"adjoint (step {n})", strict=True
        )
        pieces = [piece.times(-1.0) for piece in pieces_of(F)]
        known = {MESH, *(name for piece in pieces for name in piece.coefficients)}
        names = [*steps._old.values(), *(n for n in self._names if n in known)]
        controls = {name: control_of(name, pieces, None) for name in names}
        L = Lagrangian(pieces, controls, F.space)
        raw = L.derivative(names, after, multiplier)
        for name in names[len(steps._old) :]:
            self.found[name] = self.found.get(name, 0.0) + controls[name].derivative(raw[name])
        found = L.space.zeros(L.dtype)
        for field, name in steps._old.items():
            part = L.space.slice(field) if isinstance(L.space, Product) else slice(None)
            found[part] += raw[name]
        kept = self._kept_values(n, before, after)
        if L.space.comm.max(len(kept)):  # a sweep over the elements of all ranks
            rest = L.whole(L.derivative(L.states, after, multiplier), L.states)
            found[kept] += self._adjoint[kept] + rest[kept]
        self._adjoint = found
        if n == 1:
            self.found[INITIAL] = found

    def _kept_values(self, n: int, before: Vector, after: Vector) -> Any:
        """Constrained dofs whose values step n does not change."""
        steps, fixed = self._steps, self._equations.fixed
        if steps._begin is None:
            return fixed
        other = before + 1e-3 * (abs(before) + 1.0)
        now, then = after[fixed], steps._guess(n, other)[fixed]
        kept = (now == before[fixed]) & (then == other[fixed])
        if steps._F.space.comm.max(int(not (kept | (now == then)).all())):  # all raise, or none
            raise OperatorError(
                f"begin({n}, u) computes values at constrained dofs from u: give values there that "
                "depend on n alone, or those of u"
            )
        return fixed[kept]

    def _add(self, goal: Functional | None, u: Vector) -> None:
        """Add the derivatives of a goal by the state and by coefficients of its own."""
        if goal is None:
            return
        self._adjoint = self._adjoint + goal.derivative.residual(u)
        known = {MESH} | _known(goal)
        names = [name for name in self._names if name in known]
        for name, value in gradient(goal, u=u, wrt=names).items() if names else ():
            self.found[name] = self.found.get(name, 0.0) + value
