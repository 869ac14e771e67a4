"""The cache of compiled kernels is code: nobody else may write it, and it ends as it should."""

from __future__ import annotations

import errno
import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from femops_kernels.codegen import cache, native
from femops_kernels.codegen.cache import private_folder, read_private
from femops_kernels.errors import CacheError

ANOTHER = 54321
"""A user that no machine has."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def crowd(monkeypatch):
    """Every group has members, whoever runs the tests."""
    monkeypatch.setattr(cache, "_own_group", lambda path, group: False)


# --- Folders and files ----------------------------------------------------------------------------


def test_folders_are_made_for_the_user_alone(tmp_path):
    before = os.umask(0)
    try:
        made = private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert made == tmp_path.resolve() / "a" / "b" / "c"
    assert [folder.stat().st_mode & 0o777 for folder in (made, *made.parents[:2])] == 3 * [0o700]
    assert private_folder(made) == made


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEMOPS_CACHE", "~/kernels")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache._wanted() == tmp_path / "kernels"


def of_another(path):
    os.chown(path, ANOTHER, -1, follow_symlinks=False)


UNSAFE: dict[str, Callable[[Path], object]] = {
    "others write it": lambda top: (top / "a/b").chmod(0o757),
    "its group writes it": lambda top: (top / "a/b").chmod(0o770),
    "others write it, with the sticky bit": lambda top: (top / "a/b").chmod(0o1777),
    "others write a parent": lambda top: (top / "a").chmod(0o777),
    "the group of a parent writes it": lambda top: (top / "a").chmod(0o775),
    "another's": lambda top: of_another(top / "a/b"),
    "a parent of another's": lambda top: of_another(top / "a"),
}


@pytest.mark.parametrize(
    "how", [pytest.param(k, marks=[as_root] * ("another" in k)) for k in UNSAFE]
)
@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_that_others_could_fill_is_refused(tmp_path, how, linked):
    (tmp_path / "a" / "b").mkdir(parents=True)
    folder = tmp_path / "a" / "b"
    if linked:
        (tmp_path / "link").symlink_to("a")
        folder = tmp_path / "link" / "b"
    UNSAFE[how](tmp_path)
    cause = "belongs to the user 54321" if "another" in how else "can write "
    with pytest.raises(CacheError, match=cause) as error:
        private_folder(folder / "new" if "parent" in how else folder)
    assert "set FEMOPS_CACHE to" in str(error.value)
    assert ("chmod go-w" in str(error.value)) == ("write" in how and "sticky" not in how)
    assert not (folder / "new").exists()


def test_a_folder_in_one_with_the_sticky_bit(tmp_path):
    """As in /tmp: what is there can be renamed by its owner alone."""
    tmp_path.chmod(0o1777)
    assert private_folder(tmp_path / "mine").stat().st_mode & 0o777 == 0o700


def test_links_are_followed_if_they_are_ours(tmp_path):
    (tmp_path / "real" / "in").mkdir(parents=True)
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to("real/../real")
    assert private_folder(tmp_path / "one" / "in") == (tmp_path / "real" / "in").resolve()
    (tmp_path / "three").symlink_to("three")
    with pytest.raises(CacheError, match="too many links"):
        private_folder(tmp_path / "three")
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o666)
    for path in (tmp_path / "file", Path(os.devnull)):
        for name in ("", "in"):
            with pytest.raises(NotADirectoryError, match=f"'{path}' is no folder"):
                private_folder(path / name)


@as_root
def test_a_link_of_another_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    of_another(tmp_path / "link")
    with pytest.raises(CacheError, match="link' belongs to the user 54321"):
        private_folder(tmp_path / "link")


@pytest.mark.parametrize(
    ("name", "members", "access_list", "alone", "others"),
    [
        ("me", [], False, True, {}),
        ("me", ["me"], False, True, {}),
        ("me", ["me", "you"], False, False, {}),
        ("staff", [], False, False, {}),
        ("me", [], True, False, {}),
        ("me", [], False, False, {"gr_mem": ["you"]}),
        ("me", [], False, False, {"pw_name": "you"}),
    ],
)
def test_a_group_of_one(monkeypatch, tmp_path, name, members, access_list, alone, others):
    """Where each user has a group of the same name, what it may write is still the user's."""
    monkeypatch.undo()  # `crowd`
    group = SimpleNamespace(gr_gid=7, gr_name=name, gr_mem=members)
    user = SimpleNamespace(pw_gid=7, pw_name="me")
    groups = [group, SimpleNamespace(**vars(group) | others)]  # a number may have two entries
    users = [user, SimpleNamespace(**vars(user) | others)]
    calls = {"getgrgid": lambda number: group, "getgrall": lambda: groups}
    monkeypatch.setattr(cache, "grp", SimpleNamespace(**calls))
    calls = {"getpwuid": lambda number: user, "getpwall": lambda: users}
    monkeypatch.setattr(cache, "pwd", SimpleNamespace(**calls))
    monkeypatch.setattr(cache, "_has_access_list", lambda path: access_list)
    tmp_path.chmod(0o770)
    if alone:
        assert private_folder(tmp_path) == tmp_path.resolve()
    else:
        with pytest.raises(CacheError, match="its group can write"):
            private_folder(tmp_path)


def test_files_are_read_if_only_we_can_have_written_them(tmp_path):
    file = tmp_path / "kernel"
    with pytest.raises(FileNotFoundError):
        read_private(file)
    file.write_bytes(b"code")
    file.chmod(0o644)
    assert read_private(file) == b"code"
    for mode in (0o664, 0o646):
        file.chmod(mode)
        with pytest.raises(CacheError, match=r"can write '.*kernel'.*: chmod go-w .*remove it"):
            read_private(file)
    file.chmod(0o600)
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for other in ("link", "folder", "pipe"):
        with pytest.raises(CacheError, match=f"{other}' is no plain file"):
            read_private(tmp_path / other)


def test_a_pipe_in_place_of_a_lock_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "kernel.lock")
    with cache.locked(tmp_path / "kernel.lock"):
        pass


def test_a_process_that_was_forked_meanwhile_holds_no_lock(tmp_path, monkeypatch):
    """It has all open files of this process, and with them their locks."""
    made, held = os.open, []

    def opened(*arguments):
        held.append(made(*arguments))
        return os.dup(held[-1])

    monkeypatch.setattr(os, "open", opened)
    for _ in range(2):
        with cache.locked(tmp_path / "tuning.lock", wait=False):
            pass
    for handle in held:
        os.close(handle)


def test_a_lock_that_another_process_holds_for_long_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_LONG", 0.01)
    with (tmp_path / "kernel.lock").open("w") as other:
        cache.fcntl.flock(other, cache.fcntl.LOCK_EX)
        told: list[Path] = []
        logger = cache.logging.getLogger("femops")
        monkeypatch.setattr(logger, "warning", lambda _, path: (told.append(path), other.close()))
        with cache.locked(tmp_path / "kernel.lock"):
            assert told == [tmp_path / "kernel.lock"]


def test_a_lock_that_is_removed_meanwhile_is_made_again(tmp_path, monkeypatch):
    """A process that removes an old kernel removes its lock too, for which another one waits."""
    path = tmp_path / "kernel.lock"
    with path.open("w") as other:
        cache.fcntl.flock(other, cache.fcntl.LOCK_EX)
        wait = cache._wait

        def removed(*arguments):
            path.unlink()
            other.close()
            wait(*arguments)

        monkeypatch.setattr(cache, "_wait", removed)
        with (
            cache.locked(path),
            pytest.raises(CacheError, match="can't be kept"),
            cache.locked(path, wait=False),
        ):
            pass


@as_root
def test_files_of_another_are_refused(tmp_path):
    (tmp_path / "kernel").write_bytes(b"code")
    of_another(tmp_path / "kernel")
    with pytest.raises(CacheError, match=r"kernel' belongs to the user 54321, .*remove it"):
        read_private(tmp_path / "kernel")


# --- Programs -------------------------------------------------------------------------------------

KERNEL = """
import os, sys
from femops_kernels.codegen import cache, specialize
plain = specialize.source
def kernel(number=1):
    text = f'''
from femops_kernels.simd.compiling import *
@function
def twice(n) -> int:
    return n + {number} * n
'''
    specialize.source = lambda *given: text
    try:
        return specialize.specialize(["twice"], {}).twice(2)
    finally:
        specialize.source = plain
"""


@pytest.fixture
def run(program):
    """Run a program that has `kernel`."""
    return lambda body, **environment: program(KERNEL + textwrap.dedent(body), **environment)


def refused(result):
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert re.match(r"femops_kernels.errors.(Cache|Unwritable)Error: ", last)
    return last


def test_planted_files_are_not_run(run, tmp_path):
    """The code is one that a real process would run: with the folder closed, it is."""
    folder = tmp_path / "cache"
    given = {"FEMOPS_CACHE": str(folder)}
    assert run("print(kernel())", **given).output == "4\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    (source,) = folder.glob("twice_*.py")
    code = source.with_suffix(".kernel")
    planted = source.read_text().replace("1 * n", "5 * n")
    code.write_bytes(native.compiled(source.stem, planted, str(source)))
    cache.seal(source)
    folder.chmod(0o777)
    assert "chmod go-w" in refused(run("print(kernel())", **given))
    folder.chmod(0o700)
    code.chmod(0o666)
    ended = run("print(kernel())", **given)
    assert f"can write '{code}'" in refused(ended)
    assert ended.stdout == ""
    code.chmod(0o600)
    assert run("print(kernel())", **given).output == "12\n"


def test_files_are_closed_to_others(run, tmp_path):
    """Whatever the umask."""
    (tmp_path / "cache").mkdir(mode=0o755)
    given = {"FEMOPS_CACHE": str(tmp_path / "cache")}
    assert run("os.umask(0); print(kernel())", **given).output == "4\n"
    made = [*(tmp_path / "cache").iterdir()]
    assert {file.suffix for file in made} == {".py", ".kernel", ".sha256", ".lock"}
    assert not any(file.stat().st_mode & 0o022 for file in made)
    locks = [file for file in made if file.suffix == ".lock"]  # which others could hold for ever
    assert not any(file.stat().st_mode & 0o077 for file in locks)
    assert run("os.umask(0); print(kernel())", **given).output == "4\n"


@pytest.mark.parametrize("bytes_left", [10, 400])
def test_a_full_disk(run, tmp_path, bytes_left):
    """No file can be longer: first the source cannot be written, then the code."""
    body = f"""
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_left}, {bytes_left}))
    kernel()
    """
    cache, other = tmp_path / "cache", tmp_path / "other"
    other.mkdir()
    result = run(body, FEMOPS_CACHE=str(cache), TMPDIR=str(other))
    line = refused(result)
    assert f"the cache folder can't be written ('{cache}': File too large)" in result.stderr
    assert f"can't be kept in '{other}/femops-" in line
    assert "(File too large): make room there, or set" in line
    assert not [file for file in cache.rglob("*") if "tmp" in file.name]
    assert not list(other.iterdir())
    result = run("print(kernel())", FEMOPS_CACHE=str(cache))
    assert result.output == "4\n"
    assert "Warning" not in result.stderr


@pytest.mark.parametrize(
    ("writer", "number"),
    [(".py", "ENOSPC"), (".kernel", "EDQUOT"), (".sha256", "EROFS")],
)
def test_kernels_go_elsewhere_when_a_disk_is_full(run, tmp_path, writer, number):
    """Whichever file does not fit any more; what was measured goes along."""
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / "tuning.json").write_text("[]\n")
    (tmp_path / "tmp").mkdir()
    body = f"""
    import errno
    from femops_kernels.codegen import notice
    from femops_kernels.tuning import database
    notice.AFTER, replace, folder = 0.0, os.replace, cache.cache_folder()
    def full(source, target):
        if target.startswith(str(folder)) and target.endswith({writer!r}):
            raise OSError(errno.{number}, os.strerror(errno.{number}))
        replace(source, target)
    notice.Notice.compiling = notice.contextmanager(
        lambda self, folder, temporary: (yield self._say(folder, temporary)))
    os.replace = lambda source, target: full(source, str(target))
    print(kernel(), kernel(2), cache.is_temporary(cache.cache_folder()))
    assert (database.users_table().parent, database.users_table().read_text()) == (
        cache.cache_folder(), "[]\\n")
    """
    result = run(body, FEMOPS_CACHE=str(tmp_path / "cache"), TMPDIR=str(tmp_path / "tmp"))
    assert result.output == "4 6 True\n"
    reason = re.escape(f"('{tmp_path / 'cache'}': {os.strerror(getattr(errno, number))})")
    assert len(re.findall(f"cache folder can't be written {reason}", result.stderr)) == 1
    assert f"keeps them in {tmp_path}/tmp/femops-" in result.stderr
    assert "until this process ends\n" in result.stderr
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("damaged", [False, True])
def test_kernels_of_a_folder_that_cannot_be_written_are_used(run, tmp_path, damaged):
    """As those of a container's image. A damaged one is compiled, and left as it is."""
    given = {"FEMOPS_CACHE": str(tmp_path / "cache")}
    assert run("print(kernel())", **given).output == "4\n"
    (code,) = (tmp_path / "cache").glob("*.kernel")
    if damaged:
        code.write_bytes(code.read_bytes()[:100])
    before, times = code.read_bytes(), code.stat().st_mtime_ns
    body = f"""
    import errno, tempfile
    from femops_kernels.codegen import specialize
    temporary, compiled, count = tempfile.TemporaryFile, specialize.compiled, []
    def refused(dir):
        if str(dir) == {str(tmp_path / "cache")!r}:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return temporary(dir=dir)
    tempfile.TemporaryFile = refused
    specialize.compiled = lambda *given: count.append(given) or compiled(*given)
    print(kernel(), len(count), cache.is_temporary(cache.cache_folder()))
    """
    assert run(body, **given).output == f"4 {int(damaged)} True\n"
    assert (code.read_bytes(), code.stat().st_mtime_ns) == (before, times)


def test_what_is_no_folder_is_not_to_be_closed_to_others(run, tmp_path):
    result = run("print(kernel())", FEMOPS_CACHE=os.devnull, TMPDIR=str(tmp_path))
    assert result.output == "4\n"
    assert f"can't be written ('{os.devnull}' is no folder)" in result.stderr
    assert "chmod" not in result.stderr


# --- The folder for where none can be written -----------------------------------------------------


def temporary(run, tmp_path, body, mode=0o755):
    home = tmp_path / "home"
    home.write_text("a file, so no folder can be made in it")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(mode)
    return run(body, HOME=str(home), TMPDIR=str(tmp_path / "tmp"))


def test_a_temporary_folder_is_removed_at_exit(run, tmp_path):
    body = """
    kernel()
    folder = cache.cache_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    print(folder)
    """
    result = temporary(run, tmp_path, body)
    folder = result.output.strip()
    assert Path(folder).parent == tmp_path / "tmp"
    assert not list((tmp_path / "tmp").iterdir())
    assert len(re.findall("CacheWarning: the cache folder can't be written", result.stderr)) == 1
    assert result.stderr.count("kernels and settings are kept") == 1


@pytest.mark.parametrize("leave", ["sys.exit(0)", "os._exit(0)"])
def test_a_forked_child_leaves_the_folder_of_its_parent(run, tmp_path, leave):
    body = f"""
    kernel()
    if (child := os.fork()) == 0:
        kernel(2)
        {leave}
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(cache.cache_folder().glob("*.py"))) == 2
    kernel(3)
    """
    assert temporary(run, tmp_path, body).output == ""
    assert not list((tmp_path / "tmp").iterdir())


def test_children_have_folders_that_end_with_them(run, tmp_path):
    """One that outlives its parent finds the folder gone; one of multiprocessing has its own."""
    body = """
    import multiprocessing, time
    child = multiprocessing.get_context("fork").Process(target=kernel)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert not os.listdir(os.environ["TMPDIR"])
    kernel()
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(write)
        os.read(read, 1)  # until the parent has gone
        while os.path.exists(cache._folder()):
            time.sleep(0.01)
        print(kernel(2), flush=True)
        sys.exit(0)
    """
    assert temporary(run, tmp_path, body).output == "6\n"
    assert not list((tmp_path / "tmp").iterdir())


def test_a_temporary_folder_obeys_the_same_rules(run, tmp_path):
    result = temporary(run, tmp_path, "kernel()", mode=0o777)
    assert f"all users can write '{tmp_path / 'tmp'}'" in refused(result)
    assert not list((tmp_path / "tmp").iterdir())
