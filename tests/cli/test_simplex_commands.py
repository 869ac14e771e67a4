"""Commands with files of triangles and tetrahedra."""

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
