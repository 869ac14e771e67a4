"""What the system refuses commands: closed streams, long names, folders that others can write."""

import os
import select
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import femops
from femops_kernels.codegen import cache

STREAMS = {
    "<&- >&-": (1, "femops: cannot write to standard output: Bad file descriptor\n"),
    ">&- 2>&-": (1, ""),  # and no line can be written either
    "2>&-": (0, ""),
    "> /dev/full 2> /dev/full": (1, ""),
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


@pytest.mark.parametrize("megabytes", [150, 300, 470])
def test_too_little_memory_for_the_libraries(megabytes):
    """OpenBLAS may wait for ever, LLVM's library is not found, and modules are not loaded."""
    resource = pytest.importorskip("resource")
    limit = megabytes * 10**6

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    command = [sys.executable, "-m", "femops", "solve", "poisson", "2x2", "--order", "1"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("femops: not enough memory")


def test_characters_that_the_encoding_lacks(tmp_path):
    femops.save(tmp_path / "\xe4.mesh", femops.box((2, 2)))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "femops", "mesh", "info", "\xe4.mesh"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert done.stdout.startswith(rb"\xe4.mesh")


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


class Terminal:
    """A command on a terminal of some columns."""

    def __init__(self, columns, *words):
        pty = pytest.importorskip("pty")
        import fcntl
        import struct
        import termios

        self.end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = [sys.executable, "-m", "femops", *words]
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other)
        os.close(other)

    def read(self, until=None):
        """What the command writes, to a text or to its end; one that hangs is killed."""
        text, deadline = b"", time.monotonic() + 120
        while until is None or until not in text:
            if not select.select([self.end], [], [], deadline - time.monotonic())[0]:
                self.process.kill()
                raise TimeoutError(f"the command has written {text!r}, then nothing more")
            try:
                text += os.read(self.end, 4096)
            except OSError:  # the other end is closed
                break
        return text

    def close(self):
        self.process.wait(timeout=60)
        os.close(self.end)


def test_the_cursor_stays_whatever_ends_a_command():
    """A command that is killed or stopped could not show it again."""
    terminal = Terminal(80, "solve", "poisson", "2x2", "--order", "1")
    text = terminal.read()
    terminal.close()
    assert b"reading 2x2" in text
    assert b"\x1b[?25" not in text


def test_numbers_are_whole_on_a_narrow_terminal():
    terminal = Terminal(20, "mesh", "info", "disc.mesh")
    words = terminal.read().decode().split()
    terminal.close()
    assert "disc.mesh" in words
    assert not any("…" in word for word in words)


HOSTILE = "a\x1b[31m\x07\u202e[bold]b:smile:.mesh"


def test_what_a_terminal_would_obey_is_written_as_escapes(run, tmp_path):
    """In names of files that are there or not, and in values of options."""
    femops.save(tmp_path / HOSTILE, femops.box((2, 2)))
    safe = r"a\x1b[31m\x07\u202e[bold]b:smile:.mesh"
    for words, stream in (
        (["mesh", "info", HOSTILE], 1),
        (["mesh", "info", "no" + HOSTILE], 2),
        (["mesh", "partition", HOSTILE, "--parts", "2"], 1),
        (["mesh", "convert", HOSTILE, HOSTILE + ".vtu"], 2),
        (["mesh", "refine", HOSTILE, "out.mesh", "--times", HOSTILE], 2),
    ):
        text = run(*words)[stream]
        assert safe in text
        assert all(c.isprintable() or c == "\n" for c in text)


def test_names_on_a_terminal_have_no_markup(tmp_path):
    file = tmp_path / HOSTILE
    femops.save(file, femops.box((2, 2)))
    terminal = Terminal(200, "mesh", "info", str(file))
    text = terminal.read()
    terminal.close()
    assert terminal.process.returncode == 0
    assert rb"a\x1b[31m\x07\u202e[bold]b:smile:.mesh" in text


@pytest.mark.parametrize("words", [["solve", "poisson"], ["hydro"], ["bench", "bp1"]], ids=str)
def test_help_does_not_need_docstrings(words):
    """Python leaves them out with -OO."""
    outputs = []
    for option in ("-O", "-OO"):
        command = [sys.executable, option, "-m", "femops", *words, "--help"]
        outputs.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert outputs[0] == outputs[1]
    assert "Examples" in outputs[1]


def test_an_archive_is_refused(tmp_path):
    """It has no folders, whose files femops reads."""
    archive = tmp_path / "femops.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        for source in Path(femops.__file__).parent.rglob("*.py*"):
            if "__pycache__" not in source.parts:
                file.write(source, source.relative_to(Path(femops.__file__).parents[1]))
        file.writestr("__main__.py", "from femops.cli import main\nmain()\n")
    command = [sys.executable, archive, "info"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("files of its folder: unpack the archive\n")
