"""Changes of a file that take place at once."""

from __future__ import annotations

import os
import sys
import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from femops.errors import FileError
from femops.io.vtk import journal as module
from femops.io.vtk.journal import JournaledFile, journaled, recover

OLD = np.random.default_rng(0).bytes(10_000)


def made(folder: Path) -> Path:
    path = folder / "data"
    path.write_bytes(OLD)
    return path


def opened(path: Path, reserved: int = 0) -> AbstractContextManager[JournaledFile]:
    return journaled(path, lambda file: file.truncate(len(OLD) + reserved))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def change(file: Any, seed: int) -> None:
    """Read, write and truncate at random."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        file.seek(int(rng.integers(0, 12_000)))
        if rng.random() < 0.3:
            file.read(int(rng.integers(0, 9000)))
        else:
            file.write(rng.bytes(int(rng.integers(0, 5000))))
        if rng.random() < 0.1:
            file.truncate(int(rng.integers(9000, 20_000)))


@pytest.mark.parametrize("reserved", [0, 7000])
@pytest.mark.parametrize("seed", range(5))
def test_it_is_a_file(tmp_path: Path, seed: int, reserved: int) -> None:
    path, plain = made(tmp_path), tmp_path / "plain"
    plain.write_bytes(OLD + bytes(reserved))
    with plain.open("r+b", buffering=0) as model, opened(path, reserved) as file:
        change(file, seed)
        change(model, seed)
        for whence in (os.SEEK_SET, os.SEEK_END):
            assert file.seek(0, whence) == model.seek(0, whence)
            assert file.tell() == model.tell()
        file.seek(0)
        assert file.read() == plain.read_bytes()
        assert path.read_bytes()[: len(OLD)] == OLD
    assert path.read_bytes() == plain.read_bytes()
    assert names(tmp_path) == ["data", "plain"]


def test_a_change_that_fails_is_none(tmp_path: Path) -> None:
    path = made(tmp_path)

    def fail() -> None:
        with opened(path) as file:
            change(file, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == OLD


def killed_while_overwriting(path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Change a file, but leave the journal, as if killed. Return what the file is to be."""
    expected = path.with_name("expected")
    expected.write_bytes(OLD)
    with expected.open("r+b") as model:
        change(model, 2)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_finish", lambda *_: None)
        with opened(path) as file:
            change(file, 2)
    assert path.read_bytes()[: len(OLD)] == OLD
    return expected.read_bytes()


def interrupted(path: Path, after: int, seed: int) -> bool:
    """Change a file, and raise KeyboardInterrupt at a line or return of the module.

    Return whether there are so many. Python raises it as soon as a call of the system returns.
    """
    left = after

    def lines(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if event == "call":
            return lines if frame.f_code.co_filename == module.__file__ else None
        left -= event in ("line", "return")
        if not left and event in ("line", "return"):
            raise KeyboardInterrupt
        return lines

    before = sys.gettrace()
    try:
        with opened(path) as file:
            change(file, seed)
            sys.settrace(lines)  # for the calls that follow: the change itself is made here
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files left open
def test_an_interrupt_at_any_line_of_a_change_makes_all_of_it_or_nothing(tmp_path: Path) -> None:
    path, found, after = made(tmp_path), set(), 1
    assert not interrupted(path, 0, 0)
    new = path.read_bytes()
    while True:
        path.write_bytes(OLD)
        came = interrupted(path, after, 0)
        recover(path)
        now = path.read_bytes()
        assert now in (OLD, new), f"line {after}"
        found.add(now)
        if not came:
            break
        after += 1
    assert found == {OLD, new}
    assert after > 50


def test_the_journal_of_a_killed_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path)
    expected = killed_while_overwriting(path, monkeypatch)
    with path.open("r+b") as file:
        file.write(expected[:5000])  # it was killed in the middle
    recover(path)
    assert path.read_bytes() == expected
    assert names(tmp_path) == ["data", "expected"]
    recover(path)  # nothing is left to do
    assert path.read_bytes() == expected


def test_the_journal_of_a_file_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    killed_while_overwriting(path, monkeypatch)
    path.unlink()
    recover(path)
    assert names(tmp_path) == ["expected"]


@pytest.mark.parametrize("kind", ["later", "earlier", "shorter", "empty", "another"])
def test_the_journal_of_an_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A copy was put in place of the file that the killed program changed."""
    path = made(tmp_path)
    expected = killed_while_overwriting(path, monkeypatch)
    journal, before = tmp_path / ".data-femops-journal", path.read_bytes()
    others = {
        "later": expected[:6000] + bytes(30) + expected[6030:],
        "earlier": before[:4095] + bytes([before[4095] ^ 1]) + before[4096:],
        "shorter": before[:9000],
        "empty": b"",
        "another": np.random.default_rng(1).bytes(2 * len(before)),
    }
    path.write_bytes(others[kind])
    with pytest.raises(FileError, match="holds the change of another file than"):
        recover(path)
    assert path.read_bytes() == others[kind]
    assert journal.exists()


@pytest.mark.parametrize("damage", [b"", b"short", bytes(12), bytes(5000), b"\xff" * 100])
def test_a_damaged_journal(tmp_path: Path, damage: bytes) -> None:
    """The file may be half overwritten, so nothing is done."""
    path = made(tmp_path)
    journal = tmp_path / ".data-femops-journal"
    journal.write_bytes(damage)
    with pytest.raises(FileError, match="femops-journal' is damaged"):
        recover(path)
    assert (path.read_bytes(), journal.read_bytes()) == (OLD, damage)


def test_a_journal_of_places_that_no_file_has(tmp_path: Path) -> None:
    path, entry = made(tmp_path), module._PLACE.pack(2**64 - 1) + bytes(2 * 4096)
    head = module._HEAD.pack(module._MAGIC, len(OLD))
    checksum = module._SUM.pack(zlib.crc32(head + entry))
    (tmp_path / ".data-femops-journal").write_bytes(head + checksum + entry)
    recover(path)
    assert path.read_bytes() == OLD


def test_any_byte_of_a_journal_that_is_changed_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    killed_while_overwriting(path, monkeypatch)
    journal = tmp_path / ".data-femops-journal"
    whole, before = journal.read_bytes(), path.read_bytes()
    flipped = [whole[:k] + bytes([whole[k] ^ 64]) + whole[k + 1 :] for k in range(30)]
    for damaged in (*flipped, *(whole[:k] for k in range(30))):
        journal.write_bytes(damaged)
        with pytest.raises(FileError, match="femops-journal' is damaged"):
            recover(path)
        assert path.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="pipes and owners")
@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "another user's"])
def test_a_journal_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = made(tmp_path)
    killed_while_overwriting(path, monkeypatch)
    journal, before = tmp_path / ".data-femops-journal", path.read_bytes()
    if kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("needs root to give a file away")
        os.chown(journal, 12345, -1)
    else:
        journal.rename(tmp_path / "elsewhere")
        make = {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: path.symlink_to("x")}
        make[kind](journal)
    with pytest.raises(FileError, match="is no plain file, or has another owner"):
        recover(path)
    assert path.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_journal_has_the_name_of_the_file_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = made(tmp_path), tmp_path / "link"
    link.symlink_to("data")
    expected = killed_while_overwriting(link, monkeypatch)
    recover(path)
    assert path.read_bytes() == expected
