"""Checkpoints of ranks: the same file from any number of them, and back to any other."""

import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.errors import CheckpointError, FileError, RankError, SpaceError, VectorError
from femops.io.checkpoint import state
from femops.io.checkpoint import state as module
from femops.parallel import DistributedMesh
from femops.parallel.mesh import checksum
from femops.parallel.serial_order import SerialOrder, moved
from femops_meshes import Partition, part_of
from support.cases.parts import shared_meshes
from support.cases.rank_states import SPACES, bits, same, share
from support.refined import shared, tree
from support.simulated_ranks import SimulatedRank, on_ranks, quietly


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that small vectors have several, and ranks share some."""
    monkeypatch.setattr(state, "BLOCK", 100)


def on(mesh, cut, comm):
    return DistributedMesh.of(comm, part_of(mesh, cut, comm.rank))


@st.composite
def two_partitions(draw):
    """A mesh, and two partitions of it into different numbers of parts."""
    mesh, cut = draw(shared_meshes())
    size, ne = draw(st.integers(1, 5)), mesh.num_elements
    owner = draw(st.lists(st.integers(0, size - 1), min_size=ne, max_size=ne))
    return mesh, cut, Partition.of(mesh, np.array(owner), size)


@settings(max_examples=12, deadline=None)
@given(two_partitions(), st.sampled_from(list(SPACES)), st.sampled_from(["f4", "f8"]))
def test_any_ranks_write_the_same_and_read_it(case, name, dtype):
    mesh, cut, other = case
    serial = SPACES[name](mesh)
    u = bits(serial.shape, dtype)
    with tempfile.TemporaryDirectory() as folder:
        alone = femops.io.save_state(Path(folder) / "alone.state", {"u": (serial, u)}, {"n": 3})
        path = Path(folder) / "ranks.state"

        def save(comm):
            V = SPACES[name](on(mesh, cut, comm))
            femops.io.save_state(path, {"u": (V, share(serial, V, u))}, {"n": 3})

        def load(comm):
            V = SPACES[name](on(mesh, other, comm))
            state = femops.io.load_state(path, {"u": V})
            same(state.vectors["u"], share(serial, V, u))
            assert state.values == {"n": 3}

        quietly(cut.size, save)
        assert path.read_bytes() == alone.read_bytes()
        quietly(other.size, load)
        same(femops.io.load_state(path, {"u": serial}).vectors["u"], u)


@pytest.mark.parametrize("name", ["disc", "periodic", "random cubes"])
def test_any_ranks_keep_the_mesh_and_read_it(tmp_path, name):
    mesh = tree(name).with_names({"all": 1})
    serial = femops.H1(mesh, 2)
    u = bits(serial.shape, "f8")
    alone = femops.io.save_state(tmp_path / "alone.state", {"u": (serial, u)})
    path = tmp_path / "ranks.state"

    def save(comm):
        for each in shared(mesh, comm):
            V = femops.H1(each, 2)
            femops.io.save_state(path, {"u": (V, share(serial, V, u))})
            assert path.read_bytes() == alone.read_bytes()

    def load(comm):
        again = femops.read_mesh(path, comm=comm)
        V = femops.H1(again, 2)
        same(femops.io.load_state(path, {"u": V}).vectors["u"], share(serial, V, u))
        assert again.element_names == mesh.element_names
        finer = again.refined(again.part.elements % 3 == 0).coarsened()
        expected = mesh.refined(np.arange(mesh.num_elements) % 3 == 0).coarsened()
        count = np.arange(expected.num_elements), np.arange(expected.num_vertices)
        assert finer.checksum == checksum(expected, *count)

    quietly(2, save)
    quietly(3, load)


def test_one_rank_reads_a_damaged_mesh(tmp_path):
    V = femops.H1(tree("squares"), 1)
    path = femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())})
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"damaged: bytes .* of the mesh's nodes"):
        femops.read_mesh(path)
    found = fails(2, lambda comm: femops.read_mesh(path, comm=comm))
    assert [kind for kind, _ in found] == [CheckpointError, RankError]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(0, 12))
def test_rows_are_cut_in_another_way(data, size, count):
    cuts = st.lists(st.integers(0, count), min_size=size - 1, max_size=size - 1)
    old, new = (np.array([0, *sorted(data.draw(cuts)), count]) for _ in range(2))
    whole = np.arange(2 * count).reshape(count, 2)

    def program(comm):
        got = moved(whole[old[comm.rank] : old[comm.rank + 1]], old, new, comm)
        same(got, whole[new[comm.rank] : new[comm.rank + 1]])

    on_ranks(size, program)


def test_no_rank_gets_much_more_than_its_share(tmp_path):
    mesh = femops.box((12, 12))
    owner = np.random.default_rng(0).integers(4, size=mesh.num_elements)
    cut = Partition.of(mesh, owner, 4)

    def program(comm):
        V = femops.H1(on(mesh, cut, comm), 4)
        comm.largest = 0
        femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())})
        femops.io.load_state(tmp_path / "run.state", {"u": V})
        return V.global_ndofs, comm.largest

    for total, largest in on_ranks(4, program)[0]:
        assert largest < 8 * total / 4 * 1.2


def test_what_orders_say():
    mesh = femops.box((4, 4))
    halves = np.arange(16) // 8
    for owner, how in ((halves, "as they are"), (halves[::-1], "sorted")):
        cut = Partition.of(mesh, owner, 2)

        def program(comm, cut=cut):
            V = femops.H1(on(mesh, cut, comm), 1)
            return repr(SerialOrder(V.numbering, [np.arange(4)], V.distributed.part, V.halo, comm))

        assert all(f"dofs, {how})" in text for text in on_ranks(2, program)[0])


# --- Errors ---------------------------------------------------------------------------------------


def fails(size, program):
    """What each rank raises; none hangs, and all raise."""

    def caught(comm):
        with pytest.raises(femops.errors.Errors) as error:
            program(comm)
        return type(error.value), str(error.value)

    return on_ranks(size, caught)[0]


def on_three(program):
    """Errors of three ranks with a space and a vector."""
    return fails(3, lambda comm: program(comm, femops.H1(femops.box((4, 4), comm=comm), 2)))


DISAGREE = {
    "path is": lambda r: (f"run{r}.state", "u", "f8", {}),
    "names is": lambda r: ("run.state", "v" if r else "u", "f8", {}),
    r"vector 'u' is Field\(.*dtype='<f8'": lambda r: ("run.state", "u", "f4" if r else "f8", {}),
    "value 'step' is '0' on rank 0, but '1' on rank 1": lambda r: (
        *("run.state", "u", "f8"),
        {"step": r},
    ),
}


@pytest.mark.parametrize("message", DISAGREE)
def test_ranks_that_save_different_things(tmp_path, monkeypatch, message):
    def save(comm, V):
        path, name, dtype, values = DISAGREE[message](comm.rank)
        femops.io.save_state(path, {name: (V, V.zeros(dtype))}, values)

    monkeypatch.chdir(tmp_path)
    found = on_three(save)
    assert {kind for kind, _ in found} == {CheckpointError}
    assert all(re.match(f"ranks disagree about the checkpoint: {message}", m) for _, m in found)
    assert not list(tmp_path.iterdir())


def test_ranks_that_load_different_things(tmp_path):
    V = femops.H1(femops.box((4, 4)), 2)
    paths = [
        femops.io.save_state(tmp_path / f"{n}.state", {"u": (V, V.zeros() + n)}) for n in range(2)
    ]
    found = on_three(lambda comm, V: femops.io.load_state(paths[comm.rank % 2], {"u": V}))
    assert all(k is CheckpointError and "path is" in m for k, m in found)
    found = on_three(lambda comm, V: femops.io.load_state(paths[0], {"uv"[comm.rank % 2]: V}))
    assert all(k is CheckpointError and "names is" in m for k, m in found)


def test_ranks_that_see_different_files(tmp_path, monkeypatch):
    """As where a folder is not the same on all nodes, or a file is replaced meanwhile."""
    V = femops.H1(femops.box((4, 4)), 2)
    for n in range(2):
        (tmp_path / str(n)).mkdir()
        femops.io.save_state(tmp_path / f"{n}" / "run.state", {"u": (V, V.zeros() + n)})
    turns = iter([0, 1, 0])
    turn = lambda path, flags: os.open(tmp_path / str(next(turns)) / "run.state", flags)  # noqa: E731
    monkeypatch.setattr("femops.io.checkpoint.state.regular", turn)
    path = tmp_path / "0" / "run.state"
    found = on_three(lambda comm, V: femops.io.load_state(path, {"u": V}))
    assert all(k is CheckpointError and "the file's checksum is" in m for k, m in found)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("kind", "message", "wrong"),
    [
        (VectorError, "u has 3 entries", lambda V: {"u": (V, np.zeros(3))}),
        (CheckpointError, "'u' is an ndarray: give its space", lambda V: {"u": V.zeros(), "v": V}),
    ],
)
def test_one_rank_gives_what_cannot_be(tmp_path, rank, kind, message, wrong):
    def program(comm, V):
        given = wrong(V) if comm.rank == rank else {"u": (V, V.zeros())}
        femops.io.save_state(tmp_path / "run.state", given)

    found = on_three(program)
    assert [k for k, _ in found] == [kind if r == rank else RankError for r in range(3)]
    assert all(message in m for _, m in found)
    assert not list(tmp_path.iterdir())


class Full:
    """A file on a disk that is full, once it is written to or brought to the disk."""

    def __init__(self, file, when):
        self._file, self._when = file, when

    def __getattr__(self, name):
        if name == self._when:
            raise OSError(28, "No space left on device")
        return getattr(self._file, name)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("when", ["write", "flush"])
def test_a_rank_cannot_write(tmp_path, monkeypatch, when, rank):
    V = femops.H1(femops.box((4, 4)), 2)
    path = femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())})
    before = path.read_bytes()
    opened = module._new_file

    def full(stack, target, size, comm):
        file = opened(stack, target, size, comm)
        return Full(file, when) if comm.rank == rank else file

    monkeypatch.setattr(module, "_new_file", full)
    found = on_three(lambda comm, V: femops.io.save_state(path, {"u": (V, V.zeros() + 1)}))
    assert [k for k, _ in found] == [FileError if r == rank else RankError for r in range(3)]
    assert all(f"cannot write '{path}'" in m and "No space left on device" in m for _, m in found)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_a_rank_does_not_see(tmp_path, monkeypatch):
    path = tmp_path / "run.state"
    heard = SimulatedRank.broadcast

    def broadcast(self, value, root=0):
        got = heard(self, value, root)
        return got.with_name("elsewhere") if self.rank == 1 and isinstance(got, Path) else got

    monkeypatch.setattr(SimulatedRank, "broadcast", broadcast)
    found = on_three(lambda comm, V: femops.io.save_state(path, {"u": (V, V.zeros())}))
    assert [kind for kind, _ in found] == [RankError, FileError, RankError]
    assert all("rank 1 cannot open" in m and "that all ranks share" in m for _, m in found)
    assert not list(tmp_path.iterdir())


def test_damage_is_told_to_all_ranks(tmp_path):
    V = femops.H1(femops.box((4, 4)), 2)
    path = femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())})
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"!")  # what one rank reads
    found = on_three(lambda comm, V: femops.io.load_state(path, {"u": V}))
    assert sorted(kind.__name__ for kind, _ in found) == ["CheckpointError", *["RankError"] * 2]
    assert all("is damaged: bytes" in message for _, message in found)
    path.write_bytes(whole[:-1])
    found = on_three(lambda comm, V: femops.io.load_state(path, {"u": V}))
    assert all(k is CheckpointError and "is not whole: it has" in m for k, m in found)


def test_another_mesh_is_told_to_all_ranks(tmp_path):
    V = femops.H1(femops.box((4, 5)), 2)
    path = femops.io.save_state(tmp_path / "run.state", {"u": (V, V.zeros())})
    found = on_three(lambda comm, V: femops.io.load_state(path, {"u": V}))
    assert all(k is CheckpointError and "'u' in" in m and "another mesh" in m for k, m in found)
    found = on_three(lambda comm, V: femops.io.load_state(path, {"v": V}))
    assert all(k is CheckpointError and "has no vector 'v'" in m for k, m in found)
    found = on_three(lambda comm, V: femops.io.load_state(tmp_path / "none.state", {"u": V}))
    assert all(k is FileError and "No such file" in m for k, m in found)
    none = tmp_path / "none" / "run.state"
    found = on_three(lambda comm, V: femops.io.save_state(none, {"u": (V, V.zeros())}))
    assert all(k is FileError and "no folder" in m for k, m in found)


def test_spaces_of_different_ranks(tmp_path):
    whole = femops.L2(femops.box((4, 4)), 1)
    path = tmp_path / "run.state"

    def save(comm, V):
        femops.io.save_state(path, {"u": (V, V.zeros()), "p": (whole, whole.zeros())})

    def load(comm, V):
        femops.io.load_state(path, {"u": V, "p": whole})

    for program in (save, load):
        found = on_three(program)
        assert all(k is SpaceError and "is on a mesh of other ranks" in m for k, m in found)
