"""The example that gives an operator to PETSc, where there is petsc4py."""

import re
import sys
from pathlib import Path

import pytest

from support.mpi_runs import launch, why_not

EXAMPLE = Path(__file__).parents[2] / "examples" / "petsc_krylov.py"
FOUND = r"29521 dofs, CG (alone|with GAMG): (\d+) iterations, L2 error (\S+)"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_on_two_ranks():
    pytest.importorskip("petsc4py", reason="petsc4py is missing: Debian has it as python3-petsc4py")
    code, text = launch(2, [sys.executable, str(EXAMPLE)], 120)
    assert code == 0, text
    found = {name: (int(count), float(error)) for name, count, error in re.findall(FOUND, text)}
    assert text.count("iterations") == len(found) == 2
    assert found["alone"][0] > 2 * found["with GAMG"][0]
    assert max(error for _, error in found.values()) < 2e-5
