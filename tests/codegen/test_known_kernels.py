"""Records of compiled kernels: what is known is neither compiled nor looked for again."""

import os
from pathlib import Path

import pytest

from femops_kernels.codegen import cache
from femops_kernels.errors import CacheWarning


@pytest.fixture
def kernel(tmp_path):
    """A source, and files as Numba makes them; beside it those of another kernel."""
    tmp_path.chmod(0o700)
    (tmp_path / "__pycache__").mkdir(mode=0o700)
    for name in ("twice_1", "twice_12"):
        (tmp_path / f"{name}.py").write_text("x = 1")
        for suffix in ("nbi", "1.nbc"):
            (tmp_path / "__pycache__" / f"{name}.f-1.py311.{suffix}").write_bytes(b"machine code")
    return tmp_path / "twice_1.py"


def compiled(kernel):
    return sorted((kernel.parent / "__pycache__").glob("twice_1.*"))


def age(path, seconds):
    """Make a file older."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_unfinished_files_are_removed_in_silence(kernel):
    assert not cache.usable(kernel)
    assert not compiled(kernel)
    assert len(list((kernel.parent / "__pycache__").glob("twice_12.*"))) == 2


def test_a_known_kernel_is_found_without_a_list_of_the_folder(kernel, monkeypatch):
    """Lists of a folder with some ten thousand files took two thirds of the time to load."""
    cache.seal(kernel)

    def listed(*_):
        raise AssertionError

    for name in ("glob", "rglob", "iterdir"):
        monkeypatch.setattr(Path, name, listed)
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, listed)
    assert cache.usable(kernel)
    assert cache.sealed(kernel)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_files_are_told_of_once(kernel, damage):
    cache.seal(kernel)
    if damage == "changed":
        compiled(kernel)[0].write_bytes(b"machine cod3")
    else:
        compiled(kernel)[0].unlink()
    with pytest.warns(CacheWarning, match="was damaged"):
        assert not cache.usable(kernel)
    assert not compiled(kernel)
    assert not cache.usable(kernel)


def test_what_is_made_later_is_recorded_too(kernel):
    """Bytecode that another process keeps, and what Numba compiles again in a copied folder."""
    cache.seal(kernel)
    bytecode = cache._bytecode(kernel)
    bytecode.write_bytes(b"bytecode")
    assert not cache.sealed(kernel)
    cache.seal(kernel)
    assert cache.sealed(kernel)
    record = kernel.with_suffix(".sha256")
    assert len(record.read_text().splitlines()) == 3
    age(record, 10.0)
    assert not cache.sealed(kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b"\x80\xff"),
        (b"  ", b" !"),  # of a file that is not checked then
        (b"twice_1.f", b"twice\0001.f"),
        (b"__pycache__/twice_1.f", b"/etc/twice_1.f"),
        (b"nbi\n", b"n" * 5000 + b"\n"),
        (b"nbi\n", b"nb"),
        (None, b"0123456789abcdef"),  # the whole has another form
    ],
)
def test_a_damaged_record_counts_as_none(kernel, old, new):
    cache.seal(kernel)
    record = kernel.with_suffix(".sha256")
    record.write_bytes(new if old is None else record.read_bytes().replace(old, new, 1))
    assert not cache.sealed(kernel)
    assert not cache.usable(kernel)
    assert not compiled(kernel)
    assert not record.exists()
