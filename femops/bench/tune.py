"""Search for the fastest settings of kernels on this machine, for the tuning database.

Models choose the candidates. A prefetch distance is at least the bytes that memory delivers during
its latency. A chunk's copies stay in the second-level cache. Settings that make no difference to a
kernel are not tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from femops.bench.machine import using
from femops.bench.problems import (
    PROBLEMS,
    Problem,
    Progress,
    check_asked,
    choose,
    default_dofs,
    make_mesh,
)
from femops.bench.tensor.search import search_on_host
from femops.bench.timing import Fastest, call_seconds, fastest
from femops.errors import OperatorError
from femops.fields.multivector import MultiVector
from femops.operators import Operator
from femops.operators.integrals.chunks import chunk_words
from femops.operators.levels.auto import best_level, level_words, measure_levels
from femops.operators.levels.dispatch import LEVELS
from femops.spaces.h1_l2 import H1, Space
from femops_kernels.compiled import Panels
from femops_kernels.cpu.kernels import (
    PREFETCH_BYTES,
    ROWS_AHEAD,
    Kernel,
    OperatorKernel,
    vector_key,
)
from femops_kernels.cpu.machine import tuning_key
from femops_kernels.cpu.multivector import VectorSweep
from femops_kernels.cpu.plan import CHUNK_BYTES, elements_per_chunk
from femops_kernels.tuning.database import Settings, TuningKey, known, record, trying, users_table

SETTINGS = ("prefetch", "chunks", "level", "vectors", "products")
"""Kinds of settings that can be tuned."""

_PREFETCH = tuple(2**k for k in range(12, 18))
_CHUNKS = tuple(2**k for k in range(17, 22))
_ROWS = (300, 600, 1200, 2400, 4800)
# The cases of many vectors: cells in each direction, and vectors.
_CELLS, _VECTORS = 3, 100
_MEMBERS = 10_000  # matrices of a batch: from n = 8 on out of cache


@final
@dataclass(frozen=True)
class TuneSettings:
    """Choice of the kernels and settings that are tuned."""

    problems: Sequence[str] = ("bp1", "bp3")
    meshes: Sequence[str] = ("multilinear",)
    levels: Sequence[str] = ("partial", "matrix-free")
    settings: Sequence[str] = SETTINGS
    orders: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8)
    # rows of the square matrices whose products are tuned
    sizes: Sequence[int] = tuple(range(2, 33))
    # approximate number of dofs; that of benchmarks out of cache if omitted
    dofs: float | None = None
    threads: int = 1
    rounds: int = 9
    again: bool = False  # True to measure kernels again that are already in the user's table

    def check(self) -> None:
        """Raise if a setting is unknown or out of range."""
        check_asked(
            problems=self.problems, meshes=self.meshes, orders=self.orders, rounds=self.rounds
        )
        if any(n < 1 for n in self.sizes):
            raise OperatorError(f"sizes {tuple(self.sizes)}: give whole numbers of at least 1")
        choose("setting", self.settings, SETTINGS)
        choose("level", self.levels, ("partial", "matrix-free"))


_Search = tuple[str, TuningKey, Callable[[int], tuple[Settings, Fastest[Any]]]]
"""Search for one entry of the database: setting, key, and a function of rounds that searches."""


def run_tune(
    asked: TuneSettings, progress: Progress, total: Callable[[int], None]
) -> dict[str, Any]:
    """Search for settings, and write each setting to the user's table as soon as it is found."""
    asked.check()
    rows, found_before, met = list[dict[str, Any]](), 0, set[TuningKey]()
    cases = _cases(asked)
    total(len(cases))
    with using(asked.threads):
        for case, searches in cases.items():
            progress(case)
            for setting, key, run in searches():
                if key in met:
                    continue
                met.add(key)
                if known(key) and not asked.again:
                    found_before += 1
                    continue
                settings, found = run(asked.rounds)
                record({key: settings})
                words = ", ".join(f"{value}" for value in settings.values())
                row = {"case": case, "setting": setting, "found": words, "gain": found.gain}
                rows.append(row | {"tried": found.tried})
    return {"rows": rows, "table": str(users_table()), "known": found_before}


def _cases(asked: TuneSettings) -> dict[str, Callable[[], Iterator[_Search]]]:
    """Return functions that yield the searches of a case, by the name of the case."""
    cases: dict[str, Callable[[], Iterator[_Search]]] = {}
    if set(asked.settings) != {"products"}:
        operators = asked.orders, asked.problems, asked.meshes, asked.levels
        for order, problem, mesh, level in itertools.product(*operators):
            searches = partial(_searches, asked, PROBLEMS[problem], mesh, order, level)
            cases[f"{problem} p = {order}, {mesh}, {level}"] = searches
    if "products" in asked.settings:
        cases |= {f"C += A B, n = {n}": partial(_products, n) for n in asked.sizes}
    return cases


def _products(n: int) -> Iterator[_Search]:
    """Yield the search for the fastest variant of a product of small matrices."""
    search = search_on_host(n, _MEMBERS)
    yield "products", search.key, search.run


def _searches(
    asked: TuneSettings, problem: Problem, mesh: str, order: int, level: str
) -> Iterator[_Search]:
    """Yield the searches for an operator; each is prepared when its turn comes."""
    dofs = asked.dofs or default_dofs("ram", order)
    make = partial(_operator, problem, mesh, order, dofs, level)
    A = make()
    kernel = A.compiled.sweeps[0].kernel
    stored = isinstance(kernel, Kernel) and kernel.spec.qfunction.numbers.point > 0
    if "prefetch" in asked.settings and stored:
        sizes = list(dict.fromkeys([PREFETCH_BYTES, *_PREFETCH]))
        key = tuning_key(kernel.words)
        run = partial(_by_settings, key, "prefetch_bytes", sizes, make)
        yield "prefetch", key, run
    if "chunks" in asked.settings:
        key = tuning_key(chunk_words(A.space, A.space, np.dtype(np.float64)))
        yield "chunks", key, partial(_by_settings, key, "chunk_bytes", _chunk_sizes(A.space), make)
    if "level" in asked.settings:
        yield "level", tuning_key(level_words(A._summands, LEVELS)), partial(_level, A)
    if "vectors" in asked.settings:
        many = partial(_operator, problem, mesh, order, (_CELLS * order + 1.0) ** 3, "partial")
        (step,) = many().steps(Panels(_VECTORS))
        sweep = step.launch
        assert isinstance(sweep, VectorSweep)
        key, ahead = vector_key(sweep.kernel), _rows_ahead(sweep.kernel)
        yield "vectors", key, partial(_by_settings, key, "rows_ahead", ahead, many, nvec=_VECTORS)


def _operator(problem: Problem, mesh: str, order: int, dofs: float, level: str) -> Operator:
    """Make an operator on a new space, for which no chunks are chosen yet."""
    V = H1(make_mesh(mesh, order, dofs / problem.ncomp), order, problem.ncomp)
    return problem.operator(V, level)


def _by_settings(
    key: TuningKey,
    name: str,
    values: Sequence[int],
    make: Callable[[], Operator],
    rounds: int,
    nvec: int = 1,
) -> tuple[Settings, Fastest[int]]:
    """Find the fastest value of a setting. Operators made with the values take turns."""
    runs = {}
    for value in values:
        with trying(key, {name: value}):
            A = make()
            apply = _application(A, nvec)
            apply()
        runs[value] = partial(call_seconds, apply)
    found = fastest(runs, rounds)
    return {name: found.best}, found


def _application(A: Operator, nvec: int) -> Callable[[], object]:
    """Return a function that applies an operator to a vector, or to many."""
    if nvec > 1:
        X = MultiVector.random(A.space, nvec, width=nvec)
        return partial(A.apply_many, X, X.empty_like())
    x = np.random.default_rng(5).standard_normal(A.space.size)
    return partial(A.apply, x, np.empty_like(x))


def _chunk_sizes(V: Space) -> list[int]:
    """Chunk sizes in bytes that give different numbers of elements, the default first."""
    ne, nodes = V.mesh.num_elements, V.ndofs / V.mesh.num_elements
    return _distinct(
        (CHUNK_BYTES, *_CHUNKS), lambda size: elements_per_chunk(ne, nodes, V.ncomp, 8, size)
    )


def _rows_ahead(kernel: OperatorKernel) -> list[int]:
    """Prefetch distances in rows that give different numbers of blocks, the default first."""
    rows = kernel.spec.source.num_nodes * kernel.spec.source.ncomp
    return _distinct((ROWS_AHEAD, *_ROWS), lambda count: min(16, max(1, count // rows)))


def _distinct(values: Sequence[int], effect: Callable[[int], int]) -> list[int]:
    """Values, without those that have the effect of an earlier value."""
    found: dict[int, int] = {}
    for value in values:
        found.setdefault(effect(value), value)
    return list(found.values())


def _level(A: Operator, rounds: int) -> tuple[Settings, Fastest[str]]:
    """Find the fastest level, by the least of several measurements of each level."""
    times: dict[str, float] = {}
    for _ in range(max(1, rounds // 3)):
        measured = measure_levels(A._summands)
        if A.level not in measured:  # left out, as it cannot be the fastest
            measured |= measure_levels(A._summands, (A.level,))
        for level, seconds in measured.items():
            times[level] = min(seconds, times.get(level, seconds))
    best = best_level(times, A._summands)
    return {"level": best}, Fastest(best, times[A.level] / times[best], len(times))
