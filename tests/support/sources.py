"""Files of the packages, which tests of the project read."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = [
    ROOT / "femops",
    ROOT / "kernels" / "femops_kernels",
    ROOT / "meshes" / "femops_meshes",
    ROOT / "femops_common",
]
FILES = sorted(file for package in PACKAGES for file in package.rglob("*.py"))


@cache
def tree(file: Path) -> ast.Module:
    """A file, parsed once."""
    return ast.parse(file.read_text(encoding="utf-8"))


def name_of(file: Path) -> str:
    """The path from the root of the project on."""
    return file.relative_to(ROOT).as_posix()
