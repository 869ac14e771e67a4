"""Checkpoints with right checksums and contents that nobody saved: our error, or a state."""

import json
import os
import random
import tracemalloc
import zlib

import numpy as np
import pytest

import femops
from femops.errors import CheckpointError
from femops.io.checkpoint.state import _PREFIX, _REST, MAGIC, Contents
from support.mixed_meshes import flat_mesh

FIXED = _PREFIX.size + _REST.size
SPACE = femops.H1(femops.box((3, 2)), 2)
NUMBERS = [0, 1, -1, 2, 3, 34, 36, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30, -(2**63), 0.5, 1e308]
WORDS = ["", "H1", "L2", "<f4", "<f8", ">f8", "O", "<V8", "|S0", "<M8[ns]", "gll", "\ud800", "\0"]
ODD = [*NUMBERS, *WORDS, None, True, [], {}, [[]], {"u": 1}, {"dofs": 1}, np.nan, np.inf]


def sealed(version, text, table, rest, length=None):
    """A file whose checksums are right."""
    head = _REST.pack(version, len(text) if length is None else length, zlib.crc32(table)) + text
    return _PREFIX.pack(MAGIC, zlib.crc32(head)) + head + table + rest


def places(tree):
    """All (container, key) in a tree."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        yield tree, key
        if isinstance(value, dict | list):
            yield from places(value)


def change_tree(rng, tree):
    where, key = rng.choice(list(places(tree)))
    match rng.randrange(6):
        case 0 if isinstance(where, dict):
            del where[key]
        case 1 if isinstance(where, dict):
            where[rng.choice(WORDS)] = where.pop(key)
        case 2 if isinstance(where, dict):
            where[rng.choice(["more", "v", "offset", "values"])] = rng.choice(ODD)
        case 3:
            where[key] = [where[key]]
        case 4 if isinstance(where[key], int):
            where[key] += rng.choice([-1, 1, 4096, 2**32, 2**60])
        case _:
            where[key] = rng.choice(ODD)


def change_tables(rng, described, data):
    """Change some numbers of the mesh's tables in the bytes of a file."""
    name = rng.choice([*described.mesh.tables])
    facts, at = described.mesh.tables[name], described.offsets[f"the mesh's {name}"]
    rows = np.frombuffer(data, facts.dtype, facts.dofs * facts.ncomp, at).reshape(facts.dofs, -1)
    for _ in range(rng.randint(1, 3)):
        row, column = rng.randrange(facts.dofs), rng.randrange(facts.ncomp)
        other = rows[rng.randrange(facts.dofs), column]
        far = [0, -1, 2**31, 2**62, -(2**63)] if facts.dtype == "<i8" else [np.nan, np.inf, 1e300]
        with np.errstate(over="ignore"):
            near = rows[row, column] + rng.choice([-1, 1])
        rows[row, column] = rng.choice([other, near, *far])


def change_text(rng, text):
    at = rng.randrange(len(text))
    return rng.choice(
        [
            text[:at],
            text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :],
            text.decode().encode("utf-16"),
            b"[" * rng.choice([10, 10**5]),
            b'{"vectors": ' * 10**4,
            b'{"vectors": {"u": ' + b"9" * 5000 + b"}}",
            text[:at] + text,
            b"null",
            b'"\\u001b[2J"',
            b'{"vectors": {"u": "\\u001b[2J"}, "values": {}}',
        ]
    )


def crafted(rng, whole):
    """The bytes of a checkpoint, changed, with checksums as if they had been written so."""
    version, length, _ = _REST.unpack(whole[_PREFIX.size : FIXED])
    text = whole[FIXED : FIXED + length]
    tree, blocks = json.loads(text), rng.choice([0, 1, 1, 1, 2, 7])
    table = whole[FIXED + length : FIXED + length + 4] * blocks
    if rng.random() < 0.8:
        for _ in range(rng.randint(1, 3)):
            change_tree(rng, tree)
        text = json.dumps(tree).encode()
    if rng.random() < 0.2:
        text = change_text(rng, text)
    if rng.random() < 0.1:
        version = rng.choice([0, 2, 2**32 - 1])
    length = rng.choice([0, 1, len(text) - 1, 2**40, 2**63]) if rng.random() < 0.05 else None
    start = -(-(FIXED + len(text) + len(table)) // 4096) * 4096
    rest = bytes(start - FIXED - len(text) - len(table)) + whole[4096:]
    rest = rng.choice([rest, rest, rest, rest + bytes(4096), rest[: rng.randrange(len(rest))]])
    return sealed(version, text, table, rest, length)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    path = femops.io.save_state(
        folder / "run.state", {"u": (SPACE, np.arange(35.0))}, {"step": 1, "at": [0.5, {}]}
    )
    return path.read_bytes()


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(k, marks=pytest.mark.exhaustive) for k in range(2, 60))]
)
def test_crafted_contents(tmp_path, whole, seed):
    """Neither another error, nor more memory than the file itself could fill."""
    rng, path, messages = random.Random(seed), tmp_path / "run.state", []
    tracemalloc.start()
    try:
        for _ in range(100):
            data = crafted(rng, whole)
            path.write_bytes(data)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            for spaces in ({}, {"u": SPACE}):
                try:
                    state = femops.io.load_state(path, spaces)
                except CheckpointError as error:
                    messages.append(str(error))
                else:
                    assert isinstance(state.values, dict)
                    assert all(state.vectors[name].shape == (35,) for name in spaces)
            assert tracemalloc.get_traced_memory()[1] - before < 2**20 + 100 * len(data)
    finally:
        tracemalloc.stop()
    assert all(map(str.isprintable, messages))
    assert 100 < len(messages) < 200  # some are as good as the original


def test_as_it_was_written_it_is_read(tmp_path, whole):
    """What the fuzz starts from."""
    version, length, _ = _REST.unpack(whole[_PREFIX.size : FIXED])
    text, table = whole[FIXED : FIXED + length], whole[FIXED + length : FIXED + length + 4]
    assert sealed(version, text, table, whole[FIXED + length + 4 :]) == whole


def test_names_of_vectors_hold_no_escapes(tmp_path, whole):
    length = _REST.unpack(whole[_PREFIX.size : FIXED])[1]
    tree = json.loads(whole[FIXED : FIXED + length])
    tree["vectors"] = {"\x1b]0;mine\x07": tree["vectors"]["u"]}
    path = _written(tmp_path / "run.state", sealed(1, json.dumps(tree).encode(), bytes(4), b"x"))
    os.truncate(path, len(whole))
    with pytest.raises(CheckpointError, match=r"before '\\x1b\]0;mine\\x07' are not zeros"):
        femops.io.load_state(path)


KEPT = {
    "trees": lambda: femops.box((3, 2)).refined([0, 3]).refined([2]),
    "shapes": lambda: flat_mesh(0),
    "prisms": lambda: femops.box((1, 1, 1), cells="prisms"),
}


@pytest.fixture(scope="module", params=["trees", "shapes", "prisms"])
def kept(tmp_path_factory, request):
    """A checkpoint that has its mesh."""
    mesh = KEPT[request.param]().with_names({"all": 1}, {"left": 1})
    V = femops.H1(mesh, 1)
    path = tmp_path_factory.mktemp("kept") / "run.state"
    return femops.io.save_state(path, {"u": (V, V.zeros())}, keep_mesh=True).read_bytes()


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(k, marks=pytest.mark.exhaustive) for k in range(2, 60))]
)
def test_crafted_meshes(tmp_path, kept, seed):
    """With right checksums, of tables too: our error or the mesh that was saved."""
    rng, path, messages = random.Random(seed), tmp_path / "run.state", []
    version, length, _ = _REST.unpack(kept[_PREFIX.size : FIXED])
    text = kept[FIXED : FIXED + length]
    described, good = Contents.parsed(text, version), femops.read_mesh(_written(path, kept))
    tracemalloc.start()
    try:
        for _ in range(100):
            tree, data = json.loads(text), bytearray(kept)
            if rng.random() < 0.5:
                change_tables(rng, described, data)
            else:
                change_tree(rng, tree["mesh"])
            sums = [
                zlib.crc32(data[described.offsets[name] :][: entry.dofs * entry.row])
                for name, entry in described.tables.items()
            ]
            changed, table = json.dumps(tree).encode(), np.array(sums, "<u4").tobytes()
            used = FIXED + len(changed) + len(table)
            _written(path, sealed(version, changed, table, bytes(4096 - used) + data[4096:]))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                mesh = femops.read_mesh(path)
            except CheckpointError as error:
                messages.append(str(error))
            else:
                for one, other in zip(mesh.parts, good.parts, strict=True):
                    assert np.array_equal(one.coordinates, other.coordinates)
                    assert np.array_equal(one.elements, other.elements)
            assert tracemalloc.get_traced_memory()[1] - before < 2**20 + 100 * len(kept)
    finally:
        tracemalloc.stop()
    assert all(map(str.isprintable, messages))
    assert len(messages) > 60


def _written(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("number", [2**40, 2**62])
def test_a_size_that_the_file_does_not_have(tmp_path, whole, number):
    """A sparse file costs nothing: what it claims is compared before memory is taken."""
    length = _REST.unpack(whole[_PREFIX.size : FIXED])[1]
    tree = json.loads(whole[FIXED : FIXED + length])
    tree["vectors"]["u"]["dofs"] = number
    path = tmp_path / "run.state"
    path.write_bytes(sealed(1, json.dumps(tree).encode(), b"", bytes(8192)))
    with pytest.raises(CheckpointError, match=r"is not whole: it has .* are due"):
        femops.io.load_state(path, {"u": SPACE})


@pytest.mark.parametrize("hole", ["text", "table", "padding"])
def test_a_file_with_holes_takes_no_memory(tmp_path, whole, hole):
    """It is small on the disk: its text, or the checksums of its many short blocks, are a hole."""
    path, size = tmp_path / "run.state", 2**38 if hole == "table" else 2**28
    version, length, _ = _REST.unpack(whole[_PREFIX.size : FIXED])
    tree, zeros = json.loads(whole[FIXED : FIXED + length]), bytes(2**20)
    if hole == "text":
        head = _REST.pack(version, size, 0)
        checksum = zlib.crc32(head)
        for _ in range(size // len(zeros)):
            checksum = zlib.crc32(zeros, checksum)
        head = _PREFIX.pack(MAGIC, checksum) + head
    else:
        rows = 1 if hole == "table" else size // 4
        tree["vectors"]["u"] |= {"dofs": size // 4, "rows": rows}
        text = json.dumps(tree).encode()
        rest = _REST.pack(version, len(text), zlib.crc32(bytes(4))) + text
        head = _PREFIX.pack(MAGIC, zlib.crc32(rest)) + rest
    with path.open("wb") as file:
        file.write(head)
        table = size if hole == "table" else 4
        start = -(-(len(head) + table) // 4096) * 4096
        file.truncate(len(head) + size if hole == "text" else start + 2 * size)
    tracemalloc.start()
    try:
        if hole in ("text", "table"):
            with pytest.raises(CheckpointError, match=r"damaged: (its head|the table)"):
                femops.io.load_state(path)
        else:
            femops.io.load_state(path)  # it has the values
            with pytest.raises(CheckpointError, match="is on another mesh"):
                femops.io.load_state(path, {"u": SPACE})
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
