"""Programs for other libraries print what their pages show, and what femops prints there."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import femops

PAGES = Path(__file__).parents[2] / "docs" / "coming_from"
NEEDS = {
    "fenics": ("dolfinx",),
    "jax_fem": ("jax_fem", "petsc4py"),
    "mfem": ("mfem",),
    "ngsolve": ("ngsolve",),
    "scikit_fem": ("skfem",),
}
"""Libraries that the program of a page imports."""
BLOCK = re.compile(r"^```(py|python)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.M | re.S)


def programs(name):
    """Code and shown output of both programs, by the tag of their block."""
    return {tag: (code, shown) for tag, code, shown in BLOCK.findall((PAGES / name).read_text())}


def test_both_programs_show_one_result():
    assert {page.stem for page in PAGES.glob("*.md")} == set(NEEDS)
    for page in NEEDS:
        found = programs(f"{page}.md")
        assert found["python"][1]
        assert found["py"][1] in (found["python"][1], "")
        compile(found["py"][0], page, "exec")


def test_words_of_femops_exist():
    tables = [row for page in PAGES.glob("*.md") for row in page.read_text().splitlines()]
    for row in (row for row in tables if row.startswith("|")):
        for dotted in re.findall(r"femops((?:\.\w+)+)", row):
            found = femops
            for name in dotted.split(".")[1:]:
                assert hasattr(found, name) or (found, name) == (femops, "jax"), dotted
                if name == "jax":
                    break
                found = getattr(found, name)


@pytest.mark.parametrize("page", sorted(NEEDS))
def test_the_other_program_prints_the_result(page, tmp_path):
    for library in NEEDS[page]:
        if find_spec(library) is None:
            pytest.skip(f"{library} is missing")
    found = programs(f"{page}.md")
    command = [sys.executable, "-c", found["py"][0]]
    printed = subprocess.check_output(command, cwd=tmp_path, text=True, timeout=300)
    assert printed.splitlines()[-1] == found["python"][1].strip()
