"""Table 1: costs of assembly, storage and application of each level as the order grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import grid_rule
from femops.bench.problems import Progress, check_asked
from femops.bench.timing import call_seconds, repeated
from femops.errors import OperatorError
from femops.forms import convection, diffusion, elasticity, mass
from femops.operators import Operator
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.assembly.point_matrices import point_matrices
from femops.spaces.domain_space import DomainSpace
from femops.spaces.h1_l2 import H1
from femops_meshes import Mesh, box

Floats = NDArray[np.float64]

FORMS: dict[str, Callable[[H1, int], Operator]] = {
    "mass": lambda V, q1d: mass(V, quadrature=q1d),
    "diffusion": lambda V, q1d: diffusion(V, quadrature=q1d),
    "convection": lambda V, q1d: convection(V, np.ones(V.dim), quadrature=q1d),
    "elasticity": lambda V, q1d: elasticity(V, quadrature=q1d),
}

ROWS = {
    "full": "full",
    "near-optimal": "full",
    "decomposed": "partial",
    "partial": "partial",
    "matrix-free": "matrix-free",
}
"""Rows of Table 1, each with the level of the operator that is measured or that gives its data.

"full" forms element matrices naively, as products of dense bases. "decomposed" stores dense bases,
and NumPy applies them. Both are references, which femops itself does not use.
"""

MEASURES = ("flops_assembly", "flops_apply", "stored_bytes")


def expected(dim: int) -> dict[str, dict[str, int | None]]:
    """Exponents in Table 1: powers of the nodes per direction; None for entries without cost."""
    exponents: dict[str, tuple[int | None, ...]] = {
        "full": (3 * dim, 2 * dim, 2 * dim),
        "near-optimal": (2 * dim + 1, 2 * dim, 2 * dim),
        "decomposed": (2 * dim, 2 * dim, 2 * dim),
        "partial": (dim, dim + 1, dim),
        "matrix-free": (None, dim + 1, 0),
    }
    return {row: dict(zip(MEASURES, e, strict=True)) for row, e in exponents.items()}


def table(
    form: str,
    dim: int,
    orders: Sequence[int],
    *,
    more: int = 0,
    elements: int = 2,
    seconds: float = 0.05,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Table 1 of the tensor report for a form: counted operations, measured bytes and seconds."""
    if form not in FORMS:
        raise OperatorError(f"form {form!r}: choose one of {', '.join(FORMS)}")
    if dim not in (1, 2, 3):
        raise OperatorError(f"dim is {dim}: give 1, 2 or 3")
    check_asked(orders=orders)
    if more < 0 or elements < 1:
        raise OperatorError(f"more = {more}, elements = {elements}: give at least 0 and 1")
    rows: list[dict[str, Any]] = []
    for order in orders:
        if progress:
            progress(f"{form}, order {order}")
        mesh = box((elements,) * dim, mapping=_bend, order=order)
        rows += _rows(form, mesh, order, order + 1 + more, seconds)
    return {"rows": rows, "exponents": {row: _fit(rows, row) for row in ROWS}}


def _bend(x: NDArray[np.float64]) -> NDArray[Any]:
    """Map positions (dim, n) so that all directions bend and depend on each other."""
    y = x.copy()
    for d in range(len(x)):
        y[d] += 0.06 * np.sin(2.5 * x[d - 1] + d) * (1.0 + x[d]) + 0.05 * x[d] * x[-1]
    return y


def _rows(form: str, mesh: Mesh, order: int, q1d: int, seconds: float) -> list[dict[str, Any]]:
    """Make the rows of one order. Each operator is freed after the next operator is made."""
    space = H1(mesh, order, ncomp=mesh.dim if form == "elasticity" else 1)
    operator = FORMS[form](space, q1d)
    x = np.random.default_rng(1).standard_normal(operator.shape[1])
    rows: list[dict[str, Any]] = []
    times: dict[str, float | None] = {}
    for row, level in ROWS.items():
        if level != operator.level:
            operator = operator.at_level(level)
        if row == "decomposed":
            bases = DenseBases(operator)
            costs = bases.assembly_flops, bases.flops, bases.stored_bytes
            taken = _time(partial(bases.application(), x), seconds)
        else:
            cost = operator.cost()
            # the table does not count the work that computes D
            assembly = cost.assembly_flops - (level == "full") * cost.data_flops
            if row == "full":
                assembly += naive_flops(operator)
            costs = assembly, cost.flops, cost.stored_bytes
            if level not in times:
                apply = partial(operator.apply, x, np.empty(operator.shape[0]))
                times[level] = _time(apply, seconds)
            taken = times[level]
        found = dict(zip(MEASURES, costs, strict=True))
        rows.append({"level": row, "order": order} | found | {"seconds": taken})
    return rows


def _time(call: Callable[[], object], seconds: float) -> float | None:
    """Least time of one application, in seconds."""
    if seconds <= 0.0:
        return None
    call()
    return min(repeated(partial(call_seconds, call), seconds, least=5))


def _fit(rows: Sequence[dict[str, Any]], level: str) -> dict[str, float | None]:
    """Exponent of growth in p + 1 of each cost; None if it is zero, or if there is one order."""
    mine = [row for row in rows if row["level"] == level]
    if len({row["order"] for row in mine}) < 2:
        return dict.fromkeys(MEASURES)
    nodes = np.log([row["order"] + 1.0 for row in mine])
    values = {name: np.array([float(row[name]) for row in mine]) for name in MEASURES}
    return {
        name: float(np.polyfit(nodes, np.log(each), 1)[0]) if min(each) > 0 else None
        for name, each in values.items()
    }


# --- rows that femops does not have: dense bases, and element matrices from dense bases ----------


@final
class DenseBases:
    """Dense matrices from an element's dofs to its points, for an operator of one form."""

    def __init__(self, operator: Operator) -> None:
        [(_, self._term)] = operator._summands
        self._operator, self._ne = operator, self._term.domain.num_elements
        self._points = self._term.trial.num_points(self._term.quadrature)
        self._rule = grid_rule(self._term.quadrature, "a model of costs")
        qfunction = self._term.qfunction
        self._into = self._bases(self._term.trial, qfunction.slots_in)
        self._out = self._bases(self._term.test, qfunction.slots_out)
        self._alike = np.array_equal(self._into, self._out)

    def _bases(self, space: DomainSpace, slots: list[int]) -> Floats:
        """Matrices (slots, points, nodes): Kronecker products of 1-D matrices, x fastest."""
        dense = []
        for slot in slots:
            full: NDArray[Any] = np.ones((1, 1))
            for d, points in enumerate(space.points_along(self._rule)):
                gives = space.basis.gradient if d == slot - 1 else space.basis.interpolation
                full = np.kron(gives(points), full)
            dense.append(full)
        return np.array(dense)

    @property
    def stored_bytes(self) -> int:
        """Number of bytes of the bases and of the data at the points."""
        bases = self._into.nbytes + (0 if self._alike else self._out.nbytes)
        return int(bases + self._operator.cost().stored_bytes)

    @property
    def assembly_flops(self) -> int:
        """Number of operations to form the bases; D is not counted."""
        q1d, dim = self._rule.q1d, self._term.trial.dim
        sides = [(self._term.trial.p1d, self._into), (self._term.test.p1d, self._out)]
        return sum(
            len(bases) * sum((q1d * p1d) ** k for k in range(2, dim + 1))
            for p1d, bases in sides[: 1 if self._alike else 2]
        )

    @property
    def flops(self) -> int:
        """Operations of an application: B, D and the transpose of B."""
        bases = sum(
            2 * side.ncomp * matrices.size
            for side, matrices in ((self._term.trial, self._into), (self._term.test, self._out))
        )
        return int(self._ne * (bases + self._points * self._term.qfunction.flops))

    def application(self) -> Callable[[Floats], Floats]:
        """Function that applies the operator to a vector (size,) by products of NumPy."""
        trial, d = self._term.trial, point_matrices(self._term, 0, self._ne)

        def apply(x: Floats) -> Floats:
            dofs = trial.restriction.gather(x.reshape(-1, trial.ncomp))
            values = np.tensordot(self._into, dofs, (2, 1))
            fluxes = np.einsum("acsbeq,sqeb->aqec", d, values, optimize=True)
            sums = np.tensordot(self._out, fluxes, ((0, 1), (0, 1)))
            return trial.restriction.scatter_add(sums.transpose(1, 0, 2)).reshape(-1)

        return apply


def naive_flops(operator: Operator) -> int:
    """Number of operations by which element matrices from dense bases exceed sum factorisation."""
    [(_, term)] = operator._summands
    assembly = ElementAssembly(term)
    points, nodes = term.trial.num_points(term.quadrature), term.trial.element.size
    entries = np.swapaxes(assembly.entries != 0, 1, 2)  # (slots, slots, components, components)
    pairs = entries.sum(axis=(0, 1))
    # D times the trial basis, the product by the test basis, the sum of all pairs
    each = points * nodes + nodes * nodes * 2 * points
    naive = int((pairs * each - nodes * nodes * (pairs > 0)).sum())
    return int(term.domain.num_elements * (naive - assembly.flops()))
