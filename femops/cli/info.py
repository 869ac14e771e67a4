"""``femops info``."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from femops.cli.options import JsonOption, paragraphs
from femops.cli.output import Output, one_line_warnings

PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "matplotlib", "pyvista")


@paragraphs
def info(json: JsonOption = False) -> None:
    """Print machine, lanes, threads and versions.

    And the folder of compiled kernels: what a bug report needs.

    \b
    Examples:
      femops info
      femops info --json
    """  # noqa: D301  (\b is click's mark for lines to keep)
    output = Output(json)
    with one_line_warnings():
        facts = describe()
    output.json(facts)
    rows = [(name, str(value)) for name, value in facts["machine"].items()]
    output.facts("Machine", [(name.replace("_", " "), value) for name, value in rows])
    output.facts(
        "Versions", [(name, value or "absent") for name, value in facts["versions"].items()]
    )
    output.say(f"Compiled kernels are kept in {facts['cache_folder']}")


def describe() -> dict[str, Any]:
    """Facts about machine and installation."""
    import femops
    from femops_kernels import machine
    from femops_kernels.storage import cache_folder

    versions: dict[str, str | None] = {
        "femops": femops.__version__,
        "python": platform.python_version(),
    }
    versions |= {name: _version(name) for name in PACKAGES}
    facts = {k: v for k, v in machine.describe().items() if k not in versions}
    return {"machine": facts, "versions": versions, "cache_folder": str(cache_folder())}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
