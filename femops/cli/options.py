"""Options that several commands share, with one spelling and one help text."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from femops_meshes import Mesh

MeshArgument = Annotated[
    str, typer.Argument(metavar="MESH", help="A mesh file, or the name of a sample (ball.mesh).")
]
RefineOption = Annotated[
    int, typer.Option(min=0, help="Split every element in two along each direction, so many times.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="Threads; all cores of this machine if omitted.")
]


class Level(StrEnum):
    """How much of the operator is computed before it is applied."""

    partial = "partial"
    full = "full"


def load_mesh(name: str, refine: int = 0) -> Mesh:
    """Read a mesh file, or the sample of that name where there is no such file.

    Raises
    ------
    MeshError
        No such file or sample, or it cannot be read.
    """
    from femops.io import read_mesh
    from femops_meshes import MeshFileError, sample, samples

    path = Path(name)
    if not path.exists():
        if name not in samples():
            known = ", ".join(samples())
            raise MeshFileError(
                f"'{name}' does not exist: give the path of a mesh file, or a sample: {known}"
            )
        path = sample(name)
    return read_mesh(path, refine=refine)


def set_threads(count: int | None) -> None:
    """Use that many threads from now on; leave it as it is for None.

    Raises
    ------
    KernelError
        More than there can be.
    """
    if count is not None:
        from femops_kernels import machine

        machine.set_threads(count)


def numbers(text: str) -> list[int]:
    """Whole numbers of '3', '1-8' or '2,4,6-8'.

    Raises
    ------
    typer.BadParameter
        The text is nothing like that.
    """
    result: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,3})\s*(?:-\s*(\d{1,3})\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 1 <= first <= last:
            raise typer.BadParameter(f"'{text}' is no list of orders: write 4, 1-8 or 2,4,6")
        result += range(first, last + 1)
    return sorted(set(result))
