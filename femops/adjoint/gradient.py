"""Gradients of goals whose states solve an equation, by the adjoint method."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from math import inf
from typing import Any, Literal, final

from numpy.typing import NDArray

from femops.adjoint.controls import Control, control_of
from femops.adjoint.equations import LinearEquations
from femops.adjoint.lagrangian import Lagrangian, check_finite
from femops.adjoint.pieces import pieces_of
from femops.errors import OperatorError
from femops.forms import diffusion, mass
from femops.operators import Functional, Operator, Residual
from femops.operators.execution.vectors import checked_vector
from femops.operators.matrix_free import ONE_SPACE
from femops.solvers.cg import cg
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import jacobi
from femops.solvers.linear_problem import Info
from femops.solvers.newton_steps import Linear, Preconditioning
from femops.solvers.warned import warn_on_first_rank
from femops.spaces.base import Space
from femops_common.arguments import Fraction, checked, shown

Vector = NDArray[Any]
LOAD, DIRICHLET = "load", "dirichlet"
_SOLVED = 1e-3  # relative residual of a state that counts as solved, also roughly or in float32
"""Names of the right-hand side, and of the values at constrained dofs, among the controls."""

_RIESZ_RTOL = {"float64": 1e-12, "float32": 1e-6}


@final
class Gradient(Mapping[str, Vector]):
    """Derivatives of a goal by its controls: a mapping from their names to arrays.

    `femops.gradient` makes it. The derivative by a field is a vector of the field's space, which
    multiplies a change of the field's vector; that by a constant has the constant's shape; that by
    an array at quadrature points has the array's shape; that by ``"mesh"`` is a vector of
    ``spaces["mesh"]``, of displacements of the nodes.

    Attributes
    ----------
    adjoint : (size,) array or None
        Solution of the adjoint equation; None without an equation.
    info : Info or None
        Report of the linear solver; None if a user's function solves, or without an equation.
    spaces : dict of Space
        Space of each control that has one.
    """

    def __init__(self, problem: _Problem, adjoint: Vector | None, info: Info | None) -> None:
        self._problem, self._adjoint, self.info = problem, adjoint, info
        self.adjoint = None if adjoint is None else adjoint.copy()
        self.spaces = {
            name: control.space
            for name, control in problem.controls.items()
            if control.kind in ("field", "mesh")
        }
        self._found = problem.derivatives(adjoint)

    def __getitem__(self, name: str) -> Vector:
        if name not in self._found:
            raise KeyError(f"{name}: there are derivatives by {', '.join(self._found)}")
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"Gradient({', '.join(f'{name}: {x.shape}' for name, x in self.items())})"

    @checked(OperatorError)
    def representer(self, name: str, inner: Literal["L2", "H1"] | Operator = "L2") -> Vector:
        """Vector r (size,) of a field's space with (r, v) = derivative along v, for all v.

        A step along r does not depend on the sizes of the elements. A step along the derivative
        does.

        Parameters
        ----------
        name : str
            A control that is a field, or ``"mesh"``.
        inner : {"L2", "H1"} or Operator
            Inner product: the mass matrix, mass plus diffusion, or a symmetric positive definite
            operator on the space, which may be constrained: r is zero at its constrained dofs.

        Raises
        ------
        OperatorError
            The control is no field, or the inner product is on another space.
        """
        if name not in self.spaces:
            raise OperatorError(
                f"{shown(name)} is no field with a derivative: there are "
                f"{', '.join(self.spaces) or 'none'}"
            )
        space = self.spaces[name]
        A = inner
        if not isinstance(A, Operator):
            dtype = self[name].dtype
            A = mass(space, dtype=dtype)
            A = A if inner == "L2" else A + diffusion(space, dtype=dtype)
        if A.space is not space:
            raise OperatorError(f"the inner product is on {A.space!r}, {name} in {space!r}")
        right = self[name].copy()
        right[space.memory.put(A.constrained_dofs)] = 0.0
        found, _ = cg(A, right, rtol=_RIESZ_RTOL[right.dtype.name], M=jacobi(A))
        return found

    @checked(OperatorError)
    def hessian_product(self, directions: Mapping[str, Any]) -> dict[str, Vector]:
        """Second derivative of the goal along a direction: the change of this gradient.

        It solves two linear equations, one for the change of the state and one for that of the
        adjoint (Hinze et al., Optimization with PDE Constraints, section 1.6.5).

        Parameters
        ----------
        directions : dict of arrays
            A change of each control by name, in the shape of its derivative. Controls that are
            left out do not change.

        Returns
        -------
        dict of arrays
            By each control; not by "load" and "dirichlet".

        Raises
        ------
        OperatorError
            A name that is no control, or a direction of another shape.
        SolverError
            A linear equation is not solved.
        """
        return self._problem.hessian_product(self._adjoint, directions)


@checked(OperatorError)
def gradient(
    goal: Functional,
    F: Residual | Operator | None = None,
    u: Any = None,
    wrt: str | Sequence[str] | Mapping[str, Space | None] = (),
    *,
    linear: Linear = "auto",
    preconditioner: Preconditioning = "jacobi",
    rtol: Fraction = 1e-10,
    level: str = "partial",
    b: Any = None,
    warn: bool = True,
) -> Gradient:
    r"""Derivatives of a goal J(u, m) by its controls m, where u solves F(u, m) = b.

    One linear equation is solved, :math:`(\partial F / \partial u)^T \lambda = \partial J /
    \partial u`, whatever the number of controls. Then :math:`dJ/dm = \partial J / \partial m -
    \lambda^T\, \partial F / \partial m` is one sweep over the elements.

    Parameters
    ----------
    goal : Functional
        See `femops.functional`.
    F : Residual or Operator, optional
        The equation, with its constrained dofs; for a minimum the ``derivative`` of an energy. If
        omitted, u does not depend on the controls, and the derivatives are partial. For a state of
        `femops.newton` with bounds give ``F.constrained(info.active)``.
    u : (size,) array
        The state: a solution of F(u) = b.
    wrt : str, sequence of str, or dict
        Names of the controls. These are coefficients of the goal and of F, which have one value in
        both: fields (`GridFunction`), constants and arrays at quadrature points; functions of x are
        refused. ``"mesh"`` is the displacement of the mesh's nodes, ``"load"`` the right-hand side
        b, and ``"dirichlet"`` the values at the constrained dofs. These two are vectors, which stay
        as they are when nodes move: write a load that is a function of x into F instead. A dict has
        for ``"mesh"`` a space of displacements, by default H1 of the mesh's degree, and None for
        others.
    linear, preconditioner
        See `femops.newton`; they solve with the transposed Jacobian. The preconditioner that
        solved for u may be given again, if the Jacobian is symmetric.
    rtol : float
        Relative residual of the adjoint equation.
    level : str
        See `Operator.at_level`.
    b : (size,) array or 0.0, optional
        The right-hand side, with which the state is checked: derivatives at a u that does not solve
        F(u) = b are wrong by about its relative residual. If it is omitted, and F is a residual
        with a load inside, so that F(0) is not zero, u is checked with b = 0, unless "load" is a
        control. Else nobody knows b, and any u counts as solution of the equation with b = F(u).
    warn : bool
        Whether to issue a `ConvergenceWarning` if the adjoint equation, or one of a
        `Gradient.hessian_product`, is not solved to ``rtol``, or u is found to be no solution, see
        ``b``.

    Returns
    -------
    Gradient
        A mapping from names to arrays.

    Raises
    ------
    OperatorError
        A goal that is no functional, unknown controls, a coefficient that is a function of x, has
        different values in the goal and in F, or is called "mesh", "load" or "dirichlet". An
        operator that is a transpose, a Jacobian or a block of another one. Derivatives that are not
        finite at finite values, as beyond the range of float32.
    SolverError
        The adjoint equation is singular, or the linear solver fails.
    TraceError
        A function that can't be differentiated.
    VectorError
        A state of another shape or type.

    Warns
    -----
    ConvergenceWarning
        See ``warn``.

    See Also
    --------
    femops.adjoint.gradients : Of several goals, or for several load cases.

    Notes
    -----
    At a kink (``abs``, ``minimum``, ``maximum``, ``where``) the derivative is that of the branch
    that is taken.

    The load b stays the same vector when nodes move. A load that moves with the mesh is part of F.

    Examples
    --------
    The mean of a temperature by the conductivity, a field, and by a constant source:

    >>> import femops
    >>> mesh = femops.box((4, 4))
    >>> V, K = femops.H1(mesh, order=3), femops.L2(mesh, order=0)
    >>> kappa = femops.GridFunction(K, K.interpolate(lambda x: 1.0 + x[0]))
    >>> F = femops.residual(
    ...     lambda u, kappa, f: {"grad": kappa * u.grad, "value": -f}, V, kappa=kappa, f=1.0
    ... ).constrained(V.boundary_dofs())
    >>> u, info = femops.newton(F, V.zeros(), rtol=1e-12)
    >>> mean = femops.functional(lambda u: u, V)
    >>> slopes = femops.gradient(mean, F, u, ["kappa", "f"])
    >>> slopes["kappa"].shape == K.shape, bool(abs(slopes["f"] - mean(u)) < 1e-12)
    (True, True)
    """
    found = _gradients([(goal, u)], F, wrt, (linear, preconditioner, rtol, level), warn=warn)
    if warn:
        _check_solved(found, b)
    return found[0]


@checked(OperatorError)
def gradients(
    goal: Functional | Sequence[Functional],
    F: Residual | Operator | None = None,
    u: Any = None,
    wrt: str | Sequence[str] | Mapping[str, Space | None] = (),
    *,
    linear: Linear = "auto",
    preconditioner: Preconditioning = "jacobi",
    rtol: Fraction = 1e-10,
    level: str = "partial",
    b: Any = None,
    warn: bool = True,
) -> list[Gradient]:
    """Derivatives of several goals, or of a goal for several load cases, by their controls.

    Adjoint equations with one symmetric operator are solved at once (see `femops.cg`).

    Parameters
    ----------
    goal : Functional or sequence of Functional
    F : Residual or Operator, optional
        See `femops.gradient`.
    u : (size,) or (size, cases) array
        The state, or those of load cases as columns. With several goals and columns each goal is
        that of one column.
    wrt, linear, preconditioner, rtol, level, warn
        See `femops.gradient`.
    b : (size,) or (size, cases) array or 0.0, optional
        The right-hand side of all states, or those of the columns. See `femops.gradient`.

    Returns
    -------
    list of Gradient
        One for each goal or column.

    Raises
    ------
    OperatorError
        See `femops.gradient`. Numbers of goals, of columns of u and of columns of b that differ.
    SolverError, TraceError, VectorError
        See `femops.gradient`.

    Warns
    -----
    ConvergenceWarning
        See `femops.gradient`.

    Examples
    --------
    Two load cases of a heated plate:

    >>> import numpy as np, femops
    >>> V = femops.H1(femops.box((4, 4)), order=3)
    >>> A = femops.diffusion(V, 2.0).constrained(V.boundary_dofs())
    >>> loads = np.stack([A.rhs(femops.load(V, f)) for f in (1.0, lambda x: x[0])], axis=1)
    >>> U, info = femops.cg(A, loads, rtol=1e-12)
    >>> energy = femops.functional(lambda u: u**2, V)
    >>> first, second = femops.adjoint.gradients(energy, A, U, "kappa")
    >>> first["kappa"].shape, bool(first["kappa"] < second["kappa"] < 0.0)
    ((), True)
    """
    options = linear, preconditioner, rtol, level
    found = _gradients(_cases(goal, u), F, wrt, options, warn=warn)
    if warn:
        _check_solved(found if getattr(u, "ndim", 1) == 2 else found[:1], b)
    return found


def _check_solved(found: Sequence[Gradient], b: Any) -> None:
    """Warn if a state does not solve the equation with its right-hand side. Collective."""
    rights = [b] * len(found)
    if getattr(b, "ndim", 1) == 2 and not hasattr(b, "toarray"):  # sparse: refused as a vector
        rights = [b[:, j].copy() for j in range(b.shape[1])]
    if len(rights) != len(found):
        raise OperatorError(
            f"b has {len(rights)} columns for {len(found)} states: give one for each, or a vector"
        )
    for gradient, right in zip(found, rights, strict=True):
        gradient._problem.check_solved(right)


def _cases(goal: Functional | Sequence[Functional], u: Any) -> list[tuple[Functional, Any]]:
    """Pairs of a goal and a state."""
    goals = list(goal) if isinstance(goal, Sequence) else [goal]
    if not goals or not all(isinstance(each, Functional) for each in goals):
        raise OperatorError(f"goal is {shown(goal)}: give a functional, or a list of them")
    if getattr(u, "ndim", 1) != 2 or hasattr(u, "toarray"):  # sparse: refused as a vector
        return [(each, u) for each in goals]
    states = [u[:, j].copy() for j in range(u.shape[1])]
    goals = goals * len(states) if len(goals) == 1 else goals
    if len(goals) != len(states) or not states:
        raise OperatorError(
            f"there are {len(goals)} goals, and u has {len(states)} columns: give one goal, or one "
            "for each column"
        )
    return list(zip(goals, states, strict=True))


def _gradients(
    cases: Sequence[tuple[Functional, Any]],
    F: Residual | Operator | None,
    wrt: Any,
    options: tuple[Any, ...],
    *,
    warn: bool,
) -> list[Gradient]:
    """Gradients of goals at states. Collective."""
    equations = None
    if F is not None:
        # a preconditioner that is kept belongs to the Jacobian, or to its transpose
        linear, preconditioner, rtol, level = options
        given = F, linear, preconditioner, rtol, level, "femops.gradient"
        equations = LinearEquations(*given), LinearEquations(*given)
    (goal, u), *others = cases
    problem = _Problem(goal, F, u, wrt, equations, warn=warn)
    problems = [problem, *(problem.like(*other) for other in others)]
    adjoints: list[Vector | None] = [None] * len(problems)
    if equations is not None:
        adjoints = [*_adjoints(problems)]
    info = None if equations is None else equations[1].info
    return [Gradient(p, adjoint, info) for p, adjoint in zip(problems, adjoints, strict=True)]


def _adjoints(problems: Sequence[_Problem]) -> list[Vector]:
    """Solve the adjoint equations of goals, at once if they have one operator. Collective."""
    first = problems[0]
    if len(problems) == 1 or not all(p.shares(first) for p in problems):
        return [problem.adjoint() for problem in problems]
    (_, back), J = first.linear
    rights = first.space.memory.xp.stack(tuple(p.right for p in problems), axis=1)
    found = back.solve(J.T, rights, "adjoint", warn=first.warn)
    return [found[:, j].copy() for j in range(len(problems))]


@final
class _Problem:
    """A goal, the equation of its state, and its controls."""

    def __init__(
        self,
        goal: Functional,
        F: Residual | Operator | None,
        u: Any,
        wrt: Any,
        equations: tuple[LinearEquations, LinearEquations] | None,
        *,
        warn: bool,
    ) -> None:
        if F is not None and (F.space is not goal.space or F.dtype != goal.dtype):
            raise OperatorError(
                f"{goal!r} and {F!r} are on different spaces or of different types: {ONE_SPACE}"
            )
        self.goal, self.F, self.space = goal, F, goal.space
        self._equations, self.warn, self._wrt, self.given = equations, warn, wrt, u
        self.state: Vector = checked_vector(goal.space, goal.dtype, u, "u").copy()
        spaces = _names(wrt)
        pieces = pieces_of(goal)
        pieces += [] if F is None else [piece.times(-1.0) for piece in pieces_of(F)]
        special = [] if F is None else [LOAD, DIRICHLET]
        named = {name for piece in pieces for name in piece.coefficients}
        for name in {LOAD, DIRICHLET}.intersection(spaces) - {*special} - named:
            raise OperatorError(f"{name!r} is a control of an equation: give F")
        self._special = [name for name in spaces if name in special]
        for name in named.intersection(self._special):
            raise OperatorError(f"{name} is a coefficient, and a control: rename the coefficient")
        self.controls: dict[str, Control] = {
            name: control_of(name, pieces, space)
            for name, space in spaces.items()
            if name not in self._special
        }
        self._order = list(spaces)
        self._lagrangian = Lagrangian(pieces, self.controls, goal.space)

    def like(self, goal: Functional, u: Any) -> _Problem:
        """Problem of another goal or state, with the same equation and controls."""
        if goal is not self.goal:
            return _Problem(goal, self.F, u, self._wrt, self._equations, warn=self.warn)
        other = copy(self)
        other.given = u
        other.state = checked_vector(self.space, goal.dtype, u, "u").copy()
        return other

    def shares(self, other: _Problem) -> bool:
        """True if the adjoint equations of both have one operator."""
        return isinstance(self.F, Operator) or self.given is other.given

    @property
    def linear(self) -> tuple[tuple[LinearEquations, LinearEquations], Operator]:
        """Linear equations with the Jacobian and with its transpose, and then the Jacobian."""
        assert self._equations is not None
        assert self.F is not None
        return self._equations, self._equations[0].jacobian(self.F, self.state)

    def adjoint(self) -> Vector:
        """Solve the adjoint equation. Collective."""
        (_, back), J = self.linear
        return back.solve(J.T, self.right, "adjoint", warn=self.warn)

    def check_solved(self, b: Any) -> None:
        """Warn if the state does not solve the equation with the right-hand side b. Collective.

        Without b it is zero, as for `newton`, if F is a residual with a load inside.
        """
        if self.F is None:
            if b is None:
                return
            raise OperatorError("b is the right-hand side of an equation: give F")
        u, inside = self.state, 0.0
        zero = self.space.memory.xp.zeros_like(u)
        if b is None:
            if not isinstance(self.F, Residual) or LOAD in self._special:
                return
            inside = self._size(self.F.residual(zero))
            if not 0.0 < inside < inf:  # no load, or no value at zero
                return
        right = zero if b is None or (isinstance(b, int | float) and not b) else b
        right = checked_vector(self.space, self.goal.dtype, right, "b")
        applied = self.F @ u if isinstance(self.F, Operator) else self.F.residual(u)
        error, scale = self._size(applied - right), inside + self._size(right.copy())
        if error <= _SOLVED * scale:
            return
        scale += self._size(self.linear[1] @ u)
        if error > _SOLVED * scale:
            equation, cure = ("F(u) = 0", ", or give b") if b is None else ("F(u) = b", "")
            warn_on_first_rank(
                f"femops.gradient is given a u that does not solve {equation}: the residual is "
                f"{error:.2g}, |F'(u) u| + |b| is {scale:.2g}, so the derivatives are wrong. Solve "
                f"for u first{cure}. (warn=False: no warning)",
                self.space.comm,
            )

    def _size(self, residual: Vector) -> float:
        """Norm of a residual (size,) over the free dofs. Collective."""
        assert self._equations is not None
        residual[self._equations[0].fixed] = 0.0
        return Sums(self.space).norm(residual)

    @property
    def right(self) -> Vector:
        """Right-hand side of the adjoint equation. Collective."""
        found = self.goal.derivative.residual(self.state)
        check_finite(self.space, found, self.state, ["u"])
        return found

    def derivatives(self, adjoint: Vector | None) -> dict[str, Vector]:
        """Derivatives by all controls, in the order in which the user named them."""
        names = tuple(self.controls)
        found = {}
        if names:
            raw = self._lagrangian.derivative(names, self.state, adjoint)
            found = {name: self.controls[name].derivative(raw[name]) for name in names}
        if LOAD in self._special:
            assert adjoint is not None
            found[LOAD] = adjoint.copy()
        if DIRICHLET in self._special:
            found[DIRICHLET] = self._by_dirichlet(adjoint)
        return {name: found[name] for name in self._order}

    def _by_dirichlet(self, adjoint: Vector | None) -> Vector:
        """Return the residual (size,) of the adjoint equation, zero except at constrained dofs."""
        L = self._lagrangian
        rest = L.whole(L.derivative(L.states, self.state, adjoint), L.states)
        found: Vector = self.space.memory.xp.zeros_like(rest)
        assert self._equations is not None
        fixed = self._equations[0].fixed
        found[fixed] = rest[fixed]
        return found

    def hessian_product(
        self, adjoint: Vector | None, directions: Mapping[str, Any]
    ) -> dict[str, Vector]:
        unknown = [name for name in directions if name not in self.controls]
        if unknown:
            raise OperatorError(
                f"{shown(unknown[0])} is no control with a second derivative: there are "
                f"{', '.join(self.controls)}"
            )
        L, dtype = self._lagrangian, self.goal.dtype
        along = {n: self.controls[n].vector(value, dtype) for n, value in directions.items()}
        changes = dict(along)
        if self.F is not None:
            (ahead, back), J = self.linear
            # L has the negative residual
            pushed = L.derivative(L.adjoints, self.state, adjoint, along)
            change = ahead.solve(J, L.whole(pushed, L.adjoints), "tangent", warn=self.warn)
            changes |= L.parts(change, L.states)
            turned = L.whole(L.derivative(L.states, self.state, adjoint, changes), L.states)
            adjoint_change = back.solve(J.T, turned, "second adjoint", warn=self.warn)
            changes |= L.parts(adjoint_change, L.adjoints)
        raw = L.derivative(tuple(self.controls), self.state, adjoint, changes)
        return {name: self.controls[name].derivative(value) for name, value in raw.items()}


def _names(wrt: Any) -> dict[str, Space | None]:
    """Names of the controls, and spaces that were given for them."""
    if isinstance(wrt, str):
        return {wrt: None}
    try:
        names = list(wrt)
    except TypeError:  # also arrays of no axis
        names = []
    if not names or not all(isinstance(name, str) for name in names):
        given = shown(wrt) if names or not isinstance(wrt, Collection) else "empty"
        raise OperatorError(f"wrt is {given}: give names of coefficients, or 'mesh'")
    found = dict(wrt) if isinstance(wrt, Mapping) else dict.fromkeys(names)
    for name, space in found.items():
        if space is not None and (name != "mesh" or not isinstance(space, Space)):
            raise OperatorError(f"wrt has a space for {shown(name)}: only 'mesh' takes one")
    return found
