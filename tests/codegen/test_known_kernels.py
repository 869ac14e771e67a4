"""Records of compiled kernels: what is known is neither compiled nor looked for again."""

import os
from pathlib import Path

import pytest

from femops_kernels.codegen import cache
from femops_kernels.errors import CacheWarning

SUFFIXES = ".kernel", ".cubin", ".log"
"""Files that compilers make: ours, and that of CUDA."""


@pytest.fixture
def kernel(tmp_path):
    """A source, and its compiled files; beside it those of another kernel."""
    tmp_path.chmod(0o700)
    for name in ("twice_1", "twice_12"):
        (tmp_path / f"{name}.py").write_text("x = 1")
        for suffix in SUFFIXES:
            (tmp_path / f"{name}{suffix}").write_bytes(b"machine code")
    return tmp_path / "twice_1.py"


def compiled(kernel):
    return [file for file in map(kernel.with_suffix, SUFFIXES) if file.exists()]


def test_unfinished_files_are_removed_in_silence(kernel):
    assert not cache.usable(kernel)
    assert not compiled(kernel)
    assert kernel.exists()
    assert len(list(kernel.parent.glob("twice_12.*"))) == 4


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


def test_a_copied_folder_is_known(kernel):
    """Whatever its time stamps; each file is in the record."""
    cache.seal(kernel)
    for k, file in enumerate([*compiled(kernel), kernel, kernel.with_suffix(".sha256")]):
        os.utime(file, (1e9 - k, 1e9 - k))
    assert cache.usable(kernel)
    assert len(kernel.with_suffix(".sha256").read_text().splitlines()) == 3


@pytest.mark.parametrize("damage", ["changed", "missing"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files_are_told_of_once(kernel, suffix, damage):
    cache.seal(kernel)
    if damage == "changed":
        kernel.with_suffix(suffix).write_bytes(b"machine cod3")
    else:
        kernel.with_suffix(suffix).unlink()
    with pytest.warns(CacheWarning, match="was damaged"):
        assert not cache.usable(kernel)
    assert not compiled(kernel)
    assert not cache.usable(kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b"\x80\xff"),
        (b"  ", b" !"),  # of a file that is not checked then
        (b"twice_1.k", b"twice\0001.k"),
        (b"twice_1.k", b"/etc/twice_1.k"),
        (b"kernel\n", b"n" * 5000 + b"\n"),
        (b"log\n", b"lo"),
        (None, b"0123456789abcdef"),  # the whole has another form
    ],
)
def test_a_damaged_record_counts_as_none(kernel, old, new):
    cache.seal(kernel)
    record = kernel.with_suffix(".sha256")
    whole = record.read_bytes()
    assert old is None or old in whole
    record.write_bytes(new if old is None else whole.replace(old, new, 1))
    assert not cache.usable(kernel)
    assert not compiled(kernel)
    assert not record.exists()
