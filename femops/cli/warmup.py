"""Command ``femops warmup``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from femops.cli.options import ThreadsOption, names, numbers, option, paragraphs, set_threads
from femops.cli.output import Output, one_line_warnings

if TYPE_CHECKING:
    import femops

FORMS = ("mass", "diffusion", "helmholtz", "convection", "elasticity")
MESHES = {"cartesian": 0, "multilinear": 1, "curved": 2}
"""Kinds of meshes, which have different kernels, and the order of each (0: affine)."""
_LEVELS = "Levels of assembly: full, element, partial, matrix-free."
_KINDS = "Kinds of elements: cartesian, multilinear, curved."


def _names(text: str, known: Sequence[str], option: str) -> list[str]:
    """Read names separated by commas. Raise if a name is unknown."""
    for name in names(text):
        if name not in known:
            raise typer.BadParameter(f"{option} {name!r}: choose from {', '.join(known)}")
    return names(text)


@paragraphs
def warmup(
    forms: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FORM]...", help=f"Of {', '.join(FORMS)}."),
    ] = None,
    order: Annotated[str, option(None, "LIST", "Polynomial degrees: 4, 1-8 or 2,4,6.")] = "1-4",
    dim: Annotated[str, option(None, "LIST", "Dimensions: 3, 1-3 or 2,3.")] = "2,3",
    level: Annotated[str, option(None, "NAMES", _LEVELS)] = "partial",
    mesh: Annotated[str, option(None, "NAMES", _KINDS)] = "cartesian,multilinear",
    threads: ThreadsOption = None,
) -> None:
    """Compile kernels before they are needed.

    The kernels are those of the named forms, by default mass and diffusion, and of the solver. They
    are stored on disk, for this machine and this version of femops. They serve all sizes of meshes,
    essential conditions and values of coefficients. Another quadrature rule needs other kernels,
    and so does a coefficient that varies in space.

    \b
    Examples:
      femops warmup
      femops warmup --order 1-8 --dim 3
      femops warmup elasticity --order 2 --level matrix-free --mesh curved
    """
    from femops.operators.levels.dispatch import LEVELS

    orders, dims = numbers(order), numbers(dim, "dimensions", option="--dim")
    if max(dims) > 3:
        raise typer.BadParameter(f"--dim {dim}: dimensions are 1 to 3")
    chosen = _names(",".join(forms or FORMS[:2]), FORMS, "form")
    levels = _names(level, LEVELS, "--level")
    kinds = _names(mesh, tuple(MESHES), "--mesh")
    output = Output()
    begin = perf_counter()
    count = 0
    with one_line_warnings():
        set_threads(threads)
        for d, kind, p in itertools.product(dims, kinds, orders):
            with output.working(f"{d}-D, {kind}, order {p}"):
                for form, name in itertools.product(chosen, levels):
                    _compile(form, _mesh(kind, d), p, name)
                    count += 1
        _compile_threads()
    output.say(f"{count} operators are ready after {perf_counter() - begin:.1f} s")


def _mesh(kind: str, dim: int) -> femops.Mesh:
    import numpy as np

    import femops

    order = MESHES[kind]
    bend = (lambda x: x + 0.1 * np.sin(x[::-1] * x.sum(axis=0))) if order else None
    return femops.box((2,) * dim, mapping=bend, order=max(order, 1))


def _compile_threads() -> None:
    """Compile the code for several threads, which only large operators use."""
    import femops
    from femops_kernels.cpu import machine

    if machine.get_threads() > 1:
        _compile("mass", femops.box((256, 256)), 1, "partial")


def _compile(form: str, mesh: femops.Mesh, order: int, level: str) -> None:
    import numpy as np

    import femops
    from femops.operators.execution.host import compile_point_kernels

    V = femops.H1(mesh, order, ncomp=mesh.dim if form == "elasticity" else 1)
    rest = [np.ones(mesh.dim)] if form == "convection" else []
    A: Any = getattr(femops, form)(V, *rest, level=level)
    if form in ("mass", "diffusion", "elasticity"):
        compile_point_kernels(A.summands)
        A = A if form == "mass" else A.constrained(V.boundary_dofs())
        b = A.rhs(femops.load(V, 1.0 if V.ncomp == 1 else np.ones(V.ncomp)))
        femops.cg(A, b, M=femops.jacobi(A), maxiter=1, warn=False)
    else:
        A @ np.ones(V.size)
