"""Histories: numbers at the points of a residual, which change at the end of a step."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D, Rule
from femops.errors import OperatorError
from femops.spaces.base import GridFunction, Space
from femops.spaces.h1_l2 import L2
from femops_common.arguments import checked
from femops_meshes.mesh import check_cubes


@final
@checked(OperatorError)
class History:
    """Numbers at the quadrature points of a residual: plastic strains, damage, ages.

    A residual takes a history as a coefficient. The result of its function has an entry "history"
    with the next values, by the name of the coefficient. `commit` makes them the present ones.
    Between commits a residual keeps the values that it was made with.

    An update of the residual with another history, or a `GridFunction`, sets its values.

    The points are the nodes of an `L2` space. So the values are a vector of this space: it can be
    saved, also by ranks, interpolated, drawn, and set. A residual on another mesh refuses it; the
    values go there by ``femops.Probe(mesh, new.space.dof_coordinates())(old.space, old.vector)``.

    Parameters
    ----------
    V : Space
        Space of the residual's field, or of one of its fields.
    ncomp : int
        Numbers at each point.
    quadrature : int or Quadrature1D, optional
        The residual's rule, of Gauss: its points in each direction. By default that of
        ``V.quadrature()``.

    Attributes
    ----------
    space : Space
        `L2` space whose nodes are the points.
    vector : (space.size,) array
        Values, zero at first.

    Raises
    ------
    OperatorError
        V is no space (of a product give that of one field), or the rule is not of Gauss.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> worst = femops.History(V)
    >>> def load(u, x, worst):
    ...     now = femops.maximum(worst, u.grad @ u.grad)
    ...     return {"grad": u.grad / (1 + now), "history": {"worst": now}}
    >>> F = femops.residual(load, V, worst=worst)
    >>> for stretch in (1.0, 3.0, 2.0):
    ...     F = worst.commit(F, V.interpolate(lambda x: stretch * x[0]))
    >>> round(float(worst.vector.max()), 9), round(float(worst.vector.min()), 9)
    (9.0, 9.0)
    """

    def __init__(
        self, V: Space, ncomp: int = 1, quadrature: int | Quadrature1D | None = None
    ) -> None:
        check_cubes(V.mesh, "femops.History", OperatorError)
        rule = V.quadrature(quadrature)
        self.space: Space = L2(V.mesh, order=rule.q1d - 1, ncomp=ncomp)
        self.vector: NDArray[Any] = self.space.zeros()
        if not self.matches(rule):
            raise OperatorError(f"a history is at Gauss points, and the rule is {rule.name!r}")

    @property
    def field(self) -> GridFunction:
        """The values as a function of x, to interpolate, save or draw."""
        return GridFunction(self.space, self.vector)

    @checked(OperatorError)
    def commit(self, F: Any, u: NDArray[Any]) -> Any:
        """End a step: give all histories of a residual their next values. Collective.

        Parameters
        ----------
        F : Residual
            Residual with this history. If it has several, all of them change.
        u : (size,) array
            State at the end of the step.

        Returns
        -------
        Residual
            Copy of F with the new values, for the next step. F itself keeps the old ones.

        Raises
        ------
        OperatorError
            F does not have this history, has one history twice, or next values are not finite.
            Then no history changes.
        LawError
            A law fails at a point. Then no history changes.
        """
        if not hasattr(F, "committed"):
            raise OperatorError(f"{F!r} is no residual: give that whose coefficient the history is")
        return F.committed(u, self)

    def matches(self, rule: Rule) -> bool:
        """True if the points of a rule are those of the history."""
        return np.array_equal(self.space.basis.nodes, rule.places)

    def set(self, values: NDArray[np.float64]) -> None:
        """Set the values (ne, points, ncomp) at the points of this rank's elements. Collective."""
        self.vector = self.space.sum_elements(values)
