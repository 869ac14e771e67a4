"""Checkpoints: what is saved comes back, whatever is damaged is found, no kill leaves a ruin."""

import itertools
import json
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.errors import CheckpointError, FileError, SpaceError, VectorError
from femops.io.checkpoint import state as module
from femops.io.checkpoint.kept_mesh import KeptMesh
from femops.parallel import Serial
from support.cases.rank_states import SPACES, bits, same


@pytest.fixture(scope="module")
def mesh():
    return femops.read_mesh(femops.sample("disc.mesh"))


@pytest.fixture(scope="module")
def space():
    return femops.H1(femops.box((3, 2)), 2)


def saved(folder, space, **values):
    """A checkpoint of a vector of any bits."""
    u = bits(space.shape, "f8")
    return femops.io.save_state(folder / "run.state", {"u": (space, u)}, values), u


# --- What is saved comes back ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SPACES)
def test_the_same_bits_come_back(tmp_path, monkeypatch, mesh, name):
    V, again = SPACES[name](mesh), SPACES[name](femops.distribute(mesh, Serial()))
    for dtype, block in itertools.product(("f4", "f8", "c8", "c16"), (1, 1000, 2**20)):
        u = bits(V.shape, dtype)
        monkeypatch.setattr(module, "BLOCK", block)
        path = femops.io.save_state(tmp_path / "run.state", {"u": (V, u)})
        monkeypatch.setattr(module, "BLOCK", 7000)  # another version may take longer blocks
        state = femops.io.load_state(path, {"u": V})
        same(state.vectors["u"], u)
        assert state.vectors["u"].flags.writeable
        assert state.values == {}
        same(femops.io.load_state(path, {"u": again}).vectors["u"], u)


def test_some_of_several_vectors_or_values_alone(tmp_path, mesh, space):
    spaces = {"b": femops.H1(mesh, 2, ncomp=2), "a": femops.L2(mesh, 1), "other mesh": space}
    given = {name: (V, bits(V.shape, "f8", k)) for k, (name, V) in enumerate(spaces.items())}
    path = femops.io.save_state(tmp_path / "run.state", given, {"step": 12, "time": 0.3})
    found = femops.io.load_state(str(path), spaces).vectors
    for name, (_, u) in given.items():
        same(found[name], u)
    some = femops.io.load_state(path, {"a": spaces["a"]}).vectors
    assert list(some) == ["a"]
    same(some["a"], given["a"][1])
    state = femops.io.load_state(path)
    assert state.vectors == {}
    assert state.values == {"step": 12, "time": 0.3}
    assert repr(state) == "State(vectors none; values {'step': 12, 'time': 0.3})"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(st.text(), st.sampled_from(["f4", "f8"]), min_size=1, max_size=4),
    st.dictionaries(st.text(), plain, max_size=4),
)
def test_any_names_and_values(kinds, values):
    V = femops.H1(femops.box(2), 1)
    given = {name: (V, bits(V.shape, kind, k)) for k, (name, kind) in enumerate(kinds.items())}
    with tempfile.TemporaryDirectory() as folder:
        path = femops.io.save_state(Path(folder) / "run.state", given, values)
        state = femops.io.load_state(path, dict.fromkeys(kinds, V))
    for name, (_, u) in given.items():
        same(state.vectors[name], u)
    assert repr(sorted(state.values.items())) == repr(sorted(values.items()))  # -0.0, True and 1


def test_numbers_of_numpy_are_those_of_python(tmp_path, space):
    both = {
        "f4": (np.float32(0.1), float(np.float32(0.1))),
        "f8": (np.float64(0.1), 0.1),
        "i": (np.int64(-(2**63)), -(2**63)),
        "u": (np.uint64(2**64 - 1), 2**64 - 1),
        "b": (np.bool_(True), True),
        "nan": (np.nan, float("nan")),
        "far": ([-np.inf, (1, np.float64(2))], [float("-inf"), [1, 2.0]]),
    }
    given, expected = ({name: pair[k] for name, pair in both.items()} for k in (0, 1))
    got = femops.io.load_state(saved(tmp_path, space, **given)[0]).values
    assert repr(sorted(got.items())) == repr(sorted(expected.items()))  # nan, True and 1


def test_the_file_is_what_the_page_says(tmp_path, space):
    """Read with nothing but what docs/checkpoints.md tells of the format."""
    path, u = saved(tmp_path, space, step=12)
    data = path.read_bytes()
    assert data[:8] == b"\x89FEMOPS\n"
    assert int.from_bytes(data[12:16], "little") == 1
    length = int.from_bytes(data[16:24], "little")
    head = json.loads(data[28 : 28 + length])
    assert head["values"] == {"step": 12}
    about = head["vectors"]["u"]
    blocks = -(-about["dofs"] // about["rows"])
    start = -(-(28 + length + 4 * blocks) // 4096) * 4096 + about["offset"]
    same(np.frombuffer(data, about["dtype"], about["dofs"], start), u)
    assert len(data) == start + u.nbytes
    assert (about["space"], about["order"], about["ncomp"]) == ("H1", 2, 1)


def test_a_file_can_be_read_by_others_like_any_new_file(tmp_path, space):
    path, _ = saved(tmp_path, space)
    (tmp_path / "plain").write_text("")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


# --- Damage ---------------------------------------------------------------------------------------


def test_any_byte_that_is_changed_is_found(tmp_path, monkeypatch, space):
    monkeypatch.setattr(module, "BLOCK", 64)
    u = space.interpolate(lambda x: x[0])
    path = femops.io.save_state(tmp_path / "u.state", {"u": (space, u), "v": (space, u)})
    whole = path.read_bytes()
    assert len(whole) > 8192  # there is room before either vector
    for at in (*range(900), *range(900, len(whole), 29), *range(4090, 4100), *range(8185, 8200)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 if at % 2 else 128
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"damaged|whole|is not a checkpoint"):
            femops.io.load_state(path, {"u": space, "v": space})
    path.write_bytes(whole)
    femops.io.load_state(path, {"u": space, "v": space})


def test_any_end_that_is_missing_is_found(tmp_path, space):
    path, _ = saved(tmp_path, space)
    whole = path.read_bytes()
    for size in [0, *range(1, 400, 7), *range(400, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:size])
        message = "is not a checkpoint" if size == 0 else f"is not whole: it has {size} bytes"
        with pytest.raises(CheckpointError, match=message):
            femops.io.load_state(path, {"u": space})
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match=f"has {len(whole) + 1} bytes, {len(whole)} are due"):
        femops.io.load_state(path)


def test_where_it_is_damaged(tmp_path, monkeypatch, space):
    monkeypatch.setattr(module, "BLOCK", 64)
    path, _ = saved(tmp_path, space)
    whole = bytearray(path.read_bytes())
    whole[4096 + 70] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match="damaged: bytes 4160 to 4223, of 'u', has another"):
        femops.io.load_state(path, {"u": space})
    assert femops.io.load_state(path).values == {}  # nothing wrong with these
    whole[28 + int.from_bytes(whole[16:24], "little")] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match="damaged: the table of checksums has another"):
        femops.io.load_state(path)


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch, space):
    path, _ = saved(tmp_path, space)
    fits = module._check_fits

    def shrink(*arguments):
        os.truncate(path, 4096)
        fits(*arguments)

    monkeypatch.setattr(module, "_check_fits", shrink)
    with pytest.raises(CheckpointError, match="is damaged: bytes 4096"):
        femops.io.load_state(path, {"u": space})


def test_a_later_format(tmp_path, monkeypatch, space):
    monkeypatch.setattr(KeptMesh, "version", 4)
    path = femops.io.save_state(tmp_path / "a.state", {"u": (space, space.zeros())}, keep_mesh=True)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"has format 4, .* reads up to 3: use a newer one"):
        femops.io.load_state(path)


def test_other_files(tmp_path, space):
    path = tmp_path / "run.state"
    path.write_text("$MeshFormat")
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        femops.io.load_state(path, {"u": space})
    with pytest.raises(FileError, match=r"cannot read '.*none.state': No such file"):
        femops.io.load_state(tmp_path / "none.state", {"u": space})
    os.mkfifo(tmp_path / "pipe.state")
    for other in (tmp_path, tmp_path / "pipe.state"):
        with pytest.raises(FileError, match="it is not a regular file"):
            femops.io.load_state(other, {"u": space})


@pytest.mark.skipif(sys.platform != "linux", reason="a file whose reading fails")
def test_a_disk_that_fails(space):
    with pytest.raises(FileError, match=r"cannot read '/proc/self/mem': Input/output error"):
        femops.io.load_state("/proc/self/mem", {"u": space})


# --- What does not fit ----------------------------------------------------------------------------

BOX = femops.box((3, 2))

OTHERS = {
    "another order": (femops.H1(BOX, 3), r"H1\(order=2, ncomp=1.*the space given is H1\(order=3"),
    "components": (femops.H1(BOX, 2, 2), "ncomp=1.*ncomp=2"),
    "family": (femops.H1(BOX, 2, family="bernstein"), "'gll'.*'bernstein'"),
    "kind": (femops.L2(BOX, 2, family="gll"), r"vector of H1\(.*the space given is L2\("),
    "finer mesh": (femops.H1(BOX.refine(), 2), "another mesh, of 6 elements .* has 24, and"),
    "moved mesh": (
        femops.H1(BOX.mapped(lambda x: 1.001 * x), 2),
        "another mesh, of 6 elements with the checksum [0-9a-f]{16}; the one given has 6, and",
    ),
    "element order": (femops.H1(BOX.reordered(range(5, -1, -1)), 2), "another mesh"),
}


def test_other_spaces_and_what_is_none(tmp_path, space):
    path, u = saved(tmp_path, space)
    for other, message in OTHERS.values():
        with pytest.raises(CheckpointError, match=message):
            femops.io.load_state(path, {"u": other})
    with pytest.raises(CheckpointError, match="has no vector 'v': it has 'u'"):
        femops.io.load_state(path, {"v": space})
    with pytest.raises(CheckpointError, match="spaces is an H1: give a dict"):
        femops.io.load_state(path, space)
    with pytest.raises(SpaceError, match="the space of 'u' is an ndarray"):
        femops.io.load_state(path, {"u": u})


def itself():
    values = []
    values.append(values)
    return values


def test_values_that_cannot_be_kept(tmp_path, space):
    for value, message in (
        (np.zeros(3), "value 'x' has an ndarray in it: .* of an array its .tolist"),
        (1j, "has a complex in it"),
        ({"a": [{1: 2}]}, "has a dict in it"),
        (np.longdouble(1), "has a longdouble in it"),
        (itself(), "cannot be written as JSON"),
        (10**5000, "cannot be written as JSON"),
    ):
        with pytest.raises(CheckpointError, match=message):
            saved(tmp_path, space, x=value)
    assert not list(tmp_path.iterdir())


def test_vectors_and_files_that_are_none(tmp_path, space):
    for kind, message, make in (
        (CheckpointError, "there are no vectors", lambda V, u: {}),
        (CheckpointError, "vectors is a list: give a dict", lambda V, u: [(V, u)]),
        (CheckpointError, r"vectors are \[1\]: give a dict, and texts", lambda V, u: {1: (V, u)}),
        (CheckpointError, "'u' is an ndarray: give its space with it", lambda V, u: {"u": u}),
        (CheckpointError, "'u' is a tuple: give its space", lambda V, u: {"u": (V, u, u)}),
        (SpaceError, "the space of 'u' is an ndarray: give an H1", lambda V, u: {"u": (u, V)}),
        (SpaceError, "is a Product: .* each", lambda V, u: {"u": (femops.Product(a=V, b=V), u)}),
        (VectorError, "u has 34 entries, the space has 35", lambda V, u: {"u": (V, u[1:])}),
        (VectorError, "u has 34 entries", lambda V, u: {"u": (V, u[1:] + 0j)}),
    ):
        with pytest.raises(kind, match=message):
            femops.io.save_state(tmp_path / "run.state", make(space, space.zeros()))
    given = {"u": (space, space.zeros())}
    with pytest.raises(FileError, match=r"does not end in \.state: name it 'run\.state'"):
        femops.io.save_state(tmp_path / "run.npz", given)
    with pytest.raises(FileError, match="no folder"):
        femops.io.save_state(tmp_path / "none" / "run.state", given)
    assert not list(tmp_path.iterdir())


# --- Kills ----------------------------------------------------------------------------------------

V = femops.H1(femops.box((8, 8)), 4)


def save(path, n):
    """Save a state all of whose entries are n."""
    return femops.io.save_state(path, {"u": (V, V.zeros() + n)}, {"n": n})


def number(path):
    """Of a state that is whole."""
    state = femops.io.load_state(path, {"u": V})
    assert (state.vectors["u"] == state.values["n"]).all()
    return state.values["n"]


def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


KILLS = {
    "before the data": ([(module, "write_rows", die)], 1),
    "amid the data": (
        [(module, "BLOCK", 100), (module, "zlib", SimpleNamespace(crc32=die))],
        1,
    ),
    "before data are on the disk": ([(os, "fsync", die)], 1),
    "before the head": ([(module.Contents, "head", die)], 1),
    "before it gets its name": ([(os, "replace", die)], 1),
    "after it got its name": ([(module, "to_disk", die)], 2),
}
"""What a process that saves is made to do, and the state that it leaves."""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("when", KILLS)
def test_a_kill_leaves_the_old_or_the_new_state(tmp_path, when):
    changes, expected = KILLS[when]
    path, child = tmp_path / "run.state", os.fork()
    if child == 0:
        try:
            save(path, 1)
            for where, name, value in changes:
                setattr(where, name, value)
            save(path, 2)
        finally:
            os._exit(1)  # it should be dead
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert number(path) == expected
    assert len(list(tmp_path.iterdir())) == 3 - expected  # what the killed one has left
    assert number(save(path, 3)) == 3
    assert list(tmp_path.iterdir()) == [path]


def test_a_message_of_the_page_is_what_is_raised(tmp_path, space):
    page = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text()
    path, _ = saved(tmp_path, space)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError) as error:
        femops.io.load_state(path, {"u": space})
    shown = re.sub(r"'.*run\.state'", "'heat.state'", re.sub(r"\d+", "N", str(error.value)))
    assert shown in " ".join(re.sub(r"\d+", "N", page).split())
