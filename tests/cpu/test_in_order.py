"""NumPy's work on several Python threads."""

from threading import Event, get_ident

import numpy as np
import pytest

from femops_kernels.cpu import machine
from femops_kernels.cpu.in_order import computed_once, in_order


@pytest.fixture
def threads(monkeypatch):
    monkeypatch.setattr(machine, "max_threads", lambda: 4)
    monkeypatch.setattr(machine, "get_threads", lambda: 3)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 40])
def test_results_are_in_order(count):
    assert [*in_order(lambda k: k * k, range(count))] == [k * k for k in range(count)]


@pytest.mark.usefixtures("threads")
def test_several_threads_work_and_the_caller_takes_the_items():
    """Two items wait for each other, which one thread alone could not do."""
    taken, met = set(), [Event(), Event()]

    def items():
        for k in range(20):
            taken.add(get_ident())
            yield k

    def work(k):
        if k < 2:
            met[k].set()
            assert met[1 - k].wait(20.0)
        return get_ident()

    assert len({*in_order(work, items())}) > 1
    assert taken == {get_ident()}


@pytest.mark.usefixtures("threads")
def test_an_error_is_raised_at_its_place():
    def work(k):
        if k in (5, 7):
            raise ValueError(f"item {k}")
        return k

    found = []
    with pytest.raises(ValueError, match="item 5"):
        found.extend(iter_into(found, in_order(work, range(30))))
    assert found == [0, 1, 2, 3, 4]


def iter_into(found, results):
    for result in results:
        found.append(result)
    return []


@pytest.mark.usefixtures("threads")
def test_a_caller_may_stop_early():
    done = []
    results = in_order(done.append, range(1000))
    next(results)
    results.close()
    assert len(done) < 100


@pytest.mark.usefixtures("threads")
def test_work_sees_the_callers_settings_of_numpy():
    with np.errstate(divide="raise"):
        results = in_order(lambda _: np.geterr()["divide"], range(40))
        assert {*results} == {"raise"}


def test_values_are_computed_once():
    class Block:
        calls = 0

        @computed_once
        def value(self):
            self.calls += 1
            return [self.calls]

    block = Block()
    assert block.value is block.value
    assert (block.calls, Block().calls) == (1, 0)
    assert isinstance(Block.value, computed_once)
