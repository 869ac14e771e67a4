"""Budgets of what a reader meets: files, functions and modules on the way to a product."""

import json
import subprocess
import sys

import pytest

from support.sources import FILES

PROGRAM = """
import json, sys
import numpy as np
import femops
from femops_kernels.codegen import ahead

ahead._running = lambda: np.inf  # no core is idle: other work on the machine changes nothing

PACKAGES = ("femops", "femops_kernels", "femops_meshes", "femops_common")

def ours(module):
    return module.split(".")[0] in PACKAGES

def functions(run):
    "Code objects of the three packages that a function calls."
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and ours(frame.f_globals.get("__name__", "")) and code.co_name[0] != "<":
            found.add(code)

    sys.setprofile(note)
    run()
    sys.setprofile(None)
    return found

def way(space):
    x = np.ones(space.size)
    kept = []

    def first():
        A = femops.diffusion(space)
        kept.append((A, A @ x))

    return functions(first), functions(lambda: kept[0][0] @ x)

meshes = {"box": lambda n: femops.box((n, n, n)), "curved": lambda n: femops.ball(n)}
facts = {}
for name, made in meshes.items():
    for n in (2, 3):  # the first imports and compiles
        first, second = way(femops.H1(made(n), 2))
    facts[name] = len({code.co_filename for code in first}), len(first), len(second)
loaded = [*filter(ours, sys.modules)]
facts["modules"] = len(loaded)
facts["cuda"] = len([m for m in loaded if m.startswith("femops_kernels.cuda")])
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts():
    for _ in range(2):  # the first run may compile, which takes modules of its own
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
        )
    return json.loads(run.stdout)


def test_the_way_to_products(facts):
    """Files and functions from `femops.diffusion` to the first ``A @ x``; functions of a second."""
    for name, files, functions, again in (("box", 59, 481, 14), ("curved", 60, 521, 17)):
        assert facts[name][0] <= files, facts
        assert facts[name][1] <= functions, facts
        assert facts[name][2] <= again, facts


def test_modules_that_a_host_program_loads(facts):
    assert facts["modules"] <= 227, facts
    assert facts["cuda"] == 0, facts


def test_lines_of_the_product():
    assert sum(file.read_text().count("\n") for file in FILES) <= 117_700


def test_element_values_have_one_door():
    """Tables of dofs are read in `spaces`, and by plans, tables of devices and peers elsewhere."""
    readers = [
        file.name
        for file in FILES
        if "restriction.indices" in file.read_text() and file.parent.name != "spaces"
    ]
    assert sorted(readers) == ["device.py", "with_libceed.py"]
