"""Loops that threads share: every item once, whoever comes, and nobody waits awake."""

import threading
import time

import numpy as np
import pytest

from femops_kernels.cpu import machine, thread_pool
from femops_kernels.cpu.thread_pool import LAUNCH
from support.kernels import compiled

MOST = 8


KERNEL = compiled("""
@shared
def count_items(k, thread, counts, owners):
    atomic_add(counts, k, 1)
    atomic_put(owners, k, thread)

@function
def counted(team, items, counts, owners):
    count_items(team, items, counts, owners)

@shared
def sum_items(k, thread, values, size, factor, use, out):
    s = 0.0
    for i in range(size):
        s += values[k * size + i] * factor if use else 1.0
    out[k] = s

@function
def summed(team, items, values, size, factor: float, use, out):
    given, found = numbers(Lane(2), values), numbers(Lane(2), out)
    sum_items(team, items, given, size, factor, use != 0, found)

@shared
def wait_for_all(k, thread, arrived, count):
    # no item ends before all have begun: as many threads as items are at work
    atomic_add(arrived, 0, 1)
    while word(arrived, 0) < count:
        atomic_add(arrived, 1, 1)

@function
def meeting(team, items, arrived):
    wait_for_all(team, items, arrived, items)
""")
counted, summed, meeting = KERNEL.counted, KERNEL.summed, KERNEL.meeting


def run(threads, items, *, strict=False):
    counts, owners = np.zeros(items + 1, np.int64), np.full(items + 1, -1)
    with LAUNCH:
        address = thread_pool.team_address(threads, strict=strict)
        counted(address, items, counts.ctypes.data, owners.ctypes.data)
    assert counts[-1] == 0
    return counts[:-1], owners[:-1]


@pytest.mark.parametrize("strict", [False, True])
def test_every_item_is_worked_on_once(strict):
    rng = np.random.default_rng(0)
    for _ in range(2000):
        threads, items = int(rng.integers(1, MOST + 1)), int(rng.integers(0, 30))
        counts, owners = run(threads, items, strict=strict)
        assert (counts == 1).all()
        assert (owners < threads).all()


def test_strictly_each_thread_has_its_part():
    for items in (2, 7, 24):
        _, owners = run(4, items, strict=True)
        expected = np.repeat(np.arange(4), np.diff([k * items // 4 for k in range(5)]))
        assert np.array_equal(owners, expected)


def test_arrays_numbers_and_flags_arrive():
    values, out = np.random.default_rng(1).standard_normal((50, 9)), np.zeros(50)
    given = values.ctypes.data, 9, 2.5
    with LAUNCH:
        summed(thread_pool.team_address(3), 50, *given, True, out.ctypes.data)
        assert np.allclose(out, 2.5 * values.sum(axis=1))
        summed(thread_pool.team_address(1), 50, *given, False, out.ctypes.data)
    assert (out == 9.0).all()


def test_as_many_threads_as_asked_for_work_at_a_time():
    arrived = np.zeros(2, np.int64)
    with LAUNCH:
        meeting(thread_pool.team_address(5), 5, arrived.ctypes.data)
    assert arrived[0] == 5


def test_threads_without_work_sleep():
    """Their processor time stands still; that of one who waits awake grows with the clock."""
    run(4, 100)
    time.sleep(0.05)
    before, begin = time.process_time(), time.monotonic()
    while time.monotonic() < begin + 0.5:
        time.sleep(0.05)
    assert time.process_time() - before < 0.1


def test_python_threads_take_turns():
    wrong = []

    def work():
        for _ in range(300):
            counts, _ = run(3, 11)
            if not (counts == 1).all():
                wrong.append(counts)

    crowd = [threading.Thread(target=work) for _ in range(6)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert not wrong


def test_who_asks_for_numbers_changes_no_loop():
    asking = threading.Thread(target=thread_pool.system_numbers, args=(2,))
    with LAUNCH:
        address = thread_pool.team_address(4, strict=True)
        asking.start()
        asking.join(0.3)
        counts, owners = np.zeros(9, np.int64), np.full(9, -1)
        counted(address, 8, counts.ctypes.data, owners.ctypes.data)
    asking.join()
    assert np.array_equal(owners[:8], np.repeat(np.arange(4), 2))


def test_a_thread_keeps_what_it_asked_for():
    found = []

    def other():
        machine.set_threads(1)
        found.append(machine.get_threads())

    machine.set_threads(2)
    one = threading.Thread(target=other)
    one.start()
    one.join()
    assert (found, machine.get_threads()) == ([1], 2)
    machine.set_threads(machine.max_threads())
