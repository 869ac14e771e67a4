"""Comparison of the eigensolver with SciPy's LOBPCG: a quantum oscillator, to the same residual.

The mass is lumped at Gauss-Lobatto points, so that LOBPCG solves a standard problem. LOBPCG has the
diagonal as preconditioner, the best choice of SciPy's users without multigrid.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from time import process_time
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lobpcg

from femops.basis import lobatto
from femops.bench.machine import using
from femops.bench.problems import Progress, choose
from femops.bench.timing import stopwatch
from femops.eigen import chebyshev_subspace
from femops.errors import OperatorError
from femops.forms import form, mass
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops_kernels.cpu import machine
from femops_meshes import box

METHODS = ("chebyshev", "lobpcg", "lobpcg one by one")
"""``lobpcg`` multiplies many vectors at once, ``lobpcg one by one`` each vector by itself."""

_RADIUS = 6.5
_MAXITER = 2000


def run_eigen(
    order: int = 8,
    elements: int = 4,
    states: int = 35,
    tol: float = 1e-5,
    methods: Sequence[str] = METHODS,
    *,
    threads: int = 1,
    rounds: int = 1,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Time the solve of a quantum oscillator by each method, in turns."""
    choose("method", methods, METHODS)
    if min(order, elements, states, rounds) < 1:
        raise OperatorError("nothing to measure: give at least one of each")
    if not 0.0 < tol < 1.0:
        raise OperatorError(f"tol = {tol}: give a number between 0 and 1")
    case, facts = _Case(order, elements, states, tol), dict[str, dict[str, Any]]()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    with using(threads):
        case.solve("chebyshev", maxiter=1)  # kernels are compiled
        for k, name in product(range(rounds), times):
            progress(f"round {k + 1}: {name}")
            lap, begin = stopwatch(), process_time()
            facts[name] = case.solve(name)
            times[name].append((process_time() - begin, lap()))
    rows = list[dict[str, Any]]()
    for name, each in times.items():
        cpu, wall = np.median(each, axis=0).tolist()
        row = {"method": name, "dofs": case.V.size, "order": order, "states": states}
        row |= {"threads": threads, "processor_seconds": cpu, "seconds": wall} | facts[name]
        first = rows[0]["processor_seconds"] if rows else cpu
        rows.append(row | {"times_as_long": cpu / first})
    return {"machine": machine.describe(), "rows": rows}


def _hamiltonian(u: Any, x: Any) -> Any:
    return {"grad": 0.5 * u.grad, "value": 0.5 * (x @ x) * u}


@final
class _Case:
    """The quantum oscillator on a box, and its exact energies."""

    def __init__(self, order: int, elements: int, states: int, tol: float) -> None:
        self.states, self.tol = states, tol
        self.V = H1(box((elements,) * 3, -_RADIUS, _RADIUS), order)
        nodes, ends = lobatto(self.V.p1d), self.V.boundary_dofs()
        self.H: Operator = form(_hamiltonian, self.V, quadrature=nodes).constrained(ends)
        self.mass, self.free = mass(self.V, quadrature=nodes).diagonal(), np.ones(self.V.size)
        self.free[ends] = 0.0
        shells = range(states)  # more than enough
        energies = np.repeat([n + 1.5 for n in shells], [(n + 1) * (n + 2) // 2 for n in shells])
        self.exact: NDArray[np.float64] = energies[:states]

    def solve(self, method: str, maxiter: int = _MAXITER) -> dict[str, Any]:
        """Solve once. Return the final residual and error."""
        goal = self.tol * self.exact[-1]
        if method == METHODS[0]:
            given = self.H, self.mass, self.states
            found = chebyshev_subspace(*given, tol=self.tol, maxiter=maxiter, warn=False)
            values, residual = found.values, float(np.max(found.residuals))
        else:
            values, residual = self._lobpcg(goal, maxiter, at_once=method == METHODS[1])
        return {
            "residual": residual,
            "error": float(np.max(np.abs(values / self.exact - 1.0))),
            "converged": bool(residual <= 1.1 * goal),
        }

    def _lobpcg(
        self, goal: float, maxiter: int, *, at_once: bool
    ) -> tuple[NDArray[np.float64], float]:
        """Solve by SciPy. Return the eigenvalues (states,) and the largest residual."""
        scale = (self.free / np.sqrt(self.mass))[:, np.newaxis]
        product: Callable[[Any], Any] = self.H.matmat
        if not at_once:

            def product(X: Any) -> Any:
                return np.stack([self.H @ x for x in X.T], axis=1)

        def scaled(X: Any) -> Any:
            X = X.reshape(len(X), -1)
            return scale * product(np.ascontiguousarray(scale * X))

        n = self.V.size
        inverse = (self.mass / self.H.diagonal())[:, np.newaxis]
        A, near = (
            LinearOperator((n, n), matvec=columns, matmat=columns, dtype=float)
            for columns in (scaled, lambda X: inverse * X.reshape(n, -1))
        )
        guess = np.random.default_rng(0).standard_normal((n, self.states))
        guess *= self.free[:, np.newaxis]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged is in the result
            values, vectors = lobpcg(A, guess, M=near, tol=goal, maxiter=maxiter, largest=False)
        residuals = np.linalg.norm(scaled(vectors) - values * vectors, axis=0)
        return np.sort(values), float(residuals.max())
