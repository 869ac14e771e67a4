"""Try an installed femops from outside its source: import, `femops info`, a small solve.

What newer versions of Python and SciPy changed under it once, is tried too.
"""

import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import femops
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
result = json.loads(run("solve", "poisson", mesh, "--order", "3", "--refine", "1", "--json"))
print(result)
A = femops.diffusion(femops.H1(femops.box((2, 2)), 2))
if (pickle.loads(pickle.dumps(A)) @ A.space.zeros()).any():
    sys.exit("a pickled operator is another one")
if "\nlevel :" not in (inspect.getdoc(femops.diffusion) or ""):
    sys.exit("help(femops.diffusion) does not show the options")
if not result["l2_error"] < 2e-3:
    sys.exit(f"the L2 error {result['l2_error']} is too large")
