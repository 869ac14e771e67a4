"""Command ``femops bench gemm``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Annotated, Any

import typer

from femops.cli.bench.gpu import PRODUCTS, product_lines
from femops.cli.bench.report import Measure, PlotOption, Result, RoundsOption, report
from femops.cli.options import JsonOption, name_list, number_list, option, paragraphs
from femops.cli.output import columns

_ROUND = 0.05  # seconds of a round on a device

_SEARCH = "Try all variants of kernels, and keep the best."
_SIZES = number_list("Rows and columns: 8, 2-32 or 2,4,8.", "sizes", "--size")
_MEMBERS = number_list("Matrices of a batch.", "batches", "--members", digits=7)
_THREADS = number_list("Numbers of threads.", "threads", "--threads")

COLUMNS = columns(
    "type: dtype; n; members; threads; library: implementation; layout; GFlop/s: gflops .3g; "
    "limit: limit_gflops .3g; bound; of limit: fraction_of_limit .0%; "
    "/ NumPy: over_best_peer .3g"
)
VARIANTS = columns("n; variant; rows; vectors; ahead; GFlop/s: gflops .3g; chosen")
SHAPES = columns(
    "n; variant; rows; columns; members; threads each: threads_each; GFlop/s: gflops .3g; chosen"
)


@paragraphs
def gemm(
    size: Annotated[Any, _SIZES] = "2-32",
    members: Annotated[Any, _MEMBERS] = "10000,100000",
    dtype: Annotated[Any, name_list("Of float64, float32, complex128, complex64.")] = "float64",
    layout: Annotated[Any, name_list("Of contiguous, interleaved.")] = "contiguous",
    threads: Annotated[Any, _THREADS] = "1",
    rounds: RoundsOption = 3,
    device: Annotated[
        str | None, option(None, "NAME", "cuda: C = A B on a GPU, beside cuBLAS.")
    ] = None,
    search: Annotated[bool, typer.Option("--search", help=_SEARCH)] = False,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure products of small matrices in batches, beside NumPy.

    The limit is set by the bandwidth for this footprint, or by the rate of multiply-adds.

    With --device the product is C = A B, without a sum, and cuBLAS is measured, too, through CuPy.

    \b
    Examples:
      femops bench gemm
      femops bench gemm --size 2-32 --threads 1,2 --json --plot gemm.png
      femops bench gemm --size 4,8,16 --layout contiguous,interleaved --dtype float32
      femops bench gemm --size 8,16,32 --members 20000 --search --plot search.png
      femops bench gemm --device cuda --members 1000000 --layout contiguous,interleaved --plot
      femops bench gemm --device cuda --members 1000000 --size 4,8,16 --search
    """
    if device is not None and threads != [1]:
        raise typer.BadParameter("--device has no use for --threads")
    if search and max(len(given) for given in (members, dtype, layout)) > 1:
        raise typer.BadParameter("--search takes one batch, type and layout: --members 20000")

    from femops.bench.tensor.products import Products, run_gemm
    from femops.bench.tensor.search import search_products

    products = Products(size, members, dtype, layout)
    shown: dict[str, Any] = {"picture": "search" if search else "gemm", "plot": plot, "json": json}
    if search:
        title = "C += A B, variants" if device is None else "C = A B, launch shapes"
        tables = ((title, "rows", VARIANTS if device is None else SHAPES),)
        measure: Measure = partial(search_products, products, rounds, place=device)
        report("gemm", measure, tables, lines=_kept, **shown)
    elif device is not None:
        tables = (("C = A B, in batches", "rows", PRODUCTS),)
        measure = partial(_on_device, products, rounds, device)
        report("gemm", measure, tables, lines=product_lines, **shown)
    else:
        measure = partial(run_gemm, products, threads, rounds)
        report("gemm", measure, (("C += A B", "rows", COLUMNS),), lines=_mean, **shown)


def _on_device(products: Any, rounds: int, device: str, progress: Callable[[str], None]) -> Result:
    from femops.bench.gpu import GpuSettings, run_gpu

    timing: dict[str, Any] = {"seconds": _ROUND * rounds, "budget": inf, "device": device}
    result = run_gpu(GpuSettings(products=products, **timing), progress, works=("products",))
    mean = {"mean_over_best_peer": result["products_over_best_peer"]}
    return result | {"rows": result["products"]} | mean


def _kept(result: Result) -> list[str]:
    return [f"the best are kept in {result['table']}"]


def _mean(result: Result) -> list[str]:
    mean = result["mean_over_best_peer"]
    return [f"{mean:.3g} times NumPy on average"] if mean else []
