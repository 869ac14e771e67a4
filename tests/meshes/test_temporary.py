"""Temporary files: what killed writers have left is removed, what others write is not."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import femops
import femops_meshes
from femops.errors import FemopsError
from femops_meshes import MeshError
from femops_meshes.formats import temporary
from femops_meshes.formats.temporary import shared_name, temporary_file

HERE = temporary._HERE
ABANDONED = f".run-femops-{HERE}-01234567.vtu"
DAYS = 3 * 86400


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def search_again():
    """As a new process would."""
    temporary._searched.clear()


def test_a_file_that_is_there_as_long_as_it_is_used(tmp_path):
    with temporary_file(tmp_path / "run.vtu") as file:
        assert names(tmp_path) == [file.name]
        assert re.fullmatch(rf"\.run-femops-{HERE}-[0-9a-f]{{8}}\.vtu", file.name)
        (tmp_path / "plain").write_text("")
        assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert names(tmp_path) == ["plain"]
    with temporary_file(tmp_path / "run.vtu") as file:
        file.replace(tmp_path / "run.vtu")
    assert names(tmp_path) == ["plain", "run.vtu"]


def test_names_as_long_as_the_system_allows(tmp_path):
    for name in ("x" * 251 + ".vtu", "ü" * 125 + ".vtu", "a." + "b" * 253):
        with temporary_file(tmp_path / name) as file:
            file.replace(tmp_path / name)
    assert len(names(tmp_path)) == 3


KEPT = [
    ".run-2024.vtu",
    ".run-abcdefgh.vtu",
    f"run-femops-{HERE}-01234567.vtu",
    f".run-femops-{HERE}-0123456.vtu",
    f".run-femops-{HERE}-01234567.vtu~.d.e.f.g.h.i.j.k.l",
    ".run-femops-0000-01234567.vtu",  # of another machine, which may be at it
    ".run-femops-ffff-01234567.3",
]


def test_only_what_killed_writers_left_is_removed(tmp_path):
    left = [ABANDONED, f".other-x-femops-{HERE}-01234567.state", f".-femops-{HERE}-01234567"]
    for name in [*KEPT, *left]:
        (tmp_path / name).write_text("")
    with temporary_file(tmp_path / "a.vtu") as alive:
        assert names(tmp_path) == sorted([*KEPT, alive.name])
        os.utime(alive, (time.time() - DAYS,) * 2)  # of a writer that takes days
        search_again()
        with temporary_file(tmp_path / "b.vtu"):
            assert alive.exists()
    for name in KEPT:
        os.utime(tmp_path / name, (time.time() - DAYS,) * 2)
    search_again()
    with temporary_file(tmp_path / "a.vtu"):
        pass
    assert names(tmp_path) == sorted(KEPT[:-2])


def test_a_new_file_that_another_process_takes_for_abandoned(tmp_path, monkeypatch):
    """It finds the file before there is a lock on it; the writer makes another."""
    lock, taken = temporary.fcntl.flock, []

    def flock(handle, how):
        if not taken:
            (file,) = tmp_path.iterdir()
            file.unlink()
            taken.append(file)
        lock(handle, how)

    monkeypatch.setattr(temporary.fcntl, "flock", flock)
    with temporary_file(tmp_path / "run.vtu") as file:
        assert file.exists()
        assert taken
        assert file not in taken


def test_a_new_file_that_another_user_locks(tmp_path, monkeypatch):
    """Who can read a file may lock it for ever; the writer makes another."""
    lock, theirs = temporary.fcntl.flock, []

    def flock(handle, how):
        if not theirs:
            theirs.append(next(tmp_path.iterdir()).open())
            lock(theirs[0], temporary.fcntl.LOCK_EX)
            how |= temporary.fcntl.LOCK_NB  # as this test should end
        lock(handle, how)

    monkeypatch.setattr(temporary.fcntl, "flock", flock)
    with temporary_file(tmp_path / "run.vtu") as file, theirs[0]:
        assert names(tmp_path) == [file.name]
        assert not os.path.samestat(os.fstat(theirs[0].fileno()), file.stat())


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    """Only age tells there."""

    def flock(handle, how):
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(temporary.fcntl, "flock", flock)
    (tmp_path / ABANDONED).write_text("")
    with temporary_file(tmp_path / "run.vtu") as file:
        assert names(tmp_path) == sorted([ABANDONED, file.name])
    os.utime(tmp_path / ABANDONED, (time.time() - DAYS,) * 2)
    search_again()
    with temporary_file(tmp_path / "run.vtu"):
        pass
    assert names(tmp_path) == []


def test_a_name_that_other_machines_know(tmp_path):
    target = tmp_path / "run.vtu"
    with temporary_file(target, "01234567.5") as file:
        assert file == shared_name(target, "01234567.5")
        assert temporary._NAME.fullmatch(file.name)
        with pytest.raises(FileExistsError), temporary_file(target, "01234567.5"):
            pass


def test_all_writers_write_temporary_files(tmp_path, monkeypatch):
    replace, seen = os.replace, {}

    def noted(source, target):
        seen[Path(target).resolve()] = Path(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    monkeypatch.chdir(tmp_path)
    V = femops.H1(femops.box((2, 2)), 1)
    u = V.zeros()
    femops.save("run.vtu", V, u=u)
    femops.save("run.pvtu", V, u=u)
    femops.io.TimeSeries("run.pvd").save(0.0, V, u=u)
    femops.io.save_state("run.state", {"u": (V, u)})
    femops_meshes.write_mfem(V.mesh, "run.mesh")
    assert seen.keys() == {file for file in tmp_path.rglob("*") if file.is_file()}
    assert all(temporary._NAME.fullmatch(source.name) for source in seen.values())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has few symbolic links")
@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("suffix", [".mesh", ".vtu", ".vtkhdf", ".state", ".pvd", ".png", ".gif"])
def test_no_writer_follows_a_link_in_place_of_its_file(tmp_path, monkeypatch, suffix, kind):
    """Who can write to the folder could lead it to any file of this user."""
    own, made = tmp_path / "own", os.open
    own.write_text("precious")

    def exchanged(path, flags, *mode, **more):
        handle = made(path, flags, *mode, **more)
        if flags & os.O_EXCL and temporary._NAME.fullmatch(Path(path).name):
            Path(path).rename(tmp_path / "away")
            Path(path).symlink_to(own) if kind == "link" else os.mkfifo(path)
        return handle

    monkeypatch.setattr(os, "open", exchanged)
    V = femops.H1(femops.box((2, 2)), 1)
    calls = {
        ".state": lambda path: femops.io.save_state(path, {"u": (V, V.zeros())}),
        ".pvd": femops.io.TimeSeries,
        ".png": femops.plot(V.mesh).save,
        ".gif": lambda path: femops.io.movie(path, [("", V, V.zeros())]),
    }
    save = calls.get(suffix, lambda path: femops.save(path, V.mesh))
    with pytest.raises((FemopsError, MeshError), match=r"symbolic links|No such device|regular"):
        save(tmp_path / f"run{suffix}")
    assert own.read_text() == "precious"


def test_the_next_writer_in_the_folder_removes_what_a_kill_has_left(tmp_path):
    program = """
import os, signal
from femops_meshes import box, write_mfem
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
write_mfem(box(2), "run.mesh")
"""
    killed = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 1
    with temporary_file(tmp_path / "run.vtu") as file:
        assert names(tmp_path) == [file.name]


def test_a_folder_in_its_place_does_not_hide_the_error(tmp_path: Path) -> None:
    """Others may have put it there in a folder that they can write."""

    def fail() -> None:
        with temporary_file(tmp_path / "run.vtu") as file:
            file.unlink()
            file.mkdir()
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        fail()
