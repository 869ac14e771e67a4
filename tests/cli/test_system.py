"""What the system refuses commands: closed streams, long names, folders that others can write."""

import os
import subprocess
import sys

import pytest

from femops_kernels.codegen import cache


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["info"], ["info", "--json"]])
@pytest.mark.parametrize("closed", [(1,), (0, 1), (1, 2), (2,)])
def test_streams_that_are_closed(arguments, closed):
    """As by ``>&-``: what is not written is an error, in a line if that can be written."""
    close = "import os, sys; [os.close(int(k)) for k in sys.argv[1]]; "
    code = close + "os.execv(sys.argv[2], sys.argv[2:])"
    command = [sys.executable, "-m", "femops", *arguments]
    numbers = "".join(map(str, closed))
    done = subprocess.run(
        [sys.executable, "-c", code, numbers, *command], capture_output=True, text=True, check=False
    )
    line = "femops: cannot write to standard output: Bad file descriptor\n"
    assert done.returncode == (1 in closed)
    assert done.stderr == (line if 1 in closed and 2 not in closed else "")


def test_a_reader_that_ends_first():
    """As by ``| head -0``."""
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
