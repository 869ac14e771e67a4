"""Script that made the sample files: ``python -m femops_meshes.generators.sample_files FOLDER``."""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from femops_meshes.formats.mfem import write_mfem
from femops_meshes.generators.boxes import box, scrambled
from femops_meshes.generators.curved_domains import ball, disc
from femops_meshes.mesh import Mesh


def _bend(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move points by a function of period 1."""
    return x + 0.05 * np.sin(2 * np.pi * x[::-1])


def sample_meshes() -> dict[str, tuple[Mesh, int]]:
    """Mesh and digits of each sample, by file name."""
    return {
        "ball.mesh": (scrambled(ball(2, order=3), seed=1), 7),
        "disc.mesh": (scrambled(disc(2, order=3), seed=1), 10),
        "periodic.mesh": (box((4, 4), periodic=True, mapping=_bend, order=2), 10),
    }


def write_samples(folder: Path) -> None:
    """Write all samples into a folder."""
    for name, (mesh, digits) in sample_meshes().items():
        write_mfem(mesh, folder / name, digits=digits)


if __name__ == "__main__":
    write_samples(Path(sys.argv[1]))
