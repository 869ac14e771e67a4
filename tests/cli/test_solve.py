"""``femops solve``: errors of problems with known solutions, and what is reported of them."""

import json
import re
import sys
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

import femops
from femops.cli.output import Output
from femops.cli.problems.krylov import solution
from femops.cli.problems.manufactured import Field, Waves
from femops.solvers import Info
from femops_meshes import write_mfem

FIRST = ["mesh", "elements", "order", "dofs", "level", "preconditioner"]
ERRORS = ["iterations", "l2_error", "h1_error"]
LAST = ["seconds", "run"]
KEYS = {
    "poisson": [*FIRST, *ERRORS, *LAST],
    "helmholtz": [*FIRST, "k", *ERRORS, *LAST],
    "elasticity": [*FIRST, "lam", "mu", *ERRORS, *LAST],
    "neohookean": [*FIRST, "lam", "mu", *ERRORS, "linear_iterations", *LAST],
    "stokes": [*FIRST, *ERRORS, "pressure_error", *LAST],
}


def solve(run, problem, *arguments):
    code, out, err = run("solve", problem, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("problem", KEYS)
def test_contract_and_rates(run, problem):
    """On a curved mesh: the keys, and errors that fall as they should under refinement."""
    coarse, fine = (solve(run, problem, "disc.mesh", "--order", 2, "--refine", r) for r in (1, 2))
    assert list(coarse) == KEYS[problem]
    assert (fine["mesh"], fine["elements"], fine["order"]) == ("disc.mesh", 320, 2)
    assert fine["level"] == "partial"
    assert fine["iterations"] > 0
    assert fine["seconds"] > 0
    mesh = femops.read_mesh(femops.sample("disc.mesh"), 2)
    components = 1 if problem in ("poisson", "helmholtz") else 2
    pressures = femops.H1(mesh, 1).size if problem == "stokes" else 0
    assert fine["dofs"] == femops.H1(mesh, 2, ncomp=components).size + pressures
    assert np.log2(coarse["l2_error"] / fine["l2_error"]) > 2.7
    assert np.log2(coarse["h1_error"] / fine["h1_error"]) > 1.7
    if pressures:
        assert np.log2(coarse["pressure_error"] / fine["pressure_error"]) > 1.7


@pytest.mark.parametrize("problem", [name for name in KEYS if name != "helmholtz"])
def test_three_dimensions(run, tmp_path, problem):
    """Quadratics on a quarter of a wave: the error beside the norm of the exact solution."""
    mesh = femops.box((4, 4, 4))
    write_mfem(mesh, tmp_path / "box.mesh")
    result = solve(run, problem, "box.mesh", "--order", 2)
    waves = Waves.on(mesh)
    field = {
        "poisson": lambda: Field.scalar(waves),
        "elasticity": lambda: Field.vector(waves, 1 / waves.wave[0]),
        "neohookean": lambda: Field.vector(waves, 0.2 / waves.wave[0]),
        "stokes": lambda: Field.solenoidal(waves),
    }[problem]()
    space = femops.H1(mesh, 2, ncomp=len(field.components))
    size = femops.l2_error(space, space.zeros(), field.exact)
    assert 0.0 < result["l2_error"] < 0.05 * size


@pytest.mark.parametrize("problem", ["poisson", "helmholtz"])
def test_one_dimension_and_a_mesh_without_boundary(run, tmp_path, problem):
    write_mfem(femops.box((4,)), tmp_path / "line.mesh")
    assert solve(run, problem, "line.mesh", "--order", 4)["l2_error"] < 1e-3
    coarse, fine = (
        solve(run, problem, "periodic.mesh", "--order", 3, "--refine", r)["l2_error"]
        for r in (0, 1)
    )
    assert fine < coarse / 10


@pytest.mark.parametrize("problem", ["poisson", "neohookean", "stokes"])
def test_a_terminal_shows_iterations_and_residuals(run, monkeypatch, problem):
    shown = []
    monkeypatch.setattr(Output, "working", lambda self, what: nullcontext(shown.append))
    if problem == "poisson":  # not a terminal
        solve(run, problem, "disc.mesh", "--order", 2)
        assert shown == []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    result = solve(run, problem, "disc.mesh", "--order", 2)
    assert shown[0].startswith("solving on 20 elements of order 2: iteration 0, residual ")
    assert f": iteration {result['iterations']}, residual " in shown[-1]
    first, last = (float(line.split()[-1]) for line in (shown[0], shown[-1]))
    assert 0.0 < last < 1e-4 * first


@pytest.mark.parametrize(("problem", "level"), [("stokes", "matrix-free"), ("neohookean", "full")])
def test_levels_agree(run, problem, level):
    """Of a linear problem, and of the Jacobians of Newton's method."""
    partial = solve(run, problem, "disc.mesh", "--order", 2)
    other = solve(run, problem, "disc.mesh", "--order", 2, "--level", level)
    assert other["level"] == level
    assert other["l2_error"] == pytest.approx(partial["l2_error"], rel=1e-5)


@pytest.mark.parametrize("problem", ["poisson", "helmholtz", "neohookean", "stokes"])
def test_the_preconditioner_is_that_asked_for(run, problem):
    options = "disc.mesh", "--order", 3
    if problem == "stokes":
        options = *options, "--refine", 1
    many = solve(run, problem, *options)
    few = solve(run, problem, *options, "--preconditioner", "jacobi")
    count = "linear_iterations" if problem == "neohookean" else "iterations"
    assert (many["preconditioner"], few["preconditioner"]) == ("multigrid", "jacobi")
    assert many[count] < few[count]
    assert many["l2_error"] == pytest.approx(few["l2_error"], rel=1e-4)


def test_multigrid_without_its_package_is_told_or_refused(run, monkeypatch):
    def missing(_, **__):
        raise femops.errors.MissingExtraError("no PyAMG: pip install pyamg")

    monkeypatch.setattr(femops, "multigrid", missing)
    assert solve(run, "poisson", "disc.mesh", "--order", 2)["preconditioner"] == "jacobi"
    asked = "--preconditioner", "multigrid"
    code, out, err = run("solve", "poisson", "disc.mesh", "--order", 2, *asked)
    assert (code, out) == (1, "")
    assert "pip install pyamg" in err


def test_parameters_are_those_asked_for(run):
    helmholtz = solve(run, "helmholtz", "disc.mesh", "--order", 2, "--k", 6, "--refine", 1)
    assert helmholtz["k"] == 6.0
    assert helmholtz["l2_error"] < 0.02
    stiff = solve(run, "elasticity", "disc.mesh", "--order", 2, "--lam", 20, "--mu", 2)
    plain = solve(run, "elasticity", "disc.mesh", "--order", 2)
    assert (stiff["lam"], stiff["mu"]) == (20.0, 2.0)
    assert (plain["lam"], plain["mu"]) == (1.0, 1.0)
    assert stiff["iterations"] > plain["iterations"]


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (3, 1, 1), (2, 2, 1)])
def test_stokes_is_refused_where_velocities_do_not_see_all_pressures(run, tmp_path, counts):
    """And only there: by the rank of the matrix, constants left out."""
    mesh = femops.box(counts)
    V, Q = femops.H1(mesh, 2, ncomp=mesh.dim), femops.H1(mesh, 1)
    seen = femops.divergence(V, Q).eliminated(columns=V.boundary_dofs()).assemble().toarray()
    singular = np.linalg.matrix_rank(seen) < Q.size - 1
    write_mfem(mesh, tmp_path / "box.mesh")
    code, out, err = run("solve", "stokes", "box.mesh", "--order", 2, "--rtol", 1e-4)
    assert code == (1 if singular else 0), err
    if singular:
        assert out == ""
        assert f"{mesh.num_elements} elements have boundary on both sides of two directions" in err
        assert err.endswith("refine it (--refine 1)\n")
        code, _, err = run("solve", "stokes", "box.mesh", "--order", 2, "--refine", 1)
        assert code == 0, err


# --- what is not reached --------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["poisson", "helmholtz", "stokes", "neohookean"])
def test_more_than_can_be_had(run, problem):
    """The residual is reduced to round-off, which is told: it is not what was asked for."""
    code, out, err = run("solve", problem, "disc.mesh", "--order", 2, "--rtol", 0)
    assert (code, out) == (1, "")
    linear = "no convergence to a relative residual of 0"
    said = "Newton's method came from a residual of " if problem == "neohookean" else linear
    assert err.startswith(f"femops: {said}")


@pytest.mark.parametrize("level", ["partial", "full"])
def test_no_convergence_is_an_error(run, monkeypatch, level):
    monkeypatch.setattr(femops, "cg", partial(femops.cg, maxiter=3))
    code, out, err = run("solve", "poisson", "disc.mesh", "--order", 2, "--level", level)
    assert (code, out) == (1, "")
    assert err.startswith("femops: no convergence to a relative residual of 1e-10")


def test_minres_goes_on_until_the_residual_is_small():
    """Where |A| |x| is far more than |b|, SciPy's own test would end it much too early."""
    A = diagonal(np.concatenate([-np.geomspace(1e-4, 1e4, 20), [1.0, 2.0]]))
    b = np.ones(22)
    x, iterations = solution(femops.minres, A, b, 1e-9)
    assert np.linalg.norm(b - A @ x) <= 1e-9 * np.linalg.norm(b)
    assert iterations > 22


def diagonal(values):
    """An operator with that diagonal: masses of single nodes."""
    V = femops.H1(femops.box((len(values) - 1,)), 1)
    density = values / femops.mass(V, quadrature=femops.basis.lobatto(2)).diagonal()
    at = lambda x: density[np.rint(x[0] * (len(values) - 1)).astype(int)]  # noqa: E731
    return femops.mass(V, at, quadrature=femops.basis.lobatto(2))


def test_minres_gives_up_where_there_is_no_solution():
    A = diagonal(np.array([1.0, -1.0, 0.0]))
    with pytest.raises(femops.errors.SolverError, match=r"no convergence .* only to 5.8e-01: look"):
        solution(femops.minres, A, np.ones(3), 1e-9)


def unconverged(info, *_, **__):
    return None, info


def test_advice_is_a_tolerance_above_what_was_reached():
    A = diagonal(np.ones(3))
    for residual, advice in (
        (3e-9, "only to 3.0e-09: ask for less (--rtol 1e-08) or look at the mesh"),
        (0.7e-4, "only to 7.0e-05: ask for less (--rtol 0.001) or look at the mesh"),
        (0.02, "only to 2.0e-02: look at the mesh, or refine it"),
    ):
        given_up = partial(unconverged, Info(False, 9, residual, 1e-10))
        with pytest.raises(femops.errors.SolverError, match=f"in 9 .*, {re.escape(advice)}$"):
            solution(given_up, A, np.eye(3)[1], 1e-10)


# --- output ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["poisson", "elasticity", "stokes"])
def test_solve_in_words_with_files(run, tmp_path, problem):
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    code, out, _ = run(
        "solve", problem, "disc.mesh", "--order", 2, "--save", "u.vtu", "--picture", "u.png"
    )
    assert code == 0
    for word in ("elements", "iterations", "l2 error", "wrote u.vtu", "wrote u.png"):
        assert word in out
    assert "\x1b" not in out  # not a terminal: no colours
    assert {entry.name for entry in tmp_path.iterdir()} == {"u.vtu", "u.png"}
    text = (tmp_path / "u.vtu").read_bytes()
    assert b'Name="u"' in text
    assert (b'Name="p"' in text) == (problem == "stokes")


# --- exact solutions: test_contract_and_rates and others show that they are solutions -------------


def test_it_is_periodic_where_the_mesh_is():
    torus = femops.box((3, 4), upper=(2.0, 1.0), periodic=True)
    field = Field.scalar(Waves.on(torus))
    field.check_periodic(femops.H1(torus, 3))
    assert femops.integrate(femops.H1(torus, 6), field.exact) == pytest.approx(0, abs=1e-6)


def test_other_periods_are_refused():
    slanted = femops.box((3, 3), periodic=True, mapping=lambda x: [x[0] + 0.3 * x[1], x[1]])
    with pytest.raises(femops.errors.SpaceError, match="do not lie along the axes"):
        Field.scalar(Waves.on(slanted)).check_periodic(femops.H1(slanted, 2))
