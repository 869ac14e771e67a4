"""`import femops` loads nothing but names, and still offers every one."""

import json
import operator
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import femops
from femops_common import hints

ROOT = Path(__file__).parents[2]
HEAVY = ["numpy", "numba", "llvmlite", "scipy", "matplotlib", "pyvista", "vtk", "mpi4py"]
HEAVY += ["cupy", "cuda", "nvidia", "jax", "torch", "petsc4py"]

PROBE = """
import sys
before = set(sys.modules)
import femops
loaded = sorted(set(sys.modules) - before)
import json
print(json.dumps([loaded, [name for name in {heavy!r} if name in sys.modules]]))
{more}
"""


def run(more=""):
    code = PROBE.format(heavy=HEAVY, more=more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("environment", [{}, {"PMI_SIZE": "4", "PMI_RANK": "1"}], ids=["", "ranks"])
def test_imports_are_light(environment, monkeypatch):
    """It is quick, as it loads itself and little of Python's own library.

    Spaces load no compiler, and a serial communicator no MPI. Under a launcher too: many processes
    may be started to work each for itself.
    """
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    use = f"""
femops.H1(femops.box((2, 2)), 2)
from femops.parallel import communicator
assert communicator().sum(1) == 1
print(json.dumps([name for name in {HEAVY[1:]!r} if name in sys.modules]))
femops.save, femops.plot, femops.io.to_pyvista
print(json.dumps([name for name in ("matplotlib", "pyvista") if name in sys.modules]))
"""
    (loaded, heavy), later, to_draw = run(use)
    assert heavy == []
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names == {"femops"}
    assert {name for name in loaded if name.startswith("femops")} == {"femops", "femops._lazy"}
    assert len(loaded) < 60
    assert later == to_draw == []


def test_a_program_on_the_host_loads_no_code_of_gpus():
    """Only the abstract class of devices, which annotations name."""
    program = re.search("```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    used = program.replace("order=4", "order=2").replace("refine=1", "refine=0")
    kept = "".join(line for line in used.splitlines(True) if "femops.plot" not in line)
    named = "n for n in sys.modules if n.startswith('femops_kernels.cuda')"
    *_, loaded = run(f"{kept}\nprint(json.dumps(sorted({named})))")
    assert loaded == []


def test_optional_modules_say_what_to_install():
    """The module of femops imports the library, which is not there, and not itself."""
    use = """
for name, package in (("jax", "jax"), ("petsc", "petsc4py"), ("torch", "torch")):
    sys.modules[package] = None
    for use in (f"femops.{name}", f"import femops.{name}"):
        try:
            exec(use)
        except ImportError as error:
            print(json.dumps([type(error).__name__, name, str(error)]))
"""
    said = run(use)[1:]
    assert [name for _, name, _ in said] == ["jax"] * 2 + ["petsc"] * 2 + ["torch"] * 2
    for kind, name, text in said:
        assert kind == "MissingExtraError"
        assert text.startswith(f"femops.{name} needs ")
        assert text.endswith("docs/petsc.md" if name == "petsc" else f"pip install {name}")


def test_a_petsc_built_for_another_numpy_is_explained(tmp_path):
    """Its import raises a ValueError."""
    (tmp_path / "petsc4py.py").write_text("raise ValueError('numpy.dtype size changed')")
    use = f"""
sys.path.insert(0, {str(tmp_path)!r})
try:
    import femops.petsc
except ImportError as error:
    print(json.dumps(str(error)))
"""
    assert "(numpy.dtype size changed), built for NumPy 2: see" in run(use)[1]


def test_every_name_is_there_and_listed():
    assert set(femops.__all__) <= set(dir(femops))
    for name in femops.__all__:
        assert getattr(femops, name) is not None
    with pytest.raises(AttributeError, match="module 'femops' has no attribute 'nothing'"):
        femops.nothing  # noqa: B018


def test_names_that_are_elsewhere():
    for name, hint in (
        ("grad", "write u.grad, of a field u in a form"),
        ("trace", "write numpy.trace"),
        ("interpolate", "write V.interpolate, of a space V"),
        ("assemble", "write A.assemble, of an operator A"),
        ("taylor", "it is femops.adjoint.taylor"),
        ("FunctionSpace", "write femops.H1"),
    ):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}': {hint}"):
            getattr(femops, name)


def test_names_of_other_libraries_are_no_names_of_femops():
    """A hint never hides something that is there, and what it advises exists."""
    assert not set(hints.ELSEWHERE) & set(dir(femops))
    for name, hint in hints.ELSEWHERE.items():
        with pytest.raises(AttributeError, match=re.escape(f"attribute {name!r}: {hint}")):
            getattr(femops, name)
    mesh = femops.box((2, 2))
    for name in hints.OF_MESHES:
        with pytest.raises(AttributeError, match=f"a Mesh has no attribute '{name}': write "):
            getattr(mesh, name)
    texts = " ".join([*hints.ELSEWHERE.values(), *hints.OF_MESHES.values()])
    for path in re.findall(r"femops\.([\w.]+)", texts):
        operator.attrgetter(path)(femops)
    for name in re.findall(r"mesh\.(\w+)", texts):
        assert hasattr(mesh, name)
    assert not hasattr(mesh, "nothing")


def test_version_is_the_installed_one():
    assert femops.__version__ == version("femops")
    assert "__version__" in dir(femops)
