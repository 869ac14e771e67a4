"""Try an installed femops from outside its source: import, `femops info`, a small solve."""

import json
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
if not result["l2_error"] < 2e-3:
    sys.exit(f"the L2 error {result['l2_error']} is too large")
