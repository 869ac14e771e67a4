"""Series in time that ranks write, and go on with what other numbers of ranks have begun."""

import math

import pytest

import femops
from femops.errors import CommunicatorError, FileError, RankError
from femops.io.vtk import series as module
from support import fixtures
from support.cases.series import field, saved
from support.vtk import needs_vtk

folder = fixtures.shared_folder


@pytest.fixture
def space(comm):
    return femops.H1(femops.box((4, 3), comm=comm), 2)


@needs_vtk
@pytest.mark.parallel(1, 2, 4)
def test_other_ranks_continue(comm, folder, space):
    path, whole = folder / "run.pvd", femops.H1(femops.box((4, 3)), 2)
    if comm.rank == 0:
        saved(path, whole, [0.0, 0.5])
    comm.barrier()
    series = saved(path, space, [1.0, 1.5], existing="continue", comm=comm)
    assert series.times == (0.0, 0.5, 1.0, 1.5)
    comm.barrier()
    if comm.rank == 0:
        assert saved(path, whole, [2.0], existing="continue").times[-2:] == (1.5, 2.0)
        check_with_vtk(path, [0.0, 0.5, 1.0, 1.5, 2.0])
        files = sorted(f.name for f in (folder / "run").iterdir() if f.is_file())
        suffixes = ["vtu", "vtu", *(2 * ["vtu" if comm.size == 1 else "pvtu"]), "vtu"]
        assert files == [f"run_{step:06}.{suffix}" for step, suffix in enumerate(suffixes)]


def check_with_vtk(path, times):
    import pyvista

    reader = pyvista.PVDReader(str(path))
    assert reader.time_values == times
    for time in times:
        reader.set_active_time_value(time)
        grid = reader.read()[0]
        assert grid.n_cells == 12
        assert grid["u"] == pytest.approx(grid.points[:, 0] + time, abs=1e-13)


@pytest.mark.parallel(1, 2, 4)
def test_existing_series(comm, folder, space):
    path = folder / "run.pvd"
    saved(path, space, [0.0, 1.0], comm=comm)
    with pytest.raises(FileError if comm.rank == 0 else RankError, match="exists: choose another"):
        femops.io.TimeSeries(path, comm=comm)
    with pytest.raises(FileError, match="existing is 'append': give 'refuse'"):
        femops.io.TimeSeries(path, existing="append", comm=comm)
    assert saved(path, space, [0.25], existing="replace", comm=comm).times == (0.25,)
    comm.barrier()
    if comm.rank == 0:
        step = ["run_000000.vtu"] if comm.size == 1 else ["run_000000", "run_000000.pvtu"]
        assert sorted(f.name for f in (folder / "run").iterdir()) == step
        path.unlink()
    comm.barrier()
    with pytest.raises(FileError if comm.rank == 0 else RankError, match="without index"):
        femops.io.TimeSeries(path, comm=comm)


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("broken", ["to_disk", "writing"])
def test_an_index_that_cannot_be_written(comm, folder, space, monkeypatch, broken):
    path = folder / "run.pvd"
    series = saved(path, space, [0.0], comm=comm)
    series = femops.io.TimeSeries(path, existing="continue", comm=comm)
    before = path.read_bytes()

    def fail(*arguments, **options):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(module, broken, fail)
        with pytest.raises(OSError if comm.rank == 0 else RankError, match="disk full"):
            series.save(1.0, space, u=field(space, 1))
    comm.barrier()
    assert (path.read_bytes(), series.times) == (before, (0.0,))
    series.save(1.0, space, u=field(space, 1))
    assert series.times == (0.0, 1.0)
    assert series.path.read_text().count("<DataSet") == 2


@pytest.mark.parallel(2, 4)
def test_ranks_that_disagree(comm, folder, space):
    path = folder / "run.pvd"
    with pytest.raises(CommunicatorError, match="disagree about a series: existing is 'refuse' on"):
        femops.io.TimeSeries(path, existing="replace" if comm.rank else "refuse", comm=comm)
    with pytest.raises(CommunicatorError, match="disagree about a series: the path is"):
        femops.io.TimeSeries(folder / f"{comm.rank}.pvd", comm=comm)
    comm.barrier()
    assert list(folder.iterdir()) == []
    series = saved(path, space, [0.0], comm=comm)
    series = femops.io.TimeSeries(path, existing="continue", comm=comm)
    u = field(space, 0)
    with pytest.raises(CommunicatorError, match=r"a step of a series: time is 1\.0 on rank 0"):
        series.save(1.0 + comm.rank, space, u=u)
    with pytest.raises(RankError if comm.rank else FileError, match="not finite"):
        series.save(1.0 if comm.rank else math.nan, space, u=u)
    assert series.times == (0.0,)


@pytest.mark.parallel(2, 4)
def test_a_series_of_one_process(comm, tmp_path, space):
    series = femops.io.TimeSeries(tmp_path / "run.pvd")
    with pytest.raises(FileError, match=rf"of 1 ranks, the space is of {comm.size}: .*comm=comm"):
        series.save(0.0, space, u=field(space, 0))
    whole = femops.H1(femops.box((2, 2)), 1)
    together = femops.io.TimeSeries(comm.broadcast(tmp_path / "all.pvd"), comm=comm)
    with pytest.raises(FileError, match=rf"of {comm.size} ranks, the space is of 1"):
        together.save(0.0, whole)
