"""Notebooks are made of all examples, and some are run."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "own_form", "poisson_scipy"
"""Examples that take a second or two."""

for package in ("jupytext", "nbclient", "ipykernel"):
    pytest.importorskip(package, reason=f"{package} is missing: needs the extra dev")


def make(folder, *more):
    program = [sys.executable, str(ROOT / "docs" / "notebooks.py"), str(folder), *more]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    return [json.loads(Path(line).read_text()) for line in done.stdout.splitlines()]


def source(cell):
    return "".join(cell["source"])


def test_all_have_text_and_cells_of_python(tmp_path):
    made = make(tmp_path)
    alone = [f for f in (ROOT / "examples").glob("*.py") if "mpi4py" not in f.read_text()]
    assert len(made) == len(alone)
    for notebook in made:
        first, *cells = notebook["cells"]
        assert first["cell_type"] == "markdown"
        assert source(first).startswith("# ")
        assert len(cells) >= 2
        for cell in cells:
            assert cell["cell_type"] == "code"
            ast.parse(source(cell))
        assert not any("__name__" in source(cell) for cell in cells)


def test_some_run(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    for notebook in make(tmp_path, "--run", *RUN):
        shown = [output for cell in notebook["cells"][1:] for output in cell["outputs"]]
        kinds = {kind for output in shown for kind in output.get("data", {})}
        assert "image/png" in kinds
        assert any("L2 error" in "".join(output.get("text", [])) for output in shown)


def test_the_environment_names_extras_that_exist():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "environment.yml").read_text()
    (line,) = [line for line in text.splitlines() if "- .[" in line]
    extras = line.partition("[")[2].rstrip("]").split(",")
    assert set(extras) <= set(project["optional-dependencies"])
