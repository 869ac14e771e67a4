"""What holds for all tests."""

import gc
import os
from collections import Counter
from pathlib import Path

import pytest

# Threads of BLAS wait busily for each other: beside other tests that takes many times the work.
# Before NumPy is imported; the processes that tests start have it from here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from femops_kernels.cpu import machine, plan, sweep

# Three threads on any machine, so that "the same bits for any number of threads" is always tried;
# two on each rank, as ranks share the cores of a machine.
machine.cores = lambda: 2 if "FEMOPS_TEST_FOLDER" in os.environ else 3
# Small problems run on one thread by themselves: not here, where threads are what is tried.
sweep.PARALLEL_EFFORT = sweep.PARALLEL_ENTRIES = plan.PARALLEL_ENTRIES = 1

if "FEMOPS_TEST_FOLDER" not in os.environ:  # ranks, which have no use for it, start sooner
    from hypothesis import HealthCheck, settings

    # how fast the machine is, and what else it does, has no say in what passes
    settings.register_profile(
        "any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any speed")

pytest_plugins = ["support.mpi_runs", "support.cuda.compiled"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--share 2/8``: the second of eight shares of the tests.

    Compiled kernels stay in memory to the end of a process; those of all exhaustive tests would
    fill it.
    """
    parser.addoption(
        "--share", default="1/1", metavar="K/N", help="run every N-th test from the K-th"
    )
    parser.addoption(
        "--quick", action="store_true", help="one case of each test that is known to be fast"
    )


COLLECTED: Counter[str] = Counter()
"""How many cases of each sampled test have been collected."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave all but one in n cases of a test marked ``sample(n)`` to ``make exhaustive``.

    The golden ratio spreads those that stay over parameters that alternate.
    """
    if mark := item.get_closest_marker("sample"):
        name = item.nodeid.partition("[")[0]
        if COLLECTED[name] * 0.618034 % 1.0 * mark.args[0] >= 1.0:
            item.add_marker("exhaustive")
        COLLECTED[name] += 1


SLOW = "femops/slow"
"""Where pytest's cache lists the tests that took longer than FAST when they last ran."""

FAST = 0.15  # seconds

OF_PROCESSES = {"bench", "cli", "codegen", "cuda", "docs", "parallel"}
"""Folders whose tests start processes, or compile for a device."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read modules of ranks, devices and processes for ``make quick``."""
    tests, name = config.rootpath / "tests", collection_path.name
    inside = collection_path.is_relative_to(tests)
    folders = set(collection_path.relative_to(tests).parts if inside else ())
    elsewhere = name.endswith("_mpi.py") or name.startswith("test_device_")
    return True if config.getoption("quick") and (elsewhere or OF_PROCESSES & folders) else None


@pytest.hookimpl(trylast=True)  # of those that -m and -k have left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the share of tests that was asked for, and what is quick if that was."""
    k, n = (int(part) for part in config.getoption("share").split("/"))
    kept = items[k - 1 :: n]
    if config.getoption("quick"):
        # without pytest's cache (-p no:cacheprovider) no test is known to be slow
        slow = config.cache.get(SLOW, []) if hasattr(config, "cache") else []
        kept = quick(kept, set(slow))
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept


def quick(items: list[pytest.Item], slow: set[str]) -> list[pytest.Item]:
    """The first case of each test function that is not known to be slow."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        if item.nodeid not in slow:
            first.setdefault(item.nodeid.partition("[")[0], item)
    return list(first.values())


SECONDS: Counter[str] = Counter()
"""Seconds of each test, its fixtures among them."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the time of a test."""
    SECONDS[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remember which tests are slow, for the next ``make quick``."""
    if not hasattr(session.config, "workerinput") and hasattr(session.config, "cache"):
        slow = set(session.config.cache.get(SLOW, [])) - SECONDS.keys()
        slow |= {name for name, seconds in SECONDS.items() if seconds > FAST}
        session.config.cache.set(SLOW, sorted(slow))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays to the end: modules, and the tests themselves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
