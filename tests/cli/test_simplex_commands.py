"""Commands with files of triangles, tetrahedra and of several shapes."""

import json

import pytest

import femops

MESHES = {
    "triangles": lambda: femops.disc(2, order=2).simplices(),
    "tetrahedra": lambda: femops.box((2, 2, 2)).simplices(),
}


@pytest.fixture(params=MESHES)
def cells(request, run):
    femops.save("part.mesh", MESHES[request.param]())
    return request.param


def test_they_are_drawn_refined_and_divided(run, cells):
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    for command in (
        ("convert", "part.mesh", "part.png"),
        ("convert", "part.mesh", "part.vtu"),
        ("refine", "part.mesh", "fine.mesh"),
        ("partition", "part.mesh", "--parts", 2),
    ):
        code, _, err = run("mesh", *command)
        assert code == 0, err


@pytest.mark.parametrize("problem", ["poisson", "elasticity", "stokes"])
def test_equations_are_solved(run, cells, problem):
    code, out, err = run("solve", problem, "part.mesh", "--order", 2, "--refine", 1)
    assert code == 0, err
    assert "l2 error" in out or "h1 error" in out


@pytest.mark.parametrize("command", [("hydro", "sedov"), ("remap", 0)])
def test_gas_dynamics_refuses_them(run, cells, command):
    code, _, err = run(*command, "--mesh", "part.mesh")
    assert code == 1
    assert f"does not take {cells} yet" in err or "exists in dimension" in err


@pytest.mark.parametrize("problem", ["poisson", "stokes"])
def test_equations_are_solved_on_several_shapes(run, problem):
    """Halves of elements of order 3 leave a sixteenth of the error to the exact solution."""
    corners = [(i, j) for j in range(2) for i in range(3)]
    elements = {"quadrilaterals": [[0, 1, 3, 4]], "triangles": [[1, 2, 4], [2, 5, 4]]}
    femops.save("part.mesh", femops.MixedMesh.from_arrays(corners, elements))
    found = []
    for refine in (1, 2):
        code, out, err = run(
            "solve", problem, "part.mesh", "--order", 3, "--refine", refine, "--json"
        )
        assert code == 0, err
        found.append(json.loads(out))
    coarse, fine = (one["l2_error"] for one in found)
    assert coarse > 8 * fine
    assert found[0]["run"]["mesh"] != found[1]["run"]["mesh"]
