"""Command ``femops demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from femops.cli.options import (
    RefineOption,
    ThreadsOption,
    load_mesh,
    option,
    paragraphs,
    set_threads,
)
from femops.cli.output import Output, one_line_warnings, quantity

if TYPE_CHECKING:
    import femops
    from femops.cli.problems.base import Result

SAMPLE, ORDER = "ball.mesh", 4


@paragraphs
def demo(
    refine: RefineOption = 2,
    threads: ThreadsOption = None,
    out: Annotated[Path, option(None, "FOLDER", "Folder for demo.vtu and demo.png.")] = Path("out"),
) -> None:
    """Solve a Poisson problem on a curved ball.

    The elements have order 4, and no matrix is stored. Prints the size of the problem, the error,
    the times, and the memory in use beside the memory that a matrix would take. Writes a file for
    ParaView, and a picture if Matplotlib is installed.

    \b
    Examples:
      femops demo
      femops demo --refine 3 --threads 1 --out /tmp/femops
    """
    from femops.cli.problems.base import solve
    from femops.cli.problems.poisson import Poisson
    from femops.errors import FileError

    output = Output()
    with one_line_warnings():
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make the folder '{out}': {error.strerror}") from error
        set_threads(threads)
        mesh = load_mesh(SAMPLE, refine)
        with output.working(f"solving on {mesh.num_elements} elements of order {ORDER}"):
            result = solve(Poisson, mesh, ORDER, 1e-10)
        output.facts("Poisson problem on a curved ball, without a matrix", _facts(result))
        _write(output, result, out)


def _facts(result: Result) -> list[tuple[str, str]]:
    from femops.cli.problems.matrix import csr_bytes

    V, A = result.problem.space, result.problem.operator
    seconds = apply_seconds(A)
    stored = A.cost().stored_bytes + V.restriction.nbytes
    return [
        ("mesh", f"{SAMPLE}: {V.mesh.num_elements} curved hexahedra of degree {V.mesh.order}"),
        ("dofs", f"{V.size} (order {V.order})"),
        ("iterations", f"{result.iterations} of conjugate gradients with multigrid"),
        ("L2 error", f"{result.l2_error:.3e} against the exact solution"),
        ("time", f"{result.seconds:.2f} s, {result.compile_seconds:.2f} s of it for the kernels"),
        ("operator", f"{quantity(V.size / seconds, 'dofs/s')} a product"),
        (
            "solver",
            f"{quantity(V.size * result.iterations / result.solve_seconds, 'dofs/s')} an iteration",
        ),
        ("a matrix takes", quantity(csr_bytes(V), "B")),
        ("used instead", f"{quantity(stored, 'B')} (data at quadrature points, plans, indices)"),
    ]


def apply_seconds(A: femops.Operator) -> float:
    """Median seconds of a product with the operator, measured for about half a second."""
    import numpy as np

    from femops.bench.timing import median_seconds

    x = np.random.default_rng(0).standard_normal(A.shape[0])
    y = np.empty_like(x)
    return median_seconds(lambda: A.apply(x, y), 0.5)


def _write(output: Output, result: Result, out: Path) -> None:
    import femops

    with output.working("writing"):
        saved = femops.save(out / "demo.vtu", result.problem.space, u=result.u)
    output.say(f"wrote {saved} (for ParaView)")
    title = "u, with an octant taken away"
    try:
        with output.working("drawing"):
            drawn = femops.io.picture(
                out / "demo.png", result.problem.space, result.u, cut=True, title=title
            )
    except femops.errors.MissingExtraError as error:
        output.say(f"skipped the picture: {error}")
    else:
        output.say(f"wrote {drawn}")
