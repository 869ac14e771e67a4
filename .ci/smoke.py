"""Try an installed femops from outside its source: import, commands, a small solve, extras.

What other versions of Python, SciPy, typer and click changed under it once, is tried too.
"""

import copy
import inspect
import json
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import femops
from femops.solvers.multigrid import coarse
from femops_kernels.cuda.device import cupy_device


def run(*arguments: str) -> str:
    """Output of `femops` with these arguments, which must succeed."""
    return subprocess.run(["femops", *arguments], check=True, text=True, stdout=-1).stdout


home = Path(femops.__file__).parent
if "site-packages" not in home.parts:
    sys.exit(f"femops was imported from {home}, not from the wheel")
print("femops", femops.__version__, "in", home)
print(run("info"))
if not (Path(cupy_device.__file__).parents[1] / "src" / "device.cuh").exists():
    sys.exit("the wheel lacks the sources of GPU kernels")
mesh = str(femops.sample("ball.mesh"))
for command in ([], ["demo"], ["warmup"], ["hydro"], ["bench"], ["solve", "poisson"]):
    run(*command, "--help")
run("warmup", "mass", "--order", "1", "--dim", "2", "--mesh", "cartesian")
result = json.loads(run("solve", "poisson", mesh, "--order", "3", "--refine", "1", "--json"))
print(result)
V = femops.H1(femops.box((8, 8)), 2)
A = femops.diffusion(V).constrained(V.boundary_dofs())
M, b = femops.multigrid(A), A.rhs(femops.load(V, 1.0))
for one in (A, M):
    for twin in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        if not np.array_equal(twin @ b, one @ b):
            sys.exit(f"a copy of {one!r} is another one")
    if not (np.allclose(one.T @ b, one @ b) and np.allclose((0.5 * one) @ b, 0.5 * (one @ b))):
        sys.exit(f"the transpose or a multiple of {one!r} is another one")
if find_spec("pyamg"):
    coarse._MOST[2] = 10  # dofs of the coarsest level from which on PyAMG solves there
    if not femops.cg(A, b, M=femops.multigrid(A))[1].converged:
        sys.exit("multigrid with PyAMG does not work")
if find_spec("h5py"):
    femops.save(Path("u.vtkhdf"), V, u=b)
if find_spec("basix"):
    for cells in ("tetrahedra", "prisms"):
        V = femops.H1(femops.box((3, 3, 3), cells=cells), 2)
        if not abs(np.sum(femops.mass(V) @ np.ones(V.size)) - 1) < 1e-12:
            sys.exit(f"the volume of a unit cube of {cells} is not 1")
if "\nlevel :" not in (inspect.getdoc(femops.diffusion) or ""):
    sys.exit("help(femops.diffusion) does not show the options")
if not result["l2_error"] < 2e-3:
    sys.exit(f"the L2 error {result['l2_error']} is too large")
