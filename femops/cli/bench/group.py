"""Commands ``femops bench`` and their tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Annotated, Any

import typer

from femops.cli.bench.gpu import PRODUCTS, gpu, product_lines
from femops.cli.bench.operators import OPERATORS, PROBLEMS, all_problems, cg, operator
from femops.cli.bench.report import (
    DofsOption,
    FootprintOption,
    LevelOption,
    Measure,
    MeshesOption,
    OrdersOption,
    PlotCommand,
    PlotOption,
    ProblemsOption,
    Result,
    RoundsOption,
    benchmark,
    dofs_of,
    limit_lines,
    report,
)
from femops.cli.options import (
    COUNT,
    NATURAL,
    POSITIVE,
    JsonOption,
    OrderOption,
    ThreadsOption,
    name_list,
    number,
    number_list,
    option,
    paragraphs,
    set_threads,
)
from femops.cli.output import Column, Output, columns

ADAPTIVE = columns(
    "kind; mesh; p: order; level; elements; hanging: hanging .2g; dofs; "
    "ms: seconds_median .4g 1e3; us/element: seconds_element .4g 1e6; / uniform: over_uniform .3g"
)
ADAPTIVE_SOLVES = columns(
    "kind; mesh; p: order; dofs; iterations; meshes and spaces s: seconds_refine .3g; "
    "setup s: seconds_setup .3g; solve s: seconds_solve .3g"
)


@benchmark(
    "locally refined meshes",
    ("Products", "rows", ADAPTIVE),
    ("Solves of Poisson's equation", "solves", ADAPTIVE_SOLVES),
)
def adaptive(
    order: OrdersOption = "2,4,6",
    mesh: MeshesOption = "multilinear",
    level: Annotated[Any, name_list("Of full, element, partial, matrix-free.")] = (
        "partial,matrix-free"
    ),
    footprint: Annotated[str, option(None, "NAME", "ram or cache.")] = "ram",
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure diffusion on a mesh that is refined in a ball, beside a uniform mesh.

    About a fifth of the elements have hanging faces or edges. Times are those of an element.

    \b
    Examples:
      femops bench adaptive --order 4
      femops bench adaptive --footprint cache --json
    """
    from femops.bench.adaptive import run_adaptive

    often: dict[str, Any] = {"footprint": footprint, "threads": threads or 1, "rounds": rounds}
    return partial(run_adaptive, mesh, order, level, **often)


SIMPLICES = columns(
    "cells; p: order; form; with; elements; dofs; ms: seconds_median .4g 1e3; "
    "MDoF/s: dofs_per_second .3g 1e-6; over SciPy: over_matrix .3g"
)
SIMPLEX_SOLVES = columns(
    "cells; p: order; dofs; iterations; setup s: seconds_setup .3g; solve s: seconds_solve .3g"
)


@benchmark(
    "triangles and tetrahedra",
    ("Products", "rows", SIMPLICES),
    ("Solves of Poisson's equation", "solves", SIMPLEX_SOLVES),
)
def simplices(
    order: OrdersOption = "1,2,3,4",
    cells: Annotated[Any, name_list("Of triangles, tetrahedra, prisms, mixed.")] = "tetrahedra",
    form: Annotated[Any, name_list("Of mass, diffusion, elasticity.")] = (
        "mass,diffusion,elasticity"
    ),
    dofs: DofsOption = None,
    curved: Annotated[bool, typer.Option("--curved", help="Bent elements, of degree 2.")] = False,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure products on simplices and prisms, beside the assembled matrix.

    Half of a mixed mesh has hexahedra, the other half prisms.

    \b
    Examples:
      femops bench simplices --order 2,3
      femops bench simplices --dofs 1e5 --cells triangles,tetrahedra --json
    """
    from femops.bench.simplices import run_simplices

    often: dict[str, Any] = {"threads": threads or 1, "rounds": rounds}
    return partial(run_simplices, cells, order, form, dofs=dofs, curved=curved, **often)


FIELDS = columns(
    "problem; at: stage; cells; p: order; refined: refine; unknowns; M: with; solves; "
    "iterations; most; s: seconds .3g; in products: products .3g; failure"
)
FIELD_VALUES = columns(
    "problem; at: stage; cells; p: order; refined: refine; M: with; value; "
    "femops: found .6g; published: published .6g; difference: difference .1e"
)
_PROGRAMS = "Of cavity, step, cylinder, duct, column, solid, reactions."


@benchmark("several fields", ("Solves", "rows", FIELDS), ("Values", "values", FIELD_VALUES))
def fields(
    problem: Annotated[Any, name_list(_PROGRAMS)] = "cavity,column,solid,reactions",
    order: OrdersOption = "2,4",
    cells: Annotated[Any, name_list("Of blocks, simplices, prisms.")] = "blocks",
    preconditioner: Annotated[Any, name_list("Of auto, blocks, direct.")] = "auto,direct",
    refine: Annotated[int, option(NATURAL, "N", "Refine the meshes 0 to N times.")] = 1,
    threads: ThreadsOption = 1,
) -> Measure:
    """Solve for several fields: iterations and seconds by M, and values beside published ones.

    Flow in a cavity, over a step, around a cylinder and in a duct with one; a consolidating column;
    a tube under pressure to nu = 0.5; reactions. "blocks" is "auto" without factors of the whole.

    \b
    Examples:
      femops bench fields --problem cavity --order 2
      femops bench fields --problem step,cylinder --preconditioner auto --refine 2 --json
    """
    from femops.bench.fields import run_fields

    return partial(
        run_fields,
        problem,
        order,
        cells,
        preconditioner,
        refine=range(refine + 1),
        threads=threads or 1,
    )


_QUICK: dict[str, Any] = {"orders": (2, 4), "dofs": 1e5, "solves": {2: 2e4}}
_QUICK |= {"rounds": 1, "seconds": 0.03}
_SAVE = "Save the result there, by processor and date."
_SMALL = "Two orders, small meshes and one round."


_SECONDS = "setup s: seconds_setup .3g; solve s: seconds_solve .3g"
BESIDE = columns(
    f"with: label; p: order; dofs; iterations; {_SECONDS}; times as long: times_as_long .3g"
)


@benchmark(
    "machine",
    ("", "rows", OPERATORS),
    ("Setup and solve in seconds, on one core", "solves", BESIDE),
    lines=limit_lines,
    lasting=True,
)
def machine(
    save: Annotated[str | None, option(None, "FOLDER", _SAVE)] = None,
    quick: Annotated[bool, typer.Option("--quick", help=_SMALL)] = False,
    rounds: Annotated[int | None, option(COUNT, "N", "Turns: 3, or 1 with --quick.")] = None,
) -> Measure:
    """Compare libraries on this machine: bp1, bp3 and solves.

    All installed peers of libceed, mfem, ngsolve, scikit-fem and warp-lang run in turns with
    femops, on one core, on boxes and on multilinear elements. It takes some 15 minutes, or two with
    --quick. Let nothing else run. Warp compiles for a minute or two at its first run.

    \b
    Examples:
      femops bench machine --quick
      femops bench machine --save docs/benchmarks
    """
    from femops.bench.comparison import check_folder, run_comparison, save_comparison

    if save is not None:
        check_folder(save)

    def measure(progress: Callable[[str], None]) -> Result:
        given = (_QUICK if quick else {}) | ({} if rounds is None else {"rounds": rounds})
        result = run_comparison(**given, progress=progress)
        if save is not None:
            progress(f"saved as {save_comparison(save, result)}")
        return result

    return measure


@paragraphs
def compare(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Files of femops bench machine.")],
    plot: Annotated[str | None, option(None, "FILE", "Draw the speeds into this PNG file.")] = None,
    json: JsonOption = False,
) -> None:
    """Print tables of measured machines in Markdown, and draw them.

    \b
    Examples:
      femops bench compare docs/benchmarks
      femops bench compare docs/benchmarks --plot machines.png
    """
    from femops.bench.comparison import markdown, read_comparisons, speed_rows

    documents, output = read_comparisons(folder), Output(json)
    output.json(documents)
    for line in markdown(documents):
        output.say(line)
    if plot is not None:
        from femops.bench.drawing import draw

        draw(plot, "machines", speed_rows(documents))


_SHELLS = "Eigenpairs; whole shells are 1, 4, 10, 20, 35, 56."
EIGENSOLVERS = "chebyshev,lobpcg,lobpcg-one-by-one"

EIGENPAIRS = columns(
    "method; dofs; states; processor s: processor_seconds .3g; s: seconds .3g; "
    "times as long: times_as_long .2f; residual: residual .1e; error: error .1e; converged"
)


@benchmark("eigenpairs", ("Lowest states of an oscillator", "rows", EIGENPAIRS))
def eigen(
    order: OrderOption = 8,
    elements: Annotated[int, option(COUNT, "N", "Elements in each direction.")] = 4,
    states: Annotated[int, option(COUNT, "N", _SHELLS)] = 35,
    tol: Annotated[float, option(POSITIVE, "X", "Residual over the energy.")] = 1e-5,
    method: Annotated[Any, name_list("Of chebyshev, lobpcg, lobpcg-one-by-one.")] = EIGENSOLVERS,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 1,
) -> Measure:
    """Measure the eigensolver on a quantum oscillator, beside SciPy's LOBPCG.

    Both solvers stop at the same residual. Ask for whole shells of states, because LOBPCG is slow
    if the next eigenvalue is close.

    \b
    Examples:
      femops bench eigen
      femops bench eigen --order 6 --elements 5 --states 20
    """
    from femops.bench.solvers.eigen import run_eigen

    methods = [name.replace("-", " ") for name in method]
    often: dict[str, Any] = {"threads": threads or 1, "rounds": rounds}
    return partial(run_eigen, order, elements, states, tol, methods, **often)


FACES = columns(
    "problem; mesh; p: order; dofs; ms: seconds_median .4g 1e3; "
    "Mdofs/s: dofs_per_second .4g 1e-6; / bp3: over_bp3 .3g"
)
FACE_SOLVES = columns(
    "problem; mesh; p: order; dofs; iterations; setup s: seconds_setup .3g; "
    "solve s: seconds_solve .3g; / bp3: over_bp3 .3g"
)
_PROBLEMS = "sip,sip-hermite,advection,advection-gll"


@benchmark(
    "faces between elements",
    ("Products", "rows", FACES),
    ("Solves of Poisson's equation", "solves", FACE_SOLVES),
)
def faces(
    order: OrdersOption = "2,4,6,8",
    problem: Annotated[
        Any, name_list("Of sip, sip-hermite, advection, advection-gll.")
    ] = _PROBLEMS,
    mesh: MeshesOption = "multilinear",
    footprint: Annotated[str, option(None, "NAME", "ram or cache.")] = "ram",
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure discontinuous functions: interior penalty and upwind convection.

    Times per dof stand beside those of bp3, diffusion of continuous functions on the same mesh.

    \b
    Examples:
      femops bench faces --order 2,4
      femops bench faces --problem sip --footprint cache --json
    """
    from femops.bench.faces import run_faces

    names = [name.replace("-", " ") for name in problem]
    often: dict[str, Any] = {"footprint": footprint, "threads": threads or 1, "rounds": rounds}
    return partial(run_faces, names, mesh, order, **often)


_ROUND = 0.05  # seconds of a round on a device

_SEARCH = "Try all variants of kernels, and keep the best."
_SIZES = number_list("Rows and columns: 8, 2-32 or 2,4,8.", "sizes", "--size")
_MEMBERS = number_list("Matrices of a batch.", "batches", "--members", digits=7)
_THREADS = number_list("Numbers of threads.", "threads", "--threads")

PRODUCTS_OF_MATRICES = columns(
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
        report("gemm", measure, (("C += A B", "rows", PRODUCTS_OF_MATRICES),), lines=_mean, **shown)


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


_COUNTS = number_list("Numbers of vectors: 100 or 1,10,100.", "numbers of vectors", "--vectors")
_WIDTHS = number_list("Vectors of a panel.", "widths of panels", "--width")


def _method(row: dict[str, Any]) -> str:
    return str(row["method"]) + (f" of {row['width']}" if row["width"] else "")


MANY_VECTORS = (
    *columns("problem; mesh; p: order; dofs; vectors: nvec"),
    Column("method", _method),
    *columns("ms: seconds_median .4g 1e3; Mdofs/s: dofs_per_second .4g 1e-6"),
    *columns("of multiply-adds: fraction_of_fma_peak .0%"),
    *columns("/ cell matrices: over_cell_matrices .3g; / one by one: over_one_by_one .3g"),
)
WAYS = "columns,panels,cell-matrices,one-by-one"


@benchmark("many vectors", ("Many vectors", "rows", MANY_VECTORS), picture="multivector")
def multivector(
    order: OrdersOption = "7,8",
    problem: Annotated[Any, name_list("Of mass, laplacian, helmholtz, hamiltonian.")] = "mass",
    mesh: MeshesOption = "multilinear",
    vectors: Annotated[Any, _COUNTS] = "100",
    width: Annotated[Any, _WIDTHS] = "16",
    method: Annotated[Any, name_list("Of columns, panels, cell-matrices, one-by-one.")] = WAYS,
    cells: Annotated[int, option(COUNT, "N", "About how many elements.")] = 27,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure operators on many vectors at once, beside matrices of elements and single vectors.

    \b
    Examples:
      femops bench multivector
      femops bench multivector --vectors 8,16,64,100,256,1024 --plot vectors.png
      femops bench multivector --width 8,16,32,64,100 --method panels,columns --plot widths.png
      femops bench multivector --cells 27000 --order 4 --method columns,one-by-one
    """
    from femops.bench.multivector import run_multivector

    methods = [name.replace("-", " ") for name in method]
    often: dict[str, Any] = {"cells": cells, "threads": threads or 1, "rounds": rounds}
    return partial(run_multivector, problem, mesh, methods, order, vectors, width, **often)


_RANKS = "Numbers of ranks. With more than there are cores messages are counted, nothing is timed."
_VECTORS = "Many at once, beside matrices of elements and one by one."

_WAIT = "wait, ms: wait .3g 1e3; no overlap: wait_without_overlap .3g 1e3"
MEASURED = (
    *columns("problem; mesh; level; p: order; dofs"),
    Column("vectors", lambda row: f"{row['nvec']} {row['method']}" if row["nvec"] > 1 else "1"),
    *columns("ranks; ms: seconds .3g 1e3; Mdofs/s: dofs_per_second .4g 1e-6"),
    *columns(f"speed-up: speedup .3f; efficiency: efficiency .1%; {_WAIT}"),
    *columns("messages: messages g; kB: bytes .4g 1e-3; least: least_bytes .4g 1e-3"),
)
MEMORY = columns(
    "problem; mesh; ranks; MB a rank: bytes .4g 1e-6; all: sum .4g 1e-6; "
    "of 1/ranks: times_share .2f"
)
_MEMORY = "Measure memory on 1, 2, 4 and 8 ranks."


@benchmark(
    "scaling",
    ("", "rows", MEASURED),
    ("Memory of mesh, space and operator, at its peak", "memory", MEMORY),
    picture="ranks",
)
def scaling(
    ranks: Annotated[Any, number_list(_RANKS, "numbers of ranks", "--ranks")] = "1,2",
    problem: ProblemsOption = "bp1,bp3",
    order: OrderOption = 4,
    footprint: FootprintOption = None,
    dofs: DofsOption = None,
    weak: Annotated[bool, typer.Option("--weak", help="The dofs are of each rank.")] = False,
    mesh: MeshesOption = "cartesian,multilinear",
    level: LevelOption = "auto",
    vectors: Annotated[int, option(COUNT, "N", _VECTORS)] = 1,
    rounds: RoundsOption = 5,
    memory: Annotated[bool, typer.Option("--memory", help=_MEMORY)] = False,
) -> Measure:
    """Measure operators on one rank of MPI and on several.

    \b
    Examples:
      femops bench scaling --ranks 1,2 --json --plot scaling.png
      femops bench scaling --ranks 1,2,4,8 --problem bp1 --mesh multilinear --memory
      femops bench scaling --vectors 300 --order 8 --dofs 274625 --plot vectors.png
    """
    size = dofs_of(dofs, footprint)
    from femops.bench.scaling import MEMORY_RANKS, Settings, run_scaling

    asked = Settings(ranks, order, size, problem, mesh, level, weak, rounds, nvec=vectors)
    return partial(run_scaling, asked, memory_ranks=MEMORY_RANKS if memory else ())


_WORKS = columns("work; s: seconds .3g; first cycle: first; last cycle: last; differs")
_GROWTH = columns(
    "quantity; start: start .4g; end: end .4g; most: most .4g; growth: growth .3g; bound: bound .3g"
)


def _lines(result: Result) -> list[str]:
    """Lines about the length of the run, and failures."""
    length = f"{result['cycles']} cycles in {result['minutes']:.1f} minutes"
    return [length, *(f"failed: {one}" for one in result["failures"])]


@benchmark(
    "soak",
    ("Work", "rows", _WORKS),
    ("The process: memory in MiB", "growth", _GROWTH),
    lines=_lines,
)
def soak(
    minutes: Annotated[float, option(number(0), "M", "No cycle begins later.")] = 60.0,
    threads: ThreadsOption = None,
) -> Measure:
    """Repeat mixed work, and check that it has the same bits and that the process does not grow.

    A cycle has products, solves, multigrid, eigenpairs, Newton's method, gas dynamics, files,
    threads and interrupts, all made anew. The exit code is 1 if the results of a cycle have other
    bits than those of the first one, or if memory, open files or threads grow beyond a bound.

    \b
    Examples:
      femops bench soak --minutes 5
      nice -n 19 femops bench soak --json > soak.json
    """
    from femops.bench.soak import run_soak

    set_threads(threads)
    return partial(run_soak, minutes)


MESHES = "cartesian,multilinear,ball,fichera"

SOLVES = columns(
    "mesh; p: order; dofs; threads; with: preconditioner; iterations; "
    f"product ms: seconds_apply .3g 1e3; {_SECONDS}; setup: setup_applications .3g; "
    "solve: solve_applications .3g; faster: faster_than_jacobi .3g"
)
_PEERS = "Solve by other libraries beside, if installed."
_DEVICE = "Solve on a GPU, as cuda; else on the host."


@benchmark(
    "solve",
    ("Setup and solve in seconds, and in products with the operator", "rows", SOLVES),
    ("Setup and solve in seconds beside other libraries, on one core", "peers", BESIDE),
    picture="solve",
)
def solve(
    order: OrdersOption = "2,4,6,8",
    dofs: DofsOption = None,
    mesh: Annotated[Any, name_list("Of cartesian, multilinear, ball, fichera.", "--mesh")] = MESHES,
    level: LevelOption = "partial",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 3,
    peers: Annotated[bool, typer.Option("--peers", help=_PEERS)] = False,
    device: Annotated[str | None, option(None, "NAME", _DEVICE)] = None,
) -> Measure:
    """Measure solves of Poisson's equation, with multigrid and with Jacobi.

    The relative residual is 1e-9, and there are about a million dofs. Times of setup and solve are
    in seconds and in products with the operator.

    \b
    Examples:
      femops bench solve --json --plot
      femops bench solve --order 4 --threads 1 --mesh ball --dofs 2e5
      femops bench solve --order 4,6 --threads 1 --mesh multilinear --dofs 2.27e5 --peers
      femops bench solve --order 4 --device cuda --dofs 1e7
    """
    from femops import bench
    from femops.bench.peers.interface import SOLVERS

    often: dict[str, Any] = {"meshes": mesh, "level": level, "rounds": rounds, "device": device}
    often["peers"] = SOLVERS if peers else ()
    return partial(bench.run_solve, order, 1e6 if dofs is None else dofs, threads, **often)


app = typer.Typer(no_args_is_help=True)


@app.callback()
@paragraphs
def group() -> None:
    """Measure the speed of operators.

    The limits of this machine, measured in the same rounds, stand beside the speeds.

    \b
    Examples:
      femops bench bp1
      femops bench bp3 --order 2,4,6 --threads 1 --footprint cache
      femops bench all --json --plot
    """


for _name, _what in PROBLEMS.items():
    app.command(_name, cls=PlotCommand)(operator(_name, _what))
app.command("all", cls=PlotCommand)(all_problems)
for _command in (cg, solve, scaling, multivector, gemm, eigen, gpu):
    app.command(cls=PlotCommand)(_command)
for _plain in (adaptive, faces, fields, simplices, machine, compare, soak):
    app.command()(_plain)
