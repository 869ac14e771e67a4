"""Notebooks of the examples: the text, a cell for each definition, and what `main` does as cells.

    python docs/notebooks.py FOLDER             write all
    python docs/notebooks.py FOLDER --run NAME  write those named and run them

Writing needs jupytext, running nbclient and ipykernel.
"""

import argparse
import ast
import textwrap
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
SHOW = "from IPython.display import Image\n\nImage({!r})"


def for_ranks(source):
    """True if an example is for many ranks, which a notebook has not."""
    return "mpi4py" in source


def percent_script(source, name):
    """Return an example as a script in the format "percent", with markers between cells.

    Parameters
    ----------
    source : str
        Program whose module docstring has its title and text.
    name : str
        Name of the file. A picture `out/NAME.png` that the program draws is shown at the end.
    """
    module = ast.parse(source)
    title, _, text = ast.get_docstring(module).partition("\n")
    markdown = f"# {title.strip().rstrip('.')}\n\n{text.strip()}".strip()
    cells = ["# %% [markdown]\n" + textwrap.indent(markdown, "# ", lambda _: True)]
    cells += [f"# %%\n{block}" for block in _blocks(source, module.body[1:])]
    picture = f"out/{name}.png"
    if picture in source:
        cells.append("# %%\n" + SHOW.format(picture))
    return "\n\n".join(line.rstrip() for line in cells) + "\n"


def _blocks(source, statements):
    """Source of each cell: imports and constants together, each definition, the body of `main`."""
    lines, together = source.splitlines(), []
    for statement in statements:
        first = min(
            [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]
        )
        text = "\n".join(lines[first - 1 : statement.end_lineno])
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            if together:
                yield "\n".join(together)
                together = []
            yield _body(statement, lines) if statement.name == "main" else text
        elif not isinstance(statement, ast.If):  # the last: `if __name__ == "__main__"`
            together.append(text)
    if together:
        yield "\n".join(together)


def _body(main, lines):
    """Statements of `main`, without its docstring; a call, if it takes arguments or returns."""
    nested = (node for node in ast.walk(main) if isinstance(node, ast.Return))
    whole = "\n".join(lines[main.lineno - 1 : main.end_lineno])
    if main.args.args or any(nested):
        return f"{whole}\n\n\nmain()"
    start = main.body[1].lineno - 1 if ast.get_docstring(main) else main.body[0].lineno - 1
    return textwrap.dedent("\n".join(lines[start : main.end_lineno]))


def write_notebook(file, target):
    """Write the notebook of an example into a folder, and return its path."""
    import jupytext

    notebook = jupytext.reads(percent_script(file.read_text(), file.stem), "py:percent")
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    path = target / f"{file.stem}.ipynb"
    jupytext.write(notebook, path)
    return path


def run(path):
    """Execute a notebook in its folder, and store the results in its file."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": path.parent}}).execute()
    nbformat.write(notebook, path)


def main():
    """Write notebooks, and run those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", nargs="+", default=[], metavar="NAME")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(EXAMPLES.glob("*.py")):
        if for_ranks(file.read_text()) or (given.run and file.stem not in given.run):
            continue
        path = write_notebook(file, given.folder)
        if given.run:
            run(path)
        print(path)


if __name__ == "__main__":
    main()
