"""``femops bench gemm``."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, final

import typer

from femops.cli.bench.gpu import show_device_products
from femops.cli.bench.report import PlotOption, Progress, Result, RoundsOption, report
from femops.cli.options import JsonOption, names, numbers
from femops.cli.output import Column, Output

_ROUND, _TURN = 0.05, 0.01  # seconds of a round on a device, and of a variant's turn in a search


def gemm(
    size: Annotated[
        str, typer.Option(metavar="LIST", help="Rows and columns: 8, 2-32 or 2,4,8.")
    ] = "2-32",
    members: Annotated[
        str, typer.Option(metavar="LIST", help="Matrices of a batch.")
    ] = "10000,100000",
    dtype: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Of float64, float32, complex128, complex64."),
    ] = "float64",
    layout: Annotated[
        str, typer.Option(metavar="NAMES", help="Of contiguous, interleaved.")
    ] = "contiguous",
    threads: Annotated[str, typer.Option(metavar="LIST", help="Numbers of threads.")] = "1",
    rounds: RoundsOption = 3,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="cuda: C = A B on a GPU, beside cuBLAS."),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Try all variants of kernels, and keep the best.")
    ] = False,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure products of small matrices in batches, beside NumPy and MKL.

    The limit is what the bandwidth for this footprint, or the rate of multiply-adds, allows.
    MKL is measured if it is installed, or if FEMOPS_MKL names its library.

    With --device nothing is added, C = A B, and cuBLAS is measured, through CuPy's matmul.

    \b
    Examples:
      femops bench gemm
      femops bench gemm --size 2-32 --threads 1,2 --json --plot gemm.png
      femops bench gemm --size 4,8,16 --layout contiguous,interleaved --dtype float32
      femops bench gemm --size 8,16,32 --members 20000 --search --plot search.png
      femops bench gemm --device cuda --members 1000000 --layout contiguous,interleaved --plot
      femops bench gemm --device cuda --members 1000000 --size 4,8,16 --search
    """  # noqa: D301  (\b is click's mark for lines to keep)
    sizes = numbers(size, "sizes", option="--size")
    counts = numbers(members, "batches", digits=7, option="--members")
    workers = numbers(threads, "threads", option="--threads")
    asked = _Asked(sizes, counts, names(dtype), names(layout), workers, rounds, device or "cuda")
    if device is not None and workers != [1]:
        raise typer.BadParameter("--device has no use for --threads")
    if device is not None and search:
        report("gemm", asked.searched_there, _show_shapes, _draw_search, plot=plot, json=json)
    elif device is not None:
        report("gemm", asked.measured_there, show_device_products, _draw, plot=plot, json=json)
    elif search:
        report("gemm", asked.searched, _show_search, _draw_search, plot=plot, json=json)
    else:
        report("gemm", asked.measured, _show, _draw, plot=plot, json=json)


@final
@dataclass(frozen=True)
class _Asked:
    """Options of the command, and the ways to measure."""

    sizes: list[int]
    counts: list[int]
    dtypes: list[str]
    layouts: list[str]
    threads: list[int]
    rounds: int
    device: str

    def measured(self, progress: Progress) -> Result:
        """Times on the host."""
        from femops.bench.tensor.gemm import Settings, run_gemm

        batches = self.sizes, self.counts, self.dtypes, self.layouts
        return run_gemm(Settings(*batches, self.threads, self.rounds), progress)

    def searched(self, progress: Progress) -> Result:
        """All variants on the host."""
        from femops.bench.tensor.search import search_gemm

        if len(self.counts) > 1 or len(self.dtypes) > 1:
            raise typer.BadParameter("--search takes one batch and one type: --members 20000")
        return search_gemm(self.sizes, self.counts[0], self.dtypes[0], self.rounds, progress)

    def measured_there(self, progress: Progress) -> Result:
        """Times on a device."""
        from femops.bench.gpu import GpuSettings, Products, run_products

        settings = GpuSettings(
            orders=(),
            forms=(),
            products=Products(self.sizes, self.counts, self.dtypes, self.layouts),
            seconds=_ROUND * self.rounds,
            budget=inf,
            device=self.device,
        )
        result = run_products(settings, progress)
        mean = result["products_over_best_peer"]
        return result | {"rows": result["products"], "mean_over_best_peer": mean}

    def searched_there(self, progress: Progress) -> Result:
        """All launch shapes on a device."""
        from femops.bench.gpu.products import Products
        from femops.bench.tensor.device_search import search_on_device

        products = Products(self.sizes, self.counts, self.dtypes, self.layouts)
        products.check()
        if max(len(one) for one in (self.counts, self.dtypes, self.layouts)) > 1:
            raise typer.BadParameter("--search takes one batch, type and layout: --members 1000000")
        return search_on_device(self.device, products.cases(), _TURN, self.rounds, progress)


COLUMNS = (
    *(Column("type", "dtype"), Column("n", "n"), Column("members", "members")),
    *(Column("threads", "threads"), Column("library", "implementation")),
    *(Column("layout", "layout"), Column("GFlop/s", "gflops", ".3g")),
    *(Column("limit", "limit_gflops", ".3g"), Column("bound", "bound")),
    Column("of limit", "fraction_of_limit", ".0%"),
    Column("/ best other", "over_best_peer", ".3g"),
)


def _show(output: Output, result: Result) -> None:
    """Print the table."""
    output.records("C += A B", COLUMNS, result["rows"])
    if result["mean_over_best_peer"]:
        output.say(f"{result['mean_over_best_peer']:.3g} times the better of the others on average")


def _draw(path: str, result: Result) -> None:
    from femops.bench.drawing import draw_gemm

    draw_gemm(path, result["rows"])


VARIANTS = (
    *(Column("n", "n"), Column("variant", "variant"), Column("rows", "rows")),
    *(Column("vectors", "vectors"), Column("ahead", "ahead")),
    *(Column("GFlop/s", "gflops", ".3g"), Column("chosen", "chosen")),
)


def _show_search(output: Output, result: Result) -> None:
    """Print the table."""
    output.records("C += A B, variants", VARIANTS, result["rows"])
    output.say(f"the best are kept in {result['table']}")


SHAPES = (
    *(Column("n", "n"), Column("variant", "variant"), Column("rows", "rows")),
    *(Column("columns", "columns"), Column("members", "members")),
    *(Column("threads each", "threads_each"), Column("GFlop/s", "gflops", ".3g")),
    Column("chosen", "chosen"),
)


def _show_shapes(output: Output, result: Result) -> None:
    """Print the table."""
    output.records("C = A B, launch shapes", SHAPES, result["rows"])
    output.say(f"the best are kept in {result['table']}")


def _draw_search(path: str, result: Result) -> None:
    from femops.bench.drawing import draw_search

    draw_search(path, result["rows"])
