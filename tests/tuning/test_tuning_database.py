"""The database of tuned settings: whole or not at all, by several writers, whatever lies there."""

import json
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import pytest

from femops_kernels.codegen import cache
from femops_kernels.errors import CacheError, CacheWarning
from femops_kernels.tuning import database
from femops_kernels.tuning.database import TuningKey, find, record

KEY, OTHER = TuningKey("a machine", "a kernel"), TuningKey("a machine", "another")


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    path = tmp_path / "tuning.json"
    monkeypatch.setattr(database, "users_table", lambda: path)
    return path


def test_what_is_recorded_is_found(table):
    assert find(KEY) == {}
    assert record({KEY: {"chunk_bytes": 4096, "level": "full"}}) == table
    assert find(KEY) == {"chunk_bytes": 4096, "level": "full"}
    record({OTHER: {"rows_ahead": 3}, KEY: {"chunk_bytes": 8192}})
    assert (find(KEY), find(OTHER)) == ({"chunk_bytes": 8192}, {"rows_ahead": 3})
    assert find(TuningKey("another machine", "a kernel")) == {}
    (first, _) = json.loads(table.read_text())
    assert list(first) == ["machine", "kernel", "settings", "date"]
    assert len(table.read_text().splitlines()) == 4  # an entry a line
    for entry in database._table(database.SHIPPED).values():
        assert len(entry.date) == len("2026-11-22")


ROW = '[{"machine": "a", "kernel": "b", "settings": %s, "date": "2026-01-01"}]'
DAMAGED = ["[", "{}x", "[3]", "3", '{"a": 1}', '[{"machine": "a"}]', "\0" * 9, "[" * 100_000]
DAMAGED += [ROW % settings for settings in ('{"n": 0}', '{"n": 1.5}', '{"n": true}', "3", "null")]
DAMAGED += [ROW % settings for settings in ('{"n": "4"}', '{"level": 3}')]
DAMAGED += [ROW % settings for settings in ('{"n": 2147483648}', '{"\\u001b]52": 0}')]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_table_is_set_aside(table, text):
    table.write_text(text)
    with pytest.warns(CacheWarning, match="can't be read") as told:
        assert find(KEY) == {}
    assert len(told) == 1
    assert str(told[0].message).isprintable()
    aside = table.with_suffix(".damaged")
    assert aside.read_text() == text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find(KEY) == {}
        record({KEY: {"n": 2}})
        assert find(KEY) == {"n": 2}


def test_a_table_that_was_written_meanwhile_is_not_set_aside(table, monkeypatch):
    """Another process records settings after this one has read a damaged table."""
    table.write_text("[")
    read = database._read

    def slow(*arguments):
        found = read(*arguments)
        with monkeypatch.context() as patch:
            patch.setattr(database, "_read", read)
            table.unlink()
            record({KEY: {"chunk_bytes": 4096}})
        return found

    monkeypatch.setattr(database, "_read", slow)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find(OTHER)
    assert json.loads(table.read_text())[0]["settings"] == {"chunk_bytes": 4096}
    assert not table.with_suffix(".damaged").exists()


def test_a_damaged_table_waits_for_no_writer(table):
    """The writer sets it aside."""
    table.write_text("[")
    with cache.locked(table.with_suffix(".lock")):
        with pytest.warns(CacheWarning, match="it is not used"):
            assert find(KEY) == {}
        assert table.read_text() == "["
    with pytest.warns(CacheWarning, match=r"it is now tuning\.damaged"):
        record({KEY: {"chunk_bytes": 4096}})
    assert find(KEY) == {"chunk_bytes": 4096}


def test_a_damaged_table_is_told_of_by_one_thread(table, monkeypatch):
    """Of two that come to it at a time."""
    table.write_text("[")
    plain, both = database.read_private, Barrier(2)

    def read(path):
        content = plain(path)
        with suppress(BrokenBarrierError):  # the other one does not come, as it should be
            both.wait(timeout=0.1)
        return content

    monkeypatch.setattr(database, "read_private", read)
    with pytest.warns(CacheWarning, match="can't be read") as told, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(find, (KEY, OTHER))) == [{}, {}]
    assert len(told) == 1


def test_a_table_of_others_and_a_link_are_refused(table):
    record({KEY: {"n": 2}})
    database._read.cache_clear()
    table.chmod(0o666)
    with pytest.raises(CacheError, match="can write"):
        find(KEY)
    table.unlink()
    table.symlink_to(table)
    with pytest.raises(CacheError, match="no plain file but a link"):
        find(KEY)


def test_nothing_is_lost_while_the_clock_of_files_stands_still(table, monkeypatch):
    """It moves every few milliseconds on many systems."""
    replace = cache.os.replace

    def replaced(source, target):
        cache.os.utime(source, ns=(0, 0))
        replace(source, target)

    monkeypatch.setattr(cache.os, "replace", replaced)
    for k in range(4):
        record({TuningKey("a machine", str(k)): {"n": k + 1}})
    assert [find(TuningKey("a machine", str(k))) for k in range(4)] == [
        {"n": k + 1} for k in range(4)
    ]


def test_a_table_that_another_process_sets_aside_is_none(table, monkeypatch):
    table.write_text("[]")

    def gone(path):
        path.unlink()
        return path.read_bytes()

    monkeypatch.setattr(database, "read_private", gone)
    assert find(KEY) == {}


def test_a_damaged_table_that_cannot_be_renamed(table, monkeypatch):
    table.write_text("[")

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(database.os, "replace", refuse)
    with pytest.warns(CacheWarning, match="it is not used, and models choose"):
        assert find(KEY) == {}
    assert table.read_text() == "["


def test_nothing_is_lost_where_writing_fails(table, monkeypatch):
    record({KEY: {"n": 2}})

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", refuse)
    monkeypatch.setattr(cache, "is_temporary", lambda _: True)  # nothing to fall back on
    with pytest.raises(CacheError, match="No space left"):
        record({KEY: {"n": 3}})
    assert find(KEY) == {"n": 2}
    assert {path.name for path in table.parent.iterdir()} == {"tuning.json", "tuning.lock"}


def test_two_writers_at_once(table):
    code = """
    import sys
    from femops_kernels.tuning import database
    database.users_table = lambda: database.Path(sys.argv[1])
    for k in range(15):
        database.record({database.TuningKey(sys.argv[2], str(k)): {"n": k + 1}})
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(table)]
    writers = [subprocess.Popen([*command, name]) for name in ("first", "second")]
    assert [writer.wait() for writer in writers] == [0, 0]
    found = {
        (name, k): find(TuningKey(name, str(k))) for name in ("first", "second") for k in range(15)
    }
    assert found == {key: {"n": key[1] + 1} for key in found}
