"""Real mesh files beside the repository, where they are present; never part of it."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "meshes"
FILES = sorted(FOLDER.glob("*.mesh"))
NEEDED = pytest.mark.skipif(not FILES, reason=f"no mesh files in {FOLDER}")


def shared(name):
    """Path of one of the files; skips the test where it is absent."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path
