"""Tests that run on several ranks: ``@pytest.mark.parallel(1, 2, 4)``.

Such a test takes the fixture ``comm``, the communicator of all ranks, and is one test for each
number of ranks, of which all but one are left to ``make exhaustive``. This process runs none of
them: it starts ``mpiexec -n N python -m pytest`` on all tests that have the same N, once (under
xdist too), and gives each the outcome that its ranks have written down. A failure on one rank ends
the run, as does a test that takes longer than its timeout, after every rank has said where it was;
the tests after it get another run.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

RUNS, RANKS = "FEMOPS_TEST_RUNS", "FEMOPS_TEST_RANKS"
"""Environment: the folder where runs leave their outcomes; in the ranks, how many they are."""

FOLDER = "FEMOPS_TEST_FOLDER"
"""Environment of the ranks: where they write."""

CHOSEN = "chosen.json"
"""The file, in that folder, that names the tests to run."""

ENDS = pytest.StashKey()
"""The communicator of the barrier after each test."""

FEW = 3
"""More ranks than these are left to ``make exhaustive``, where a test can do with fewer.

Machines have few cores, and ranks that share one take many times the time.
"""

NO_ELEMENTS = pytest.mark.filterwarnings("ignore:.*ranks have no elements")
"""Of the tests: `tests/parallel/test_mesh.py` has the warning."""

NAP = 1e-3
"""Seconds between two looks at that barrier: ranks that wait leave the cores to the others."""

TIMEOUT = 120
"""Seconds after which a test counts as one that hangs: many times what any takes."""

START = 120
"""The same for ranks that start."""


# --- Programs under mpiexec -----------------------------------------------------------------------


def why_not() -> str | None:
    """Why there can be no ranks here; None if there can."""
    if find_spec("mpi4py") is None:
        return "mpi4py is missing: needs the extra mpi"
    return None if mpiexec() else "mpiexec is missing: needs the extra mpi"


def mpiexec() -> str | None:
    """The launcher: pip's beside this Python, else the machine's."""
    beside = Path(sys.executable).parent
    return shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec")


def launch(
    ranks: int, arguments: list[str], timeout: float, cwd: Path | None = None, **environment: str
) -> tuple[int, str]:
    """Run a program on ranks and end it, ranks and all, when it takes too long.

    Returns
    -------
    (exit code, output and errors)
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "FEMOPS_TEST_"))}
    # Open MPI starts no more ranks than there are cores unless it is told to.
    env["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    env["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    env["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"  # ranks of MPICH that wait leave the core to others
    env["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "5"  # soon: tests run more ranks than there are cores
    env |= environment
    process = subprocess.Popen(
        [mpiexec() or "mpiexec", "-n", str(ranks), *arguments],
        env={k: v for k, v in env.items() if v != "unset"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=cwd,
    )
    try:
        text, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return -signal.SIGALRM, f"{end(process)}\nstill running after {timeout} seconds"
    except BaseException:  # an interrupt reaches this process alone
        end(process)
        raise
    return process.returncode, text


def end(process: subprocess.Popen[str]) -> str:
    """End a launcher and its ranks; what they have printed."""
    process.send_signal(signal.SIGTERM)  # it ends its ranks
    try:
        return process.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate(timeout=60)[0]


# --- The process that is asked for the tests ------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "parallel(*sizes, timeout=120): run on ranks")
    if FOLDER in os.environ:
        from mpi4py import MPI

        # Ranks that make numbered folders beside each other's disturb each other.
        config.option.basetemp = Path(os.environ[FOLDER]) / f"tmp-{MPI.COMM_WORLD.rank}"
    if RUNS not in os.environ and RANKS not in os.environ:
        os.environ[RUNS] = folder = tempfile.mkdtemp(
            prefix="femops-ranks-"
        )  # so do xdist's workers
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop(RUNS))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("parallel")
    if mark:
        sizes = [int(os.environ[RANKS])] if RANKS in os.environ else mark.args
        usual = usual_size(metafunc.function.__name__, sizes)
        each = [
            pytest.param(
                n,
                id=f"{n} rank{'s' * (n > 1)}",
                marks=() if n == usual else pytest.mark.exhaustive,
            )
            for n in sizes
        ]
        metafunc.parametrize("ranks", each, indirect=True, scope="session")


def usual_size(name: str, sizes: Sequence[int]) -> int:
    """The number of ranks on which a test runs by default: another one for each test."""
    few = [n for n in sizes if n <= FEW] or [min(sizes)]
    return few[zlib.crc32(name.encode()) % len(few)]


@pytest.fixture(scope="session")
def ranks(request: pytest.FixtureRequest) -> int:
    """How many ranks there are."""
    return request.param


@pytest.fixture(scope="session")
def comm(ranks: int) -> object:
    """The communicator of all ranks."""
    from femops.parallel import communicator
    from femops.parallel.launch import mpi

    return communicator(mpi().COMM_WORLD)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if FOLDER in os.environ:
        chosen = set(json.loads((Path(os.environ[FOLDER]) / CHOSEN).read_text()))
        items[:] = [item for item in items if item.nodeid in chosen]
        faulthandler.cancel_dump_traceback_later()
        if len(items) == len(chosen):
            own_file("collected").touch()
    if RANKS in os.environ:
        for item in items:
            item.add_marker(NO_ELEMENTS)
        return
    reason = why_not()
    for item in items:
        if item.get_closest_marker("parallel"):
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
            item.setup = lambda: None  # fixtures are for the ranks
            item.runtest = lambda item=item: give_outcome(item)


def give_outcome(item: pytest.Item) -> None:
    """Fail or skip like the ranks did, or pass."""
    outcome, text = outcome_of(item)
    if outcome == "failed":
        pytest.fail(text, pytrace=False)
    if outcome == "skipped":
        pytest.skip(text)


def outcome_of(item: pytest.Item) -> tuple[str, str]:
    """From the file of outcomes; if it is not there, run the tests that go with this one."""
    count = item.callspec.params["ranks"]
    group = [
        other
        for other in item.session.items
        if other.get_closest_marker("parallel") and other.callspec.params["ranks"] == count
    ]
    folder = Path(os.environ[RUNS])
    with locked(folder / ("lock" if count > 1 else "lock of one rank")):
        file = folder / f"{count}.json"
        if not file.exists():
            file.write_text(json.dumps(run(group, count, folder / f"{count}")))
        return tuple(json.loads(file.read_text())[item.nodeid])


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time: ranks need the cores for themselves; one rank alone does not."""
    import fcntl  # which Windows lacks

    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(group: list[pytest.Item], count: int, folder: Path) -> dict[str, tuple[str, str]]:
    """Outcomes of tests, each of which is in some run."""
    found: dict[str, tuple[str, str]] = {}
    while rest := [item for item in group if item.nodeid not in found]:
        own = folder / str(len(found))  # a rank may outlive its run and write where that ran
        own.mkdir(parents=True)
        found |= run_once(rest, count, own)
    return found


def run_once(rest: list[pytest.Item], count: int, folder: Path) -> dict[str, tuple[str, str]]:
    """Outcomes of tests up to the first that failed."""
    seconds = START + sum(limit(item) for item in rest)
    options = ["-q", "-s", "-x", "--tb=short", "--no-header", "-m", ""]
    options += [f"-p{name}" for name in ("support.mpi_runs", "no:cacheprovider")]
    tests = Path(__file__).parents[1]
    paths = [str(tests), *filter(None, [os.environ.get("PYTHONPATH")])]
    (folder / CHOSEN).write_text(json.dumps([item.nodeid for item in rest]))
    code, text = launch(
        count,
        [sys.executable, "-m", "pytest", *options, *dict.fromkeys(str(i.path) for i in rest)],
        seconds,
        rest[0].config.rootpath,
        **{RANKS: str(count), FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(paths)},
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",  # half of the time to start
    )
    if not all((folder / f"{rank}.collected").exists() for rank in range(count)):
        said = "\n".join(shown([None] * count, folder))
        failure = f"{count} ranks did not start; mpiexec ended with {code}\n{said}\n{text}"
        return dict.fromkeys((item.nodeid for item in rest), ("failed", failure))
    logs = [read_log(folder / f"{rank}.jsonl") for rank in range(count)]
    found: dict[str, tuple[str, str]] = {}
    for item in rest:
        reports = [log.get(item.nodeid) for log in logs]
        kinds = {report[0] if report else "missing" for report in reports}
        if len(kinds) == 1 and kinds <= {"passed", "skipped"}:
            found[item.nodeid] = reports[0]
            continue
        found[item.nodeid] = (
            "failed",
            "\n".join(
                [f"on {count} ranks; mpiexec ended with {code}", *shown(reports, folder), text]
            ),
        )
        break
    return found


def shown(reports: list[tuple[str, str] | None], folder: Path) -> Iterator[str]:
    """What each rank that failed says, or all of them if none does."""
    failed = [rank for rank, report in enumerate(reports) if report and report[0] == "failed"]
    for rank in failed or range(len(reports)):
        printed = folder / f"{rank}.txt"
        said = reports[rank][1] if reports[rank] else "did not come to the end"
        yield f"--- rank {rank}: {said}"
        if printed.exists():
            yield printed.read_text()


def read_log(file: Path) -> dict[str, tuple[str, str]]:
    """Outcomes by test; failures win over what passes before and after them."""
    found: dict[str, tuple[str, str]] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        name, *report = json.loads(line)
        if found.get(name, ("passed", ""))[0] == "passed":
            found[name] = tuple(report)
    return found


def limit(item: pytest.Item) -> float:
    return item.get_closest_marker("parallel").kwargs.get("timeout", TIMEOUT)


# --- The ranks ------------------------------------------------------------------------------------


def own_file(kind: str) -> Path:
    """A file of this rank."""
    from mpi4py import MPI

    return Path(os.environ[FOLDER]) / f"{MPI.COMM_WORLD.rank}.{kind}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each rank prints into a file of its own."""
    if FOLDER in os.environ:
        from mpi4py import MPI

        # A rank that waits here for the others must not be taken for one that does its part of the
        # test in which they hang.
        session.stash[ENDS] = MPI.COMM_WORLD.Dup()
        target = os.open(own_file("txt"), os.O_CREAT | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(target, stream)
        faulthandler.dump_traceback_later(START, exit=True, file=sys.__stderr__)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Say where this rank is when a test takes too long, and end it when all ranks have."""
    if FOLDER not in os.environ:
        return (yield)
    seconds = limit(item)
    faulthandler.dump_traceback_later(seconds, file=sys.__stderr__)
    timer = threading.Timer(seconds + 1, os._exit, [1])
    timer.daemon = True
    timer.start()
    try:
        result = yield
        end_together(item.session.stash[ENDS])
        return result
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def end_together(comm: object) -> None:
    """Wait for the other ranks, asleep: MPI's own barrier keeps a core busy."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(NAP)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if FOLDER not in os.environ or (report.passed and report.when != "teardown"):
        return
    from mpi4py import MPI

    text = report.longreprtext if report.failed else str(report.longrepr and report.longrepr[2])
    with own_file("jsonl").open("a") as log:
        log.write(json.dumps([report.nodeid, report.outcome, text]) + "\n")
    if report.failed:
        time.sleep(0.5)  # ranks that fail with this one may say so too
        MPI.COMM_WORLD.Abort(1)
