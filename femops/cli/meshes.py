"""``femops mesh``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from femops.cli.options import JsonOption, MeshArgument, load_mesh, paragraphs, whole_number
from femops.cli.output import Output, one_line_warnings

if TYPE_CHECKING:
    from femops_meshes import Mesh

app = typer.Typer(help="Look at meshes, refine and convert them.", no_args_is_help=True)
OutArgument = Annotated[
    Path, typer.Argument(metavar="OUT", help="A file ending in .mesh, .vtu or .png.")
]


@app.command()
@paragraphs
def info(mesh: MeshArgument, json: JsonOption = False) -> None:
    """Print what a mesh holds.

    \b
    Examples:
      femops mesh info ball.mesh
      femops mesh info my.mesh --json
    """  # noqa: D301  (\b is click's mark for lines to keep)
    output = Output(json)
    facts = describe(load_mesh(mesh))
    output.json({"mesh": mesh, **facts})
    output.say(mesh)  # a line of its own: a path can be longer than a table is wide
    output.facts("", [(name.replace("_", " "), _text(value)) for name, value in facts.items()])


@app.command()
@paragraphs
def refine(
    mesh: MeshArgument,
    out: OutArgument,
    times: Annotated[
        int,
        typer.Option(parser=whole_number(0), metavar="N", help="How often every element is split."),
    ] = 1,
) -> None:
    """Split every element along each direction.

    Curved geometry stays exactly as it is.

    \b
    Examples:
      femops mesh refine ball.mesh finer.mesh
      femops mesh refine ball.mesh finest.vtu --times 2
    """  # noqa: D301  (\b is click's mark for lines to keep)
    _write(mesh, out, times)


@app.command()
@paragraphs
def convert(mesh: MeshArgument, out: OutArgument) -> None:
    """Write a mesh in another format.

    MFEM (.mesh), ParaView (.vtu), or a picture (.png).

    \b
    Examples:
      femops mesh convert ball.mesh ball.vtu
      femops mesh convert my.mesh my.png
    """  # noqa: D301  (\b is click's mark for lines to keep)
    _write(mesh, out)


def describe(mesh: Mesh) -> dict[str, Any]:
    """Facts about a mesh, as JSON has them."""
    import numpy as np

    import femops

    lower, upper = mesh.bounding_box()
    classes = femops.classify(mesh)
    return {
        "dimension": mesh.dim,
        "elements": mesh.num_elements,
        **{
            f"{kind.name.lower()}_elements": int(np.count_nonzero(classes == kind))
            for kind in femops.ElementClass
        },
        "geometry_degree": mesh.order,
        "vertices": mesh.num_vertices,
        "boundary_faces": mesh.num_boundary,
        "element_attributes": np.unique(mesh.element_attributes).tolist(),
        "boundary_attributes": np.unique(mesh.boundary_attributes).tolist(),
        "volume": mesh.volume(),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "continuous": mesh.continuous,
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    return ", ".join(_text(v) for v in value) if isinstance(value, list) else str(value)


def _write(name: str, out: Path, times: int = 0) -> None:
    import femops
    from femops.io.atomic import check_writable, checked_path
    from femops_meshes import write_mfem

    if out.suffix not in (".mesh", ".vtu", ".png"):
        raise typer.BadParameter(f"'{out}' must end in .mesh, .vtu or .png")
    check_writable(checked_path(out, out.suffix))  # before the work, not after it
    with one_line_warnings():
        mesh = load_mesh(name, times)
        if out.suffix == ".mesh":
            write_mfem(mesh, out)
        elif out.suffix == ".vtu":
            femops.save(out, femops.L2(mesh, 0))
        else:
            femops.picture(out, mesh)
        Output().say(f"wrote {out}: {mesh.num_elements} elements")
