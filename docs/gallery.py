"""The gallery: a page for each example with its text, output and picture, and one with all."""

import ast
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from notebooks import for_ranks, write_notebook

FOLDER = "gallery"
PROPER = {
    "jax": "with JAX",
    "krylov": "Krylov",
    "mises": "Mises",
    "mpi": "with MPI",
    "multigrid": "with multigrid",
    "petsc": "PETSc",
    "pytorch": "with PyTorch",
    "scipy": "with SciPy",
    "stokes": "Stokes",
}
SETTINGS = "font.size: 14\nxtick.labelsize: 15\nsavefig.bbox: tight\nsavefig.pad_inches: 0.2\n"
"""Matplotlib's settings: letters that can be read where a picture is as wide as a card."""

ONE_THREAD = dict.fromkeys(("FEMOPS_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""Environment of an example: each core runs an example of its own."""

TURNED = ("poisson_scipy",)
"""Examples in 3-D whose pages have a picture to turn, with the extra `interactive`."""

TURN = """
import runpy, sys
from pathlib import Path
import femops

def page(path, what, u=None, **options):
    return femops.plot(what, u, interactive=True, **options).save(Path(path).with_suffix(".html"))

femops.io.picture = page
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Program that runs an example, with pictures that can be turned in place of those in PNG files."""


@dataclass(frozen=True)
class Example:
    """An example, and what it gave.

    `output` is None for an example for many ranks, which was not run. `picture` is what the example
    drew, else its card in `docs/images`, else None. `notebook` is None without jupytext, and for an
    example for many ranks. The program is shown from `first_line`, after the text.
    """

    name: str
    title: str
    text: str
    first_line: int
    output: str | None
    turned: str | None
    picture: str | None
    notebook: str | None


def write_gallery(examples, docs):
    """Run the examples, one on each core, and write their pages into `gallery` of `docs`.

    They run in one folder, so each must write only files that begin with its own name.
    """
    target = docs / FOLDER
    (target / "out").mkdir(parents=True, exist_ok=True)
    (target / "out" / "matplotlibrc").write_text(SETTINGS)
    files = sorted(examples.glob("*.py"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = pool.map(partial(_run, target=target), files)
        found = [
            _example(file, target, output) for file, output in zip(files, outputs, strict=True)
        ]
    found.sort(key=lambda example: example.picture is None)
    for example in found:
        (target / f"{example.name}.md").write_text(_page(example))
    (target / "index.md").write_text(_overview(found))


def _run(file, target):
    """Output of an example; None for an example for many ranks. Errors and warnings end it.

    With GALLERY=small in the environment, an example that has a first look takes that.
    """
    text = file.read_text()
    if for_ranks(text):
        return None
    small = ["small"] * (os.environ.get("GALLERY") == "small" and '"small" in sys.argv' in text)
    look = {"MATPLOTLIBRC": str(target / "out" / "matplotlibrc"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(file), *small],
        cwd=target,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ONE_THREAD | look,
    )
    if done.returncode:
        raise RuntimeError(f"{file.name} failed:\n{done.stderr}")
    return done.stdout


def _example(file, target, output):
    module = ast.parse(file.read_text())  # in one thread: Python 3.11 has an error with several
    title, _, text = ast.get_docstring(module).partition("\n")
    pictures = (f"out/{file.stem}.png", f"../images/gallery_{file.stem}.svg")
    shown = next((picture for picture in pictures if (target / picture).is_file()), None)
    turned = _turned(file, target) if file.stem in TURNED else None
    notebook = None
    if find_spec("jupytext") and output is not None:
        notebook = write_notebook(file, target).name
    return Example(
        file.stem,
        title.strip().rstrip("."),
        text.strip("\n"),
        module.body[1].lineno,
        output,
        turned,
        shown,
        notebook,
    )


def _turned(file, target):
    """Draw the picture of an example as a page that turns it, in a process that VTK may end."""
    if not (find_spec("pyvista") and find_spec("trame_pyvista")):
        return None
    command = [sys.executable, "-W", "ignore", "-c", TURN, str(file)]
    subprocess.run(command, cwd=target, capture_output=True, check=False, timeout=300)
    page = f"out/{file.stem}.html"
    return page if (target / page).is_file() else None


def _page(example):
    parts = [f"# {_heading(example)}", f"{example.title}.", example.text]
    source = f"../../examples/{example.name}.py"
    links = [f"{{download}}`As a program <{source}>`"]
    if example.notebook:
        links.append(f"{{download}}`as a notebook <{example.notebook}>`")
    parts.append(", ".join(links))
    if example.picture:
        parts.append(f"![{example.title}]({example.picture})")
    if example.turned:
        parts.append(f"{{download}}`To turn in a browser <{example.turned}>`")
    if example.output:
        parts.append(f"It prints\n\n```text\n{example.output.rstrip()}\n```")
    lines = f":lines: {example.first_line}-"
    parts.append(f"```{{literalinclude}} {source}\n:language: python\n{lines}\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(example):
    words = example.name.split("_")
    words[0] = words[0].capitalize()
    return " ".join(PROPER.get(word.lower(), word) for word in words)


def _overview(found):
    rows = ["# Gallery", "The programs of the folder `examples`, run when these pages were built."]
    for example in found:
        rows.append(f"## {_heading(example)}")
        if example.picture:
            rows.append(f"[![{example.title}]({example.picture})]({example.name}.md)")
        rows.append(f"{example.title}: [program and output]({example.name}.md).")
    names = "\n".join(example.name for example in found)
    rows.append(f"```{{toctree}}\n:hidden:\n\n{names}\n```")
    return "\n\n".join(rows) + "\n"
