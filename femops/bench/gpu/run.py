"""The whole benchmark of a GPU, in the time that there is for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, final

from femops.bench.everything import default_dofs
from femops.bench.gpu.agreement import FORMS, ROUND_OFF, agreement
from femops.bench.gpu.rows import measured
from femops.bench.gpu.setup import GpuCase, Sizes, set_up
from femops.bench.gpu.solver import solved
from femops.bench.gpu.tuning import tune
from femops.bench.problems import FOOTPRINTS, PROBLEMS, check_names
from femops.bench.run import Progress, check_dofs, check_orders
from femops.devices import find_device
from femops.errors import OperatorError
from femops.operators.on_device import LEVELS
from femops.parallel.comm import communicator
from femops_kernels import machine
from femops_kernels.cuda.device import Device
from femops_kernels.cuda.rates import Amounts, Rates
from femops_kernels.cuda.shapes import users_table

GPU_DOFS = 1e7
"""About how many dofs fill a GPU, and none of its caches."""

GPU_MESHES = ("cartesian", "multilinear")

_SWEPT_DOFS = 2e6  # enough to choose a shape, and quickly put into the order of another
_TUNING = 0.02  # seconds for each shape
# Orders at which conjugate gradients are run.
_SOLVED_ORDERS = (3, 6)
# Time of an order for each of its cases beside setting it up, and how far off a guess may be.
_MARGIN = 1.3


@final
@dataclass(frozen=True)
class GpuSettings:
    """What is measured.

    Attributes
    ----------
    orders : sequence of int
    problems, meshes, levels : sequence of str
    dofs : float, optional
        About how many; `GPU_DOFS` if omitted, an eighth at p = 1 and half at p = 2, where setting
        up a mesh takes the longest.
    seconds : float
        For how long each case is timed.
    budget : float
        Seconds for all. Orders for which there is no time left are left out, and noted.
    forms : sequence of str
        That are compared with the CPU's, of `agreement.FORMS`.
    dims : sequence of int
        In which they are.
    amounts : Amounts
        Of work to measure the limits with.
    device : str or Device
    """

    orders: Sequence[int] = tuple(range(1, 9))
    problems: Sequence[str] = tuple(PROBLEMS)
    meshes: Sequence[str] = GPU_MESHES
    levels: Sequence[str] = tuple(reversed(LEVELS))
    dofs: float | None = None
    seconds: float = 0.15
    budget: float = 450.0
    forms: Sequence[str] = tuple(FORMS)
    dims: Sequence[int] = (1, 2, 3)
    amounts: Amounts = Amounts()  # noqa: RUF009  (frozen)
    device: str | Device = "cuda"

    def check(self) -> None:
        """Check names, orders and dofs.

        Raises
        ------
        OperatorError
            An unknown name, or nothing to measure.
        """
        check_orders(self.orders)
        check_names(self.problems, self.meshes)
        if self.dofs is not None:
            check_dofs(self.dofs)
        for level in self.levels:
            if level not in LEVELS:
                raise OperatorError(f"level {level!r} on a GPU: choose of {', '.join(LEVELS)}")
        if not (self.problems and self.meshes and self.levels):
            raise OperatorError("nothing to measure: give a problem, a mesh and a level")

    def sizes(self, order: int, most: float = GPU_DOFS) -> Sizes:
        """What is measured for an order."""
        share = default_dofs("ram", order) / FOOTPRINTS["ram"]
        dofs = share * most if self.dofs is None else self.dofs
        problems = [PROBLEMS[name] for name in dict.fromkeys(self.problems)]
        return Sizes(problems, self.meshes, self.levels, order, dofs)


@final
class _Clock:
    """Whether there is time for what comes next.

    Parameters
    ----------
    budget : float
    """

    def __init__(self, budget: float) -> None:
        self._begin, self._budget = perf_counter(), budget
        self._rate = 0.0
        self._last = self._begin

    def allows(self, sizes: Sizes) -> bool:
        """Whether an order is likely to fit in; the first always does."""
        self._last = perf_counter()
        expected = _MARGIN * self._rate * sizes.work
        return not expected or self.seconds + expected <= self._budget

    def note(self, sizes: Sizes) -> None:
        """Learn from an order that has been done since `allows`."""
        self._rate = (perf_counter() - self._last) / sizes.work

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return perf_counter() - self._begin


def run_gpu(settings: GpuSettings, progress: Progress | None = None) -> dict[str, Any]:
    """Check a GPU's kernels against the CPU, then measure them, high orders first.

    Parameters
    ----------
    settings : GpuSettings
    progress : callable, optional
        Called with a line of text before each step.

    Returns
    -------
    dict
        ``machine``: `femops_kernels.machine.describe`; ``device``; ``agrees``: whether forms are
        the CPU's and levels each other's to round-off; ``agreement``: see `agreement`; ``rates``:
        see `Rates`; ``rows``: for each problem, mesh, order and level the keys `rows.KEYS`;
        ``cg``: conjugate gradients by the iteration; ``seconds`` of the whole; ``notes``: lines on
        what is not measured.

    Raises
    ------
    OperatorError
        Settings with unknown names, or nothing to measure.
    DeviceError
        There is no GPU, or something that it needs is not installed.
    """
    settings.check()
    device, show = _opened(settings.device), progress or (lambda _: None)
    clock = _Clock(settings.budget)
    show("forms, compared with the CPU")
    compared = agreement(device, settings.forms, settings.dims)
    show("limits of the device")
    rates = Rates.of(device, settings.amounts)
    rows: list[dict[str, Any]] = []
    solves: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    for order in sorted(set(settings.orders), reverse=True):
        sizes = settings.sizes(order)
        if not clock.allows(sizes):
            notes[f"order {order}: not measured, {settings.budget:g} s are too few"] = None
            continue
        show(f"order {order}: setting up")
        cases = set_up(device, sizes, notes)
        show(f"order {order}: measuring")
        rows += measured(device, cases, rates, settings.seconds)
        if order in _SOLVED_ORDERS:
            solves += solved(device, cases, rates)
        del cases  # before the next take their room
        clock.note(sizes)
    agrees = all(row["agrees"] for row in compared) and all(
        (row["off_other_level"] or 0.0) <= ROUND_OFF["float64"] for row in rows
    )
    return _described(device) | {
        "agrees": agrees,
        "agreement": compared,
        "rates": vars(rates),
        "rows": sorted(rows, key=_place),
        "cg": sorted(solves, key=_place),
        "seconds": clock.seconds,
        "notes": list(notes),
    }


def run_tuning(settings: GpuSettings, progress: Progress | None = None) -> dict[str, Any]:
    """Try launch shapes for the kernels of the benchmark, and keep the fastest; see `tune`.

    Parameters
    ----------
    settings, progress
        See `run_gpu`.

    Returns
    -------
    dict
        ``machine`` and ``device`` as `run_gpu` has them, ``rows`` as `tune` has them, the
        ``table``, ``notes``.

    Raises
    ------
    OperatorError, DeviceError, CacheError
        See `run_gpu` and `tune`.
    """
    settings.check()
    device, show = _opened(settings.device), progress or (lambda _: None)
    rows: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    for order in dict.fromkeys(settings.orders):
        show(f"order {order}: trying shapes")
        cases: list[GpuCase] = set_up(device, settings.sizes(order, _SWEPT_DOFS), notes)
        rows += tune(device, cases, min(settings.seconds, _TUNING))
    return _described(device) | {
        "rows": sorted(rows, key=_place),
        "table": str(users_table()),
        "notes": list(notes),
    }


def _opened(place: str | Device) -> Device:
    device = find_device(place, communicator())
    assert device is not None  # no name is no device
    return device


def _described(device: Device) -> dict[str, Any]:
    names = ("name", "arch", "processors", "shared_bytes")
    facts = {name: getattr(device, name) for name in names}
    return {"machine": machine.describe(), "device": facts}


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["problem"], row["mesh"], row["order"], row["level"]
