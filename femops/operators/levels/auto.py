"""The level "auto": measurements on a sample of the elements choose the level.

The time of each level has a lower bound: bytes over a bandwidth, and flops over a rate that no
kernel exceeds. Levels are tried in the order of these bounds, until a bound is above the best
measured time. So a level that cannot win is never built. The caches are emptied before a level is
measured if the level's data for the complete operator do not fit in them. So a small sample stands
for the complete operator.

The measured time is the processor time of all threads, the least of several rounds. So other
programs on some cores do not change the choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter, process_time, sleep
from typing import Any, final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.errors import OperatorError
from femops.geometry.jacobians import LegendreGeometry
from femops.operators.assembly.csr import domains
from femops.operators.execution.backend import Step
from femops.operators.execution.host import backend_of
from femops.operators.integrals.arguments import FIELD, Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.state import NO_STATE, Field, HostState, Sampled, State
from femops.operators.integrals.term import Sum, Term
from femops.operators.levels.dispatch import KINDS, LEVELS, level_data_of
from femops.operators.levels.level_data import Cost, LevelData
from femops.parallel.comm import check
from femops.spaces.base import Space
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.product import Product
from femops_kernels.compiled import ONE, Panels
from femops_kernels.cpu.machine import cache_bytes, get_threads, tuning_key
from femops_kernels.tuning.database import find
from femops_meshes.mesh import Mesh
from femops_meshes.partitioning.parts import first_elements


def first_terms(summands: Sum, count: int) -> Sum:
    """Restrict terms and their coefficients to the first elements of the mesh.

    Of a mesh of several shapes they are those of the first term's part.
    """
    whole = summands.first.spaces[0]
    mesh = summands.first.domain.mesh
    if whole.mixed:
        summands = Sum((a, term) for a, term in summands if term.domain.mesh is mesh)
    part = first_elements(mesh, count)
    if part is mesh and whole.distributed is None and not whole.mixed:
        return summands
    LegendreGeometry.share(mesh, part)
    known: dict[Any, Any] = {}
    return summands.map(lambda term: _term(term, part, known))


def _term(term: Term, part: Mesh, known: dict[Any, Any]) -> Term:
    source = term.source
    assert source is not None
    form = _form(source, part, known)
    piece = Term.make(form, term.dtype, term.width, term.level, term.data_dtype)
    return piece if term.original is None else piece.transposed()


def _form(form: Integral, part: Mesh, known: dict[Any, Any]) -> Integral:
    state: State = NO_STATE
    if form.state.spaces:
        fields = (form.state.field(name) for name in form.state.spaces)
        pieces = (_field(field, part, known) for field in fields)
        state = HostState(dict(zip(form.state.spaces, pieces, strict=True)))
    given = {name: _given(g, part, known) for name, g in form.coefficients.items()}
    return replace(
        form,
        fields=_arguments(form.fields, part, known),
        tests=_arguments(form.tests, part, known),
        coefficients=given,
        traced=form.qfunction,
        state=state,
    )


def _arguments(whole: Arguments, part: Mesh, known: dict[Any, Any]) -> Arguments:
    """Restrict fields or test functions to a part of the mesh."""
    spaces = {name: _space(s.volume, part, known) for name, s in whole.spaces.items()}
    product = whole.whole
    if not isinstance(product, Product):
        return Arguments.of(spaces[FIELD])
    if product not in known:
        every = {name: _space(space, part, known) for name, space in product.spaces.items()}
        known[product] = Product(**every)
    return Arguments(spaces, known[product])


def _space(space: Space, part: Mesh, known: dict[Any, Any]) -> Space:
    """Restrict a space to a part of the mesh. Each space is restricted once."""
    if type(space) not in (H1, L2):
        raise OperatorError(f"level 'auto' samples H1 and L2, not {space!r}: take level='partial'")
    if space not in known:
        known[space] = type(space)(part, space.order, space.ncomp, space.family)
    found: Space = known[space]
    return found


def _first(whole: Space, part: Space, l_vec: NDArray[Any]) -> NDArray[Any]:
    """Restrict an l_vec to the space ``part``, which is on the first elements of the mesh."""
    first = slice(part.mesh.num_elements)
    return part.restriction.assigned(whole.restriction.entries(l_vec, first))


def _field(field: Field, part: Mesh, known: dict[Any, Any]) -> Field:
    """Restrict a field to a part of the mesh."""
    space = _space(field.space, part, known)
    return Field(space, _first(field.space, space, field.l_vec), space.restriction)


def _given(given: FormCoefficient, part: Mesh, known: dict[Any, Any]) -> FormCoefficient:
    value: Any = given.value
    if isinstance(value, Field):
        value = _field(value, part, known)
    elif isinstance(value, Sampled):
        value = value.first(part.num_elements)
    return replace(given, value=value)


_log = logging.getLogger("femops")

# Nodes of a sample per thread. With 40,000 nodes, the choice between levels whose times differ by
# 15 % was not stable.
_SAMPLE = 160_000
# Up to this number of nodes all elements are tried at order 1. There matrices may be fastest, and
# their time depends on the cache that they fit in.
_ALL = 160_000
# Elements of a sample with many vectors.
_FEWEST = 32
# Most bytes of one application that stay in the caches, where their sizes are not known, and the
# part of the largest cache where they are.
_CACHED_BYTES, _CACHED_PART = 16 * 2**20, 7 / 8
# Bytes that are read between two measurements to empty the caches.
_FLUSH = 192 * 2**20
_ROUNDS = 7
# Seconds of applications in a row where the data stay in the caches.
_WARM = 1e-3
# Seconds until workers sleep, so that the time that they took is counted.
_SETTLE = 1e-4
# Number of first tries, and the multiple of the best time beyond which a level is then dropped.
_TRIES, _CLOSE = 2, 1.5
_AS_FAST = 1.05  # times the best: two measurements differ by as much
# Number of copies of the sample, in different memory, on which close levels are compared.
_PLACES = 3
# Optimistic limits of one thread, for bounds: bytes and operations per second.
_CACHE_BANDWIDTH = 1e11
_RATE = 1.5e11
_choices: dict[str, str] = {}
"""Chosen level by key, see `level_words`."""
_flushed: WeakValueDictionary[str, NDArray[np.float64]] = WeakValueDictionary()
# Bound of the bandwidth, as a multiple of the one measured by a sum over an array.
_OPTIMISM = 2.0


def choose_level(summands: Sum, panels: Panels = ONE) -> str:
    """Choose the fastest level for a sum of terms by measurement, with the threads now in use.

    Levels that do not fit into memory are left out. A process remembers its choices, so equal
    operators have the same level.
    """
    levels = [level for level in LEVELS if _fits(level, summands)]
    part = domains(summands)[0]
    question = level_words(part, levels, panels)
    known = _choices.get(question) or find(tuning_key(question)).get("level")
    if known in levels:
        _log.info("level 'auto': %s chosen, as for an equal operator before", known)
        return str(known)
    times = measure_levels(part, levels, panels)
    best = _choices[question] = best_level(times, part)
    _log.info(
        "level 'auto': %s chosen, one application of the sample in ms: %s",
        best,
        ", ".join(f"{level} {seconds * 1e3:.3g}" for level, seconds in times.items()),
    )
    return best


def best_level(times: Mapping[str, float], summands: Sum) -> str:
    """Choose the fastest level. Among levels that are as fast, choose that of least memory."""
    close = [level for level in times if times[level] <= _AS_FAST * min(times.values())]
    return min(close, key=lambda level: _work(level, summands)[0])


def level_words(summands: Sum, levels: Sequence[str], panels: Panels = ONE) -> str:
    """Key of the tuning database for the chosen level. Equal forms have equal keys."""
    ne, threads = summands.first.domain.num_elements, get_threads()
    types = ", ".join(
        f"{t.dtype} x {t.width}, stored {t.data_dtype or t.dtype}" for _, t in summands
    )
    work = ", ".join(
        "{} {:.0f} B {:.0f} flops".format(name, *_work(name, summands)) for name in levels
    )
    vectors = "" if panels == ONE else f"{panels.count} x {panels.nvec} vectors; "
    return f"level: {ne} elements; {vectors}{threads} threads; {types}; {work}"


def _least_bytes(summands: Sum, _: Panels) -> str:
    """Choose the level that moves the fewest bytes. On a device kernels wait for memory."""
    every = backend_of(summands.first.spaces[0]).levels
    levels = [level for level in every if _fits(level, summands)]
    bytes_moved = {
        level: level_data_of(level, summands.at_level(level), FREE).moved_bytes()
        for level in levels
    }
    return min(levels, key=lambda level: bytes_moved[level])


def _agreed_level(summands: Sum, panels: Panels, choose: Callable[[Sum, Panels], str]) -> str:
    """Level that the rank with the most elements chooses for its part. Collective.

    All ranks measure at the same time, because they share caches and memory in applications too.
    """
    first = domains(summands)[0].first
    if not first.domain.on_elements:
        raise OperatorError(
            "level 'auto' of boundary integrals alone is measured by one rank: name another level"
        )
    comm, ne = first.spaces[0].comm, first.domain.num_elements
    level = ""
    with check(comm):
        if ne:
            level = choose(summands, panels)
    counts = comm.gather_all(np.array([ne]))
    return str(comm.broadcast(level, int(np.argmax(counts))))


def _fits(level: str, summands: Sum) -> bool:
    try:
        level_data_of(level, summands.at_level(level), FREE)
    except OperatorError:
        return False
    return True


def measure_levels(
    summands: Sum, levels: Sequence[str] = LEVELS, panels: Panels = ONE
) -> dict[str, float]:
    """Measure one application of a sample, in seconds, for each level that could be the fastest.

    The seconds are processor time of all threads, divided by the number of threads.
    """
    nvec = panels.nvec * panels.count
    whole, count = summands.first, _sample_size(summands.first, nvec)
    sample = summands if not whole.domain.on_elements else first_terms(summands, count)
    work = {level: _work(level, sample, nvec) for level in levels}
    share, threads = count / whole.domain.num_elements, get_threads()
    cached = {level: moved / share < _cached_bytes() for level, (moved, _) in work.items()}
    flush = None if all(cached.values()) else _flusher()
    memory = _CACHE_BANDWIDTH if flush is None else _OPTIMISM * _bandwidth(flush)
    bounds = {
        level: max(moved / (_CACHE_BANDWIDTH if cached[level] else memory), flops / _RATE) / threads
        for level, (moved, flops) in work.items()
    }
    times: dict[str, float] = {}
    runs: dict[str, Callable[[], float]] = {}
    for level in sorted(bounds, key=lambda name: bounds[name]):
        if times and bounds[level] > min(times.values()):
            break
        if not _fits(level, sample):  # earlier samples may have taken the memory
            continue
        runs[level] = _runner(level, sample, panels, None if cached[level] else flush)
        times[level] = min(runs[level]() for _ in range(_TRIES))
    close = {
        level: run for level, run in runs.items() if times[level] < _CLOSE * min(times.values())
    }
    times |= _measure(close)
    for _ in range(_PLACES - 1 if flush and len(close) > 1 else 0):
        # times differ by some percent with the place of the data in memory
        close = {
            level: _runner(level, sample, panels, None if cached[level] else flush)
            for level in close
        }
        again = _measure(close)
        times |= {level: min(seconds, times[level]) for level, seconds in again.items()}
    return times


def _cached_bytes() -> float:
    return max(_CACHED_BYTES, _CACHED_PART * cache_bytes())


def _sample_size(term: Term, nvec: int) -> int:
    """Number of elements of a sample for ``nvec`` vectors."""
    ne = term.domain.num_elements
    if not term.domain.on_elements:
        return ne
    spaces = [*term.fields.spaces.values(), *term.tests.spaces.values()]
    nodes = max(space.ndofs for space in spaces)
    if nodes <= _ALL and max(space.order for space in spaces) == 1:
        return ne
    fewest = term.width if nvec == 1 else _FEWEST
    return min(ne, max(fewest, int(_SAMPLE * get_threads() * ne / (nodes * nvec))))


def flush_memory() -> NDArray[np.float64]:
    """Array that is read to empty the caches. All concurrent callers share it."""
    memory = _flushed.get("memory")
    if memory is None:
        memory = _flushed["memory"] = np.ones(_FLUSH // 8)
    return memory


def _flusher() -> Callable[[], float]:
    """Return a function that empties the caches and returns the seconds for that."""
    memory = flush_memory()

    def flush() -> float:
        begin = perf_counter()
        memory.sum()
        return perf_counter() - begin

    return flush


def _bandwidth(flush: Callable[[], float]) -> float:
    return _FLUSH / min(flush() for _ in range(3))


def _work(level: str, sample: Sum, nvec: int = 1) -> tuple[float, float]:
    """Least bytes moved and flops of one application. Nothing is compiled or assembled."""
    return KINDS[level].least_work(sample, level, nvec)


def _runner(
    level: str, sample: Sum, panels: Panels, flush: Callable[[], float] | None
) -> Callable[[], float]:
    """Return a function that applies the sample once, with empty or with warm caches."""
    level_data: LevelData = level_data_of(level, sample.at_level(level), FREE)
    work = level_data.compiled(panels)
    term, nvec = sample.first, panels.nvec * panels.count
    x: NDArray[Any] = np.ones(term.spaces[0].size * nvec, term.dtype)
    y: NDArray[Any] = np.empty(term.spaces[1].size * nvec, term.dtype)
    threads = get_threads()

    def timed(count: int) -> float:
        begin = process_time()
        for _ in range(count):
            work.apply(x, y)
        sleep(_SETTLE)
        return (process_time() - begin) / (count * threads)

    timed(1)
    # a matrix comes to rest in the caches after a few applications
    count = 1 if flush else max(4, int(_WARM / timed(1)))

    def run() -> float:
        if flush:
            flush()
        return timed(count)

    return run


def _measure(runs: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Least time of each level in interleaved rounds, in seconds."""
    times: dict[str, list[float]] = {level: [] for level in runs}
    for _ in range(_ROUNDS):
        for level, run in runs.items():
            times[level].append(run())
    return {level: min(t) for level, t in times.items()}


@final
@dataclass(frozen=True, eq=False)
class Auto(LevelData):
    """Data of the fastest level. The level is chosen at first use."""

    summands: Sum
    constraints: Constraints

    @cached_property
    def chosen(self) -> LevelData:
        """Data of the chosen level for one vector."""
        return self._choice(ONE)

    @cached_property
    def _chosen_for(self) -> dict[Panels, LevelData]:
        """Data by number of vectors. Equal levels share their data."""
        return {}

    def _choice(self, panels: Panels) -> LevelData:
        space = self.summands.first.spaces[0]
        choose = choose_level if self.backend.measures else _least_bytes
        if space.comm.size == 1:
            level = choose(self.summands, panels)
        else:
            level = _agreed_level(self.summands, panels, choose)
        for known in (self.__dict__.get("chosen"), *self._chosen_for.values()):
            if known is not None and known.level == level:
                return known
        return level_data_of(level, self.summands.at_level(level), self.constraints)

    @property
    def stored(self) -> LevelData:
        """Data of the chosen level."""
        return self.chosen

    @property
    def kept(self) -> Sum:
        """The summands with q-functions for the chosen level."""
        return self.chosen.summands

    @property
    def as_stored(self) -> Sum:
        """See `LevelData.as_stored`; the level is chosen first if numbers may be rounded."""
        return self.chosen.as_stored if self._rounds else self.summands

    @property
    def _rounds(self) -> bool:
        """True if the level may decide which numbers are rounded.

        Then the matrix, and products with one vector or many, use the same level.
        """
        return any(term.data_dtype is not None for _, term in self.summands)

    @property
    def level(self) -> str:  # type: ignore[override]  # found when asked for
        """Name of the chosen level."""
        return self.chosen.level

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """Steps of the level chosen for this number of vectors."""
        if panels == ONE or self._rounds:
            return self.chosen.steps(panels)
        if panels not in self._chosen_for:
            self._chosen_for[panels] = self._choice(panels)
        return self._chosen_for[panels].steps(panels)

    def cost(self) -> Cost:
        """See `LevelData.cost`, for the chosen level."""
        return self.chosen.cost()

    def moved_bytes(self) -> int:
        """See `LevelData.moved_bytes`, for the chosen level."""
        return self.chosen.moved_bytes()

    def with_constraints(self, constraints: Constraints) -> Auto:
        """Copy of the data with other constraints. It keeps a level that has been chosen."""
        new = replace(self, constraints=constraints)
        if "chosen" in self.__dict__:
            new.__dict__["chosen"] = self.chosen.with_constraints(constraints)
        return new

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """Apply `lift` of the chosen level."""
        return self.chosen.lift(g)

    def matrix(self) -> csr_array:
        """Assemble the matrix with the chosen level."""
        return self.chosen.matrix()
