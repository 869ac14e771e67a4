"""Gradients through steps in time, with checkpoints by a schedule."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.controls import control_of
from femops.adjoint.gradient import gradient
from femops.adjoint.lagrangian import Lagrangian
from femops.adjoint.pieces import pieces_of
from femops.errors import OperatorError, SolverError
from femops.operators import Functional, Residual
from femops.operators.execution.vectors import checked_vector
from femops.solvers.newton import newton
from femops.solvers.newton_steps import Linear, NewtonSteps, Preconditioning
from femops.spaces.base import GridFunction
from femops.spaces.product import Product
from femops_meshes.arguments import Count, Fraction, checked, shown

Vector = NDArray[Any]
Coefficients = Callable[[int], Mapping[str, Any]]
INITIAL = "initial"
"""Name of the state before the first step among the controls."""

_AT_ONCE = 2**62  # what schedules without a number of steps mean by the last step


@final
@checked(OperatorError)
class Steps:
    r"""Steps in time, each of which solves an equation, and gradients of what they lead to.

    Step n solves :math:`F(u^n; u^{n-1}, m) = 0` by `femops.newton`: an implicit method, or an
    explicit one, in which F is linear in :math:`u^n`. The goal is :math:`J(u^N) + \sum_n j(u^n)`.

    Parameters
    ----------
    F : Residual
        It has the state before the step as a coefficient, a `GridFunction` on its space; other
        coefficients are the same in all steps, but those of ``at``.
    count : int
        Number of steps N, at least 1.
    final, running : Functional, optional
        J and j. At least one is given.
    old : str or dict of str
        Name of that coefficient; on a product, the name for each field that has one.
    at : callable, optional
        ``at(n)`` returns coefficients of F and of j at step n by name, such as the time.
    begin : callable, optional
        ``begin(n, u)`` returns the first guess of step n, with the values at the constrained dofs,
        from the state before it. By default that state itself: these values stay as they are.
    linear, preconditioner
        See `femops.newton`; they solve for the adjoint too.
    rtol : float
        Of each step's equation and of the adjoint's.

    Raises
    ------
    OperatorError
        No goal, or goals on another space.

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
        if count < 1 or (final is None and running is None):
            raise OperatorError("Steps needs at least one step, and a goal: final or running")
        for goal in (final, running):
            if goal is not None and (goal.space is not F.space or goal.dtype != F.dtype):
                raise OperatorError(f"{goal!r} and {F!r} are on different spaces or types")
        self._F, self._count, self._final, self._running = F, int(count), final, running
        self._at, self._begin, self._rtol = at, begin, float(rtol)
        self._linear, self._preconditioner = linear, preconditioner
        self._old = _old_names(F, old)

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
        SolverError
            A step's equation is not solved.
        VectorError
            A state of another shape or type.
        """
        u, value = self._checked(u0), 0.0
        for n in range(1, self._count + 1):
            u = self._step(n, u)
            value += self._rate(n, u)
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
            Coefficients that are the same in all steps, see `femops.gradient`, and "initial" for
            the state before the first step.
        schedule : checkpoint_schedules.CheckpointSchedule, optional
            Which states are kept, in memory or on disk, and which are computed again. All are kept
            in memory if omitted. With the package checkpoint-schedules
            ``checkpoint_schedules.Revolve(N, 10)`` keeps ten, for instance.

        Returns
        -------
        value : float
            The goal.
        derivatives : dict of arrays
            By name, in the shapes of `femops.gradient`.

        Raises
        ------
        OperatorError
            A control that nothing depends on, or that ``at`` changes.
        SolverError
            An equation is not solved.
        """
        names = [wrt] if isinstance(wrt, str) else list(wrt)
        if not names or not all(isinstance(name, str) for name in names):
            raise OperatorError(f"wrt is {shown(wrt)}: give names of coefficients, or 'initial'")
        varying = {*self._coefficients(1), *self._old.values()} & {*names}
        if varying:
            raise OperatorError(
                f"{min(varying)} has another value in each step: give 'initial', or parameters "
                "that are the same in all steps"
            )
        with tempfile.TemporaryDirectory(prefix="femops-steps-") as folder:
            sweep = _Sweep(self, names, Path(folder))
            sweep.follow(self._checked(u0), schedule)
        return sweep.value, {name: sweep.found[name] for name in names}

    def _checked(self, u0: Any) -> Vector:
        found: Vector = checked_vector(self._F.space, self._F.dtype, u0, "u0").copy()
        return found

    def _coefficients(self, n: int) -> dict[str, Any]:
        return {} if self._at is None else dict(self._at(n))

    def _equation(self, n: int, u: Vector) -> Residual:
        """The equation of a step from a state."""
        spaces, whole = self._F.parts[0].form.fields.spaces, self._F.space
        parts: dict[str, Vector] = (
            dict(zip(whole.names, whole.split(u), strict=True))
            if isinstance(whole, Product)
            else dict.fromkeys(spaces, u)
        )
        fields = {
            coefficient: GridFunction(spaces[field].volume, parts[field])
            for field, coefficient in self._old.items()
        }
        known = {name for part in self._F.parts for name in part.form.coefficients}
        now = {name: value for name, value in self._coefficients(n).items() if name in known}
        return self._F.update(**fields, **now)

    def _step(self, n: int, u: Vector) -> Vector:
        """Do a step."""
        guess = u if self._begin is None else self._begin(n, u)
        solved, info = newton(
            self._equation(n, u),
            guess,
            rtol=self._rtol,
            linear=self._linear,
            preconditioner=self._preconditioner,
            warn=False,
        )
        if not info.converged:
            raise SolverError(f"step {n} is not solved: {info.reason}")
        return solved

    def _running_at(self, n: int) -> Functional | None:
        """The running goal of a step."""
        if self._running is None:
            return None
        known = {name for part in self._running.derivative.parts for name in part.form.coefficients}
        now = {name: value for name, value in self._coefficients(n).items() if name in known}
        return self._running.update(**now) if now else self._running

    def _rate(self, n: int, u: Vector) -> float:
        goal = self._running_at(n)
        return 0.0 if goal is None else goal(u)


def _old_names(F: Residual, old: str | Mapping[str, str]) -> dict[str, str]:
    """Name of the coefficient for each field's state before the step."""
    fields = [*F.parts[0].form.fields.spaces]
    named = {fields[0]: old} if isinstance(old, str) else dict(old)
    known = {name for part in F.parts for name in part.form.coefficients}
    wrong = [n for n in named if n not in fields] + [n for n in named.values() if n not in known]
    if wrong or (isinstance(old, str) and len(fields) > 1):
        raise OperatorError(
            f"old is {shown(old)}: give the name of the coefficient that is the state before the "
            "step, on a product a dict with such a name for each field"
        )
    return named


@final
class _Sweep:
    """One way forward and back."""

    def __init__(self, steps: Steps, names: list[str], folder: Path) -> None:
        self._steps, self._folder = steps, folder
        self._linear = NewtonSteps(steps._linear, steps._preconditioner, history=False)
        self._names = [name for name in names if name != INITIAL]
        self.value, self.found = 0.0, dict[str, Any]()
        self._pairs: dict[int, tuple[Vector, Vector]] = {}  # states around steps, for the way back
        self._kept: dict[tuple[str, int], Any] = {}  # checkpoints by storage and step
        self._adjoint: Vector | None = None
        self._at, self._done = 0, 0

    def follow(self, u: Vector, schedule: Any) -> None:
        """Do what a schedule says, or keep all states."""
        self._u = u
        count = self._steps._count
        if schedule is None:
            self._forward(0, count, pairs=True)
            self._back(count, 0)
            return
        for action in schedule:
            kind = type(action).__name__
            if kind == "Forward":
                last = min(action.n1, count)
                self._keep(action, action.n0)
                pairs = self._forward(action.n0, last, pairs=action.write_adj_deps)
                self._store_pairs(action, pairs)
                if last == count and schedule.max_n is None:
                    schedule.finalize(count)
            elif kind == "Reverse":
                self._back(action.n1, action.n0)
            elif kind in ("Copy", "Move"):
                self._take(action, move=kind == "Move")
            elif kind == "EndReverse":
                return
        if self._at:
            raise OperatorError(f"{shown(schedule)} ends before the first step is reached")

    def _forward(self, first: int, last: int, *, pairs: bool) -> list[int]:
        steps, kept = self._steps, []
        for n in range(first, last):
            before, self._u = self._u, steps._step(n + 1, self._u)
            if n + 1 > self._done:  # for the first time
                self._done, self._at = n + 1, n + 1
                self.value += steps._rate(n + 1, self._u)
                if n + 1 == steps._count and steps._final is not None:
                    self.value += steps._final(self._u)
            if pairs:
                self._pairs[n] = before, self._u
                kept.append(n)
        return kept

    # --- checkpoints -----------------------------------------------------------------------------

    def _keep(self, action: Any, n: int) -> None:
        """Keep the state before a step, to begin again from it."""
        if action.write_ics:
            self._write(action.storage.name, n, {"state": self._u})

    def _store_pairs(self, action: Any, pairs: list[int]) -> None:
        """Move states for the way back out of work, if they belong to a checkpoint."""
        if pairs and action.storage.name in ("RAM", "DISK"):
            for n in pairs:
                before, after = self._pairs.pop(n)
                self._write(action.storage.name, n, {"before": before, "after": after})

    def _write(self, storage: str, n: int, arrays: dict[str, Vector]) -> None:
        known = self._kept.setdefault((storage, n), {})
        for name, array in arrays.items():
            if storage == "DISK":
                path = self._folder / f"{name}-{n}.npy"
                np.save(path, self._steps._F.space.memory.get(array))
                known[name] = path
            else:
                known[name] = array.copy()

    def _read(self, storage: str, n: int) -> dict[str, Vector]:
        memory = self._steps._F.space.memory
        kept = self._kept[storage, n].items()
        if storage == "DISK":
            return {name: memory.put(np.load(path)) for name, path in kept}
        return {name: array.copy() for name, array in kept}

    def _take(self, action: Any, *, move: bool) -> None:
        """Copy or move a checkpoint to another storage, or to work."""
        source, target, n = action.from_storage.name, action.to_storage.name, action.n
        arrays = self._read(source, n)
        if target == "WORK":
            self._u = arrays.get("state", self._u)
            if "before" in arrays:
                self._pairs[n] = arrays["before"], arrays["after"]
        elif target in ("RAM", "DISK"):
            self._write(target, n, arrays)
        if move:
            del self._kept[source, n]

    # --- the way back ----------------------------------------------------------------------------

    def _back(self, last: int, first: int) -> None:
        for n in range(last - 1, first - 1, -1):
            before, after = self._pairs.pop(n)
            self._step_back(n + 1, before, after)
            self._at = n

    def _step_back(self, n: int, before: Vector, after: Vector) -> None:
        """From the derivative by the state after a step to that by the state before it."""
        steps, space = self._steps, self._steps._F.space
        if self._adjoint is None:
            goal = steps._final
            self._adjoint = space.memory.xp.zeros_like(after)
            if goal is not None:
                self._adjoint = goal.derivative.residual(after)
                self._add(goal, after)
        running = steps._running_at(n)
        if running is not None:
            self._adjoint = self._adjoint + running.derivative.residual(after)
            self._add(running, after)
        F = steps._equation(n, before)
        fixed = space.memory.put(F.constrained_dofs)
        right = self._adjoint.copy()
        right[fixed] = 0.0
        multiplier = self._solved(F, after, right, n)
        pieces = [piece.times(-1.0) for piece in pieces_of(F)]
        known = {name for piece in pieces for name in piece.coefficients}
        names = [*steps._old.values(), *(n for n in self._names if n in known)]
        controls = {name: control_of(name, pieces, None) for name in names}
        L = Lagrangian(pieces, controls, space)
        raw = L.derivative(names, after, multiplier)
        for name in names[len(steps._old) :]:
            self.found[name] = self.found.get(name, 0.0) + controls[name].derivative(raw[name])
        self._adjoint = self._before(L, raw, after, multiplier, fixed)
        if n == 1:
            self._end()

    def _before(
        self, L: Lagrangian, raw: dict[str, Vector], after: Vector, multiplier: Vector, fixed: Any
    ) -> Vector:
        """Derivative by the state before a step."""
        steps, found = self._steps, L.space.zeros(L.dtype)
        assert self._adjoint is not None
        for field, name in steps._old.items():
            part = L.space.slice(field) if isinstance(L.space, Product) else slice(None)
            found[part] += raw[name]
        if steps._begin is None and len(fixed):  # these values go from step to step
            rest = L.whole(L.derivative(L.states, after, multiplier), L.states)
            found[fixed] += self._adjoint[fixed] + rest[fixed]
        return found

    def _solved(self, F: Residual, u: Vector, right: Vector, n: int) -> Vector:
        if not F.space.comm.max(int(bool(right.any()))):
            return right
        x, failure = self._linear.solve(F.jacobian(u).T, right, self._steps._rtol)
        if failure:
            raise SolverError(f"the adjoint of step {n} is not solved: {failure}")
        return x

    def _add(self, goal: Functional, u: Vector) -> None:
        """Add the explicit derivatives of a goal."""
        known = {name for part in goal.derivative.parts for name in part.form.coefficients}
        names = [name for name in self._names if name in known]
        for name, value in gradient(goal, u=u, wrt=names).items() if names else ():
            self.found[name] = self.found.get(name, 0.0) + value

    def _end(self) -> None:
        self.found[INITIAL] = self._adjoint
        missing = [name for name in self._names if name not in self.found]
        if missing:
            raise OperatorError(f"nothing depends on {missing[0]!r}")
