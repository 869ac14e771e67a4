"""Sequences of operations on vectors, run by one compiled call where that can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError, SolverError, VectorError
from femops.operators import Operator
from femops.operators.execution.choice import backend_of
from femops.operators.residual import Residual
from femops.sequences.operations import (
    Application,
    BlockProduct,
    Call,
    Demand,
    Evaluation,
    Operation,
    Solves,
    Sum,
    Term,
)
from femops.sequences.scalar import Scalar
from femops.solvers.cg_solver import CGSolver, check_right, solvers_once
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops.spaces.restriction import FLOAT_TYPES
from femops_kernels.cpu.sequence import HostSequence
from femops_kernels.exclusive import EndlessWait, Exclusive, together
from femops_kernels.instruction import Instruction
from femops_meshes.arguments import Count, Fraction, checked, number_of, shown

Array = NDArray[Any]
_MOST_SCALARS = 256


@final
@dataclass
class _Piece:
    """Operations that compiled code does in one call, one entry for each of its instructions."""

    compiled: HostSequence
    operations: list[Operation]

    def run(self) -> bool | None:
        """Do them; False if the sequence ends with one, None if they are to be compiled anew."""
        return together(_alone(self.operations), self._run)

    def _run(self) -> bool | None:
        if self.compiled.stale:  # others may have used the solvers until now
            return None
        begin, end = 0, len(self.operations)
        while (begin := self.compiled.run(begin)) < end:
            if not self.operations[begin].goes_on():
                return False
            begin += 1
        return True


@final
@checked(OperatorError)
class OperationSequence:
    """Operations on vectors, put down once and run as often as wanted.

    On the host what follows one another is done by one call of compiled code, without Python in
    between: for small problems, where that would take longer than the work. On a device, and
    where ranks exchange messages, Python does one operation after the other; results are the same.

    Vectors are arrays whose contents may change from run to run, but not the arrays: they are read
    and written where they are. They can be views such as ``state[2::3]`` where that is said. While
    it runs, no other thread may use its vectors; its solvers and forms wait.

    Parameters
    ----------
    space : Space or Product
        It says where the vectors are.

    Examples
    --------
    An explicit step of the heat equation, ten times:

    >>> import numpy as np
    >>> import femops
    >>> V = femops.L2(femops.box((4, 4)), order=2)
    >>> A = femops.mass(V)
    >>> u, rate = np.ones(V.size), np.zeros(V.size)
    >>> steps = femops.OperationSequence(V)
    >>> dt = steps.scalar(0.1)
    >>> steps.apply(A, u, rate)
    >>> steps.add(u, (1.0, u), (-1.0 * dt, rate))
    >>> done = [steps.run() for _ in range(10)]
    >>> bool(u.max() < 1)
    True
    """

    _given_as = "a sequence, as femops.OperationSequence(V)"

    def __init__(self, space: Space | Product) -> None:
        self._space, self._backend = space, backend_of(space)
        self._values = np.zeros(_MOST_SCALARS)
        self._scalars = 0
        self._operations: list[Operation] = []
        self._plan: list[_Piece | Operation] | None = None
        self._alone, self._outdated = Exclusive(), False
        self._before: dict[str, float] = {}

    def __reduce__(self) -> NoReturn:
        raise TypeError("a sequence works on arrays where they are: put it down again")

    # --- what is put down ------------------------------------------------------------------------

    @checked(OperatorError)
    def scalar(self, value: float = 0.0) -> Scalar:
        """A number that operations read and write; ``scalar.value`` is it.

        Raises
        ------
        OperatorError
            More than 256.
        """
        if self._scalars == _MOST_SCALARS:
            raise OperatorError(f"more than {_MOST_SCALARS} scalars in a sequence: use them again")
        self._scalars += 1
        self._values[self._scalars - 1] = value
        return Scalar(self._values, self._scalars - 1)

    @checked(OperatorError)
    def add(self, out: Array, *terms: Term, label: str = "") -> None:
        """Set a vector to a sum of vectors, each times a number or a scalar.

        Parameters
        ----------
        out : (n,) array
            It may be a view with a stride.
        *terms : (number or Scalar, (n,) array)
            At least one. Only the first may be ``out`` itself, the others must not overlap it.
        label : str
            See `seconds`.

        Raises
        ------
        VectorError
            Arrays of other shapes or types, or that overlap.
        """
        if not terms:
            raise OperatorError("a sum has at least one term: give (factor, vector)")
        memory, own = self._space.memory, self._result(out)
        kept: list[Term] = []
        for k, term in enumerate(terms, 1):
            factor, vector = self._term(term, k)
            if vector.shape != own.shape or vector.dtype != own.dtype:
                raise VectorError(f"term {k} is {_shown(vector)}, out is {_shown(own)}")
            if (k > 1 or not self._same(vector, own)) and memory.overlap(vector, own):
                raise VectorError(f"term {k} overlaps out: only the first may be out itself")
            if k == 1 or isinstance(factor, Scalar) or factor:
                kept.append((factor, vector))
        self._put(Sum(label, self._backend, own, kept))

    @checked(OperatorError)
    def apply(self, A: Operator, x: Array, out: Array, *, label: str = "") -> None:
        """Apply an operator, as ``A.apply(x, out)``: it is done once now, for its errors."""
        A.apply(x, out)
        self._put(Application(label, A, x, out))

    @checked(OperatorError)
    def evaluate(
        self, form: Residual, u: Array, out: Array, *, label: str = ""
    ) -> dict[str, Scalar]:
        """Evaluate a residual, as ``form.evaluate(u, out)``: done once now, for its errors.

        Returns
        -------
        dict of Scalar
            The functionals, set by each run.
        """
        _, found = form.evaluate(u, out)
        scalars = {name: self.scalar() for name in found}
        for name, scalar in scalars.items():
            scalar.value = found[name]
        self._put(Evaluation(label, form, u, out, scalars))
        return scalars

    @checked(OperatorError)
    def multiply_blocks(self, blocks: Array, x: Array, out: Array, *, label: str = "") -> None:
        """Multiply each piece of a vector by a matrix of its own.

        Parameters
        ----------
        blocks : (m, n, n) array
            Read when this is called; changed later they have no effect.
        x, out : (m n,) arrays
            Contiguous; they must not overlap.
        label : str

        Raises
        ------
        VectorError
            Arrays of other shapes or types, or that overlap.
        """
        blocks = self._array(blocks, "blocks")
        m, n, columns = blocks.shape if blocks.ndim == 3 else (0, 0, 0)
        for name, vector in (("x", self._vector(x, "x")), ("out", self._result(out))):
            fits = vector.flags.c_contiguous and vector.size == m * n and columns == n
            if not fits or vector.dtype != blocks.dtype:
                raise VectorError(
                    f"{name} is {_shown(vector)}: for blocks {_shown(blocks)} give a contiguous "
                    "vector of m n numbers of their type"
                )
        if self._space.memory.overlap(x, out):
            raise VectorError("out overlaps x: give another array")
        xp = self._space.memory.xp
        self._put(BlockProduct(label, self._backend, xp, blocks.copy(), x, out))

    @checked(OperatorError)
    def solve(
        self,
        solvers: Sequence[CGSolver],
        rights: Sequence[Array],
        outs: Sequence[Array],
        *,
        rtol: Fraction = 1e-5,
        maxiter: Count | None = None,
        warn: bool = True,
        label: str = "",
    ) -> None:
        """Solve a system of each of several solvers, as `CGSolver.solve_all` from zero.

        Parameters
        ----------
        solvers : sequence of CGSolver
        rights : sequence of (size,) arrays
            Contiguous.
        outs : sequence of (size,) arrays
            Solutions. They may be views with a stride, and may overlap right-hand sides, but not
            each other.
        rtol, maxiter, warn
            See `CGSolver.solve`. Warnings come from the runs of the sequence.
        label : str

        Raises
        ------
        SolverError
            Not as many vectors as solvers. A run raises the errors of solves.
        VectorError
            Vectors of another shape or type, or solutions that overlap.
        """
        solvers, rights, outs = (_listed(one) for one in (solvers, rights, outs))
        solvers = solvers_once(solvers)
        if not 0 < len(solvers) == len(rights) == len(outs):
            raise SolverError("solvers, rights and outs are not equally many: give one of each")
        for k, (solver, b, out) in enumerate(zip(solvers, rights, outs, strict=True), 1):
            check_right(solver, self._vector(b, f"right-hand side {k}"), f"right-hand side {k}")
            if self._result(out).shape != b.shape or out.dtype != b.dtype:
                raise VectorError(f"out {k} is {_shown(out)}, the solution {_shown(b)}")
            for j, other in enumerate(outs[: k - 1], 1):
                if self._space.memory.overlap(out, other):
                    raise VectorError(f"outs {j} and {k} overlap: give each solution its own array")
        whole = None if maxiter is None else int(maxiter)
        given = solvers, rights, outs, float(rtol), whole, bool(warn)
        self._put(Solves(label, self._backend, *given))

    @checked(OperatorError)
    def require(self, scalar: Scalar, least: Scalar) -> None:
        """End a run here unless a scalar is at least another; also if one is not a number."""
        if scalar.values is not self._values or least.values is not self._values:
            raise OperatorError("a scalar is one of another sequence: take those of this one")
        self._put(Demand("", scalar, least))

    @checked(OperatorError)
    def call(self, function: Callable[[], object], *, label: str = "") -> None:
        """Call a function of Python."""
        self._put(Call(label, function))

    # --- running ---------------------------------------------------------------------------------

    def run(self) -> bool:
        """Do all operations, in the order in which they were put down.

        Returns
        -------
        bool
            False if it has ended where something was required.

        Raises
        ------
        SolverError
            See `CGSolver.solve`; what comes after the solve is not done.
        OperatorError
            A function that the sequence calls runs it, or waits for another thread's run of a
            sequence that waits for this one.
        """
        try:
            return self._alone.call(lambda: self._done(self._planned()))
        except EndlessWait:
            raise OperatorError(
                "a sequence runs already, and cannot run within itself, nor within another that it "
                "waits for: call it when that is done"
            ) from None

    def _done(self, plan: list[_Piece | Operation]) -> bool:
        for part in plan:
            over = self._timed(part)
            if over is None and isinstance(part, _Piece):
                self._outdated = True
                anew = self._made(list(dict.fromkeys(part.operations)))
                over = self._done(anew)
                _add_seconds(self._before, anew)
            if not over:
                return False
        return True

    def _timed(self, one: _Piece | Operation) -> bool | None:
        if isinstance(one, _Piece):
            return one.run()
        begin = perf_counter()
        over = one.run()
        self._before[one.label] = self._before.get(one.label, 0.0) + perf_counter() - begin
        return over

    def _planned(self) -> list[_Piece | Operation]:
        """Pieces that are run, of compiled code wherever that can be."""
        plan = self._plan
        begun = (one for one in plan or [] if isinstance(one, Solves) and _instructions(one))
        if plan is None or self._outdated or any(begun):  # in their first run solvers begin
            self._before, self._outdated = self.seconds, False
            plan = self._plan = self._made(self._operations)
        return plan

    def _made(self, operations: list[Operation]) -> list[_Piece | Operation]:
        plan: list[_Piece | Operation] = []
        instructions, sources = [], []
        for operation in [*operations, None]:
            found = None if operation is None else _instructions(operation)
            if found is not None and operation is not None:
                instructions += found
                sources += [operation] * len(found)
                continue
            if instructions:
                plan.append(_Piece(HostSequence(instructions, self._values), sources))
                instructions, sources = [], []
            if operation is not None:
                plan.append(operation)
        return plan

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that all runs have spent with operations, by their labels."""
        found = dict(self._before)
        _add_seconds(found, self._plan or [])
        return found

    @property
    def iterations(self) -> int:
        """Iterations of all solves of all runs."""
        solves = [one for one in self._operations if isinstance(one, Solves)]
        return int(sum(one.done[0] for one in solves))

    # --- checks ----------------------------------------------------------------------------------

    def _put(self, operation: Operation) -> None:
        self._operations.append(operation)
        self._before, self._plan = self.seconds, None

    def _array(self, array: Any, what: str) -> Any:
        if self._space.memory.factor(array, what) is not array:
            raise VectorError(f"{what} is {shown(array)}: give an array of the space's own kind")
        return array

    def _vector(self, array: Any, what: str) -> Any:
        found = self._array(array, what)
        step = found.strides[0] if found.ndim == 1 else 0
        if step <= 0 or step % found.itemsize or not found.size or found.dtype not in FLOAT_TYPES:
            raise VectorError(f"{what} is {_shown(found)}: give a vector of floats, ascending")
        return found

    def _term(self, term: Any, k: int) -> Term:
        if not isinstance(term, tuple) or len(term) != 2:
            raise OperatorError(f"term {k} is {shown(term)}: give a pair (factor, vector)")
        factor, vector = term
        if not isinstance(factor, Scalar):
            number = number_of(factor)
            if number is None:
                raise OperatorError(f"factor {k} is {shown(factor)}: give a number or a Scalar")
            factor = float(number)
        elif factor.values is not self._values:
            raise OperatorError(f"factor {k} is a scalar of another sequence")
        return factor, self._vector(vector, f"term {k}")

    def _result(self, array: Any) -> Any:
        if not self._vector(array, "out").flags.writeable:
            raise VectorError("out can't be written: give an array of your own")
        return array

    def _same(self, a: Array, b: Array) -> bool:
        """True if two vectors of one length are the same entries."""
        address = self._space.memory.address
        return address(a) == address(b) and a.strides == b.strides

    def __repr__(self) -> str:
        return f"OperationSequence({len(self._operations)} operations)"


def _instructions(operation: Operation) -> list[Instruction] | None:
    """Instructions of an operation; solvers may join for them, which others must not use then."""
    return together(operation.alone(), operation.instructions)


def _alone(operations: list[Operation]) -> list[Exclusive]:
    return [one for operation in operations for one in operation.alone()]


def _add_seconds(found: dict[str, float], plan: list[_Piece | Operation]) -> None:
    """Add what compiled code has spent, by label."""
    for piece in plan:
        if isinstance(piece, _Piece):
            for one, seconds in zip(piece.operations, piece.compiled.seconds, strict=True):
                found[one.label] = found.get(one.label, 0.0) + float(seconds)


def _shown(array: Any) -> str:
    return f"{array.dtype} {array.shape}"


def _listed(values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise OperatorError(f"{shown(values)} is no list: give lists of the same length") from None
