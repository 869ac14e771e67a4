"""The commands as a user meets them: output, exit codes, files, and never a traceback."""

import errno
import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
import typer

import femops
import femops.bench
from femops.bench import multivector
from femops.bench.gpu import GpuSettings
from femops.bench.scaling import Settings
from femops.bench.tensor import products
from femops.cli.app import build, explained
from femops.cli.bench import gpu, group, operators
from femops.cli.options import names, numbers
from femops.cli.output import Output, quantity
from femops_meshes import write_mfem
from support import mpi_runs
from support.gmsh_files import document, need_gmsh

COMMANDS = [
    ["demo"],
    *(["solve", name] for name in ("poisson", "helmholtz", "elasticity", "neohookean", "stokes")),
    ["mesh", "info"],
    ["mesh", "refine"],
    ["mesh", "convert"],
    ["mesh", "partition"],
    ["bench"],
    *(
        ["bench", name]
        for name in (
            *("bp1", "bp6", "all", "cg", "scaling", "gpu"),
            *("fields", "machine", "compare", "soak"),
        )
    ),
    ["cost"],
    ["info"],
    ["warmup"],
]


def test_help_has_examples(run):
    _, listed, err = run()
    for command in COMMANDS:
        code, out, _ = run(*command, "--help")
        assert code == 0
        assert "Examples:" in out
        assert f"\n    femops {' '.join(command)}" in out
        assert command[0] in listed + err
    assert run("--version")[1] == f"femops {femops.__version__}\n"


def test_arguments_of_any_number_have_no_default():
    """click below 8.3 takes none for them, not even an empty list."""
    commands, found = [typer.main.get_command(build())], []
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        found += [p for p in command.params if p.nargs == -1]
    assert len(found) == 3
    assert all(p.default is None for p in found)


def test_help_is_quick():
    """It loads neither NumPy nor the compiler."""
    code = (
        "import sys; sys.argv = ['femops', '--help']\n"
        "from femops.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'llvmlite', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# --- the other commands ---------------------------------------------------------------------------


def test_demo(run, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra viz")
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
    monkeypatch.setattr("femops.cli.problems.base.solve", lambda *_: pytest.fail("solved first"))
    code, _, err = run("solve", "poisson", "disc.mesh", "--picture", "u.png")
    assert code == 1
    assert "pip install matplotlib" in err


def test_mesh_info(run):
    code, out, _ = run("mesh", "info", "ball.mesh", "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["dimension"], facts["elements"], facts["boundary_faces"]) == (3, 56, 24)
    assert (facts["bodies"], facts["unjoined_faces"]) == (1, 0)
    assert (facts["outer_faces"], facts["boundary_faces_inside"]) == (facts["boundary_faces"], 0)
    assert facts["volume"] == pytest.approx(4 * np.pi / 3, rel=1e-3)
    classes = [facts[f"{kind}_elements"] for kind in ("affine", "multilinear", "curved")]
    assert sum(classes) == 56
    code, out, _ = run("mesh", "info", "ball.mesh")
    assert "boundary faces" in out
    femops.save("round.mesh", femops.disc(2, order=2, cells="triangles"))
    facts = json.loads(run("mesh", "info", "round.mesh", "--json")[1])
    assert (facts["cells"], facts["elements"], facts["geometry_degree"]) == ("triangles", 40, 2)
    assert (facts["multilinear_elements"], facts["affine_elements"]) == (0, 8)


def test_mesh_refine_and_convert(run, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    assert run("mesh", "refine", "disc.mesh", "finer.mesh", "--times", 2)[0] == 0
    mesh, finer = femops.read_mesh(femops.sample("disc.mesh")), femops.read_mesh("finer.mesh")
    assert finer.num_elements == 16 * mesh.num_elements
    assert finer.volume() == pytest.approx(mesh.volume(), rel=1e-12)
    for name in ("disc.vtu", "disc.png"):
        code, out, _ = run("mesh", "convert", "disc.mesh", name)
        assert (code, out) == (0, f"wrote {name}: 20 elements\n")
        assert (tmp_path / name).stat().st_size > 1000


def test_names_are_shown_kept_and_missed(run):
    mesh = femops.box((2, 2)).with_names({"stone": 1}, {"inlet": 1, "walls": (3, 4)})
    femops.save("named.mesh", mesh)
    facts = json.loads(run("mesh", "info", "named.mesh", "--json")[1])
    assert facts["element_names"] == {"stone": [1]}
    assert facts["boundary_names"] == {"inlet": [1], "walls": [3, 4]}
    assert "inlet = 1, walls = 3 + 4" in run("mesh", "info", "named.mesh")[1]
    assert json.loads(run("mesh", "info", "disc.mesh", "--json")[1])["boundary_names"] == {}
    assert run("mesh", "refine", "named.mesh", "finer.mesh")[::2] == (0, "")
    assert femops.read_mesh("finer.mesh").boundary_names == mesh.boundary_names
    code, _, err = run("mesh", "convert", "named.mesh", "named.vtu")
    assert code == 0
    assert err.splitlines() == [
        "femops: note: named.vtu does not keep the 8 boundary faces and their 4 attribute(s)",
        "femops: note: named.vtu does not keep names of attributes: stone, inlet, walls",
    ]
    torus = femops.box((3, 3), periodic=True)
    femops.save("torus.mesh", torus)
    assert "glued" in run("mesh", "convert", "torus.mesh", "torus.vtu")[2]


def test_convert_splits(run, tmp_path):
    need_gmsh()
    nodes = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    text = document(
        nodes, [(1, 5, 1, 1, 2), (2, 7, 1, 1, 2, 3), (2, 7, 1, 2, 4, 3)], [(1, 5, "low")]
    )
    (tmp_path / "tri.msh").write_text(text)
    assert run("mesh", "convert", "tri.msh", "tri.mesh")[:2] == (0, "wrote tri.mesh: 2 elements\n")
    nodes += [(2, 0, 0), (2, 1, 0)]
    mixed = document(nodes, [(2, 7, 1, 1, 2, 3), (2, 7, 1, 2, 4, 3), (3, 7, 1, 2, 5, 6, 4)])
    (tmp_path / "mixed.msh").write_text(mixed)
    code, out, err = run("mesh", "convert", "mixed.msh", "both.mesh")
    assert (code, out, err) == (0, "wrote both.mesh: 3 elements\n", "")
    facts = json.loads(run("mesh", "info", "both.mesh", "--json")[1])
    assert (facts["quadrilaterals"], facts["triangles"], facts["bodies"]) == (1, 2, 1)
    assert (facts["outer_faces"], facts["unjoined_faces"], facts["volume"]) == (6, 0, 2.0)
    assert run("mesh", "convert", "--split", "mixed.msh", "quads.mesh")[0] == 0
    assert femops.read_mesh("quads.mesh").num_elements == 10
    code, out, err = run("mesh", "convert", "--split", "tri.msh", "quads.mesh")
    assert (code, out, err) == (0, "wrote quads.mesh: 6 elements\n", "")
    assert femops.read_mesh("quads.mesh").boundary_names == {"low": (5,)}


def test_info(run):
    code, out, _ = run("info", "--json")
    facts = json.loads(out)
    assert code == 0
    assert set(facts) == {"machine", "gpu", "versions", "cache_folder"}
    assert set(facts["gpu"]) == {"devices", "missing", "nvrtc"}
    assert bool(facts["gpu"]["devices"]) == (facts["gpu"]["missing"] is None)
    assert facts["versions"]["numpy"] == np.__version__
    assert {"cores", "threads", "lanes_float64"} <= set(facts["machine"])
    assert facts["cache_folder"] in run("info")[1]


def test_several_fields_beside_published_values(run):
    code, out, _ = run("bench", "fields", "--problem", "solid", "--order", "2", "--refine", "0")
    assert code == 0
    assert "Solves" in out
    assert "published" in out


def test_defaults_of_bench_are_those_of_the_library():
    """Commands state them, as they load nothing before they run."""
    assert list(operators.PROBLEMS) == list(femops.bench.PROBLEMS)
    assert names(operators.MESHES) == list(femops.bench.MESHES)
    for command, settings in ((group.scaling, Settings()), (gpu.gpu, GpuSettings())):
        given = inspect.signature(command).parameters
        for option, attribute in (("problem", "problems"), ("mesh", "meshes")):
            assert names(given[option].default) == list(getattr(settings, attribute))
    stated = {name: p.default for name, p in inspect.signature(group.scaling).parameters.items()}
    assert numbers(stated["ranks"]) == list(Settings().ranks)
    same = ("order", "level", "weak", "rounds")
    assert [stated[name] for name in same] == [getattr(Settings(), name) for name in same]
    level = inspect.signature(gpu.gpu).parameters["level"].default
    assert names(level) == list(GpuSettings().levels)
    for command, function in (
        (operators.all_problems, femops.bench.run_all),
        (operators.cg, femops.bench.run_cg),
    ):
        stated, of_library = (inspect.signature(each).parameters for each in (command, function))
        assert stated["rounds"].default == of_library["rounds"].default
        assert numbers(stated["order"].default) == list(of_library["orders"].default)


def measured_once(monkeypatch, module, name, **options):
    """Let a function of the library measure in its first call alone; return options of calls."""
    measure, calls, results = getattr(module, name), [], []

    def once(*arguments, **given):
        calls.append(given)
        results.extend([] if results else [measure(*arguments, **given | options)])
        return results[0]

    monkeypatch.setattr(module, name, once)
    return calls


SMALL = ["--dofs", 500, "--rounds", 1]


def test_bench_prints_its_contract_and_tables_and_draws(run, tmp_path, monkeypatch):
    measured_once(monkeypatch, femops.bench, "run", seconds=0.0)
    arguments = ["bench", "bp1", *SMALL, "--order", 1, "--threads", 1]
    arguments += ["--mesh", "cartesian,cartesian", "--level", "auto, partial,auto"]
    code, out, _ = run(*arguments, "--plot", "bp1.png")
    assert code == 0
    rows = [row for row in out.splitlines() if "cartesian" in row]
    assert ["(auto)" in row for row in rows] == [True, False, False]  # the last compares the others
    assert "Level auto beside the best" in out
    assert (tmp_path / "bp1.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads(run(*arguments, "--json")[1])
    assert list(result) == ["machine", "limits", "rows", "auto", "notes"]
    assert {"triad_gbytes_per_second", "fma_gflops_per_second"} <= set(result["machine"])
    keys = (
        "problem mesh order q1d dofs level threads seconds_min seconds_median dofs_per_second "
        "bytes_per_dof flops_per_dof roofline implementation asked footprint least_bytes_per_dof "
        "least_level bandwidth_gbytes_per_second fma_gflops_per_second limit bound "
        "fraction_of_limit fraction_of_fma_peak"
    )
    for row in result["rows"]:
        assert list(row) == keys.split()
        assert (row["problem"], row["order"], row["q1d"], row["threads"]) == ("bp1", 1, 3, 1)


def test_bench_cg_prints_and_draws(run, tmp_path, monkeypatch):
    monkeypatch.setattr("femops.bench.solvers.cg.repeated", lambda call, *_, **__: [call()])
    measured_once(monkeypatch, femops.bench, "run_cg")
    arguments = ["bench", "cg", *SMALL, "--order", 2, "--threads", 1]
    arguments += ["--mesh", "cartesian", "--level", "partial"]
    code, out, _ = run(*arguments, "--plot", "cg.png")
    assert code == 0
    assert out.count("cartesian") == 1
    assert "by bytes" in out
    assert (tmp_path / "cg.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(run(*arguments, "--json")[1])["rows"][0]["level"] == "partial"


def test_bench_multivector_and_gemm(run, tmp_path, monkeypatch):
    measured_once(monkeypatch, multivector, "run_multivector", seconds=0.0)
    arguments = ["--vectors", 16, "--order", 1, "--cells", 1, "--rounds", 1]
    arguments += ["--method", "cell-matrices,one-by-one", "--problem", "laplacian"]
    code, out, _ = run("bench", "multivector", *arguments, "--plot", "vectors.png")
    assert (code, out.count("laplacian")) == (0, 2)
    rows = json.loads(run("bench", "multivector", *arguments, "--json")[1])["rows"]
    assert [row["method"] for row in rows] == ["cell matrices", "one by one"]
    measured_once(monkeypatch, products, "run_gemm", seconds=0)
    arguments = ["--size", 2, "--members", 9, "--rounds", 1]
    code, out, _ = run("bench", "gemm", *arguments, "--plot", "gemm.png")
    assert (code, out.count("contiguous")) == (0, 2)
    assert "times NumPy on average" in out
    assert json.loads(run("bench", "gemm", *arguments, "--json")[1])["rows"][0]["members"] == 9
    assert all((tmp_path / name).stat().st_size > 0 for name in ("vectors.png", "gemm.png"))


@pytest.mark.parametrize("failures", [[], ["memory grew by 40, more than 32"]])
def test_bench_soak_fails_if_something_grows(run, monkeypatch, failures):
    row = {"work": "io", "seconds": 1.0, "first": "ab", "last": "ab", "differs": None}
    result = {"machine": {"processor": "one"}, "cycles": 6, "minutes": 0.1, "rows": [row]}
    result |= {"growth": [], "failures": failures}
    monkeypatch.setattr("femops.bench.soak.run_soak", lambda *_, **__: result)
    code, out, _ = run("bench", "soak", "--minutes", 0.1)
    assert code == len(failures)
    assert "6 cycles in 0.1 minutes" in out
    assert all(f"failed: {line}" in out for line in failures)


@pytest.mark.skipif(mpi_runs.why_not() is not None, reason=str(mpi_runs.why_not()))
def test_bench_scaling_prints_and_draws(run, tmp_path, monkeypatch):
    *kept, _, vectors = Settings.__init__.__defaults__
    quick = (*kept, 0.0, vectors)  # seconds of a round
    monkeypatch.setattr(Settings.__init__, "__defaults__", quick)
    monkeypatch.setattr("femops.bench.scaling.MEMORY_RANKS", (1,))
    calls = measured_once(monkeypatch, femops.bench.scaling, "run_scaling")
    arguments = ["bench", "scaling", *SMALL, "--problem", "bp1", "--mesh", "cartesian"]
    arguments += ["--order", 2, "--level", "partial"]
    code, out, _ = run(*arguments, "--ranks", 1, "--memory")
    assert code == 0
    assert out.count("bp1") == 1 + 1  # measured; memory
    code, out, _ = run(*arguments, "--ranks", 1, "--json", "--plot", "speed.png")
    result = json.loads(out)
    assert [given["memory_ranks"] for given in calls] == [(1,), ()]
    assert list(result) == ["machine", "rows", "memory"]
    keys = (
        "problem mesh method nvec order scaling ranks dofs elements level timed calm_rounds "
        "seconds seconds_min dofs_per_second speedup efficiency wait wait_without_overlap "
        "seconds_without_overlap messages bytes least_messages least_bytes"
    )
    assert [list(row) for row in result["rows"]] == [keys.split()]
    assert result["rows"][0]["scaling"] == "strong"
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_bench_scaling_with_dofs_of_each_rank(run, monkeypatch):
    asked = []
    empty = {"machine": {"processor": "one"}, "rows": [], "memory": []}
    monkeypatch.setattr(
        femops.bench.scaling, "run_scaling", lambda one, **_: asked.append(one) or empty
    )
    for words in ([], ["--weak"]):
        assert run("bench", "scaling", "--dofs", 500, *words)[0] == 0
    assert [(one.weak, one.dofs) for one in asked] == [(False, 500), (True, 500)]


def test_cost_prints_its_contract(run, tmp_path):
    arguments = ["cost", "mass", "--dim", 1, "--order", "1-2", "--q1d", "p1d+1"]
    code, out, _ = run(*arguments, "--json", "--plot", "cost.png")
    result = json.loads(out)
    assert code == 0
    assert list(result) == ["rows", "exponents"]
    levels = ["full", "near-optimal", "decomposed", "partial", "matrix-free"]
    assert list(result["exponents"]) == levels
    measures = ["flops_assembly", "flops_apply", "stored_bytes"]
    assert all(list(result["exponents"][level]) == measures for level in levels)
    assert [(row["level"], row["order"]) for row in result["rows"]] == [
        (level, order) for order in (1, 2) for level in levels
    ]
    for row in result["rows"]:
        assert list(row) == ["level", "order", *measures, "seconds"]
        assert row["seconds"] > 0
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = run(*arguments)
    assert code == 0
    assert "near-optimal" in out
    assert "Table 1" in out


def test_warmup(run):
    code, out, _ = run("warmup", "--order", 1, "--dim", 1)
    assert code == 0
    assert out.startswith("4 operators are ready after ")


# --- errors ---------------------------------------------------------------------------------------

NO_BOXES = "0x4", "4x4x", "2x2x2x2"

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
    (["solve", "poisson", "disc.mesh", "--level", "half"], 2, "choose one of full, element"),
    (["solve", "poisson"], 2, "MESH"),
    (["solve", "navier"], 2, "navier"),
    (["solve", "poisson", "disc.mesh", "--k", "3"], 2, "--k"),
    (["solve", "helmholtz", "disc.mesh", "--k", "0"], 2, "got '0': give a number > 0"),
    (["solve", "helmholtz", "disc.mesh", "--k", "nan"], 2, "got 'nan'"),
    (["solve", "elasticity", "disc.mesh", "--mu", "-1"], 2, "got '-1': give a number > 0"),
    (["solve", "neohookean", "disc.mesh", "--lam", "-1"], 2, "got '-1': give a number >= 0"),
    (["solve", "stokes", "disc.mesh", "--order", "1"], 1, "give --order 2"),
    (["solve", "elasticity", "line.mesh"], 1, "needs 2 dimensions or more, this mesh has 1"),
    (["solve", "elasticity", "periodic.mesh"], 1, "needs values on a boundary"),
    (["bench", "bp9"], 2, "bp9"),
    (["bench", "bp1", "--order", "8-1"], 2, "8-1"),
    (["bench", "bp1", "--level", "best"], 1, "choose one of full"),
    (["bench", "bp1", "--footprint", "ram", "--dofs", "99"], 2, "not both"),
    (["bench", "bp1", "--rounds", "0"], 2, "got '0'"),
    (["bench", "bp1", "--plot", "bp1.pdf"], 1, "name it 'bp1.png'"),
    (["bench", "bp1", "--order", "0"], 2, "no list of orders"),
    (["bench", "bp1", "--order", "99"], 1, "orders are [99]: give at least one, all from 1 to 32"),
    (["bench", "bp1", "--threads", "9999"], 1, "9999 threads: choose 1 to"),
    (["bench", "all", "--plot", "no/all.png"], 1, "there is no folder"),
    (["bench", "all", "--dofs", "99"], 2, "No such option: --dofs"),
    (["bench", "cg", "--peers"], 2, "No such option: --peers"),
    (["bench", "cg", "--footprint", "huge"], 1, "footprint"),
    (["bench", "bp1", "--ranks", "2"], 2, "No such option: --ranks"),
    (["bench", "scaling", "--threads", "2"], 2, "No such option: --threads"),
    (["bench", "scaling", "--ranks", "1,x"], 2, "--ranks: '1,x' is no list of numbers of ranks"),
    (["cost", "mass", "--order", "٣"], 2, "--order: '٣' is no list of orders"),
    (["cost", "mass", "--dim", "٣"], 2, "'--dim': got '٣': give a whole number from 1 to 3"),
    (["solve", "poisson", ""], 1, "the name of the mesh is empty"),
    (["bench", "scaling", "--order", "2,4"], 2, "got '2,4'"),
    (["bench", "scaling", "--dofs", "100", "--footprint", "ram"], 2, "not both"),
    (["bench", "cg", "--dofs", "100", "--footprint", "ram"], 2, "not both"),
    (["cost", "stokes"], 2, "stokes"),
    (["cost", "mass", "--dim", "4"], 2, "--dim"),
    (["cost", "mass", "--q1d", "7"], 2, "p1d+1"),
    (["cost", "mass", "--plot", "cost.pdf"], 1, "name it 'cost.png'"),
    (["solve", "poisson", "disc.mesh", "--save", "/proc/u.vtu"], 1, "cannot write '/proc/u.vtu'"),
    (["solve", "poisson", "disc.mesh", "--picture", "/proc/u.png"], 1, "cannot write '/proc/u.p"),
    (["mesh", "convert", "disc.mesh", "/proc/disc.vtu"], 1, "cannot write '/proc/disc.vtu'"),
    (["mesh", "convert", "disc.mesh", "disc.stl"], 2, "must end in .mesh, .vtu or .png"),
    (["mesh", "refine", "disc.mesh", "no/finer.mesh"], 1, "there is no folder 'no'"),
    (["mesh", "refine", "disc.mesh", "finer.mesh", "--times", "40"], 1, "GiB of memory"),
    (["solve", "poisson", "disc.mesh", "--order", "abc"], 2, "got 'abc'"),
    (["solve", "poisson", "disc.mesh", "--rtol", "1"], 2, "got '1'"),
    (["solve", "poisson", "disc.mesh", "--rtol", "nan"], 2, "got 'nan'"),
    (["bench", "bp1", "--dofs", "3"], 2, "got '3'"),
    (["demo", "--out", "binary.mesh"], 1, "cannot make the folder"),
    (["warmup", "--dim", "4"], 2, "dimensions are 1 to 3"),
    (["warmup", "stokes"], 2, "form 'stokes': choose from mass"),
    (["warmup", "--mesh", "round"], 2, "--mesh 'round': choose from cartesian"),
    (["warmup", "--level", "partial,most"], 2, "--level 'most': choose from full"),
    (["bench", "scaling", "--footprint", "huge"], 1, "footprint"),
    (["bench", "all", "--plot", "/proc/all.png"], 1, "cannot write '/proc/all.png'"),
    (["cost", "mass", "--plot", "/proc/cost.png"], 1, "cannot write '/proc/cost.png'"),
    (["solve", "stokes", "line.mesh"], 1, "needs 2 dimensions or more, this mesh has 1"),
    (["solve", "neohookean", "line.mesh"], 1, "needs 2 dimensions or more, this mesh has 1"),
    (["bench", "scaling", "--plot", "no/x.png"], 1, "there is no folder"),
    (["cost", "mass", "--order", "33"], 1, "all from 1 to 32"),
    (["nonsense"], 2, "nonsense"),
    *((["mesh", "info", box], 1, f"'{box}' is no box: give its elements") for box in NO_BOXES),
]


def test_bad_input_is_one_clear_line(run, tmp_path):
    (tmp_path / "binary.mesh").write_bytes(bytes(range(256)))
    text = femops.sample("disc.mesh").read_text()
    (tmp_path / "truncated.mesh").write_text(text[: len(text) // 3])
    write_mfem(femops.box((2,)), tmp_path / "line.mesh")
    before = sorted(tmp_path.iterdir())
    for arguments, code, words in BAD:
        got, out, err = run(*arguments)
        assert (got, out) == (code, ""), arguments
        assert words in err, arguments
        if code == 1:
            assert err.startswith("femops: "), arguments
            assert err.count("\n") == 1, arguments
        assert sorted(tmp_path.iterdir()) == before, arguments


def test_locally_refined_meshes(run, tmp_path):
    femops.save(tmp_path / "a.mesh", femops.box((2, 2)).refined([0]))
    facts = json.loads(run("mesh", "info", "a.mesh", "--json")[1])
    assert (facts["levels"], facts["conforming"]) == ([3, 4], False)
    assert "levels" not in json.loads(run("mesh", "info", "2x2", "--json")[1])
    assert run("mesh", "refine", "a.mesh", "b.mesh")[0] == 0
    assert "so that they can be coarsened" in run("mesh", "convert", "a.mesh", "a.vtu")[2]
    assert json.loads(run("mesh", "info", "b.mesh", "--json")[1])["levels"] == [0, 12, 16]
    code, out, _ = run("mesh", "partition", "a.mesh", "--parts", "2", "--json")
    assert code == 0
    assert json.loads(out)["per_part"]["elements"] == [4, 3]


@pytest.mark.parametrize("where", ["femops.cli.app.build", "femops.cli.info.describe"])
def test_interrupted(run, monkeypatch, where):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupt)
    assert run("info") == (130, "", "femops: interrupted\n")


def test_defects_are_not_hidden():
    assert explained(ZeroDivisionError()) is None
    assert explained(OSError("a library is missing")) is None
    assert "memory" in explained(MemoryError())
    assert "memory" in explained(OSError(errno.ENOMEM, "no more"))


# --- output ---------------------------------------------------------------------------------------


def test_lists_of_numbers_and_quantities():
    assert [numbers(text) for text in ("4", "1-3", "2, 6-7,2")] == [[4], [1, 2, 3], [2, 6, 7]]
    found = [quantity(value, "dofs") for value in (1234567, 12.3, 5e9)]
    assert found == ["1.23 Mdofs", "12.3 dofs", "5 Gdofs"]


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
