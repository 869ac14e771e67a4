"""The level "auto": chosen by measurement on a sample of the elements.

Candidates are tried in the order of a lower bound of their time (bytes over a bandwidth, flops over
a rate that none exceeds), until that bound is above the best time seen: what could not win is never
built.  Where what a level moves for the whole operator does not fit in the caches, they are emptied
before each measurement, so that a sample of a few ten thousand dofs stands for the whole.

What is measured is the processor's time of all threads, and the least of several rounds counts: so
the choice is the same while other programs have a part of the cores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter, process_time, sleep
from typing import Any, final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.errors import OperatorError
from femops.operators.assembly.csr import Summands, domains, element_bytes
from femops.operators.assembly.point_matrices import entry_numbers
from femops.operators.execution.backend import Step
from femops.operators.execution.choice import backend_of
from femops.operators.execution.host import LEVELS
from femops.operators.integrals.constraints import FREE, Constraints
from femops.operators.integrals.term import Term
from femops.operators.levels.dispatch import level_data_of
from femops.operators.levels.level_data import LevelData
from femops.operators.levels.sample import first_terms
from femops.parallel.collective_checks import check
from femops_kernels.compiled import ONE, Panels
from femops_kernels.cpu.machine import get_threads, tuning_key
from femops_kernels.tuning.database import find

_log = logging.getLogger("femops")

# Nodes of a sample, for each thread: with 40,000, levels whose times differ by 15 % changed places.
_SAMPLE = 160_000
# Nodes up to which all elements are tried at order 1, where matrices may win, and it matters in
# which cache they lie.
_ALL = 160_000
# Elements of a sample with many vectors.
_FEWEST = 32
# Bytes moved by one application above which caches do not hold them.
CACHED_BYTES = 16 * 2**20
# What is read between two measurements to empty the caches.
_FLUSH = 192 * 2**20
_ROUNDS = 7
# Seconds of applications in a row where the data stay in the caches.
_WARM = 1e-3
# Seconds after which workers sleep: what time they have taken is known then.
_SETTLE = 1e-4
# Tries after which a level that takes so many times as long as the best is out.
_TRIES, _CLOSE = 2, 1.5
# Samples of levels that are close, each in memory of its own.
_PLACES = 3
# Optimistic limits of one thread, for bounds: bytes and operations per second.
_CACHE_BANDWIDTH = 1e11
_RATE = 1.5e11
_choices: dict[str, str] = {}
"""Level by question, see `level_words`."""
_flushed: WeakValueDictionary[str, NDArray[np.float64]] = WeakValueDictionary()
# Above the bandwidth measured by one sum over an array.
_OPTIMISM = 2.0


def choose_level(summands: Summands, panels: Panels = ONE) -> str:
    """The fastest level for the sum of terms, as measured with the threads now in use.

    Levels that would not fit into memory are left out.  A question is asked once by a process, so
    equal operators have the same level.

    Parameters
    ----------
    summands : sequence of (float, Term)
        Terms of forms on one mesh; those over the elements, which outweigh those over faces, are
        measured if there are any.
    panels : Panels
        Number of vectors that they are applied to at once.
    """
    levels = [level for level in LEVELS if _fits(level, summands)]
    part = domains(summands)[0]
    question = level_words(part, levels, panels)
    known = _choices.get(question) or find(tuning_key(question)).get("level")
    if known in levels:
        _log.info("level 'auto': %s chosen, as for an equal operator before", known)
        return str(known)
    times = measure_levels(part, levels, panels)
    best = _choices[question] = min(times, key=lambda level: times[level])
    _log.info(
        "level 'auto': %s chosen, one application of the sample in ms: %s",
        best,
        ", ".join(f"{level} {seconds * 1e3:.3g}" for level, seconds in times.items()),
    )
    return best


def level_words(summands: Summands, levels: Sequence[str], panels: Panels = ONE) -> str:
    """All that the choice depends on, as the tuning database names it: equal for equal forms."""
    ne, threads = summands[0][1].domain.num_elements, get_threads()
    types = ", ".join(
        f"{t.dtype} x {t.width}, stored {t.data_dtype or t.dtype}" for _, t in summands
    )
    work = ", ".join(
        "{} {:.0f} B {:.0f} flops".format(name, *_work(name, summands)) for name in levels
    )
    vectors = "" if panels == ONE else f"{panels.count} x {panels.nvec} vectors; "
    return f"level: {ne} elements; {vectors}{threads} threads; {types}; {work}"


def _least_bytes(summands: Summands, _: Panels) -> str:
    """The level that moves the fewest bytes: kernels of a device wait for memory."""
    levels = backend_of(summands[0][1].spaces[0]).levels
    bytes_moved = {
        level: level_data_of(level, _at(level, summands), FREE).moved_bytes() for level in levels
    }
    return min(levels, key=lambda level: bytes_moved[level])


def _agreed_level(
    summands: Summands, panels: Panels, choose: Callable[[Summands, Panels], str]
) -> str:
    """Level that the rank with most elements chooses for its part. Collective.

    All measure at the same time, as they share what they will share later.
    """
    first = domains(summands)[0][0][1]
    if not first.domain.covers:
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


def _fits(level: str, summands: Summands) -> bool:
    try:
        level_data_of(level, summands, FREE)
    except OperatorError:
        return False
    return True


def measure_levels(
    summands: Summands, levels: Sequence[str] = LEVELS, panels: Panels = ONE
) -> dict[str, float]:
    """Seconds of one application of a sample, for each level that could be the fastest.

    They are the processor's, of all threads, over the number of threads.

    Parameters
    ----------
    summands : sequence of (float, Term)
        Terms of forms on one mesh, or on the same boundary faces, which are all tried.
    levels : sequence of str
        Levels to choose from; "matrix-free" fits wherever any does.
    panels : Panels
        Number of vectors that they are applied to at once.
    """
    nvec = panels.nvec * panels.count
    whole, count = summands[0][1], _sample_size(summands[0][1], nvec)
    sample = list(summands) if not whole.domain.covers else first_terms(summands, count)
    work = {level: _work(level, sample, nvec) for level in levels}
    share, threads = count / whole.domain.num_elements, get_threads()
    cached = {level: moved / share < CACHED_BYTES for level, (moved, _) in work.items()}
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
        if not _fits(level, sample):  # nor does the sample, by now
            continue
        runs[level] = _runner(level, sample, panels, None if cached[level] else flush)
        times[level] = min(runs[level]() for _ in range(_TRIES))
    close = {
        level: run for level, run in runs.items() if times[level] < _CLOSE * min(times.values())
    }
    times |= _measure(close)
    for _ in range(_PLACES - 1 if flush and len(close) > 1 else 0):
        # where in memory data lie changes times by some percent
        close = {
            level: _runner(level, sample, panels, None if cached[level] else flush)
            for level in close
        }
        again = _measure(close)
        times |= {level: min(seconds, times[level]) for level, seconds in again.items()}
    return times


def _sample_size(term: Term, nvec: int) -> int:
    """Number of elements to try with so many vectors."""
    ne = term.domain.num_elements
    if not term.domain.covers:
        return ne
    spaces = [*term.fields.spaces.values(), *term.tests.spaces.values()]
    nodes = max(space.ndofs for space in spaces)
    if nodes <= _ALL and max(space.order for space in spaces) == 1:
        return ne
    fewest = term.width if nvec == 1 else _FEWEST
    return min(ne, max(fewest, int(_SAMPLE * get_threads() * ne / (nodes * nvec))))


def flush_memory() -> NDArray[np.float64]:
    """Memory that is read to empty the caches; the same while somebody holds it."""
    memory = _flushed.get("memory")
    if memory is None:
        memory = _flushed["memory"] = np.ones(_FLUSH // 8)
    return memory


def _flusher() -> Callable[[], float]:
    """Return a function that empties the caches and returns the seconds that this takes."""
    memory = flush_memory()

    def flush() -> float:
        begin = perf_counter()
        memory.sum()
        return perf_counter() - begin

    return flush


def _bandwidth(flush: Callable[[], float]) -> float:
    return _FLUSH / min(flush() for _ in range(3))


def _work(level: str, sample: Summands, nvec: int = 1) -> tuple[float, float]:
    """Least bytes moved and flops of one application; nothing is compiled or assembled for it."""
    term = sample[0][1]
    if level == "full":
        entries = sum(_least_entries(block) for block in term.blocks())
        return entries * (term.dtype.itemsize + 4), 2 * entries * nvec
    if level == "element":
        size = float(sum(element_bytes(block) for block in term.blocks()))
        return size, 2 * size / term.dtype.itemsize * nvec
    level_data = level_data_of(level, _at(level, sample), FREE)
    vectors = sum(space.size for space in term.spaces) * term.dtype.itemsize * nvec
    return vectors + level_data.moved_bytes(), level_data.flops() * nvec


def _least_entries(term: Term) -> float:
    """Entries of the matrix, as of a large Cartesian mesh of as many dofs."""
    columns = (term.trial.order + 1.0) ** term.trial.dim
    coupled = np.count_nonzero(entry_numbers(term).any(axis=(0, 2)))  # components, one by one
    return term.test.touched * columns * coupled


def _at(level: str, sample: Summands) -> list[tuple[float, Term]]:
    return [(factor, term.at_level(level)) for factor, term in sample]


def _runner(
    level: str, sample: Summands, panels: Panels, flush: Callable[[], float] | None
) -> Callable[[], float]:
    """Return a function that applies the sample once, with caches empty or holding its data."""
    level_data: LevelData = level_data_of(level, _at(level, sample), FREE)
    work = level_data.compiled(panels)
    term, nvec = sample[0][1], panels.nvec * panels.count
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
    """The least of interleaved rounds."""
    times: dict[str, list[float]] = {level: [] for level in runs}
    for _ in range(_ROUNDS):
        for level, run in runs.items():
            times[level].append(run())
    return {level: min(t) for level, t in times.items()}


@final
@dataclass(frozen=True, eq=False)
class Auto(LevelData):
    """Data of the fastest level, which is chosen at the first use.

    Attributes
    ----------
    summands, constraints
        See `LevelData`.
    """

    summands: Summands
    constraints: Constraints

    @cached_property
    def chosen(self) -> LevelData:
        """The storage of the level chosen.

        Raises
        ------
        OperatorError
            Integrals over boundary faces alone, on several ranks.
        """
        return self._choice(ONE)

    @cached_property
    def _chosen_for(self) -> dict[Panels, LevelData]:
        """Data by number of vectors; none of a level twice."""
        return {}

    def _choice(self, panels: Panels) -> LevelData:
        space = self.summands[0][1].spaces[0]
        choose = choose_level if self.backend.measures else _least_bytes
        if space.comm.size == 1:
            level = choose(self.summands, panels)
        else:
            level = _agreed_level(self.summands, panels, choose)
        for known in (self.__dict__.get("chosen"), *self._chosen_for.values()):
            if known is not None and known.level == level:
                return known
        return level_data_of(level, _at(level, self.summands), self.constraints)

    @property
    def stored(self) -> LevelData:
        """The storage of the level chosen."""
        return self.chosen

    @property
    def kept(self) -> Summands:
        """The summands, cut for the level chosen."""
        return self.chosen.summands

    @property
    def as_stored(self) -> Summands:
        """See `LevelData.as_stored`; the level is chosen first if numbers may be rounded."""
        return self.chosen.as_stored if self._rounds else self.summands

    @property
    def _rounds(self) -> bool:
        """True if the numbers that are rounded may depend on the level.

        Then products with one vector and with many, and the matrix, have one level.
        """
        return any(term.data_dtype is not None for _, term in self.summands)

    @property
    def level(self) -> str:  # type: ignore[override]  # found when asked for
        """The level chosen."""
        return self.chosen.level

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """Return the steps of the level chosen for so many vectors."""
        if panels == ONE or self._rounds:
            return self.chosen.steps(panels)
        if panels not in self._chosen_for:
            self._chosen_for[panels] = self._choice(panels)
        return self._chosen_for[panels].steps(panels)

    def flops(self) -> int:
        """Operations of the level chosen."""
        return self.chosen.flops()

    def data_flops(self) -> int:
        """Operations that compute the data of the level chosen."""
        return self.chosen.data_flops()

    def assembly_flops(self) -> int:
        """Operations that assemble the matrix at the level chosen."""
        return self.chosen.assembly_flops()

    def moved_bytes(self) -> int:
        """Bytes that the level chosen moves."""
        return self.chosen.moved_bytes()

    def stored_bytes(self) -> int:
        """Bytes that the level chosen stores."""
        return self.chosen.stored_bytes()

    def shared_bytes(self) -> int:
        """Bytes that the level chosen shares with other operators."""
        return self.chosen.shared_bytes()

    def with_constraints(self, constraints: Constraints) -> Auto:
        """Return the same with other constraints; the choice is kept if it is made."""
        new = replace(self, constraints=constraints)
        if "chosen" in self.__dict__:
            new.__dict__["chosen"] = self.chosen.with_constraints(constraints)
        return new

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """Apply `lift` of the level chosen."""
        return self.chosen.lift(g)

    def matrix(self) -> csr_array:
        """Return the matrix by the level chosen."""
        return self.chosen.matrix()
