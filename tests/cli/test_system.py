"""What the system refuses commands: closed streams, long names, folders that others can write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import femops
from femops_kernels.codegen import cache

STREAMS = {
    "<&- >&-": (1, "femops: cannot write to standard output: Bad file descriptor\n"),
    ">&- 2>&-": (1, ""),  # and no line can be written either
    "2>&-": (0, ""),
    "> /dev/full": (1, "femops: cannot write to standard output: No space left on device\n"),
}


@pytest.mark.parametrize("how", STREAMS)
def test_streams_that_cannot_be_written(how):
    """What is not written is an error, in a line if that can be written."""
    if "full" in how and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    command = "info" if "2>" in how else "--version"
    shell = ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "femops", command]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == STREAMS[how]


def test_a_reader_that_ends_first():
    """As by ``| head -0``: what loads NumPy before it writes."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "femops", "info"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr.count("\n") <= 1
    assert "Traceback" not in done.stderr


def test_a_name_that_is_too_long(run):
    code, out, err = run("mesh", "info", "x" * 300 + ".mesh")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "File name too long" in err


def test_a_cache_that_others_can_write(run, tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("FEMOPS_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_folder", cache._folder.__wrapped__)
    code, out, err = run("info")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"femops: all users can write '{tmp_path}'")


@pytest.fixture
def unsearchable(tmp_path):
    """A folder that a mesh lies in, and that may not be searched, by root neither."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "ball.mesh").write_bytes(femops.sample("ball.mesh").read_bytes())
    tmp_path.chmod(0o755)
    folder.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o700)


def test_a_folder_that_may_not_be_searched(unsearchable):
    path, mesh = unsearchable / "ball.mesh", femops.box((2,))
    V = femops.H1(mesh, 1)
    for work in (
        lambda: femops.read_mesh(path),
        lambda: femops.save(unsearchable / "u.vtu", V, u=V.zeros()),
        lambda: femops.save(unsearchable / "m.mesh", mesh),
        lambda: femops.io.save_state(unsearchable / "s.state", {"u": (V, V.zeros())}),
        lambda: femops.io.load_state(unsearchable / "s.state", {"u": V}),
    ):
        with pytest.raises(femops.errors.Errors, match="Permission denied") as refused:
            work()
        assert str(unsearchable) in str(refused.value)
        assert "\n" not in str(refused.value)
