"""Compare femops with deal.II on one core: bp1 and bp3 on multilinear elements.

`build.sh` builds the programs with deal.II's kernels. README.md describes the columns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from femops.bench.adaptive import SHARE, in_ball
from femops.bench.child import Child
from femops.bench.machine import using
from femops.bench.problems import (
    FOOTPRINTS,
    PROBLEMS,
    check_asked,
    default_dofs,
    make_mesh,
    make_space,
    per_direction,
)
from femops.errors import OperatorError
from femops.operators import Operator
from femops.spaces.h1_l2 import H1

NAMES = "bp1", "bp3"
LEVELS = "partial", "matrix-free"
GEOMETRIES = "library", "own numbers", "from vertices"
LOOPS = "library", "entities"
ELEMENT_ORDERS = "lexicographic", "morton"
COLUMNS = "wall", "cpu", "least"
ORDERS = 2, 4, 6, 8
CLOSE = 1.15
"""Cases within this factor of the fastest one of their side stay after the first round."""

TOLERANCE = 1e-11
"""Largest relative difference of the quadratic forms x . A x of two cases."""

HEADINGS = (
    *("footprint", "problem", "p", "dofs"),
    *("deal.II, usual", "deal.II, best", "variant of the best", "femops", "level"),
    *("over the usual", "over the best", "over the best, median of rounds"),
)


class Case(NamedTuple):
    """A way to compute a product.

    `side` is "femops" or the order of deal.II's elements; `kind` is a level of femops or the
    geometry of deal.II's; `loop` is empty for femops.
    """

    side: str
    kind: str
    loop: str

    @property
    def is_usual(self) -> bool:
        """True for deal.II as its users write it."""
        return self.kind == self.loop == "library"

    def request(self, problem: str, seconds: float) -> dict[str, Any]:
        """Request to the process of this side."""
        names = {"level": self.kind}
        if self.side != "femops":
            names = {"geometry": self.kind, "loop": self.loop}
        return {"problem": problem, **names, "seconds": seconds}


class Setting(NamedTuple):
    """A space to measure on."""

    footprint: str
    order: int
    dofs: int


class Row(NamedTuple):
    """Result for a space and a problem. `rates` are in GDoF/s."""

    setting: Setting
    problem: str
    usual: Case
    best: Case
    femops: Case
    rates: dict[Case, float]
    ratios: list[float]
    form_difference: float

    def cells(self) -> list[str]:
        """Cells of the table."""
        usual, best, ours = (self.rates[case] for case in (self.usual, self.best, self.femops))
        return [
            *(self.setting.footprint, self.problem),
            *(str(self.setting.order), str(self.setting.dofs)),
            *(f"{usual:.3f}", f"{best:.3f}"),
            f"{self.best.kind}, loop: {self.best.loop}, {self.best.side}",
            *(f"{ours:.3f}", self.femops.kind),
            *(f"{ours / usual:.2f}", f"{ours / best:.2f}", f"{median(self.ratios):.2f}"),
        ]

    def record(self) -> dict[str, Any]:
        """Dictionary for a JSON file, with all rates."""
        named = {name: " / ".join(getattr(self, name)) for name in ("usual", "best", "femops")}
        rates = {" / ".join(case): rate for case, rate in self.rates.items()}
        record = {**self.setting._asdict(), **self._asdict(), **named, "rates": rates}
        del record["setting"]
        return record


# --- the process of femops ------------------------------------------------------------------------


def noise(x: NDArray[np.float64]) -> NDArray[Any]:
    """Pseudo-random values in [-1, 1), the vector to which both sides apply the operators.

    They are a hash of the coordinates in units of 2**-20, so that round-off does not change them.
    """
    code = np.zeros(x.shape[1:], np.uint64)
    for place in np.floor(x * 2.0**20 + 0.3).astype(np.int64).view(np.uint64):
        code = (code ^ place) * np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(29)
    code = (code * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(11)
    return code * 2.0**-52 - 1.0


def measure(operator: Operator, x: NDArray[Any], seconds: float) -> dict[str, Any]:
    """Time products for `seconds`. Return an answer as deal.II's program does."""
    y = np.zeros_like(x)
    for _ in range(2):
        operator.apply(x, y)
    wall: list[float] = []
    cpu: list[float] = []
    while sum(wall) < seconds or len(wall) < 3:
        cpu_before, before = time.thread_time(), time.perf_counter()
        operator.apply(x, y)
        wall.append(time.perf_counter() - before)
        cpu.append(time.thread_time() - cpu_before)
    times = {"wall": median(wall), "cpu": median(cpu), "least": min(cpu)}
    return {"dofs": len(x), "form": float(x @ y), **times}


def serve(order: int, footprint: str, refined: bool) -> None:
    """Answer requests on the standard input by measurements of femops."""
    dofs = default_dofs(footprint, order)
    space = make_space(PROBLEMS["bp1"], "multilinear", order, dofs)
    if refined:
        space = H1(make_mesh("multilinear", order, dofs / SHARE).refined(in_ball), order)
    x = space.interpolate(noise)
    choices = [(name, level) for name in NAMES for level in LEVELS]
    operators = {choice: PROBLEMS[choice[0]].operator(space, choice[1]) for choice in choices}
    with using(1):
        for line in sys.stdin:
            request = json.loads(line)
            operator = operators[request["problem"], request["level"]]
            print(json.dumps(measure(operator, x, request["seconds"])), flush=True)


# --- measurement ----------------------------------------------------------------------------------


def cases(refined: bool) -> list[Case]:
    """All variants of deal.II and all levels of femops."""
    loops = LOOPS[:1] if refined else LOOPS
    theirs = [
        Case(side, kind, loop) for side in ELEMENT_ORDERS for loop in loops for kind in GEOMETRIES
    ]
    return theirs + [Case("femops", level, "") for level in LEVELS]


def start(
    programs: Path, footprint: str, order: int, refined: bool
) -> tuple[dict[str, Child], Setting]:
    """Start the process of each side, when the process before is set up."""
    dofs = default_dofs(footprint, order)
    cells = str(per_direction(order, dofs / SHARE if refined else dofs))
    program = programs / f"dealii{order}"
    if not program.exists():
        sys.exit(f"{program} is missing: run build.sh {order}")
    this = [sys.executable, __file__, "--serve", "--orders", str(order), "--footprint", footprint]
    more = ["refined"] * refined
    commands = {side: [str(program), cells, str(i), *more] for i, side in enumerate(ELEMENT_ORDERS)}
    commands["femops"] = this + ["--refined"] * refined
    # glibc takes huge pages for all large arrays. A second thread of BLAS would spin on the core.
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "OMP_NUM_THREADS": "1"}
    children: dict[str, Child] = {}
    sizes: set[int] = set()
    for case in cases(refined):
        if case.side not in children:
            children[case.side] = Child(case.side, commands[case.side], environment)
            sizes.add(children[case.side].ask(case.request("bp1", 0.0))["dofs"])
    if len(sizes) != 1:
        sys.exit(f"the sides have different numbers of dofs: {sorted(sizes)}")
    return children, Setting(footprint, order, sizes.pop())


Answers = dict[Case, list[dict[str, float]]]
"""Answers of each case, one for each round in which the case was measured."""


def close_to_the_best(answers: Answers) -> list[Case]:
    """Cases that are near the fastest one of their side, and the usual ones."""
    first = {case: found[0]["cpu"] for case, found in answers.items()}
    ours = min(first[case] for case in first if case.side == "femops")
    theirs = min(first[case] for case in first if case.side != "femops")
    limits = {case: CLOSE * (ours if case.side == "femops" else theirs) for case in first}
    return [case for case in first if case.is_usual or first[case] < limits[case]]


def all_rounds(every: list[Case], ask: Callable[[Case], dict[str, float]], rounds: int) -> Answers:
    """Measure all cases in turns, from the second round on only those near the best."""
    answers: Answers = {case: [ask(case)] for case in every}
    near = close_to_the_best(answers)
    for _ in range(1, rounds):
        for case in near:
            answers[case].append(ask(case))
    return answers


def form_difference(answers: Answers) -> float:
    """Largest relative difference of the quadratic forms. Exit if it is not rounding."""
    forms = [found["form"] for rounds in answers.values() for found in rounds]
    difference = max(forms) / min(forms) - 1
    if not 0 <= difference < TOLERANCE:
        sys.exit(f"the quadratic forms differ by {difference:.1e}: one of the products is wrong")
    return difference


def compare(
    children: dict[str, Child], setting: Setting, problem: str, given: argparse.Namespace
) -> Row:
    """Measure a problem, and compare the fastest cases that were measured in all rounds."""

    def ask(case: Case) -> dict[str, float]:
        return children[case.side].ask(case.request(problem, given.seconds))

    answers = all_rounds(cases(given.refined), ask, given.rounds)
    times = {case: [found[given.column] for found in rounds] for case, rounds in answers.items()}
    rates = {case: setting.dofs / median(taken) / 1e9 for case, taken in times.items()}
    full = [case for case in rates if len(times[case]) == given.rounds]
    usual = max((case for case in full if case.is_usual), key=rates.__getitem__)
    best = max((case for case in full if case.side != "femops"), key=rates.__getitem__)
    ours = max((case for case in full if case.side == "femops"), key=rates.__getitem__)
    ratios = [a / b for a, b in zip(times[best], times[ours], strict=True)]
    return Row(setting, problem, usual, best, ours, rates, ratios, form_difference(answers))


def save(path: Path, rows: list[Row]) -> None:
    """Write all rows to a JSON file."""
    text = json.dumps([row.record() for row in rows], indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def run(given: argparse.Namespace) -> None:
    """Measure all that is asked for. Print a line of the table for each space and problem."""
    os.sched_setaffinity(0, {given.core})  # the processes started from here inherit it
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS), flush=True)
    rows: list[Row] = []
    for footprint, order in product(given.footprint, given.orders):
        children, setting = start(given.programs, footprint, order, given.refined)
        for problem in NAMES:
            rows.append(compare(children, setting, problem, given))
            print("| " + " | ".join(rows[-1].cells()) + " |", flush=True)
            if given.save:
                save(given.save, rows)
        for child in children.values():
            child.close()
    largest = max(row.form_difference for row in rows)
    print(f"largest difference of the quadratic forms: {largest:.0e}")


def names(text: str) -> list[str]:
    """Words of a list with commas."""
    return text.split(",")


def numbers(text: str) -> list[int]:
    """Integers of a list with commas."""
    return [int(word) for word in text.split(",")]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--core", type=int, default=cores[-1], choices=cores)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15, help="of each case in a round")
    parser.add_argument("--orders", type=numbers, default=[*ORDERS], help="as in 2,4,6,8")
    parser.add_argument("--footprint", type=names, default=[*FOOTPRINTS], help="as in ram,cache")
    parser.add_argument("--column", choices=COLUMNS, default="wall", help="time to compare")
    parser.add_argument("--save", type=Path, help="JSON file for all rates")
    parser.add_argument("--programs", type=Path, default=Path(__file__).parent / "build")
    parser.add_argument("--refined", action="store_true", help="halve the elements in a ball")
    parser.add_argument("--serve", action="store_true", help="be the process of femops")
    given = parser.parse_args()
    try:
        check_asked(orders=given.orders, footprints=given.footprint, rounds=given.rounds)
    except OperatorError as error:
        parser.error(str(error))
    return given


if __name__ == "__main__":
    given = arguments()
    if given.serve:
        serve(given.orders[0], given.footprint[0], given.refined)
    else:
        run(given)
