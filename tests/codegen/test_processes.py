"""What a cache, a fork, a second process and several threads must survive, each case apart."""

import hashlib
import os
import re
import textwrap
from collections.abc import Callable

import pytest

from femops_kernels.codegen import cache

PROGRAM = """
import numpy as np, femops
from femops_kernels.codegen import ahead
from femops_kernels.cpu import sweep
from femops_kernels.cpu.machine import set_threads
ahead._can_help = lambda cores: False  # no other process writes to the cache
sweep.PARALLEL_EFFORT = 1  # or so small a problem would run on one thread
V = femops.H1(femops.box((5, 3)), 2)
A = femops.mass(V)
x = np.arange(V.size, dtype=float)
def check():
    assert abs(A @ x - A.assemble() @ x).max() < 1e-14
"""


SMALL = """
from femops_kernels.codegen import notice, specialize
def kernel(number):
    text = f'''
from femops_kernels.simd.compiling import *

@function
def times(n) -> int:
    return {number} * n
'''
    assert specialize.load(f"kernel_{number}", text).times(2) == 2 * number
"""
"""A program whose kernels are compiled soon."""


Run = Callable[..., str]


def ended(program, body, cache, text=PROGRAM, **environment):
    """Exit code, output and errors of a program that goes on with `body`."""
    return program(text + textwrap.dedent(body), FEMOPS_CACHE=str(cache), **environment)


@pytest.fixture(scope="module")
def run(program):
    """What is printed to standard error by a program that ends well."""

    def call(*given, **environment):
        result = ended(program, *given, **environment)
        assert result.returncode == 0, result.stderr
        return result.stderr

    return call


SAYS_AT_ONCE = "from femops_kernels.codegen import notice; notice.AFTER = 0.0; check()"


@pytest.fixture(scope="module")
def warm(run, tmp_path_factory):
    """A cache folder that holds the program's kernels; their compilation is said in one line."""
    cache = tmp_path_factory.mktemp("cache")
    said = run(SAYS_AT_ONCE, cache, FEMOPS_THREADS="1")
    line = f"femops compiles kernels for this machine, and keeps them in {cache} for the next run"
    assert said == line + "\n"
    return cache


COMPILES_NOTHING = """
from femops_kernels.codegen import notice, specialize
notice.AFTER = 0.0
def compiled(*_):
    raise AssertionError
specialize.compiled = compiled
"""


def test_second_process_compiles_nothing(run, warm):
    """The second process finds all it needs, says nothing, and leaves the files as they were."""
    before = {p: p.stat().st_mtime_ns for p in warm.rglob("*.kernel")}
    assert before
    body = """
    set_threads(1); check()
    assert len(specialize._loaded) > 1
    assert "numba" not in sys.modules
    """
    assert run(body, warm, COMPILES_NOTHING + PROGRAM) == ""
    assert {p: p.stat().st_mtime_ns for p in warm.rglob("*.kernel")} == before


def test_a_program_silences_what_is_said_of_a_compilation(run, tmp_path):
    silent = "import logging; logging.getLogger('femops').setLevel('ERROR'); notice.AFTER = 0.0; "
    assert run(silent + "kernel(1)", tmp_path, SMALL) == ""
    assert list(tmp_path.glob("kernel_1.sha256"))


def test_warmed_up_loads_nothing(run):
    """What ``femops warmup`` compiled serves another mesh, with conditions and values.

    Several threads too: they are woken for large operators only, which it does not make.
    """
    body = """
    from femops.cli import main
    from femops_kernels.codegen import specialize
    names, load = set(), specialize.load
    def loaded(name, text):
        names.add(name)
        return load(name, text)
    specialize.load, sweep.PARALLEL_EFFORT = loaded, 2**17
    try:
        main("warmup diffusion --order 1 --dim 2 --level matrix-free,partial "
             "--mesh multilinear".split())
    except SystemExit as stop:
        assert not stop.code
    before = set(names)
    assert before
    for n, level, threads in ((3, "matrix-free", 1), (3, "partial", 1), (256, "partial", 2)):
        mesh = femops.box((n, n + 1), mapping=lambda x: x + 0.2 * x[::-1] * x)
        V = femops.H1(mesh, 1)
        A = femops.diffusion(V, 2.0, level=level).constrained(V.boundary_dofs(1))
        assert A.compiled.threads() == threads
        b = A.rhs(np.ones(V.shape))
        femops.cg(A, b, M=femops.jacobi(A), maxiter=2, warn=False)
    assert names == before
    """
    run(body, cache.cache_folder(), FEMOPS_THREADS="2")


def test_damaged_cache_is_mended(run, tmp_path):
    """Each kernel is damaged in another way: all are compiled again, once.

    A source is written again before it is looked at. A process killed between compiling and sealing
    leaves unfinished files without a checksum, which is no damage.
    """
    everything = "notice.AFTER = 1e9\nfor number in range(1, 7): kernel(number)"
    assert run(everything, tmp_path, SMALL) == ""
    files = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    records = sorted(tmp_path.glob("*.sha256"))
    assert len(records) == 6
    for number, kind in enumerate(("kernel", "kernel", "kernel", "py", "kernel"), 1):
        (path,) = tmp_path.rglob(f"kernel_{number}.*{kind}")
        data = path.read_bytes()
        damaged = data[:100], os.urandom(len(data)), b"", b"\xff\xfe not python", data[:100]
        path.write_bytes(damaged[number - 1])
    records[4].unlink()
    said = run(everything, tmp_path, SMALL)
    assert re.findall(r"kernel kernel_(\d) in .* was damaged: compiled again", said) == [*"123"]
    assert said.count("Warning") == 3
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()} == files
    assert all(path.stat().st_size > 100 for path in tmp_path.rglob("*.kernel"))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.kernel")}
    assert run(everything, tmp_path, SMALL) == ""
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.kernel")} == before


def test_sealed_files_that_are_no_kernels_are_compiled_again(run, tmp_path):
    everything = "notice.AFTER = 1e9\nfor number in range(1, 6): kernel(number)"
    run(everything, tmp_path, SMALL)
    whole = (tmp_path / "kernel_5.kernel").read_bytes()
    deep = b"[" * 100_000
    for number, content in enumerate(
        (b"no kernel", deep, b"{}\n", b'{"entries": 3}\n', whole[:-1]), 1
    ):
        path = tmp_path / f"kernel_{number}.kernel"
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        path.with_suffix(".sha256").write_text(f"{digest}  {path.name}\n")
    said = run(everything, tmp_path, SMALL)
    assert re.findall(r"kernel kernel_(\d) in .* was damaged", said) == [*"12345"]
    assert run(everything, tmp_path, SMALL) == ""


def test_sparse_files_take_no_memory(run, tmp_path):
    """A file of some kilobytes on the disk may have any length."""
    everything = "notice.AFTER = 1e9\nfor number in range(1, 4): kernel(number)"
    run(everything, tmp_path, SMALL)
    for number, suffix in enumerate((".kernel", ".sha256", ".py"), 1):
        os.truncate(tmp_path / f"kernel_{number}{suffix}", 2**40)
    said = run(everything, tmp_path, SMALL)
    assert re.findall(r"kernel kernel_(\d) in .* was damaged", said) == ["1"]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 2**20
    assert run(everything, tmp_path, SMALL) == ""


def test_without_memory_a_kernel_is_an_error(run, tmp_path):
    """LLVM would end the process."""
    pytest.importorskip("resource")
    body = """
    import resource
    notice.NOTICE.silent = True  # Python may wait for ever for a thread without memory
    kernel(1)
    resource.setrlimit(resource.RLIMIT_AS, (2**20, resource.RLIM_INFINITY))
    try:
        kernel(2)
    except MemoryError as error:
        said = str(error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    assert said == "there is no memory left to compile or load a kernel"
    kernel(2)
    """
    run("notice.AFTER = 1e9\n" + textwrap.dedent(body), tmp_path, SMALL)


def test_kernels_used_least_recently_go(run, tmp_path):
    """Those in use stay, as do the tables, what is locked, and files that are not femops'."""
    begin = "from femops_kernels.codegen import cache\nnotice.AFTER = 1e9\ncache.MOST_KEPT = 8\n"
    run(begin + "for number in range(8): kernel(number)", tmp_path, SMALL)
    others = "tuning.json", "limits.json", "thesis.sha256", "thesis.tex", "trace_1.csv"
    for name in others:
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (0, 0))
    for number in range(8):
        os.utime(tmp_path / f"kernel_{number}.sha256", (number, number))
    body = """
    kernel(0)  # used again
    with cache.locked(cache.cache_folder() / "kernel_1.lock"):
        kernel(8)
    """
    run(begin + textwrap.dedent(body), tmp_path, SMALL)
    left = {path.stem for path in tmp_path.glob("kernel_*.sha256")}
    assert left == {f"kernel_{k}" for k in (0, 1, 4, 5, 6, 7, 8)}
    assert {path.stem for path in tmp_path.glob("kernel_*")} == left
    assert all((tmp_path / name).exists() for name in others)
    run(begin + "for number in range(9): kernel(number)", tmp_path, SMALL)


def test_files_of_killed_writers_go_after_a_day(run, tmp_path):
    body = """
    import signal
    if os.fork() == 0:
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        kernel(1)
    os.wait()
    """
    run(textwrap.dedent(body), tmp_path, SMALL)
    (left,) = tmp_path.glob("*.tmp")
    mine = tmp_path / "femops-mine.tmp"
    mine.touch()
    os.utime(mine, (0, 0))
    run("kernel(2)", tmp_path, SMALL)
    assert left.exists()  # its writer may live
    os.utime(left, (0, 0))
    run("kernel(3)", tmp_path, SMALL)
    assert [*tmp_path.glob("*.tmp")] == [mine]


def test_two_processes_at_once(run, tmp_path):
    """Two that start on an empty cache both work, and each kernel is compiled once."""
    body = """
    import os, warnings
    warnings.simplefilter("error", UserWarning)
    compiled = specialize.compiled
    def counted(name, *rest):
        with open(os.environ["FEMOPS_CACHE"] + "/names", "a") as file:
            file.write(name + "\\n")
        return compiled(name, *rest)
    specialize.compiled = counted
    child = os.fork()
    for number in range(1, 7):
        kernel(number)
    assert not child or os.waitpid(child, 0)[1] == 0
    """
    run(body, tmp_path, SMALL)
    names = [f"kernel_{number}" for number in range(1, 7)]
    assert sorted((tmp_path / "names").read_text().split()) == names
    assert sorted(file.stem for file in tmp_path.glob("*.kernel")) == names


FORKS = """
import multiprocessing, os, signal, threading
from femops_kernels.cpu.machine import describe, thread_ids
def child(k):
    set_threads(2)
    return describe()["threads"], thread_ids(), A @ (k * x)
def threads_of_their_own():
    # workers of a parent are not in its children, who start others; the bits are the same
    own = thread_ids()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers = pool.map(child, [1, 2])
    for k, (threads, ids, y) in zip((1, 2), answers):
        assert threads == 2 and len(set(ids)) == 2 and not set(ids) & set(own)
        assert np.array_equal(y, A @ (k * x))
    assert thread_ids() == own
def work():
    while True:
        A @ x
def children_of_threads(count):
    for _ in range(count):
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends one who waits
            try:
                check()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        check()
set_threads(2)
check()
threads_of_their_own()
children_of_threads(1)
# what a Python thread of the parent is at is not waited for by the child
threading.Thread(target=work, daemon=True).start()
children_of_threads(5)
"""


def test_forks_of_threads(run, warm):
    run(FORKS, warm, FEMOPS_THREADS="2")


def test_a_fork_while_a_thread_compiles(run, tmp_path):
    """The child compiles and loads kernels. Its parent's thread does not hold what it needs."""
    body = """
    import os, signal, threading
    begun, compiled = threading.Event(), specialize.compiled
    def slowly(*given):
        begun.set()
        threading.Event().wait(0.3)
        return compiled(*given)
    specialize.compiled = slowly
    thread = threading.Thread(target=kernel, args=(1,))
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends one who waits
        kernel(1)
        kernel(2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    kernel(2)
    """
    run(body, tmp_path, SMALL)


def test_a_fork_while_a_thread_imports(run, tmp_path):
    """The child imports the same part of femops, whose lock a thread of its parent held."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\npart = 1\n")
    body = f"""
    import os, signal, sys, threading
    from femops import _lazy
    sys.path.append({str(tmp_path)!r})
    _lazy.HOME["part"] = "slow"
    thread = threading.Thread(target=lambda: femops.part)
    thread.start()
    while "slow" not in sys.modules:
        threading.Event().wait(0.01)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends one who waits
        os._exit(femops.part - 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert femops.part == 1
    """
    run(body, tmp_path, SMALL)


SOLVES = """
import os, signal, threading, time
from functools import cached_property
def child(work):
    if (pid := os.fork()) == 0:
        signal.alarm(20)  # ends one who waits
        try:
            work()
            # a thread may get the number of one of the parent, who holds the preconditioner
            others = []
            thread = threading.Thread(target=lambda: others.append(M @ b))
            thread.start()
            thread.join()
            os._exit(0 if np.array_equal(others[0], right) else 1)
        except BaseException:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
V = femops.H1(femops.box((8, 8)), 2)
A = femops.diffusion(V).constrained(V.boundary_dofs())
b = femops.load(V, 1.0)
M = femops.multigrid(A)
right = M @ b
def solved():
    assert np.array_equal(M @ b, right)
    assert femops.cg(A, b, M=M)[1].converged
def solve():
    while True:
        femops.cg(A, b, M=M, callback=lambda _: time.sleep(1e-3))  # forks find the lock held
threading.Thread(target=solve, daemon=True).start()
for _ in range(50):
    child(solved)
# locks of tables and of cached properties, which threads hold while they compute a value
begun, end = threading.Event(), threading.Event()
def slowly():
    begun.set()
    end.wait(20)
    return 1
table = Derived()
class Slow:
    value = cached_property(lambda self: slowly())
femops.Slow = Slow  # a class of the package
for first, second in (
    (lambda: table.get(V, slowly), lambda: table.get(V, lambda: 2)),
    (lambda: Slow().value, lambda: setattr(femops, "made", Slow().value)),
):
    begun.clear(), end.clear()
    thread = threading.Thread(target=first)
    thread.start()
    begun.wait()
    def other():
        end.set()
        second()
    child(other)
    end.set()
    thread.join()
"""


def test_no_fork_inherits_a_lock_that_a_thread_holds(run, warm):
    run(SOLVES, warm, "from femops_kernels.exclusive import Derived\n" + PROGRAM)


THREADS = """
import os, signal, threading
from concurrent.futures import ThreadPoolExecutor
from femops_kernels.cpu.cg import ConjugateGradients
def one_operator(threads):
    # used by four Python threads at a time it gives each its own answer
    set_threads(threads)
    expected = [A @ (k * x) for k in range(4)]
    def work(k):
        set_threads(threads)
        return all(np.array_equal(A @ (k * x), expected[k]) for _ in range(100))
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
def operators_and_solves(threads):
    # at a time, each with the bits it has alone
    B = A + 0.5 * A
    work = [lambda: A @ x, lambda: B @ x, lambda: femops.cg(A, x, rtol=1e-10)[0]]
    set_threads(threads)
    expected = [f() for f in work]
    with ThreadPoolExecutor(4, initializer=set_threads, initargs=(threads,)) as pool:
        results = [(k % 3, pool.submit(work[k % 3])) for k in range(45)]
    assert all(np.array_equal(r.result(), expected[k]) for k, r in results)
def interrupted_solve():
    # Ctrl-C in the first burst of compiled iterations: no earlier can Python act
    # a shell may have started us with interrupts ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    compiled, solves = ConjugateGradients.advance, []
    def advance(solve, tolerance, limit, steps, show=True):
        compiled(solve, tolerance, limit, steps, show)
        if steps:
            solves.append(solve)
            os.kill(os.getpid(), signal.SIGINT)
    b = A @ np.sin(x)
    whole = femops.cg(A, b, rtol=1e-14)[1].iterations
    ConjugateGradients.advance = advance
    try:
        femops.cg(A, b, rtol=1e-14)
    except KeyboardInterrupt:
        assert len(solves) == 1 and 0 < solves[0].iterations < whole
    else:
        raise AssertionError("not interrupted")
for threads in (1, 2):
    one_operator(threads)
    operators_and_solves(threads)
interrupted_solve()
assert "numba" not in sys.modules
sweep.PARALLEL_EFFORT = 2**17  # small problems stay on one thread
set_threads(2)
check()
assert femops.mass(femops.H1(femops.box((5, 3)), 2)).compiled.threads() == 1
assert femops.mass(femops.H1(femops.box((320, 160)), 2)).compiled.threads() == 2
"""


def test_python_threads_solves_and_small_problems(run, warm):
    run(THREADS, warm, FEMOPS_THREADS="2")


def test_bad_environment(program, warm):
    for variable, value, message in (
        ("FEMOPS_LANES", "3", "lanes are '3' wide: set FEMOPS_LANES to one of"),
        ("FEMOPS_THREADS", "many", "choose 1 to"),
        ("FEMOPS_THREADS", "²", "choose 1 to"),
    ):
        result = ended(program, "check()", warm, **{variable: value})
        assert result.returncode == 1
        assert message in result.stderr
        assert "KernelValueError" in result.stderr.splitlines()[-1]
