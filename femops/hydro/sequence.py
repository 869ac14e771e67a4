"""Operations of a time step, recorded once and run in as few compiled calls as possible.

On the host, compiled code does consecutive operations in one call. For small problems, Python code
between the operations would take longer than the work. On a device, or if ranks exchange messages,
Python does one operation after the other, with the same results. A sequence works on fixed vectors:
arrays, or views with a stride such as ``state[2::3]``. Only their contents change between runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from time import perf_counter
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.host import backend_of
from femops.operators.residual import Residual
from femops.solvers.cg_solver import CGSolver, ended_solves, solves_instruction
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_kernels.compiled import Instruction
from femops_kernels.cpu.sequence import (
    HostSequence,
    blocks_instruction,
    demand_instruction,
    sum_instruction,
)
from femops_kernels.exclusive import Exclusive, together

Floats = NDArray[np.float64]
_MOST_SCALARS = 256


@final
@dataclass(frozen=True, eq=False)
class Scalar:
    """Number that operations read and write, times a factor."""

    values: Floats  # all numbers of the sequence
    number: int  # index of the scalar in ``values``
    factor: float = 1.0

    def __rmul__(self, factor: float) -> Scalar:
        return replace(self, factor=factor * self.factor)

    @property
    def value(self) -> float:
        """Value of the scalar, times the factor."""
        return self.factor * float(self.values[self.number])

    def set(self, value: float) -> None:
        """Set the stored number to ``value``. The factor stays."""
        self.values[self.number] = value


Term = tuple[float | Scalar, Floats]


@final
@dataclass(frozen=True, eq=False)
class _Operation:
    """Operation of a sequence, for Python and, if possible, for compiled code."""

    label: str  # name under which the operation's seconds are summed
    run: Callable[[], bool]  # runs the operation in Python. Returns False to end the sequence.
    # returns the instructions for compiled code, or None if Python has to do the operation
    instructions: Callable[[], list[Instruction] | None] = lambda: None
    # called if compiled code has stopped at this operation. Returns True if the sequence
    # continues.
    resume: Callable[[], bool] = lambda: False
    # locks of the solvers and residuals that compiled code uses
    users: list[Exclusive] = field(default_factory=list)

    def compiled(self) -> list[Instruction] | None:
        """Return the instructions. The users are locked, because solvers may join a group."""
        return together(self.users, self.instructions)


@final
@dataclass
class _Piece:
    """Operations that one compiled call does, with one entry for each instruction."""

    compiled: HostSequence
    operations: list[_Operation]

    def run(self) -> bool | None:
        """Run the operations. False if the sequence ends, None if they must be recompiled."""
        return together([user for one in self.operations for user in one.users], self._run)

    def _run(self) -> bool | None:
        if self.compiled.stale:  # other threads may have used the solvers until now
            return None
        begin, end = 0, len(self.operations)
        while (begin := self.compiled.run(begin)) < end:
            if not self.operations[begin].resume():
                return False
            begin += 1
        return True


@final
class OperationSequence:
    """Recorded sequence of operations on vectors, which can be run many times."""

    def __init__(self, space: Space | Product) -> None:
        self._xp, self._compiles = space.memory.xp, backend_of(space).compiles_sequences
        self._values, self._scalars = np.zeros(_MOST_SCALARS), 0
        self._operations: list[_Operation] = []
        self._plan: list[_Piece | _Operation] | None = None
        self._spent: dict[str, float] = {}
        self._iterations = np.zeros(1)

    # --- operations ------------------------------------------------------------------------------

    def scalar(self) -> Scalar:
        """Return a new scalar of the sequence, initially 0."""
        assert self._scalars < _MOST_SCALARS
        self._scalars += 1
        return Scalar(self._values, self._scalars - 1)

    def add(self, out: Floats, *terms: Term, label: str = "") -> None:
        """Add the operation out (n,) = sum of factor * vector (n,). Only the first may be out."""

        def run() -> bool:
            for k, (c, vector) in enumerate(terms):
                part = (c.value if isinstance(c, Scalar) else c) * vector
                out[:] = out + part if k else part
            return True

        rows = [
            (vector, c.factor, c.number) if isinstance(c, Scalar) else (vector, float(c), -1)
            for c, vector in terms
        ]
        self._put(label, run, lambda: [sum_instruction(out, rows)])

    def evaluate(
        self, form: Residual, u: Floats, out: Floats, *, label: str = ""
    ) -> dict[str, Scalar]:
        """Add the operation ``form.evaluate(u, out)``. Each run sets the returned scalars."""
        scalars = {name: self.scalar() for name in form.functionals.names}

        def run() -> bool:
            _, found = form.evaluate(u, out)
            for name, scalar in scalars.items():
                scalar.set(found[name])
            return True

        numbers = {name: scalar.number for name, scalar in scalars.items()}
        self._put(label, run, lambda: form.instructions(u, out, numbers), users=[form._alone])
        return scalars

    def multiply_blocks(self, blocks: Floats, x: Floats, out: Floats, *, label: str = "") -> None:
        """Add the operation out = blocks (m, n, n) times the pieces (m, n) of a contiguous x."""

        def run() -> bool:
            pieces = x.reshape(blocks.shape[:2])
            out[:] = self._xp.einsum("eij,ej->ei", blocks, pieces).reshape(-1)
            return True

        self._put(label, run, lambda: [blocks_instruction(blocks, x, out)])

    def solve(
        self,
        solvers: Sequence[CGSolver],
        rights: Sequence[Floats],
        outs: Sequence[Floats],
        *,
        rtol: float,
        maxiter: int,
        label: str = "",
    ) -> None:
        """Add solves as in `CGSolver.solve_all`. All ``rights`` must be contiguous."""

        def run() -> bool:
            solved = CGSolver.solve_all(solvers, rights, rtol=rtol, maxiter=maxiter)
            for out, (x, info) in zip(outs, solved, strict=True):
                out[:] = x
                self._iterations += info.iterations
            return True

        def instructions() -> list[Instruction] | None:
            solves, solutions = solves_instruction(solvers, rights, rtol, maxiter, self._iterations)
            if solves is None:
                return None
            copies = zip(outs, solutions, strict=True)
            return [solves, *(sum_instruction(out, [(x, 1.0, -1)]) for out, x in copies)]

        def resume() -> bool:
            ended_solves(solvers, rights, rtol, maxiter)
            return True

        self._put(label, run, instructions, resume, [solver._alone for solver in solvers])

    def require(self, scalar: Scalar, least: Scalar) -> None:
        """Add a condition: the run ends here unless ``scalar >= least``. NaN ends it too."""
        given = scalar.number, scalar.factor, least.number, least.factor
        self._put("", lambda: scalar.value >= least.value, lambda: [demand_instruction(*given)])

    def call(self, function: Callable[[], object], *, label: str = "") -> None:
        """Add a call of a Python function."""

        def run() -> bool:
            function()
            return True

        self._operations.append(_Operation(label, run))

    def _put(
        self,
        label: str,
        run: Callable[[], bool],
        instructions: Callable[[], list[Instruction] | None],
        resume: Callable[[], bool] = lambda: False,
        users: Sequence[Exclusive] = (),
    ) -> None:
        found = instructions if self._compiles else lambda: None
        self._operations.append(_Operation(label, run, found, resume, list(users)))

    # --- running ---------------------------------------------------------------------------------

    def run(self) -> bool:
        """Run all operations in the order in which they were added."""
        plan = self._plan
        # the first run is in Python, where solvers begin
        by_python = [one for one in plan or [] if isinstance(one, _Operation)]
        if plan is None or any(one.users and one.compiled() for one in by_python):
            self._spent, plan = self.seconds, self._made(self._operations)
            self._plan = plan
        k = 0
        while k < len(plan):
            part, begin = plan[k], perf_counter()
            over = part.run()
            if isinstance(part, _Operation):
                spent = self._spent.get(part.label, 0.0)
                self._spent[part.label] = spent + perf_counter() - begin
            elif over is None:
                _add_seconds(self._spent, part)
                plan[k : k + 1] = self._made(list(dict.fromkeys(part.operations)))
                continue
            if not over:
                return False
            k += 1
        return True

    def _made(self, operations: list[_Operation]) -> list[_Piece | _Operation]:
        """Plan a run: pieces for compiled code, and operations for Python."""
        plan: list[_Piece | _Operation] = []
        for compiled, group in groupby(((one, one.compiled()) for one in operations), _is_compiled):
            if not compiled:
                plan += [one for one, _ in group]
                continue
            pairs = [(one, instruction) for one, found in group for instruction in found or []]
            sequence = HostSequence([instruction for _, instruction in pairs], self._values)
            plan.append(_Piece(sequence, [one for one, _ in pairs]))
        return plan

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that all runs have spent in operations, by label."""
        found = dict(self._spent)
        for piece in self._plan or []:
            if isinstance(piece, _Piece):
                _add_seconds(found, piece)
        return found

    @property
    def iterations(self) -> int:
        """Number of iterations of all solves in all runs."""
        return int(self._iterations[0])


def _is_compiled(pair: tuple[_Operation, list[Instruction] | None]) -> bool:
    return pair[1] is not None


def _add_seconds(spent: dict[str, float], piece: _Piece) -> None:
    """Add the seconds of compiled code to ``spent``, by label."""
    for one, seconds in zip(piece.operations, piece.compiled.seconds, strict=True):
        spent[one.label] = spent.get(one.label, 0.0) + float(seconds)
