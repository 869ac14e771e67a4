"""Series of fields in time: read by VTK, whole at every moment, continued only when asked to."""

import math
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

import femops
from femops.errors import FileError
from femops.io import atomic
from femops.io.vtk import series as module
from femops.io.vtk.pieces import piece_files
from femops.parallel import Serial
from support.cases.series import field, saved


@pytest.fixture(scope="module")
def space():
    return femops.H1(femops.disc(order=2), order=3)


def test_vtk_reads_it(tmp_path, space):
    pyvista = pytest.importorskip("pyvista")
    times = [0.0, 0.1, 1 / 3, 1e9]
    saved(tmp_path / "run.pvd", space, times)
    reader = pyvista.PVDReader(str(tmp_path / "run.pvd"))
    assert reader.time_values == times
    for time in times:
        reader.set_active_time_value(time)
        grid = reader.read()[0]
        assert grid.n_cells == space.mesh.num_elements
        np.testing.assert_allclose(grid["u"], grid.points[:, 0] + time, rtol=1e-12, atol=1e-12)


def test_it_is_whole_after_each_step(tmp_path, space):
    path = tmp_path / "run.pvd"
    series = femops.io.TimeSeries(path)
    assert path.read_text().count("<DataSet") == 0
    for step, time in enumerate([0.5, 2.0]):
        file = series.save(time, space, u=field(space, time))
        assert file == tmp_path / "run" / f"run_{step:06}.vtu"
        text = path.read_text()
        assert text.count("<DataSet") == step + 1
        assert f'timestep="{time!r}" part="0" file="run/{file.name}"' in text
    assert series.times == (0.5, 2.0)
    assert "2 steps, time 0.5 to 2" in repr(series)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run.pvd"]


@pytest.mark.parametrize("broken", ["save", "to_disk", "writing"])
def test_a_step_that_fails_leaves_the_series_as_it_was(tmp_path, space, monkeypatch, broken):
    path = tmp_path / "run.pvd"
    series = femops.io.TimeSeries(path)
    series.save(0.0, space, u=field(space, 0))
    before = path.read_bytes()

    def fail(*arguments, **options):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(module, broken, fail)
        with pytest.raises(OSError, match="disk full"):
            series.save(1.0, space, u=field(space, 1))
    assert path.read_bytes() == before
    assert series.times == (0.0,)
    series.save(1.0, space, u=field(space, 1))
    assert series.times == (0.0, 1.0)


@pytest.mark.parametrize(("suffix", "last"), [(".pvd", "writing"), (".vtkhdf", "in_turns")])
def test_an_interrupt_when_a_step_is_complete_keeps_it(tmp_path, space, monkeypatch, suffix, last):
    if suffix == ".vtkhdf":
        pytest.importorskip("h5py")
    series = femops.io.TimeSeries(tmp_path / f"run{suffix}")
    complete = getattr(module, last)

    @contextmanager
    def written(*arguments, **options):
        with complete(*arguments, **options) as file:
            yield file
        raise KeyboardInterrupt

    def appended(*arguments):
        complete(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, last, written if last == "writing" else appended)
        with pytest.raises(KeyboardInterrupt):
            series.save(0.0, space, u=field(space, 0))
    series.save(1.0, space, u=field(space, 1))
    assert femops.io.TimeSeries(series.path, "continue").times == (0.0, 1.0)


def test_a_series_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr(module, "writing", fail)
    with pytest.raises(FileError, match="disk full"):
        femops.io.TimeSeries(tmp_path / "run.pvd")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("suffix", [".pvd", ".vtkhdf"])
def test_steps_of_two_programs_do_not_overwrite_each_other(tmp_path, space, suffix):
    if suffix == ".vtkhdf":
        pytest.importorskip("h5py")
    path = tmp_path / f"run{suffix}"
    first = femops.io.TimeSeries(path)
    second = femops.io.TimeSeries(path, "continue")
    first.save(1.0, space, u=field(space, 1))
    with pytest.raises(FileError, match="another program, or another TimeSeries"):
        second.save(2.0, space, u=field(space, 2))
    first.save(3.0, space, u=field(space, 3))
    assert femops.io.TimeSeries(path, "continue").times == (1.0, 3.0)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not lock folders")
def test_a_folder_that_others_have_locked_is_waited_for_with_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "LONGEST_WAIT", 0.05)
    with atomic.alone_in(tmp_path), pytest.raises(FileError, match=r"is locked by another program"):
        femops.io.TimeSeries(tmp_path / "run.pvd")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not lock folders")
def test_an_interrupt_leaves_no_folder_locked(tmp_path, monkeypatch):
    unlock = atomic._unlock

    def interrupted(handle):
        monkeypatch.setattr(atomic, "_unlock", unlock)
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "LONGEST_WAIT", 0.0)
    with pytest.raises(KeyboardInterrupt), atomic.alone_in(tmp_path):
        monkeypatch.setattr(atomic, "_unlock", interrupted)
    with atomic.alone_in(tmp_path):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not lock folders")
def test_two_programs_that_write_one_pvtu_file_do_so_in_turns(tmp_path, space, monkeypatch):
    path = femops.save(tmp_path / "u.pvtu", space, u=space.zeros())
    (piece,) = piece_files(path)
    monkeypatch.setattr(atomic, "LONGEST_WAIT", 0.05)
    with atomic.alone_in(piece.parent), pytest.raises(FileError, match="locked by another program"):
        femops.save(path, space, u=space.zeros())
    assert piece_files(path) == [piece]
    femops.save(path, space, u=space.zeros())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes of this kind")
def test_a_pipe_in_place_of_an_open_series_is_not_waited_for(tmp_path, space):
    series = femops.io.TimeSeries(tmp_path / "run.pvd")
    series.path.unlink()
    os.mkfifo(series.path)
    with pytest.raises(FileError, match="not a regular file"):
        series.save(1.0, space, u=space.zeros())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not lock folders")
@pytest.mark.parametrize("suffix", [".pvd", ".vtkhdf"])
def test_steps_of_two_programs_at_the_same_time(tmp_path, suffix):
    """Each step is in the series, or its program is told that it is not."""
    if suffix == ".vtkhdf":
        pytest.importorskip("h5py")
    path, V = tmp_path / f"run{suffix}", femops.H1(femops.box((2, 2)), order=1)
    saved, ready = [], threading.Barrier(4)

    def work(number):
        for step in range(3):
            ready.wait()
            with suppress(FileError):
                time = step + 0.1 * number
                femops.io.TimeSeries(path, "continue").save(time, V, u=V.interpolate(time))
                saved.append(time)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert femops.io.TimeSeries(path, "continue").times == tuple(sorted(saved))
    assert len(saved) >= 3


def test_steps_after_a_checkpoint_are_removed(tmp_path, space):
    path = tmp_path / "run.pvd"
    saved(path, space, [0.0, 1.0, 2.0])
    series = femops.io.TimeSeries(path, "continue", until=1.0)
    assert series.times == (0.0, 1.0) == femops.io.TimeSeries(path, "continue").times
    assert len([*(tmp_path / "run").iterdir()]) == 2
    series.save(1.5, space, u=field(space, 1.5))
    assert femops.io.TimeSeries(path, "continue", until=9.0).times == (0.0, 1.0, 1.5)
    assert femops.io.TimeSeries(path, "continue", until=-1.0).times == ()
    with pytest.raises(FileError, match="give existing='continue' too"):
        femops.io.TimeSeries(path, "replace", until=1.0)


def test_bad_times_and_a_closed_series(tmp_path, space):
    series = saved(tmp_path / "run.pvd", space, [0.0])
    with pytest.raises(FileError, match="is closed"):
        series.save(1.0, space, u=field(space, 1))
    series = femops.io.TimeSeries(tmp_path / "run.pvd", existing="continue")
    series.save(np.float64(1.0), space, u=field(space, 1))
    for time, message in (
        (math.nan, "not finite"),
        (math.inf, "not finite"),
        (1.0, "not later than 1.0"),
        (0.5, "not later than 1.0"),
        ("soon", "not a number"),
        (None, "not a number"),
    ):
        with pytest.raises(FileError, match=message):
            series.save(time, space, u=field(space, 1))
    assert series.times == (0.0, 1.0)


def test_fields_stay_the_same(tmp_path, space):
    series = femops.io.TimeSeries(tmp_path / "run.pvd")
    u = field(space, 0)
    series.save(0, space, u=u, time=u, space=u, path=u)
    with pytest.raises(FileError, match=r"\['v'\] differ from \['path', 'space', 'time'"):
        series.save(1, space, v=u)
    with pytest.raises(femops.errors.VectorError):
        series.save(1, space, u=u[1:], time=u, space=u, path=u)
    assert series.times == (0.0,)


def test_existing_series(tmp_path, space):
    path = tmp_path / "run.pvd"
    saved(path, space, [0.0, 1.0])
    before = path.read_bytes()
    with pytest.raises(FileError, match="exists"):
        femops.io.TimeSeries(path)
    with pytest.raises(FileError, match="existing is 'append': give 'refuse'"):
        femops.io.TimeSeries(path, existing="append")
    assert path.read_bytes() == before
    assert saved(path, space, [2.0], existing="continue").times == (0.0, 1.0, 2.0)
    assert saved(path, space, [0.25], existing="replace").times == (0.25,)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["run_000000.vtu"]
    assert saved(tmp_path / "new.pvd", space, [0.0], existing="continue").times == (0.0,)


@pytest.mark.parametrize("name", ["run.pvd", "run.vtkhdf"])
def test_a_folder_that_may_be_written_but_not_listed(tmp_path, space, monkeypatch, name):
    """Names in it cannot be flushed to the disk. A step that is saved has no error."""
    opened = os.open

    def refuse(path, flags, *mode, **options):
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode, **options)

    if name == "run.vtkhdf":
        pytest.importorskip("h5py")
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_dir())
    series = saved(tmp_path / name, space, [0.0, 1.0])
    assert series.times == (0.0, 1.0)
    femops.io.save_state(tmp_path / "run.state", {"u": (space, space.zeros())})
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("owner", [0, 12345])
def test_a_link_of_another_user_in_place_of_the_folder(tmp_path, owner):
    """It may lead to a folder of this user, with files of the same names."""
    V, own, link = femops.H1(femops.box((2, 2)), 1), tmp_path / "own/run", tmp_path / "run"
    own.mkdir(parents=True)
    (own / "run_7_0.vtu").write_text("precious")
    link.symlink_to(own)
    os.chown(link, owner, -1, follow_symlinks=False)
    with pytest.raises(FileError, match="a link of another user") if owner else nullcontext():
        femops.io.TimeSeries(link.with_suffix(".pvd"))
    with pytest.raises(FileError, match="a link of another user") if owner else nullcontext():
        femops.save(link.with_suffix(".pvtu"), V, u=V.zeros())
    assert (own / "run_7_0.vtu").exists() == bool(owner)
    assert bool(piece_files(link.with_suffix(".pvtu"))) != bool(owner)


def test_a_step_without_index_is_not_overwritten_unasked(tmp_path, space):
    path = tmp_path / "run.pvd"
    saved(path, space, [0.0])
    path.unlink()
    with pytest.raises(FileError, match="without index"):
        femops.io.TimeSeries(path)
    assert saved(path, space, [3.0], existing="replace").times == (3.0,)


def test_damaged_and_nonowned_series_are_refused(tmp_path, space):
    path = tmp_path / "run.pvd"
    saved(path, space, [0.0, 1.0])
    text = path.read_text()
    for bad in (
        "",
        text[:-30],
        text.replace('timestep="1.0"', ""),
        *(text.replace('"1.0"', f'"{time}"') for time in ("x", "nan", "inf", "-1.0")),
        text.replace('"1.0"?', '"1.0" encoding="none"?'),
        *(
            text.replace('<DataSet timestep="1', new)
            for new in ('<DataTet timestep="1', "=DataSet")
        ),
        "<VTKFile><Other/></VTKFile>",
    ):
        path.write_text(bad)
        with pytest.raises(FileError, match="not a series that can be read"):
            femops.io.TimeSeries(path, existing="continue")
        assert path.read_text() == bad
    path.write_text(text.replace("run/run_000001", "../precious\x9b2J"))
    with pytest.raises(FileError, match="not written by femops") as caught:
        femops.io.TimeSeries(path, existing="replace")
    assert str(caught.value).isprintable()
    assert len(list((tmp_path / "run").iterdir())) == 2
    path.write_text(text)
    (tmp_path / "run" / "run_000001.vtu").unlink()
    with pytest.raises(FileError, match="missing"):
        femops.io.TimeSeries(path, existing="continue")


def test_no_changed_byte_of_an_index_loses_a_step(tmp_path, space):
    path = tmp_path / "run.pvd"
    saved(path, space, [0.0, 1.0])
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            with suppress(FileError):
                assert len(module.PvdFiles(path, Serial())._read_index()) == 2


def test_paths(tmp_path, space):
    with pytest.raises(FileError, match=r"does not end in \.pvd"):
        femops.io.TimeSeries(tmp_path / "run.vtu")
    with pytest.raises(FileError, match="no folder"):
        femops.io.TimeSeries(tmp_path / "none" / "run.pvd")
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileError, match="cannot make the folder"):
        femops.io.TimeSeries(tmp_path / "taken.pvd")
    assert not (tmp_path / "taken.pvd").exists()
    saved(tmp_path / "a & <b>.pvd", space, [0.0])
    pyvista = pytest.importorskip("pyvista")
    assert pyvista.PVDReader(str(tmp_path / "a & <b>.pvd")).read()[0].n_cells > 0


@pytest.mark.parametrize("suffix", [".pvd", ".vtkhdf"])
def test_complex_fields(tmp_path, suffix):
    if suffix == ".vtkhdf":
        pytest.importorskip("h5py")
    V = femops.H1(femops.box((2, 1)), 2)
    u = V.interpolate(lambda x: x[0] + 2j, dtype=complex)
    path = tmp_path / f"run{suffix}"
    with femops.io.TimeSeries(path) as series:
        series.save(0.0, V, u=u)
    series = femops.io.TimeSeries(path, existing="continue")
    series.save(1.0, V, u=u)
    with pytest.raises(FileError, match="differ from"):
        series.save(2.0, V, u=u.real.copy())
    assert series.times == (0.0, 1.0)
