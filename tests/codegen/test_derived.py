"""Data kept with the object they follow from: how long, for whom, and with several threads."""

import copy
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from threading import Barrier, Event

import pytest

from femops_kernels.exclusive import Derived
from support.garbage import collect


class Owner:
    """Something that data follow from."""


class Value:
    """Something that can be referred to weakly."""

    def __init__(self, owner=None):
        self.owner = owner


def test_a_value_is_made_once_for_an_owner_and_a_key():
    derived, first, second, made = Derived(), Owner(), Owner(), []

    def ask(owner, *key):
        return derived.get(owner, lambda: made.append((owner, key)) or Value(), *key)

    one = ask(first)
    assert ask(first) is one
    cases = product((first, second), ((), (1,), (1, 2)))
    assert len({id(ask(owner, *key)) for owner, key in cases}) == 6
    assert len(made) == 6


def test_nothing_is_a_value_too_and_what_is_put_counts():
    derived, owner = Derived(), Owner()
    assert derived.get(owner, lambda: None) is None
    assert derived.get(owner, lambda: pytest.fail("made again")) is None
    other, another = Owner(), Owner()
    for value in (1, 3):
        derived.put(another, value)
        assert derived.get(another, lambda: 2) == value
    with pytest.raises(ZeroDivisionError):
        derived.get(other, lambda: 1 / 0)
    assert derived.get(other, lambda: 1) == 1  # what fails is tried again


def test_values_go_with_their_owner():
    derived, owner = Derived(), Owner()
    value = weakref.ref(derived.get(owner, Value))
    collect()
    assert value() is not None
    del owner
    collect()
    assert value() is None


def test_weak_values_go_when_nobody_uses_them_and_may_refer_to_their_owner():
    derived, owner = Derived(weak=True), Owner()
    used = derived.get(owner, partial(Value, owner))
    assert derived.get(owner, lambda: pytest.fail("made again")) is used
    first = weakref.ref(used)
    del used
    collect()
    assert first() is None
    again = derived.get(owner, partial(Value, owner))
    gone = weakref.ref(owner)
    del owner, again
    collect()
    assert gone() is None


@pytest.mark.parametrize(
    "another", [copy.copy, copy.deepcopy, lambda owner: pickle.loads(pickle.dumps(owner))]
)
def test_copies_are_owners_of_their_own(another):
    derived, owner = Derived(), Owner()
    derived.get(owner, lambda: "the first's")
    plain = pickle.dumps(Owner())
    assert pickle.dumps(owner) == plain
    twin = another(owner)
    assert derived.get(twin, lambda: "its own") == "its own"
    assert derived.get(owner, lambda: "") == "the first's"


def test_threads_that_ask_together_get_one_value():
    derived, owner, made = Derived(), Owner(), []
    together, asked = Barrier(4), Event()

    def make():
        asked.wait(10)
        made.append(1)
        return Value()

    def ask():
        together.wait(10)
        asked.set()
        return derived.get(owner, make)

    with ThreadPoolExecutor(4) as pool:
        values = {id(each.result()) for each in [pool.submit(ask) for _ in range(4)]}
    assert (len(values), len(made)) == (1, 1)


def test_others_do_not_wait_for_a_value_that_is_made():
    """Neither other owners and keys, nor what the value itself is made of."""
    derived, owner, other = Derived(), Owner(), Owner()
    begun, go_on = Event(), Event()

    def slow():
        begun.set()
        assert go_on.wait(10)
        return derived.get(owner, lambda: 1, "part") + 1

    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(derived.get, owner, slow)
        assert begun.wait(10)
        assert derived.get(other, lambda: 5) == 5
        assert derived.get(owner, lambda: 1, "part") == 1
        go_on.set()
        assert whole.result(10) == 2


def test_whether_a_value_is_known():
    derived, owner = Derived(), Owner()
    assert not derived.known(owner, 1)
    derived.get(owner, Value, 1)
    assert derived.known(owner, 1)
    assert not derived.known(owner, 2)
    assert not derived.known(Owner(), 1)
