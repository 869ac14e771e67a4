"""The code in README and documentation runs.

Python blocks of a page run in order, in one namespace and an empty folder, so a page reads like a
session. A text block right after a Python block shows what that block prints, to the letter. In
console blocks the lines that begin with "$ femops" run as commands.
"""

import io
import re
import runpy
import shlex
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import femops
from femops.cli import main
from femops.io.plots import plot, scene
from femops_kernels.cuda.device import cupy_device
from support.cuda.guarded import guarded_device

figures = pytest.importorskip("matplotlib.figure", reason="pictures are drawn: needs the extra viz")

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/coming_from").glob("*.md")]
)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {
    "petsc_krylov.py": ("petsc4py", "petsc4py is missing: docs/petsc.md says how to get it"),
    "closure_pytorch.py": ("torch", "PyTorch is missing"),
    "uncertainty_jax.py": ("jax", "JAX is missing"),
    "numba_krylov.py": ("numba", "Numba is missing"),
    "plasticity.py": ("numba", "Numba is missing"),
}
"""Libraries that examples need, by the name of the file."""
PAGES_NEED = {"petsc.md": ("petsc4py", "slepc4py")}
"""Libraries without which a page is left out."""
RUN_ELSEWHERE = {
    "femops hydro --verify 5": "test_hydro.py",
    "femops remap --verify 5": "test_remap.py",
}
"""Commands of pages that take long, and the module of `tests/cli` that runs them."""
BLOCK = re.compile(
    r"^```(python|console)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)


def blocks(page):
    """(language, code, output shown or None, line) of the blocks of a page."""
    text = page.read_text()
    return [(m[1], m[2], m[3], text.count("\n", 0, m.start()) + 1) for m in BLOCK.finditer(text)]


WITH_CODE = [page for page in PAGES if blocks(page)]
assert len(WITH_CODE) > 30


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch):
    """Of few points and patches: what they show is tested elsewhere, and drawing takes long."""
    save = figures.Figure.savefig
    small = lambda *given, **options: save(*given, **options | {"dpi": 20})  # noqa: E731
    monkeypatch.setattr(figures.Figure, "savefig", small)
    monkeypatch.setattr(scene, "PATCHES", 2000)


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_page(page, tmp_path, monkeypatch):
    for library in PAGES_NEED.get(page.name, ()):
        pytest.importorskip(
            library, reason=f"{library} is missing: docs/petsc.md", exc_type=ImportError
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plot, "check_pyvista", no_opengl)
    if page.name == "gpu.md" and cupy_device.describe()["missing"]:
        host_as_gpu(monkeypatch)
    run_page(page)


def run_page(page):
    """Run the blocks of a page; Python blocks have one namespace."""
    namespace = {"__name__": "__main__"}
    for language, code, shown, line in blocks(page):
        where = f"{page.name}:{line}"
        if language == "console":
            run_commands(code, where)
            continue
        if lacks_library(code):
            continue
        # Blank lines before the code let a traceback show the line of the page.
        program = compile("\n" * line + code, str(page), "exec")
        with redirect_stdout(io.StringIO()) as output:
            exec(program, namespace)
        if shown is not None:
            assert output.getvalue() == shown, f"{where} prints something else"


def test_shown_output_is_compared(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(2 + 2)\n```\n\n```text\n4\n```\n")
    run_page(page)
    page.write_text(page.read_text().replace("\n4\n", "\n5\n"))
    with pytest.raises(AssertionError, match=r"page.md:1 prints something else"):
        run_page(page)


def lacks_library(code):
    """True if a block uses a library that is not there, which a page uses in blocks of its own."""
    return any(name in code and find_spec(name) is None for name in ("jax", "torch"))


def no_opengl():
    """Matplotlib draws: VTK needs OpenGL. PyVista's pictures have a test of their own."""
    raise femops.errors.MissingExtraError


def host_as_gpu(monkeypatch):
    """Where there is no GPU: kernels are run on the host, and "cupy" has NumPy's functions."""
    device = guarded_device()
    monkeypatch.setattr(cupy_device, "open_device", lambda name: device)
    monkeypatch.setitem(sys.modules, "cupy", device.xp)


def test_help_on_the_page_is_what_the_command_prints(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = (ROOT / "docs" / "cli.md").read_text()
    shown = re.findall(r"^```text\n(Usage: femops .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert shown
    for text in shown:
        command = text.removeprefix("Usage: femops ").split(" [OPTIONS]")[0]
        output = io.StringIO()
        with pytest.raises(SystemExit), redirect_stdout(output):
            main([*command.split(), "--help"])
        assert output.getvalue().strip() == text.strip(), f"femops {command} --help"


def run_commands(code, where):
    commands = [row.removeprefix("$ ") for row in code.splitlines() if row.startswith("$ femops")]
    assert commands, f"{where}: nothing to run"
    for command in commands:
        if command in RUN_ELSEWHERE:
            continue
        with pytest.raises(SystemExit) as stop, redirect_stdout(io.StringIO()):
            main(shlex.split(command)[1:])
        assert not stop.value.code, f"{where}: {command}"


def test_the_reference_names_all_that_is_public():
    text = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    directives = r"^\.\. auto(?:class|function|module):: femops\.([\w.]+)$"
    listed = set(re.findall(directives, text, re.MULTILINE))
    modules = {name for name in femops.__all__ if isinstance(getattr(femops, name), ModuleType)}
    assert set(femops.__all__) - modules <= listed
    assert {f"io.{name}" for name in femops.io.__all__ if name not in femops.__all__} <= listed
    assert {f"geometry.{name}" for name in femops.geometry.__all__} <= listed
    assert "errors" in listed


def test_commands_that_no_page_runs_are_run_elsewhere():
    shown = "".join(code for page in WITH_CODE for _, code, _, _ in blocks(page))
    for command, module in RUN_ELSEWHERE.items():
        _, name, option, number = command.split()
        assert f"$ {command}\n" in shown
        assert f'"{option}", {number}' in (ROOT / "tests" / "cli" / module).read_text()
        assert module == f"test_{name}.py"


@pytest.mark.parametrize(
    "example",
    [
        # The gallery runs the others, as whole programs.
        pytest.param(path, marks=() if "mpi4py" in path.read_text() else pytest.mark.exhaustive)
        for path in EXAMPLES
    ],
    ids=lambda p: p.name,
)
def test_example(example, tmp_path, monkeypatch):
    if example.name in NEEDS:
        library, reason = NEEDS[example.name]
        pytest.importorskip(library, reason=reason)
    monkeypatch.chdir(tmp_path)
    small = ["small"] if "small" in example.read_text() else []  # the whole takes a minute
    monkeypatch.setattr(sys, "argv", [str(example), *small])
    with redirect_stdout(io.StringIO()):
        runpy.run_path(str(example), run_name="__main__")


def test_the_pictures_are_what_draws_them(tmp_path):
    drawing = runpy.run_path(str(ROOT / "docs" / "draw.py"))
    images = ROOT / "docs" / "images"
    drawing["svg"].__globals__["IMAGES"] = tmp_path
    drawing["conventions"]()
    drawing["architecture"]()
    drawing["cards"]()
    for drawn in tmp_path.glob("*.svg"):
        assert drawn.read_text() == (images / drawn.name).read_text(), "run docs/draw.py"


def test_the_gallery_shows_programs_with_output_and_picture(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from gallery import write_gallery

    examples, docs = tmp_path / "examples", tmp_path / "docs"
    examples.mkdir()
    code = "from pathlib import Path\nPath('out/two_sums.png').touch()\nprint('  4')\n"
    (examples / "two_sums.py").write_text(f'"""Sums: a test.\n\nWith text."""\n{code}')
    (examples / "poisson_mpi.py").write_text(
        '"""Ranks.\n\n    mpiexec\n\nText."""\nfrom mpi4py import MPI\nfail()\n'
    )
    write_gallery(examples, docs)
    page, ranks, index = (
        (docs / "gallery" / f"{name}.md").read_text()
        for name in ("two_sums", "poisson_mpi", "index")
    )
    notebook = docs / "gallery" / "two_sums.ipynb"
    program = "{download}`As a program <../../examples/two_sums.py>`"
    link = ", {download}`as a notebook <two_sums.ipynb>`" if find_spec("jupytext") else ""
    assert page.startswith(f"# Two sums\n\nSums: a test.\n\nWith text.\n\n{program}{link}\n\n![")
    assert notebook.is_file() == bool(link)
    assert "```text\n  4\n```" in page
    shown = ("```{literalinclude} ../../examples/two_sums.py", ":language: python", ":lines: 4-")
    assert "\n".join(shown) in page
    assert "It prints" not in ranks
    assert "\n\n    mpiexec\n" in ranks
    assert index.index("(out/two_sums.png)") < index.index("## Poisson with MPI")
    (examples / "two_sums.py").write_text('"""Wrong."""\n1 / 0\n')
    with pytest.raises(RuntimeError, match=r"(?s)two_sums.py failed:.*ZeroDivisionError"):
        write_gallery(examples, docs)
    (examples / "two_sums.py").write_text('"""Old."""\nimport warnings\n\nwarnings.warn("old")\n')
    with pytest.raises(RuntimeError, match=r"(?s)two_sums.py failed:.*UserWarning: old"):
        write_gallery(examples, docs)


@pytest.mark.parametrize("size", ["", "small"])
def test_the_gallery_runs_first_looks_if_asked(size, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from gallery import write_gallery

    monkeypatch.setenv("GALLERY", size)
    code = '"""Look."""\nimport sys\nprint("at first" if "small" in sys.argv else "at all")\n'
    (tmp_path / "look.py").write_text(code)
    write_gallery(tmp_path, tmp_path / "docs")
    page = (tmp_path / "docs" / "gallery" / "look.md").read_text()
    assert ("at first" if size else "at all") in page.partition("```{literalinclude}")[0]


def test_the_gallery_runs_examples_at_the_same_time(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from gallery import write_gallery

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / f"{name}.py").write_text(WAITS.format(name=name, other=other))
    write_gallery(tmp_path, tmp_path / "docs")
    index = (tmp_path / "docs" / "gallery" / "index.md").read_text()
    assert index.index("## One") < index.index("## Two")


WAITS = '''"""Wait for another example."""
import time
from pathlib import Path

Path("out/{name}").touch()
end = time.time() + 60
while not Path("out/{other}").exists():
    assert time.time() < end, "the other example does not run"
    time.sleep(0.01)
'''


def test_code_of_docstrings_is_shown_unchanged():
    pytest.importorskip("numpydoc", reason="pages are built with the extra docs")
    signs = runpy.run_path(str(ROOT / "docs" / "conf.py"))["_literal_signs"]
    code = [">>> f(u**2, *given)", "... | 3", "abs(*x,)"]
    lines = [*code, "", "The norm |b| of ``|b|``, (*shape, n)."]
    signs(None, None, None, None, None, lines)
    assert lines[:3] == code
    assert lines[4] == r"The norm \|b\| of ``|b|``, (\*shape, n)."
