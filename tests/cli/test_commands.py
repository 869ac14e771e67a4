"""The commands as a user meets them: output, exit codes, files, and never a traceback."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import femops
import femops.bench
from femops.cli import main
from femops.cli.app import explained
from femops.cli.options import numbers
from femops.cli.output import Output, quantity
from mesh_files import FILES, NEEDED

COMMANDS = [
    ["demo"],
    ["solve", "poisson"],
    ["mesh", "info"],
    ["mesh", "refine"],
    ["mesh", "convert"],
    ["bench"],
    ["cost"],
    ["info"],
    ["warmup"],
]
SOLVE_KEYS = ["mesh", "elements", "order", "dofs", "level", "iterations"]
SOLVE_KEYS += ["l2_error", "h1_error", "seconds"]


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command line in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        code = stop.value.code or 0
        assert "Traceback" not in err
        return code, out, err

    return call


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples(run, command):
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"\n    femops {' '.join(command)}" in out


def test_no_command_shows_what_there_is(run):
    _, out, err = run()
    assert all(command[0] in out + err for command in COMMANDS)
    assert run("--version")[1] == f"femops {femops.__version__}\n"


def test_help_is_quick():
    """It loads neither NumPy nor Numba."""
    code = (
        "import sys; sys.argv = ['femops', '--help']\n"
        "from femops.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'numba', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# --- solve ----------------------------------------------------------------------------------------


def solve(run, *arguments):
    code, out, _ = run("solve", "poisson", *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_solve_prints_its_contract(run):
    result = solve(run, "disc.mesh", "--order", 3, "--refine", 1)
    assert list(result) == SOLVE_KEYS
    assert (result["mesh"], result["elements"], result["order"]) == ("disc.mesh", 80, 3)
    assert result["dofs"] == femops.H1(femops.read_mesh(femops.sample("disc.mesh"), 1), 3).ndofs
    assert result["level"] == "partial"
    assert result["l2_error"] < 1e-3
    assert result["l2_error"] < result["h1_error"] < 0.1
    assert result["seconds"] > 0


def test_levels_agree(run):
    partial = solve(run, "disc.mesh", "--order", 2)
    full = solve(run, "disc.mesh", "--order", 2, "--level", "full")
    assert full["level"] == "full"
    assert full["l2_error"] == pytest.approx(partial["l2_error"], rel=1e-5)


def test_more_than_can_be_had(run):
    """The residual is reduced to round-off, which is told: it is not what was asked for."""
    code, out, err = run("solve", "poisson", "disc.mesh", "--order", 3, "--rtol", 0)
    assert (code, out) == (1, "")
    assert err.startswith("femops: no convergence to a relative residual of 0")


@pytest.mark.parametrize("level", ["partial", "full"])
def test_no_convergence_is_an_error(run, monkeypatch, level):
    monkeypatch.setattr(femops, "cg", partial(femops.cg, maxiter=3))
    monkeypatch.setattr("scipy.sparse.linalg.cg", lambda A, b, **_: (b, 30))
    code, out, err = run("solve", "poisson", "disc.mesh", "--level", level)
    assert (code, out) == (1, "")
    assert err.startswith("femops: no convergence to a relative residual of 1e-10")


def test_a_mesh_without_boundary(run):
    coarse, fine = (
        solve(run, "periodic.mesh", "--order", 3, "--refine", r)["l2_error"] for r in (0, 1)
    )
    assert fine < coarse / 10


@pytest.mark.parametrize("dim", [1, 3])
def test_other_dimensions(run, tmp_path, dim):
    from femops_meshes import write_mfem

    write_mfem(femops.box((4,) * dim), tmp_path / "box.mesh")
    assert solve(run, "box.mesh", "--order", 4)["l2_error"] < 1e-3


def test_solve_in_words_with_files(run, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra femops[viz]")
    code, out, _ = run(
        "solve", "poisson", "disc.mesh", "--order", 2, "--save", "u.vtu", "--picture", "u.png"
    )
    assert code == 0
    for word in ("elements", "iterations", "l2 error", "wrote u.vtu", "wrote u.png"):
        assert word in out
    assert "\x1b" not in out  # not a terminal: no colours
    assert {entry.name for entry in tmp_path.iterdir()} == {"u.vtu", "u.png"}


# --- the other commands ---------------------------------------------------------------------------


def test_demo(run, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra femops[viz]")
    code, out, _ = run("demo", "--refine", 0)
    assert code == 0
    for word in ("mesh", "dofs", "iterations", "L2 error", "dofs/s", "a matrix takes", "used"):
        assert word in out
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {"demo.vtu", "demo.png"}


def test_without_matplotlib(run, tmp_path, monkeypatch):
    """The demo writes what it can; a picture that was asked for is refused before the work."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    code, out, _ = run("demo", "--refine", 0)
    assert code == 0
    assert "skipped the picture" in out
    assert "pip install matplotlib" in out
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {"demo.vtu"}
    monkeypatch.setattr("femops.cli.poisson.solve", lambda *_: pytest.fail("solved first"))
    code, _, err = run("solve", "poisson", "disc.mesh", "--picture", "u.png")
    assert code == 1
    assert "pip install matplotlib" in err


def test_mesh_info(run):
    code, out, _ = run("mesh", "info", "ball.mesh", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["dimension"], facts["elements"], facts["boundary_faces"]) == (3, 56, 24)
    assert facts["volume"] == pytest.approx(4 * np.pi / 3, rel=1e-3)
    classes = [facts[f"{kind}_elements"] for kind in ("affine", "multilinear", "curved")]
    assert sum(classes) == 56
    code, out, _ = run("mesh", "info", "ball.mesh")
    assert "boundary faces" in out


def test_mesh_refine_and_convert(run, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra femops[viz]")
    assert run("mesh", "refine", "disc.mesh", "finer.mesh", "--times", 2)[0] == 0
    mesh, finer = femops.read_mesh(femops.sample("disc.mesh")), femops.read_mesh("finer.mesh")
    assert finer.num_elements == 16 * mesh.num_elements
    assert finer.volume() == pytest.approx(mesh.volume(), rel=1e-12)
    for name in ("disc.vtu", "disc.png"):
        code, out, _ = run("mesh", "convert", "disc.mesh", name)
        assert (code, out) == (0, f"wrote {name}: 20 elements\n")
        assert (tmp_path / name).stat().st_size > 1000


def test_info(run):
    code, out, _ = run("info", "--json")
    facts = json.loads(out)
    assert code == 0
    assert set(facts) == {"machine", "versions", "cache_folder"}
    assert facts["versions"]["numpy"] == np.__version__
    assert {"cores", "threads", "lanes_float64"} <= set(facts["machine"])
    assert facts["cache_folder"] in run("info")[1]


def test_bench_prints_its_contract(run, monkeypatch):
    quick = partial(femops.bench.run, rounds=1, seconds=0.001)
    monkeypatch.setattr(femops.bench, "run", quick)
    code, out, _ = run("bench", "bp1", "--order", "2", "--dofs", 500, "--threads", 1, "--json")
    result = json.loads(out)
    assert code == 0
    assert list(result) == ["machine", "rows"]
    assert {"triad_gbytes_per_second", "fma_gflops_per_second"} <= set(result["machine"])
    keys = (
        "problem mesh order q1d dofs level threads seconds_min seconds_median dofs_per_second "
        "bytes_per_dof flops_per_dof roofline implementation"
    )
    for row in result["rows"]:
        assert list(row) == keys.split()
        assert (row["problem"], row["order"], row["q1d"], row["threads"]) == ("bp1", 2, 4, 1)


def test_cost_prints_its_contract(run, tmp_path):
    arguments = ["cost", "mass", "--dim", 1, "--order", "2-3", "--q1d", "p1d+1"]
    code, out, _ = run(*arguments, "--json", "--plot", "cost.png")
    result = json.loads(out)
    assert code == 0
    assert list(result) == ["rows", "exponents"]
    levels = ["full", "near-optimal", "decomposed", "partial"]
    assert list(result["exponents"]) == levels
    measures = ["flops_assembly", "flops_apply", "stored_bytes"]
    assert all(list(result["exponents"][level]) == measures for level in levels)
    assert [(row["level"], row["order"]) for row in result["rows"]] == [
        (level, order) for order in (2, 3) for level in levels
    ]
    for row in result["rows"]:
        assert list(row) == ["level", "order", *measures, "seconds"]
        assert 0 < row["seconds"] < 1
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = run(*arguments)
    assert code == 0
    assert "near-optimal" in out
    assert "Table 1" in out


def test_warmup(run):
    code, out, _ = run("warmup", "--order", 2, "--dim", 2)
    assert code == 0
    assert out.startswith("2 operators are ready after ")


# --- errors ---------------------------------------------------------------------------------------

BAD = [
    (["solve", "poisson", "no.mesh"], 1, "a sample: ball.mesh"),
    (["mesh", "info", "binary.mesh"], 1, "binary"),
    (["mesh", "info", "truncated.mesh"], 1, "truncated.mesh"),
    (["mesh", "info", "."], 1, "regular file"),
    (["solve", "poisson", "disc.mesh", "--save", "no/u.vtu"], 1, "there is no folder 'no'"),
    (["solve", "poisson", "disc.mesh", "--save", "u.txt"], 1, "name it 'u.vtu'"),
    (["solve", "poisson", "disc.mesh", "--picture", "u.jpg"], 1, "name it 'u.png'"),
    (["solve", "poisson", "disc.mesh", "--threads", "10000"], 1, "10000 threads"),
    (["solve", "poisson", "disc.mesh", "--order", "0"], 2, "--order"),
    (["solve", "poisson", "disc.mesh", "--level", "none"], 2, "--level"),
    (["solve", "poisson"], 2, "MESH"),
    (["bench", "bp9"], 2, "bp9"),
    (["bench", "bp1", "--order", "8-1"], 2, "8-1"),
    (["cost", "stokes"], 2, "stokes"),
    (["cost", "mass", "--dim", "4"], 2, "--dim"),
    (["cost", "mass", "--q1d", "7"], 2, "p1d+1"),
    (["cost", "mass", "--plot", "cost.pdf"], 1, "name it 'cost.png'"),
    (["mesh", "convert", "disc.mesh", "disc.stl"], 2, "must end in .mesh, .vtu or .png"),
    (["mesh", "refine", "disc.mesh", "no/finer.mesh"], 1, "there is no folder 'no'"),
    (["mesh", "refine", "disc.mesh", "finer.mesh", "--times", "40"], 1, "GiB of memory"),
    (["solve", "poisson", "disc.mesh", "--order", "abc"], 2, "got 'abc'"),
    (["solve", "poisson", "disc.mesh", "--rtol", "1"], 2, "got '1'"),
    (["solve", "poisson", "disc.mesh", "--rtol", "nan"], 2, "got 'nan'"),
    (["bench", "bp1", "--dofs", "3"], 2, "got '3'"),
    (["demo", "--out", "binary.mesh"], 1, "cannot make the folder"),
    (["warmup", "--dim", "4"], 2, "dimensions are 1 to 3"),
    (["nonsense"], 2, "nonsense"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "words"), BAD, ids=lambda a: " ".join(a) if isinstance(a, list) else ""
)
def test_bad_input_is_one_clear_line(run, tmp_path, arguments, code, words):
    (tmp_path / "binary.mesh").write_bytes(bytes(range(256)))
    text = femops.sample("disc.mesh").read_text()
    (tmp_path / "truncated.mesh").write_text(text[: len(text) // 3])
    before = sorted(tmp_path.iterdir())
    got, out, err = run(*arguments)
    assert got == code
    assert out == ""
    assert words in err
    if code == 1:
        assert err.startswith("femops: ")
        assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("where", ["femops.cli.app.build", "femops.cli.info.describe"])
def test_interrupted(run, monkeypatch, where):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupt)
    assert run("info") == (130, "", "femops: interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "femops", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "femops: cannot write to standard output: No space left on device\n"


def test_defects_are_not_hidden():
    assert explained(ZeroDivisionError()) is None
    assert "memory" in explained(MemoryError())


# --- output ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"), [("4", [4]), ("1-3", [1, 2, 3]), ("2, 6-7,2", [2, 6, 7])]
)
def test_lists_of_numbers(text, expected):
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(1234567, "1.23 Mdofs"), (12.3, "12.3 dofs"), (5e9, "5 Gdofs")]
)
def test_quantities(value, expected):
    assert quantity(value, "dofs") == expected


def test_tables_on_a_terminal_and_elsewhere(capsys, monkeypatch):
    rows = [("a", "1"), ("bb", "22")]
    columns = [("name", "left"), ("value", "right")]
    Output().table("Title", columns, rows)
    plain = capsys.readouterr().out
    assert plain == "Title\n  name  value\n  a         1\n  bb       22\n"
    terminal = Output()
    terminal.terminal = True
    terminal.table("Title", columns, rows)
    assert "│" in capsys.readouterr().out
    Output(as_json=True).table("Title", columns, rows)
    assert capsys.readouterr().out == ""


def test_progress_shows_on_a_terminal_only(capsys, monkeypatch):
    with Output().working("at work") as show:
        show("still at work")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Output().working("at work"):
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert "at work" in err


@NEEDED
@pytest.mark.parametrize(
    ("name", "l2_error"),
    [("star-q3", 1e-2), ("fichera-q3", 5e-2), ("periodic-square", 5e-3)],
)
def test_solves_on_real_files(run, name, l2_error):
    """Curved files with Dirichlet conditions, and a periodic one of mean zero."""
    path = next(path for path in FILES if path.stem == name)
    code, out, _ = run("solve", "poisson", path, "--order", "4", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["order"] == 4
    assert 0.0 < result["l2_error"] < l2_error
    finer = json.loads(run("solve", "poisson", path, "--order", "4", "--refine", "1", "--json")[1])
    # order 4 gains 2^5; not all of it is there on the coarsest meshes
    assert finer["l2_error"] < result["l2_error"] / 8
