"""The files of a release agree: one version, one date, one list of Pythons and of requirements."""

import re
import tomllib
from pathlib import Path

import femops

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION, OLDEST = PROJECT["version"], PROJECT["requires-python"].removeprefix(">=")
PYTHONS = re.findall(r":: (3\.\d+)", " ".join(PROJECT["classifiers"]))
RECIPE = (ROOT / "recipe/meta.yaml").read_text()
CITATION = (ROOT / "CITATION.cff").read_text()
WHEELS = (ROOT / ".github/workflows/wheels.yml").read_text()
CI = (ROOT / ".github/workflows/ci.yml").read_text()


def test_the_version_is_one():
    assert femops.__version__ == VERSION
    assert f"\nversion: {VERSION}\n" in CITATION
    assert f'{{% set version = "{VERSION}" %}}' in RECIPE


def test_the_changelog_has_the_version_and_its_date():
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    date = re.search(r"^date-released: (\d{4}-\d\d-\d\d)$", CITATION, re.MULTILINE)[1]
    assert headings[:2] == ["[Unreleased]", f"[{VERSION}] - {date}"]


def test_the_recipe_needs_what_the_wheel_needs():
    run = re.search(r"\n  run:\n((?:    - .*\n)+)", RECIPE)[1]
    needed = [line.removeprefix("    - ").replace(" >=", ">=") for line in run.splitlines()]
    assert needed == ["python>={{ python_min }}", *PROJECT["dependencies"]]
    assert f'default("{OLDEST}")' in RECIPE
    ((command, function),) = PROJECT["scripts"].items()
    assert f"- {command} = {function}\n" in RECIPE


def test_workflows_try_every_python_that_is_promised():
    assert PYTHONS[0] == OLDEST
    assert f"python: {PYTHONS}".replace("'", '"') in WHEELS
    listed = re.search(r"python-version: \|.*\n((?: +3\.\d+\n)+)", CI)[1].split()
    assert set(listed) == set(PYTHONS)
    minors = [python.removeprefix("3.") for python in PYTHONS]
    assert f"python3.{{{','.join(minors)}}}" in (ROOT / ".ci/run").read_text()


def test_workflows_call_the_scripts_of_ci():
    assert "- run: .ci/run\n" in CI
    for script in ["archives.py", "smoke.py"]:
        assert f"python .ci/{script}" in WHEELS
        assert (ROOT / ".ci" / script).exists()


def test_actions_are_named_by_commit():
    used = re.findall(r"uses: (.*)", CI + WHEELS)
    assert used
    commit = re.compile(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+")
    assert [name for name in used if not commit.fullmatch(name)] == []
