"""The operations of a sequence: each can be done by Python, some by compiled code of the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators import Operator
from femops.operators.execution.backend import Backend
from femops.operators.residual import Residual
from femops.sequences.scalar import Scalar
from femops.solvers.cg_solver import CGSolver, ended_solves, solves_instruction
from femops_kernels.cpu.sequence import demand_instruction
from femops_kernels.exclusive import Exclusive
from femops_kernels.instruction import Instruction

Array = NDArray[Any]
Term = tuple[float | Scalar, Array]


class Operation(ABC):
    """An operation on vectors.

    Attributes
    ----------
    label : str
        What its time is added to.
    """

    label: str

    @abstractmethod
    def run(self) -> bool:
        """Do it by Python; False if the sequence ends with it."""

    def instructions(self) -> list[Instruction] | None:
        """Instructions with which compiled code does it; None if that can't."""
        return None

    def goes_on(self) -> bool:
        """True if a sequence goes on that compiled code has ended with this operation."""
        return False

    def alone(self) -> list[Exclusive]:
        """Things of which compiled code is to be the only user, as of solvers and forms."""
        return []


@final
@dataclass(frozen=True, eq=False)
class Sum(Operation):
    """A vector is set to a sum of vectors, each times a factor."""

    label: str
    backend: Backend
    out: Array
    terms: Sequence[Term]

    def run(self) -> bool:
        """See `Operation.run`."""
        for k, (c, vector) in enumerate(self.terms):
            # as compiled code does it: factors of float32 may be out of that type's range
            factor = np.float64(c.value if isinstance(c, Scalar) else c)
            part = factor * vector.astype(np.float64, copy=False)
            self.out[:] = self.out + part if k else part
        return True

    def instructions(self) -> list[Instruction] | None:
        """See `Operation.instructions`."""
        terms = [
            (vector, c.factor, c.number) if isinstance(c, Scalar) else (vector, float(c), -1)
            for c, vector in self.terms
        ]
        found = self.backend.sum_instruction(self.out, terms)
        return None if found is None else [found]


@final
@dataclass(frozen=True, eq=False)
class Application(Operation):
    """An operator is applied."""

    label: str
    operator: Operator
    x: Array
    out: Array

    def run(self) -> bool:
        """See `Operation.run`."""
        self.operator.apply(self.x, self.out)
        return True

    def instructions(self) -> list[Instruction] | None:
        """See `Operation.instructions`."""
        found = self.operator.compiled.instruction(self.x, self.out)
        return None if found is None else [found]


@final
@dataclass(frozen=True, eq=False)
class Evaluation(Operation):
    """A residual is evaluated, and its functionals."""

    label: str
    form: Residual
    u: Array
    out: Array
    functionals: Mapping[str, Scalar]

    def run(self) -> bool:
        """See `Operation.run`."""
        _, found = self.form.evaluate(self.u, self.out)
        for name, scalar in self.functionals.items():
            scalar.value = found[name]
        return True

    def instructions(self) -> list[Instruction] | None:
        """See `Operation.instructions`."""
        scalars = {name: scalar.number for name, scalar in self.functionals.items()}
        return self.form.instructions(self.u, self.out, scalars)

    def alone(self) -> list[Exclusive]:
        """See `Operation.alone`."""
        return [self.form._alone]


@final
@dataclass(frozen=True, eq=False)
class BlockProduct(Operation):
    """Each piece of a vector is multiplied by a matrix of its own."""

    label: str
    backend: Backend
    xp: Any
    blocks: Array
    x: Array
    out: Array

    def run(self) -> bool:
        """See `Operation.run`."""
        pieces = self.x.reshape(self.blocks.shape[:2])
        self.out[:] = self.xp.einsum("eij,ej->ei", self.blocks, pieces).reshape(-1)
        return True

    def instructions(self) -> list[Instruction] | None:
        """See `Operation.instructions`."""
        found = self.backend.blocks_instruction(self.blocks, self.x, self.out)
        return None if found is None else [found]


@final
@dataclass(frozen=True, eq=False)
class Solves(Operation):
    """Systems are solved by conjugate gradients, small ones at once; iterations are counted."""

    label: str
    backend: Backend
    solvers: Sequence[CGSolver]
    rights: Sequence[Array]
    outs: Sequence[Array]
    rtol: float
    maxiter: int | None
    warn: bool
    done: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def run(self) -> bool:
        """See `Operation.run`."""
        solved = CGSolver.solve_all(
            self.solvers, self.rights, rtol=self.rtol, maxiter=self.maxiter, warn=self.warn
        )
        for out, (x, info) in zip(self.outs, solved, strict=True):
            out[:] = x
            self.done[0] += info.iterations
        return True

    def instructions(self) -> list[Instruction] | None:
        """See `Operation.instructions`: the solves, and what copies each solution."""
        given = self.solvers, self.rights, self.rtol, self.maxiter
        solves, solutions = solves_instruction(*given, self.done)
        if solves is None:
            return None
        copies = [
            self.backend.sum_instruction(out, [(x, 1.0, -1)])
            for out, x in zip(self.outs, solutions, strict=True)
        ]
        return [solves, *(copy for copy in copies if copy is not None)]

    def goes_on(self) -> bool:
        """See `Operation.goes_on`: a solver's errors are raised."""
        ended_solves(self.solvers, self.rights, self.rtol, warn=self.warn)
        return True

    def alone(self) -> list[Exclusive]:
        """See `Operation.alone`."""
        return [solver._alone for solver in self.solvers]


@final
@dataclass(frozen=True, eq=False)
class Demand(Operation):
    """The sequence ends unless a scalar is at least another."""

    label: str
    scalar: Scalar
    least: Scalar

    def run(self) -> bool:
        """See `Operation.run`."""
        return self.scalar.value >= self.least.value

    def instructions(self) -> list[Instruction] | None:
        """See `Operation.instructions`."""
        one, other = self.scalar, self.least
        return [demand_instruction(one.number, one.factor, other.number, other.factor)]


@final
@dataclass(frozen=True, eq=False)
class Call(Operation):
    """A function is called."""

    label: str
    function: Callable[[], object]

    def run(self) -> bool:
        """See `Operation.run`."""
        self.function()
        return True
