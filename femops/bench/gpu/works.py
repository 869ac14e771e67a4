"""The benchmark of a GPU: its settings, its kinds of work, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby, product
from typing import Any, final

from femops.bench.gpu.cases import (
    FACES,
    GAS,
    OFF,
    REFINEMENTS,
    SIMPLICES,
    VECTORS,
    FacesCase,
    GasCase,
    RefinedCase,
    SimplicesCase,
    VectorsCase,
    product_rows,
)
from femops.bench.gpu.operators import GpuCase, Sizes, operator_rows, set_up
from femops.bench.gpu.run import ROUND_OFF, Record, Row, Run, Step
from femops.bench.problems import FOOTPRINTS, PROBLEMS, Progress, check_asked, choose, default_dofs
from femops.bench.solvers.multigrid import prepared
from femops.bench.tensor.products import Products, mean_over_peers
from femops.bench.timing import batch_times
from femops.operators.execution.device import LEVELS
from femops_kernels.cpu import machine
from femops_kernels.cuda.operator.kernel import LineKernel, shape_of, staged_shapes
from femops_kernels.cuda.operator.shapes import SPILLED, Shape, record
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.cuda.rates import Amounts
from femops_kernels.device import Device
from femops_kernels.tuning.database import TuningKey, users_table

GPU_DOFS = 1e7
"""Approximate number of dofs that keeps a GPU busy, with data larger than its caches."""

_SWEPT_DOFS = 8e6  # their data are in no cache


# Problems and mesh of the rows that are measured first, and of the shapes that are tried.
_FIRST, _TUNED, _MESH = ("bp3", "bp1"), ("bp3", "bp5", "bp1"), "multilinear"
_SOLVED_ORDERS = (4, 6)


@final
@dataclass(frozen=True)
class GpuSettings:
    """Settings of the benchmark."""

    # orders in the sequence of their measurement; the most important order is the first
    orders: Sequence[int] = (6, 4, 8, 3, 2, 5, 7, 1)
    problems: Sequence[str] = tuple(PROBLEMS)
    meshes: Sequence[str] = ("cartesian", "multilinear")
    levels: Sequence[str] = tuple(reversed(LEVELS))
    # approximate number of dofs, by default `GPU_DOFS`. By default p = 1 has an eighth of it and
    # p = 2 half, because the setup of a mesh takes longest at these orders.
    dofs: float | None = None
    seconds: float = 0.15  # time for which each case is measured
    # seconds for the benchmark. Steps for which no time is left are skipped, and noted.
    budget: float = 450.0
    products: Products = Products()  # noqa: RUF009  (frozen)
    gas: Sequence[GasCase] = GAS  # runs of gas dynamics
    vectors: Sequence[VectorsCase] = VECTORS  # operators on many vectors
    faces: Sequence[FacesCase] = FACES  # forms over faces between elements
    refined: Sequence[RefinedCase] = REFINEMENTS  # a form on locally refined meshes
    simplices: Sequence[SimplicesCase] = SIMPLICES  # forms by tables
    amounts: Amounts = Amounts()  # noqa: RUF009  (frozen)
    device: str | Device = "cuda"

    def check(self) -> None:
        """Check names, orders and dofs."""
        self.products.check()
        dofs = () if self.dofs is None else (self.dofs,)
        check_asked(problems=self.problems, meshes=self.meshes, orders=self.orders, dofs=dofs)
        choose("level", self.levels, LEVELS, where=" on a GPU")

    def sizes(self, most: float = GPU_DOFS, prefix: str = "") -> list[Sizes]:
        """Return the `Sizes` of each order; their names begin with the prefix."""
        problems = [PROBLEMS[name] for name in dict.fromkeys(self.problems)]
        found = []
        for order in dict.fromkeys(self.orders) if problems and self.meshes else ():
            share = default_dofs("ram", order) / FOOTPRINTS["ram"]
            dofs = share * most if self.dofs is None else self.dofs
            found.append(Sizes(problems, self.meshes, self.levels, order, dofs, prefix))
        return found


def _operators(settings: GpuSettings, prefix: str = "") -> list[Step]:
    """Steps that measure operators and conjugate gradients, one for each order."""
    return _orders(operator_rows, settings.sizes(prefix=prefix))


def _shapes(settings: GpuSettings) -> list[Step]:
    """Steps that tune launch shapes of the kernels, one for each order."""
    return _orders(tune, settings.sizes(_SWEPT_DOFS, "shapes, "))


def _orders(do: Callable[[Sizes, Run], None], sizes: Iterable[Sizes]) -> list[Step]:
    return [Step(each.name, partial(do, each), each.effort) for each in sizes]


def _solves(settings: GpuSettings) -> list[Step]:
    """Steps that measure solves of Poisson's equation; see `femops.bench.run_solve`."""
    cases = []
    for sizes, mesh, level in product(settings.sizes(), settings.meshes, settings.levels):
        name = f"solves, {mesh}, order {sizes.order}, {level}"
        case = mesh, sizes.order, sizes.dofs, level
        cases.append((name, partial(_solve_rows, name, case)))
    return _each("solves", cases, limits=False)


def _solve_rows(name: str, case: tuple[str, int, float, str], run: Run) -> list[Row]:
    """Measure one problem (mesh, order, about how many dofs, level) with each preconditioner."""
    solves = prepared(*case, run.device)
    solves.round(run.seconds)
    found = solves.rows(machine.get_threads())
    return [{"name": f"{name}, {row['preconditioner']}"} | row for row in found]


def _each(
    table: str, cases: Iterable[tuple[str, Callable[[Run], list[Row]]]], limits: bool = True
) -> list[Step]:
    """Make a step for each case, which adds rows to a table. Rows with limits need known limits."""

    def do(name: str, rows: Callable[[Run], list[Row]], run: Run) -> None:
        if not limits or run.rates is not None:
            run.measure(table, name, partial(rows, run))

    return [Step(name, partial(do, name, rows)) for name, rows in cases]


def _chosen(settings: GpuSettings, problems: Sequence[str]) -> GpuSettings:
    """Restrict settings to ``problems`` and to one mesh, as far as the settings have them."""
    return replace(
        settings,
        problems=[name for name in problems if name in settings.problems],
        meshes=[_MESH] if _MESH in settings.meshes else [],
    )


def _first_solves(settings: GpuSettings) -> list[Step]:
    orders = [p for p in _SOLVED_ORDERS if p in settings.orders]
    return _solves(replace(_chosen(settings, _FIRST), orders=orders))


WORKS: dict[str, Callable[[GpuSettings], list[Step]]] = {
    "operators": _operators,
    "solves": _solves,
    "products": lambda s: _each(
        "products", [(c.name, partial(product_rows, c)) for c in s.products.cases()]
    ),
    "gas": lambda s: _each("gas", [(c.name, c.rows) for c in s.gas]),
    "vectors": lambda s: _each("vectors", [(c.name, c.rows) for c in s.vectors]),
    "faces": lambda s: _each("faces", [(c.name, c.rows) for c in s.faces]),
    "refined": lambda s: _each("refined", [(c.name, c.rows) for c in s.refined]),
    "simplices": lambda s: _each("simplices", [(c.name, c.rows) for c in s.simplices]),
    "shapes": _shapes,
    "limits": lambda _: [Step("limits at the end", Run.measure_rates, 0.0)],
    "first": lambda s: _operators(_chosen(s, _FIRST)),
    "first solves": _first_solves,
    "first shapes": lambda s: _shapes(_chosen(s, _TUNED)),
    "tuned": lambda s: _operators(_chosen(s, _FIRST), "tuned, "),
}
"""Kinds of work by name, and functions that make their steps."""

PHASES = (
    *("first", "first solves", "products", "gas", "vectors", "faces", "refined", "simplices"),
    *("operators", "first shapes", "tuned", "limits"),
)
"""Kinds of work, the most important first. The last kind measures with tuned launch shapes, and its
rows replace the rows of the first kind."""


def run_gpu(
    settings: GpuSettings,
    progress: Progress | None = None,
    found: Record | None = None,
    works: Sequence[str] = ("operators", "limits"),
) -> dict[str, Any]:
    """Check a GPU's kernels against the CPU, and compare their speed with the GPU's limits.

    Cases that fail are listed in ``failures``. The benchmark goes on while the GPU answers.
    """
    settings.check()
    found, show = found or Record(), progress or (lambda _: None)
    given = settings.device, settings.seconds, settings.budget, settings.amounts
    run = Run(*given, found, show)
    for work in works:
        run.do(WORKS[work](settings))
    found.complete = not found.notes and not found.dead
    found.keep()
    table = {"table": str(users_table())} if "shapes" in works else {}
    return result_of(found) | table


def result_of(found: Record) -> dict[str, Any]:
    """Make the result from a record: sort the rows, and mark the best level of each group."""
    tables, marked = dict(found.tables), list[Row]()
    for name in ("rows", "cg", "shapes"):  # later rows replace earlier rows
        placed = {_place(row): row for row in tables[name]}
        tables[name] = [placed[place] for place in sorted(placed)]
    agrees = all(
        (row.get(key) or 0.0) <= (OFF if table == "gas" else ROUND_OFF)
        for table in ("rows", "gas", "vectors", "faces", "refined", "simplices")
        for row in tables[table]
        for key in ("off_other_level", "off_cpu", "off_one")
    )
    for _, rows in groupby(tables["rows"], lambda row: _place(row)[:-1]):
        group = list(rows)
        fastest = min(group, key=lambda row: row["seconds_median"])
        most = max(row["limit"] for row in group)
        marked += [row | {"best": row is fastest, "limit_of_levels": most} for row in group]
    tables["rows"] = marked
    rates = {
        "rates": found.rates[0] if found.rates else None,
        "rates_after": found.rates[-1] if len(found.rates) > 1 else None,
    }
    mean = {"products_over_best_peer": mean_over_peers(tables["products"])}
    rest = {name: getattr(found, name) for name in ("failures", "seconds", "notes")}
    return found.facts | {"agrees": agrees} | rates | tables | mean | rest


def _place(row: Row) -> tuple[Any, ...]:
    return row["problem"], row["mesh"], row["order"], row["level"]


_THREADS = (64, 128, 192, 256)
_RESIDENT = (256, 384, 512, 640, 768, 1024)
_STAGED = (1152, 1536, 2048)
"""More threads of a multiprocessor, for staged shapes, whose registers hold no qdata on its way.

The compiler gives a loop over portions all registers that it may use. Without a loop, small
elements need only as many as these numbers of threads leave.
"""

_SECONDS = 0.02  # for each shape


def candidates(kernel: LineKernel, device: Device) -> list[Shape]:
    """Launch shapes that are worth measuring.

    Blocks have 64 to 256 threads. A multiprocessor has few blocks with many registers, or many
    blocks with few. Qdata are staged in shared memory or not. Blocks with staged qdata work on one
    portion of the elements each, or are persistent.
    """
    shapes = [shape_of(kernel, device, *sizes) for sizes in product(_THREADS, _RESIDENT)]
    more = [shape_of(kernel, device, *sizes) for sizes in product(_THREADS, _STAGED)]
    staged = staged_shapes(kernel, device, [*shapes, *more])
    return list(dict.fromkeys([kernel.shape, *shapes, *staged]))


def tune(sizes: Sizes, run: Run) -> None:
    """Time launch shapes for the kernels of an order, and keep the fastest in the user's table.

    Each kernel has a row with its old shape (``elements_before``, ``blocks_before``,
    ``staged_before``, ``persistent_before``), the fastest shape, the times of both, and the number
    of shapes that were ``tried``. New shapes for which the compiler spills more than `SPILLED`
    bytes are not tried.
    """
    kernels: dict[TuningKey, GpuCase] = {}
    for case in set_up(run, sizes):
        kernels.setdefault(case.kernel.shape_key(run.device.name), case)
    for case in kernels.values():
        run.measure("shapes", case.name, partial(_tuned, run, case))


def _tuned(run: Run, case: GpuCase) -> list[Row]:
    sweep, device, times = case.sweep, run.device, dict[Shape, float]()
    before = sweep.kernel.shape
    for shape in _unspilled(sweep, candidates(case.kernel, device)):
        tried = sweep if shape == before else sweep.reshaped(shape)
        vectors = device.address(case.x), device.address(case.y)
        launch = partial(tried.launch, *vectors, 1.0, add=False)
        times[shape] = batch_times(device, launch, min(run.seconds, _SECONDS)).median
    fastest = min(times, key=lambda shape: times[shape])
    record({case.kernel.shape_key(device.name): fastest})
    row = case.facts | {f"{name}_before": value for name, value in asdict(before).items()}
    row |= {"seconds_before": times[before]} | asdict(fastest)
    return [row | {"seconds": times[fastest], "tried": len(times)}]


def _unspilled(sweep: DeviceSweep, shapes: Sequence[Shape]) -> list[Shape]:
    """Compile shapes in parallel. Return the shapes that spill little, and always the first."""
    device, kernel = sweep.device, sweep.kernel

    def spilt(shape: Shape) -> int:
        return device.function(replace(kernel, shape=shape).text).local_bytes

    with ThreadPoolExecutor() as pool:
        pairs = zip(shapes, pool.map(spilt, shapes), strict=True)
        return [shape for shape, local in pairs if local <= SPILLED or shape == shapes[0]]
