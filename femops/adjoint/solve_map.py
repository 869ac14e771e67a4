"""Solution of an equation as a differentiable function of its load and its controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from numpy.typing import NDArray

from femops.adjoint.equations import LinearEquations
from femops.adjoint.maps import LOAD, ControlledMap, Values, Vector
from femops.errors import OperatorError
from femops.operators import Operator, Residual
from femops.operators.execution.vectors import checked_vector
from femops.solvers.newton import newton
from femops.solvers.newton_steps import Linear, Preconditioning
from femops_common.arguments import Fraction, checked


@final
@checked(OperatorError)
class SolveMap(ControlledMap[Residual | Operator]):
    r"""Solution u of F(u, m) = b. Inputs are "load", which is b, and the controls m.

    Derivatives are implicit. :meth:`vjp` solves one equation with the transposed Jacobian, as
    `femops.gradient` does, and :meth:`jvp` solves one with the Jacobian. The equation is kept until
    a control changes. Linear solves keep a preconditioner other than "jacobi" until it is too slow
    for a new Jacobian. Each call of `femops.newton` makes a new preconditioner.

    Parameters
    ----------
    F : Residual or Operator
        The equation, with its constrained dofs. `femops.newton` solves that of a residual.
        Conjugate gradients or GMRES solve that of an operator, F u = b: as for `femops.cg`, b has
        the solution's values at constrained dofs, see `Operator.rhs`.
    controls : str or sequence of str
        Names of coefficients: fields, constants or arrays at quadrature points.
    linear, preconditioner
        See `femops.newton`.
    rtol : float
        Relative residual of the equation, and of those for derivatives.
    u0 : (size,) array, optional
        First guess for a residual, zero if omitted. The solution has its entries at constrained
        dofs. For an operator the right-hand side is then ``F.rhs(b, u0)``, with the controls of the
        call: b is the load of the unconstrained problem.
    level : str
        See `Operator.at_level`.

    Raises
    ------
    OperatorError
        F has no such coefficient, or the coefficient is a function of x.
    SolverError
        In a call: the equation can't be solved.

    Warns
    -----
    ConvergenceWarning
        In a call: the equation is not solved to ``rtol``.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> A = femops.diffusion(V, 2.0).constrained(V.boundary_dofs())
    >>> solve = femops.adjoint.SolveMap(A, "kappa")
    >>> b = A.rhs(femops.load(V, 1.0))
    >>> u, half = (solve({"load": b, "kappa": kappa}) for kappa in (1.0, 2.0))
    >>> bool(abs(half - 0.5 * u).max() < 1e-10)
    True
    """

    needs_result = True

    def __init__(
        self,
        F: Residual | Operator,
        controls: str | Sequence[str] = (),
        *,
        linear: Linear = "auto",
        preconditioner: Preconditioning = "jacobi",
        rtol: Fraction = 1e-10,
        u0: NDArray[Any] | None = None,
        level: str = "partial",
    ) -> None:
        super().__init__(F, LOAD, controls, F.space.shape, -1.0)
        start = F.space.zeros(F.dtype) if u0 is None else u0
        self._start = checked_vector(F.space, F.dtype, start, "u0").copy()
        self._imposes = u0 is not None or not isinstance(F, Operator)
        solvers = linear, preconditioner, rtol, level, "solve"
        self._ahead, self._back = (LinearEquations(F, *solvers) for _ in range(2))
        self._newton: dict[str, Any] = {
            "linear": linear,
            "preconditioner": preconditioner,
            "rtol": rtol,
            "level": level,
        }

    def __call__(self, values: Values) -> Vector:
        given = self._given(values)
        F, b = self._at(given), given[LOAD]
        if not isinstance(F, Operator):
            return newton(F, self._start, b, **self._newton)[0]
        return self._solved(F, b)

    def of_loads(self, values: Values, loads: Vector) -> Vector:
        """Solutions (size, nvec) for loads (size, nvec), with the same controls.

        A linear equation that conjugate gradients solve is solved for all columns at once.
        """
        given = self._given({**values, LOAD: loads[:, 0].copy()})
        F = self._at(given)
        if isinstance(F, Operator):
            return self._solved(F, loads)
        found = tuple(self({**given, LOAD: column.copy()}) for column in loads.T)
        stacked: Vector = self.space.memory.xp.stack(found, axis=1)
        return stacked

    def _solved(self, F: Operator, b: Vector) -> Vector:
        """Solution of a linear equation for a load, or for loads as columns."""
        A = self._ahead.jacobian(F, self._start)
        right = A.rhs(b, self._start) if self._imposes and A.constraints else b.copy()
        return self._ahead.solve_with_values(A, right, "linear")

    def _state(self, F: Residual | Operator, u: Vector) -> Vector:
        """State at which the residual is differentiated, for the solution u.

        If b has values at constrained dofs, they meet the zero columns of the operator.
        """
        if self._imposes or not isinstance(F, Operator) or not F.constraints:
            return u
        state = u.copy()
        state[F.constraints.columns_in(self.space.memory)] = 0.0
        return state

    def _change(self, equations: LinearEquations, J: Operator, right: Vector, what: str) -> Vector:
        """Solve for a tangent or an adjoint, zero at constrained dofs unless b has their values."""
        free = self._imposes or not J.constraints.identity
        solve = equations.solve if free else equations.solve_with_values
        return solve(J, right, what)

    def jvp(self, values: Values, tangents: Values, result: Any = None) -> Vector:
        given = self._given(values)
        u = self(values) if result is None else self._array(result, self.shape, "the result")
        controls = {name: value for name, value in tangents.items() if name != LOAD}
        F, right = self._at(given), self.space.zeros(self.dtype)
        if controls:
            right = self._pushed(controls, given, self._state(F, u))
            right[self._ahead.fixed] = 0.0
        if LOAD in tangents:
            right += self.array(LOAD, tangents[LOAD], "change of ")
        return self._change(self._ahead, self._ahead.jacobian(F, u), right, "tangent")

    def vjp(
        self,
        values: Values,
        cotangent: Any,
        wrt: Sequence[str] | None = None,
        result: Any = None,
    ) -> dict[str, Vector]:
        given, names = self._given(values), self._wrt(wrt)
        u = self(values) if result is None else self._array(result, self.shape, "the result")
        right = self._array(cotangent, self.shape, "the cotangent").copy()
        F = self._at(given)
        adjoint = self._change(self._back, self._back.jacobian(F, u).T, right, "adjoint")
        controls, found = [name for name in names if name != LOAD], dict[str, Vector]()
        if controls:
            weights = adjoint.copy()
            weights[self._back.fixed] = 0.0
            found = self._derivatives(controls, given, self._state(F, u), weights)
        return {name: adjoint if name == LOAD else found[name] for name in names}
