import subprocess
import sys


def test_importing_needs_numpy_alone():
    """The mesh package knows no kernels, no physics and no other library."""
    code = (
        "import sys, femops_meshes\n"
        "heavy = {'scipy', 'numba', 'matplotlib', 'pyvista', 'mpi4py', 'pymetis', 'cupy'}\n"
        "heavy.add('femops')\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
