"""The whole benchmark of a GPU, in the time that there is for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, final

from femops.bench.gpu.attempts import Attempts
from femops.bench.gpu.rows import measured, solved
from femops.bench.gpu.setup import Sizes, set_up
from femops.bench.gpu.tuning import tune
from femops.bench.gpu.validation import FORMS, ROUND_OFF, agreement
from femops.bench.problems import (
    FOOTPRINTS,
    PROBLEMS,
    Progress,
    check_asked,
    default_dofs,
)
from femops.errors import OperatorError
from femops.operators.execution.device import LEVELS
from femops.parallel.comm import communicator
from femops.spaces.memory import find_device
from femops_kernels.cpu import machine
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Amounts, Rates
from femops_kernels.tuning.database import users_table

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
    """Choice of what is measured.

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
        dofs = () if self.dofs is None else (self.dofs,)
        check_asked(problems=self.problems, meshes=self.meshes, orders=self.orders, dofs=dofs)
        for level in self.levels:
            if level not in LEVELS:
                raise OperatorError(f"level {level!r} on a GPU: choose of {', '.join(LEVELS)}")
        if not self.levels:
            raise OperatorError("nothing to measure: give at least one level")

    def sizes(self, order: int, most: float = GPU_DOFS) -> Sizes:
        """Return what is measured for an order."""
        share = default_dofs("ram", order) / FOOTPRINTS["ram"]
        dofs = share * most if self.dofs is None else self.dofs
        problems = [PROBLEMS[name] for name in dict.fromkeys(self.problems)]
        return Sizes(problems, self.meshes, self.levels, order, dofs)


@final
class _Clock:
    """Clock that tells whether there is time for what comes next."""

    def __init__(self, budget: float) -> None:
        self._begin, self._budget = perf_counter(), budget
        self._rate = 0.0
        self._last = self._begin

    def allows(self, sizes: Sizes) -> bool:
        """True if an order is likely to fit in; the first always does."""
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


Keep = Callable[[dict[str, Any]], None]


def run_gpu(
    settings: GpuSettings, progress: Progress | None = None, keep: Keep | None = None
) -> dict[str, Any]:
    """Check a GPU's kernels against the CPU, then measure them, high orders first.

    What fails is told among the ``failures``, and the rest goes on, as long as the GPU answers.

    Parameters
    ----------
    settings : GpuSettings
    progress : callable, optional
        Called with a line of text before each step, and with what was measured.
    keep : callable, optional
        Called with the result so far, after each part.

    Returns
    -------
    dict
        ``machine``: `femops_kernels.cpu.machine.describe`; ``device``; ``agrees``: whether forms
        and the kernels of rows are the CPU's, and levels each other's, to round-off; ``agreement``:
        see `agreement`; ``rates``: see `Rates`, and ``rates_after`` all; ``rows``: for each
        problem, mesh, order and level its times beside the limit; ``cg``: conjugate gradients by
        the iteration; ``failures``: see `Attempts`; ``seconds`` of the whole; ``notes``: lines on
        what is not measured.

    Raises
    ------
    OperatorError
        Settings with unknown names, or nothing to measure.
    DeviceError
        There is no GPU, or something that it needs is not installed.
    CacheError
        A damaged table of launch shapes.
    """
    settings.check()
    run = _Run(settings, progress or (lambda _: None), keep or (lambda _: None))
    run.compare()
    if run.measure_rates():
        run.measure_orders()
    return run.result()


@final
class _Run:
    """A benchmark on its way; see `run_gpu`."""

    def __init__(self, settings: GpuSettings, show: Progress, keep: Keep) -> None:
        self._settings, self._show, self._keep = settings, show, keep
        self._device = _opened(settings.device)
        self._clock, self._attempts = _Clock(settings.budget), Attempts()
        self._agreement: list[dict[str, Any]] = []
        self._rates: list[Rates] = []
        self._rows: list[dict[str, Any]] = []
        self._cg: list[dict[str, Any]] = []
        self._notes: list[str] = []

    def compare(self) -> None:
        """Forms with the CPU's."""
        self._show("forms, compared with the CPU")
        given = self._settings.forms, self._settings.dims
        self._agreement = agreement(self._device, *given)
        agreeing = sum(row["agrees"] for row in self._agreement)
        self._show(f"{agreeing} of {len(self._agreement)} agree")
        self._keep(self.result())

    def measure_rates(self) -> bool:
        """Limits of the device; whether there are any."""
        self._show("limits of the device")
        measure = partial(Rates.of, self._device, self._settings.amounts)
        found = self._attempts("limits of the device", measure)
        self._rates += [] if found is None else [found]
        self._keep(self.result())
        return found is not None

    def measure_orders(self) -> None:
        """All orders, as far as there is time, and the limits once more."""
        for order in sorted(set(self._settings.orders), reverse=True):
            sizes = self._settings.sizes(order)
            if not self._clock.allows(sizes):
                few = f"{self._settings.budget:g} s are too few"
                self._notes.append(f"order {order}: not measured, {few}")
                continue
            self._measure(sizes)
            self._clock.note(sizes)
            self._keep(self.result())
            if not self._answers():
                return
        self.measure_rates()

    def _measure(self, sizes: Sizes) -> None:
        device, attempts, show = self._device, self._attempts, self._show
        show(f"order {sizes.order}: setting up")
        cases = set_up(device, sizes, attempts)
        show(f"order {sizes.order}: measuring {len(cases)} operators")
        given = self._rates[0], self._settings.seconds, attempts, show
        self._rows += measured(device, cases, *given)
        if sizes.order in _SOLVED_ORDERS:
            self._cg += solved(device, cases, self._rates[0], attempts, show)

    def _answers(self) -> bool:
        """True if the GPU still works: after a kernel that reads where nothing is, it does not."""
        failed = len(self._attempts.failures)
        self._attempts("all that follows", self._device.synchronize)
        return len(self._attempts.failures) == failed

    def result(self) -> dict[str, Any]:
        """Return the results so far."""
        agrees = all(row["agrees"] for row in self._agreement) and all(
            (row[off] or 0.0) <= ROUND_OFF["float64"]
            for row in self._rows
            for off in ("off_other_level", "off_cpu")
        )
        rates = [vars(rates) for rates in self._rates]
        return _described(self._device) | {
            "agrees": agrees,
            "agreement": self._agreement,
            "rates": rates[0] if rates else None,
            "rates_after": rates[1] if len(rates) > 1 else None,
            "rows": sorted(self._rows, key=_place),
            "cg": sorted(self._cg, key=_place),
            "failures": self._attempts.failures,
            "seconds": self._clock.seconds,
            "notes": self._notes,
        }


def run_tuning(settings: GpuSettings, progress: Progress | None = None) -> dict[str, Any]:
    """Try launch shapes for the kernels of the benchmark, and keep the fastest.

    Arguments, results and errors are those of `run_gpu`, but for ``rows``: see `tune`; ``table`` is
    the file that they are in.
    """
    settings.check()
    device, show = _opened(settings.device), progress or (lambda _: None)
    rows: list[dict[str, Any]] = []
    attempts = Attempts()
    for order in dict.fromkeys(settings.orders):
        show(f"order {order}: trying shapes")
        cases = set_up(device, settings.sizes(order, _SWEPT_DOFS), attempts)
        rows += tune(device, cases, min(settings.seconds, _TUNING), attempts, show)
    return _described(device) | {
        "rows": sorted(rows, key=_place),
        "table": str(users_table()),
        "failures": attempts.failures,
        "notes": [],
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
