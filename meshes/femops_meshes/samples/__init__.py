"""Small sample meshes; `femops_meshes.generators.sample_files` wrote them."""

from pathlib import Path

from femops_common.arguments import checked
from femops_meshes.errors import MeshArgumentError

FOLDER = Path(__file__).parent


def samples() -> list[str]:
    """Names of the sample files.

    - ``ball.mesh``: a ball of 56 curved hexahedra (degree 3) whose local axes and vertex numbers
      follow no pattern: neighbours see their faces in all eight orientations. Boundary 1.
    - ``disc.mesh``: a disc of 20 curved quadrilaterals (degree 3), likewise. Boundary 1.
    - ``periodic.mesh``: a square of 4 x 4 bent quadrilaterals, periodic in both directions.
    """
    return sorted(path.name for path in FOLDER.glob("*.mesh"))


@checked(MeshArgumentError)
def sample(name: str) -> Path:
    """Path of a sample file, for `femops_meshes.read_mesh`.

    Parameters
    ----------
    name
        One of the names that `femops_meshes.samples` returns; ".mesh" may be left out.

    Raises
    ------
    MeshArgumentError
        If there is none of this name.
    """
    for known in samples():
        if name in (known, known.removesuffix(".mesh")):
            return FOLDER / known
    raise MeshArgumentError(f"no sample {name!r}: there are {', '.join(samples())}")
