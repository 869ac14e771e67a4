"""Notebooks are made of all examples, and one is run."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

for package in ("jupytext", "nbclient", "ipykernel"):
    pytest.importorskip(package, reason=f"{package} is missing: needs the extra dev")


def source(cell):
    return "".join(cell["source"])


def test_all_have_text_and_cells_of_python(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from notebooks import for_ranks, write_notebook

    for example in (ROOT / "examples").glob("*.py"):
        if for_ranks(example.read_text()):
            continue
        first, *cells = json.loads(write_notebook(example, tmp_path).read_text())["cells"]
        assert first["cell_type"] == "markdown"
        assert source(first).startswith("# ")
        assert len(cells) >= 2
        for cell in cells:
            assert cell["cell_type"] == "code"
            ast.parse(source(cell))
        assert not any("__name__" in source(cell) for cell in cells)


def test_one_runs(tmp_path):
    """By the program, which makes no others then."""
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    program = [sys.executable, str(ROOT / "docs" / "notebooks.py"), str(tmp_path)]
    program += ["--run", "poisson_scipy"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    (path,) = done.stdout.splitlines()
    notebook = json.loads(Path(path).read_text())
    shown = [output for cell in notebook["cells"][1:] for output in cell["outputs"]]
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert "image/png" in kinds
    assert any("L2 error" in "".join(output.get("text", [])) for output in shown)
