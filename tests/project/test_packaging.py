"""The project's own files: what they promise holds."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import femops

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_extras_are_the_promised_ones():
    extras = PROJECT["project"]["optional-dependencies"]
    promised = (
        "viz interactive mesh simplices metis mpi mpi-site cuda12 cuda13 amg hdf jax numba torch "
        "petsc peers bench docs dev"
    )
    assert set(extras) == set(promised.split())


def test_the_readme_is_short_and_starts_with_the_two_commands():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 80
    head = "\n".join(lines[:12])
    assert "make demo" in head
    assert "make test" in head
    assert sum(line.count("![") for line in lines) == 1


def test_readme_and_docs_name_only_files_that_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} names {target}"


def test_no_command_installs_femops_from_an_index_that_lacks_it():
    """From a checkout only, and told in few places; messages name the packages that are missing."""
    folders = ["femops", "femops_common", "kernels", "meshes", "docs", "examples"]
    files = [ROOT / "README.md", *(f for d in folders for f in (ROOT / d).rglob("*.[pm][yd]"))]
    told = {}
    for file in files:
        text = file.read_text()
        assert not re.search(r"pip install \S*femops", text), file
        if count := len(re.findall(r"pip install \"?\.", text)):
            told[file.name] = count
    assert set(told) == {"README.md", "index.md", "installation.md", "tutorial.md"}


def test_make_knows_its_targets():
    command = ["make", "--dry-run", "demo", "test", "lint", "docs", "exhaustive", "clean"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("script", "message"),
    [("exit 1", "femops needs Python 3.11 or newer"), (None, "there is no")],
    ids=["too old", "absent"],
)
def test_make_says_which_python_it_needs(tmp_path, script, message):
    python = tmp_path / "python"
    if script:
        python.write_text(
            f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.8.1' && exit 0\n{script}\n"
        )
        python.chmod(0o755)
    arguments = ["make", "demo", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert not (tmp_path / "venv" / ".installed").exists()


def test_a_source_tree_runs_without_being_installed(tmp_path):
    """As one that is copied to a machine with a GPU: the packages are on the path, nothing else."""
    root = Path(femops.__file__).parents[1]
    code = (
        "import importlib.metadata as m, sys\n"
        "def version(name, found=m.version):\n"
        "    if name == 'femops': raise m.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "m.version = version\n"
        "from femops.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    paths = os.pathsep.join(str(root / part) for part in ("", "kernels", "meshes"))
    options = {"env": os.environ | {"PYTHONPATH": paths}, "cwd": tmp_path, "text": True}
    command = [sys.executable, "-c", code, "info", "--json"]
    done = subprocess.run(command, capture_output=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+\.\d+\.\d+\+source", done.stdout)


def test_the_environment_names_extras_that_exist():
    text = (ROOT / "environment.yml").read_text()
    (line,) = [line for line in text.splitlines() if "- .[" in line]
    extras = line.partition("[")[2].rstrip("]").split(",")
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])
