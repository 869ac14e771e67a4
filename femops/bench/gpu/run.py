"""The whole benchmark of a GPU, in the time that there is for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any, final

from femops.bench.gpu.gas import GAS, OFF, GasCase, gas_rows
from femops.bench.gpu.products import Products, mean_over_peers, product_rows
from femops.bench.gpu.record import ALL, Record
from femops.bench.gpu.rows import measured, solved
from femops.bench.gpu.setup import Sizes, set_up
from femops.bench.gpu.solves import solve_rows
from femops.bench.gpu.tuning import tune
from femops.bench.gpu.validation import FORMS, ROUND_OFF, validation
from femops.bench.gpu.vectors import VECTORS, VectorsCase, vectors_rows
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

GPU_ORDERS = (6, 4, 8, 3, 2, 5, 7, 1)
"""All orders, the most important first."""

_SWEPT_DOFS = 8e6  # their data are in no cache
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
        In the order in which they are measured; none compares forms alone.
    problems, meshes, levels : sequence of str
    dofs : float, optional
        About how many; `GPU_DOFS` if omitted, an eighth at p = 1 and half at p = 2, where setting
        up a mesh takes the longest.
    seconds : float
        For how long each case is timed.
    budget : float
        Seconds for all. Orders for which there is no time left are left out, and noted.
    forms : sequence of str
        That are compared with the CPU's, of `validation.FORMS`.
    dims : sequence of int
        In which they are.
    products : Products
        Batches of small matrices that are multiplied.
    gas : sequence of GasCase
        Runs of gas dynamics.
    vectors : sequence of VectorsCase
        Operators on many vectors.
    amounts : Amounts
        Of work to measure the limits with.
    device : str or Device
    """

    orders: Sequence[int] = GPU_ORDERS
    problems: Sequence[str] = tuple(PROBLEMS)
    meshes: Sequence[str] = GPU_MESHES
    levels: Sequence[str] = tuple(reversed(LEVELS))
    dofs: float | None = None
    seconds: float = 0.15
    budget: float = 450.0
    forms: Sequence[str] = tuple(FORMS)
    dims: Sequence[int] = (1, 2, 3)
    products: Products = Products()  # noqa: RUF009  (frozen)
    gas: Sequence[GasCase] = GAS
    vectors: Sequence[VectorsCase] = VECTORS
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
        self.products.check()
        orders = self.orders or ((1,) if self.forms else ())
        check_asked(problems=self.problems, meshes=self.meshes, orders=orders, dofs=dofs)
        for level in self.levels:
            if level not in LEVELS:
                raise OperatorError(f"level {level!r} on a GPU: choose of {', '.join(LEVELS)}")
        if not self.levels:
            raise OperatorError("nothing to measure: give at least one level")

    @property
    def has_cases(self) -> bool:
        """True if there is something to measure."""
        operators = (self.orders or self.forms) and self.problems and self.meshes
        return bool(operators or self.products.sizes or self.gas or self.vectors)

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


def run_gpu(
    settings: GpuSettings, progress: Progress | None = None, found: Record | None = None
) -> dict[str, Any]:
    """Check a GPU's kernels against the CPU, then measure them, the given orders one by one.

    What fails is told among the ``failures``, and the rest goes on, as long as the GPU answers.

    Parameters
    ----------
    settings : GpuSettings
    progress : callable, optional
        Called with a line of text before each step, and with what was measured.
    found : Record, optional
        What was found before: this is not measured again.

    Returns
    -------
    dict
        ``machine``: `femops_kernels.cpu.machine.describe`; ``device``; ``agrees``: whether forms
        and the kernels of rows are the CPU's, and levels each other's, to round-off;
        ``validation``: see `validation`; ``rates``: see `Rates`, and ``rates_after`` all;
        ``rows``: for each problem, mesh, order and level its times beside the limit, and the
        clocks; ``cg``: conjugate gradients by the iteration; ``solves``: see `run_solves`;
        ``products``: see `run_products`, and ``products_over_best_peer``, their mean; ``gas``: see
        `run_gas`; ``vectors``: see `run_vectors`; ``shapes``: see `tune`; ``failures``: see
        `Record`; ``seconds`` of the whole; ``notes``: lines on what is not measured.

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
    run = _Run(settings, progress or (lambda _: None), found or Record())
    run.compare()
    if settings.orders and run.measure_rates():
        run.measure_orders()
    return run.result()


@final
class _Run:
    """A benchmark on its way; see `run_gpu`."""

    def __init__(self, settings: GpuSettings, show: Progress, found: Record) -> None:
        self._settings, self._show, self._found = settings, show, found
        self._device = _opened(settings.device, found)
        self._clock = _Clock(settings.budget)

    def compare(self) -> None:
        """Forms with the CPU's."""
        if not self._settings.forms or self._found.validation:
            return
        self._show("forms, compared with the CPU")
        given = self._settings.forms, self._settings.dims
        rows = self._found.validation = validation(self._device, *given)
        self._show(f"{sum(row['agrees'] for row in rows)} of {len(rows)} agree")
        self._found.keep()

    def measure_rates(self) -> bool:
        """Limits of the device; whether there are any."""
        self._show("limits of the device")
        rates = _rates(self._device, self._settings, self._found)
        self._found.keep()
        return rates is not None

    def measure_orders(self) -> None:
        """All orders, as far as there is time, and the limits once more."""
        late = False
        for order in dict.fromkeys(self._settings.orders):
            sizes = self._settings.sizes(order)
            if not self._clock.allows(sizes):
                late = True
                few = f"{self._settings.budget:g} s are too few"
                self._found.notes.append(f"order {order}: not measured, {few}")
                continue
            self._measure(sizes)
            self._clock.note(sizes)
            if self._found.dead:
                return
        self.measure_rates()
        self._found.complete = not late

    def _measure(self, sizes: Sizes) -> None:
        device, found, show = self._device, self._found, self._show
        show(f"order {sizes.order}: setting up")
        cases = set_up(device, sizes, found)
        show(f"order {sizes.order}: measuring {len(cases)} operators")
        rates = Rates(**found.rates[-1])
        measured(device, cases, rates, self._settings.seconds, found, show)
        if sizes.order in _SOLVED_ORDERS:
            solved(device, cases, rates, found, show)
        if not found.dead:
            found.attempt(ALL, device.synchronize)
            found.done += dict.fromkeys(case.group for case in cases)
        found.keep()

    def result(self) -> dict[str, Any]:
        """Return the results so far."""
        self._found.complete |= not self._settings.orders
        result = result_of(self._found)
        self._found.keep()
        return result


def result_of(found: Record) -> dict[str, Any]:
    """Result of what a record has: rows in order, the best of each group of levels marked."""
    agrees = all(row["agrees"] for row in found.validation) and all(
        (row[off] or 0.0) <= ROUND_OFF["float64"]
        for row in found.rows
        for off in ("off_other_level", "off_cpu")
    )
    agrees &= all(row["off_cpu"] <= OFF for row in found.gas)
    agrees &= all(row["off_one"] <= ROUND_OFF["float64"] for row in found.vectors)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in found.rows:
        groups.setdefault(_place(row)[:-1], []).append(row)
    for group in groups.values():
        fastest = min(group, key=lambda row: row["seconds_median"])
        most = max(row["limit"] for row in group)
        for row in group:
            row |= {"best": row is fastest, "limit_of_levels": most}
    return found.facts | {
        "agrees": agrees,
        "validation": found.validation,
        "rates": found.rates[0] if found.rates else None,
        "rates_after": found.rates[-1] if len(found.rates) > 1 else None,
        "rows": sorted(found.rows, key=_place),
        "cg": sorted(found.cg, key=_place),
        "solves": found.solves,
        "products": found.products,
        "products_over_best_peer": mean_over_peers(found.products),
        "gas": found.gas,
        "vectors": found.vectors,
        "shapes": sorted(found.shapes, key=_place),
        "failures": found.failures,
        "seconds": found.seconds,
        "notes": found.notes,
    }


def run_solves(
    settings: GpuSettings, progress: Progress | None = None, found: Record | None = None
) -> dict[str, Any]:
    """Solve Poisson's equation with multigrid and with Jacobi, as `femops.bench.run_solve`.

    Arguments and errors are those of `run_gpu`, the result too, but that it has ``solves`` alone:
    rows of each preconditioner, for each order, mesh and level.
    """
    settings.check()
    found, show = found or Record(), progress or (lambda _: None)
    device = _opened(settings.device, found)
    clock = _Clock(settings.budget)
    for order, mesh, level in product(settings.orders, settings.meshes, settings.levels):
        if clock.seconds > settings.budget:
            found.notes.append(f"order {order}, {mesh}, {level}: not solved, too few seconds")
            continue
        case = mesh, order, settings.sizes(order).dofs, level
        solve_rows(device, case, settings.seconds, found, show)
    found.complete = not found.notes and not found.dead
    found.keep()
    return result_of(found)


def run_products(
    settings: GpuSettings, progress: Progress | None = None, found: Record | None = None
) -> dict[str, Any]:
    """Multiply the matrices of batches, C = A B, beside cuBLAS.

    Arguments and errors are those of `run_gpu`, the result too, but that it has ``products`` alone:
    rows of each layout and of cuBLAS, for each size.
    """
    settings.products.check()
    cases = settings.products.cases()
    return _each(cases, product_rows, settings, progress, found, limits=True)


def run_gas(
    settings: GpuSettings, progress: Progress | None = None, found: Record | None = None
) -> dict[str, Any]:
    """Run a blast in three dimensions for some steps, at several orders.

    Arguments and errors are those of `run_gpu`, the result too, but that it has ``gas`` alone: rows
    with seconds of the forces and of a step, and ``off_cpu``, the largest difference of a state on
    a small mesh from the CPU's.
    """
    return _each(settings.gas, gas_rows, settings, progress, found)


def run_vectors(
    settings: GpuSettings, progress: Progress | None = None, found: Record | None = None
) -> dict[str, Any]:
    """Apply operators to many vectors at once, beside one after the other.

    Arguments and errors are those of `run_gpu`, the result too, but that it has ``vectors`` alone:
    rows with seconds of both, the bound where what is stored is read once, and ``off_one``, the
    largest difference of a vector from that computed alone.
    """
    return _each(settings.vectors, vectors_rows, settings, progress, found, limits=True)


def run_tuning(
    settings: GpuSettings, progress: Progress | None = None, found: Record | None = None
) -> dict[str, Any]:
    """Try launch shapes for the kernels of the benchmark, and keep the fastest.

    Arguments and errors are those of `run_gpu`, the result too, but that it has ``shapes`` alone;
    ``table`` is the file that they are in.
    """
    settings.check()
    found, show = found or Record(), progress or (lambda _: None)
    device = _opened(settings.device, found)
    clock = _Clock(settings.budget)
    for order in dict.fromkeys(settings.orders):
        sizes = settings.sizes(order, _SWEPT_DOFS)
        if not clock.allows(sizes):
            found.notes.append(f"order {order}: no shapes tried, too few seconds")
            continue
        show(f"order {order}: trying shapes")
        cases = set_up(device, sizes, found)
        tune(device, cases, min(settings.seconds, _TUNING), found, show)
        clock.note(sizes)
    found.complete = not found.notes and not found.dead
    found.keep()
    return result_of(found) | {"table": str(users_table())}


def _rates(device: Device, settings: GpuSettings, found: Record) -> Rates | None:
    """Limits of the device, which go into the record."""
    measure = partial(Rates.of, device, settings.amounts)
    rates = found.attempt("limits of the device", measure)
    if rates is not None:
        found.rates.append(vars(rates))
    return rates


def _each(
    cases: Sequence[Any],
    add_rows: Callable[..., None],
    settings: GpuSettings,
    progress: Progress | None,
    found: Record | None,
    *,
    limits: bool = False,
) -> dict[str, Any]:
    """Measure cases as long as there is time, beside the device's limits, and return the result."""
    found, show = found or Record(), progress or (lambda _: None)
    device = _opened(settings.device, found)
    clock = _Clock(settings.budget)
    given = {"rates": _rates(device, settings, found)} if limits else {}
    for case in cases if None not in given.values() else ():
        if case.name in found.done:
            continue
        if clock.seconds > settings.budget:
            found.notes.append(f"{case.name}: not measured, too few seconds")
            continue
        add_rows(device, case, seconds=settings.seconds, found=found, progress=show, **given)
        found.done.append(case.name)
        found.keep()
    found.complete = not found.notes and not found.dead
    found.keep()
    return result_of(found)


def _opened(place: str | Device, found: Record) -> Device:
    """The device, which the record describes."""
    device = find_device(place, communicator())
    assert device is not None  # no name is no device
    names = ("name", "arch", "processors", "shared_bytes")
    facts = {name: getattr(device, name) for name in names}
    found.facts = {"machine": machine.describe(), "device": facts}
    found.answers = device.synchronize
    return device


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["problem"], row["mesh"], row["order"], row["level"]
