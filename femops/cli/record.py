"""Record of a run: the command that repeats it, and a hash of its result."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from femops.cli.problems.manufactured import AnyMesh
    from femops.parallel import Communicator

PACKAGES = ("numpy", "scipy", "llvmlite", "pyamg")
"""Packages on which the bits of results depend. A record has their versions."""

OUTPUTS = (
    "checkpoint",
    "checkpoint_every",
    "every",
    "fom",
    "json",
    "movie",
    "picture",
    "save",
    "threads",
)
"""Options that do not change the result. A record does not have them."""


def record_of(
    command: list[str],
    options: Mapping[str, Any],
    mesh: AnyMesh,
    comm: Communicator,
    result: int,
    files: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the record of a run, which ``femops verify`` reads. Collective."""
    import femops
    from femops_kernels.cpu import machine

    given = {name: value for name, value in options.items() if name not in OUTPUTS}
    facts = machine.describe()
    here = "processor", "architecture", "llvm_cpu", "lanes_float64", "lanes_float32"
    return {
        "arguments": [*command, *_arguments(given)],
        "reproducible": bool(options["reproducible"]),
        "ranks": comm.size,
        "mesh": f"{_checksum(mesh):016x}",
        "files": dict(files or {}),
        "result": f"{result:016x}",
        "versions": {"femops": femops.__version__, "python": platform.python_version()}
        | {name: found for name in PACKAGES if (found := version_of(name))},
        "machine": {name: facts[name] for name in here},
        "functions": functions(),
    }


def _arguments(given: Mapping[str, Any]) -> list[str]:
    """Convert options to words of a command line. Defaults are included, as they may change."""
    found = []
    for name, value in given.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            if value or name == "viscosity":  # the only option with a --no- form
                found.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            found += [f"--{option}", str(value.value if isinstance(value, Enum) else value)]
    return found


def file_hashes(**paths: Path | str | None) -> dict[str, str]:
    """Return hashes of files by name, without files that are None or do not exist."""
    found = {}
    for name, path in paths.items():
        if path is not None and Path(path).is_file():
            with Path(path).open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _checksum(mesh: AnyMesh) -> int:
    from femops.parallel import DistributedMesh
    from femops.parallel.mesh import whole_checksum

    return mesh.checksum if isinstance(mesh, DistributedMesh) else whole_checksum(mesh)


def version_of(package: str) -> str | None:
    """Version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def functions() -> dict[str, str]:
    """Hashes of results of other libraries whose bits may differ between machines."""
    import numpy as np

    x = np.linspace(0.01, 3.0, 1009)
    names = "sin", "cos", "tan", "exp", "log", "tanh", "sinh", "cosh", "arctan"
    found = {f"{name} of NumPy": getattr(np, name)(x) for name in names}
    found["power of NumPy"] = x**1.7
    called = {"arctan": math.atan}
    for name in names:
        c_function = called.get(name) or getattr(math, name)
        found[f"{name} of the C library"] = np.array([c_function(value) for value in x.tolist()])
    found["pow of the C library"] = np.array([math.pow(value, 1.7) for value in x.tolist()])
    left, right = np.sin(37.0 * x[: 30 * 33]).reshape(30, 33), np.sqrt(x[: 33 * 28]).reshape(33, 28)
    # whole numbers, which are the same on all machines
    left, right = (np.rint(2.0**40 * matrix) for matrix in (left, right))
    square = left[:, :30] + 2.0**42 * np.eye(30)
    found["products of matrices by BLAS"] = left @ right
    found["products with vectors by BLAS"] = np.array(
        [left[0] @ right[:, 0], *(left @ right[:, 0])]
    )
    found["factors of matrices by LAPACK"] = np.linalg.inv(square)
    found["eigenvalues by LAPACK"] = np.linalg.eigvalsh(square + square.T)
    return {
        name: hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:8]
        for name, values in found.items()
    }
