"""Communicators do what one loop over all ranks would: serially, and on 1 to 4 ranks."""

import re
import time

import numpy as np
import pytest

import femops
from femops.parallel import Communicator, Mpi, Serial, check, communicator
from femops_kernels.codegen.notice import NOTICE

PAIR = [("key", "i8"), ("value", "f4", (2,))]
TYPES = ["f8", "f4", "c16", "c8", "i8", "u1", "?", ">f8", PAIR]
SHAPES = [(5,), (0,), (3, 2), (4, 0), ()]


def some(rng, shape, dtype):
    """An array of any bytes that make sense in the type."""
    array = np.zeros(shape, dtype)
    for part in [array[name] for name in array.dtype.names or ()] or [array]:
        part[...] = rng.integers(0, 2 if part.dtype.kind == "b" else 200, part.shape)
    return array


def same(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


# --- What a communicator does, on any number of ranks ---------------------------------------------


def exchanges_any_types_and_shapes(comm):
    """Every rank makes the messages of all ranks; about half of all pairs have one."""
    rng = np.random.default_rng(1)
    for dtype in TYPES:
        all_messages = [
            {
                target: some(rng, SHAPES[rng.integers(len(SHAPES))], dtype)
                for target in rng.permutation(comm.size).tolist()
                if rng.random() < 0.6
            }
            for _ in range(comm.size)
        ]
        got = comm.exchange(all_messages[comm.rank])
        expected = {s: m[comm.rank] for s, m in enumerate(all_messages) if comm.rank in m}
        assert list(got) == sorted(expected)
        for source, array in got.items():
            same(array, expected[source])
            assert array.flags.writeable


def exchanges_do_not_mix(comm):
    """One after the other, without a barrier, with ranks that come late in turns."""
    for k in range(20):
        if k % comm.size == comm.rank:
            time.sleep(0.002)
        target = (comm.rank + k) % comm.size
        got = comm.exchange({np.int64(target): np.array([k, comm.rank])})
        source = (comm.rank - k) % comm.size
        assert {s: a.tolist() for s, a in got.items()} == {source: [k, source]}


def exchanges_of_nothing_and_with_oneself(comm):
    assert comm.exchange({}) == {}
    mine = np.arange(3.0)
    got = comm.exchange({comm.rank: mine})
    assert list(got) == [comm.rank]
    same(got[comm.rank], mine)
    assert not np.shares_memory(got[comm.rank], mine)


def exchanges_what_is_not_contiguous(comm):
    array = np.arange(24.0).reshape(4, 6)
    for message in (array.T, array[::2, 1::3], np.asfortranarray(array)):
        same(comm.exchange({comm.size - 1: message}).get(0, message), message)


def exchanges_large_arrays(comm):
    """Larger than what MPI sends before the receiver asks for it."""
    count = 200_000
    got = comm.exchange({t: np.full(count + t, 1.0 * comm.rank) for t in range(comm.size)})
    assert list(got) == list(range(comm.size))
    for source, array in got.items():
        same(array, np.full(count + comm.rank, 1.0 * source))


def gathers_all(comm):
    rng = np.random.default_rng(2)
    for dtype in TYPES:
        for shape in SHAPES:
            arrays = [some(rng, shape, dtype) for _ in range(comm.size)]
            same(comm.gather_all(arrays[comm.rank]), np.stack(arrays, dtype=dtype))
    same(comm.gather_all(np.eye(3)[:, ::2].T), np.stack([np.eye(3)[::2]] * comm.size))


def sums_and_maxima(comm):
    values = [(-1) ** r * (r + 2) for r in range(comm.size)]
    mine = values[comm.rank]
    assert comm.sum(mine) == sum(values)
    assert comm.max(mine) == max(values)
    assert isinstance(comm.sum(mine), int)
    assert comm.max(-0.5 * mine) == max(-0.5 * v for v in values)
    assert comm.sum(0.5 if comm.rank else 1) == 1 + 0.5 * (comm.size - 1)  # an int on one rank
    for dtype in ("f8", "f4", "i8", "c16"):
        arrays = [np.array([[v, 2 * v, 3]], dtype) for v in values]
        same(comm.sum(arrays[comm.rank]), np.sum(arrays, axis=0, dtype=dtype))
        if dtype != "c16":
            same(comm.max(arrays[comm.rank]), np.max(arrays, axis=0))
    same(comm.sum(np.zeros(0)), np.zeros(0))
    mine = np.ones(2)
    assert not np.shares_memory(comm.sum(mine), mine)
    same(mine, np.ones(2))


def broadcasts(comm):
    for root in range(comm.size):
        thing = {"a": [1, "two"], "b": np.arange(root + 1)} if comm.rank == root else None
        got = comm.broadcast(thing, root)
        assert got["a"] == [1, "two"]
        same(got["b"], np.arange(root + 1))
    assert comm.broadcast(comm.rank) == 0


def waits_at_barriers(comm):
    """Nobody leaves before the last, who comes late, has entered."""
    for late in range(comm.size):
        entered = time.monotonic()
        if comm.rank == late:
            time.sleep(0.05)
            entered = time.monotonic()
        comm.barrier()
        left = time.monotonic()
        assert -comm.max(-left) >= comm.max(entered)  # one node, one clock


def checks_pass_errors_on(comm):
    """The rank that fails raises its own error, the others one that names it, and all go on."""

    def fail_on(ranks):
        with check(comm):
            if comm.rank in ranks:
                raise ValueError(f"no good on {comm.rank}")

    sets = [{failing} for failing in range(comm.size)] + [set(range(comm.size)) - {1}]
    for ranks in sets:
        if comm.rank in ranks:
            with pytest.raises(ValueError, match=rf"^no good on {comm.rank}$"):
                fail_on(ranks)
        else:
            first = min(ranks)
            text = f"^rank {first} of {comm.size} failed: ValueError: no good on {first}$"
            with pytest.raises(femops.errors.RankError, match=text):
                fail_on(ranks)
    fail_on(())
    assert comm.sum(1) == comm.size


def refuses_what_is_no_message(comm):
    for messages, text in [
        ({comm.size: np.zeros(1)}, f"for rank {comm.size}: ranks are 0 to {comm.size - 1}"),
        ({-1: np.zeros(1)}, "for rank -1"),
        ({"0": np.zeros(1)}, "for rank '0'"),
        ({0: [1.0]}, "not list"),
        ({0: np.array([None])}, "not dtype object"),
    ]:
        with pytest.raises(femops.errors.CommunicatorError, match=text):
            comm.exchange(messages)
    for array in ([1.0], np.array(["a", None], dtype=object)):
        with pytest.raises(femops.errors.CommunicatorError, match="arrays of numbers"):
            comm.gather_all(array)
    assert comm.sum(1) == comm.size  # nobody was left waiting


BODIES = [
    exchanges_any_types_and_shapes,
    exchanges_do_not_mix,
    exchanges_of_nothing_and_with_oneself,
    exchanges_what_is_not_contiguous,
    exchanges_large_arrays,
    gathers_all,
    sums_and_maxima,
    broadcasts,
    waits_at_barriers,
    checks_pass_errors_on,
    refuses_what_is_no_message,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_serial(body):
    body(Serial())


@pytest.mark.parallel(1, 2, 3, 4)
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_mpi(comm, body):
    assert isinstance(comm, Mpi)
    body(comm)


# --- What only several ranks can show -------------------------------------------------------------


@pytest.mark.parallel(2)
def test_one_rank_says_that_it_compiles(comm):
    assert NOTICE.silent or comm.rank == 0


@pytest.mark.parallel(2, 3)
def test_gather_all_says_who_differs(comm):
    last = comm.size - 1
    usual, halves = np.zeros(3), np.zeros(3, [("low", "f4"), ("high", "f4")])
    for first, other in [(usual, np.zeros(4)), (usual, np.zeros(3, "i8")), (usual, halves)]:
        text = f"rank 0 has float64 (3,), rank {last} {other.dtype} {other.shape}"
        with pytest.raises(femops.errors.CommunicatorError, match=re.escape(text)):
            comm.gather_all(other if comm.rank == last else first)
    assert comm.sum(1) == comm.size


@pytest.mark.parallel(1, 4)
def test_an_mpi4py_communicator_is_duplicated_once(comm):
    from mpi4py import MPI

    assert communicator(MPI.COMM_WORLD) is comm
    assert communicator(comm) is comm
    assert comm.raw != MPI.COMM_WORLD
    assert (comm.rank, comm.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    pairs = MPI.COMM_WORLD.Split(comm.rank // 2)
    half = communicator(pairs)
    assert half.size == min(2, comm.size)
    assert half.sum(comm.rank) == sum(r for r in range(comm.size) if r // 2 == comm.rank // 2)
    assert communicator(MPI.COMM_SELF).size == 1


@pytest.mark.parallel(2)
def test_messages_of_the_user_stay_apart(comm):
    """One is on its way, with the same tag, while ranks exchange."""
    from mpi4py import MPI

    sent = MPI.COMM_WORLD.isend("mine", 1 - comm.rank, tag=0)
    sent_too = MPI.COMM_WORLD.isend("mine too", 1 - comm.rank, tag=1)
    for k in range(4):
        got = comm.exchange({1 - comm.rank: np.array([k])})
        assert {s: a.tolist() for s, a in got.items()} == {1 - comm.rank: [k]}
    assert MPI.COMM_WORLD.recv(tag=0) == "mine"
    assert MPI.COMM_WORLD.recv(tag=1) == "mine too"
    MPI.Request.waitall([sent, sent_too])


@pytest.mark.parallel(2)
def test_communicators_of_no_use_are_refused(comm):
    from mpi4py import MPI

    with pytest.raises(femops.errors.CommunicatorError, match="is not a communicator"):
        communicator(MPI.COMM_NULL)
    between = MPI.COMM_SELF.Create_intercomm(0, MPI.COMM_WORLD, 1 - comm.rank)
    with pytest.raises(femops.errors.CommunicatorError, match="is not a communicator"):
        communicator(between)
    between.Free()


def test_of_no_communicator_but_none_is_made_one():
    assert isinstance(communicator(), Serial)
    assert isinstance(communicator(None), Communicator)
    assert (communicator().rank, communicator().size) == (0, 1)
    for bad in (0, "world", [1], True):
        with pytest.raises(femops.errors.CommunicatorError, match="give one of mpi4py"):
            communicator(bad)
