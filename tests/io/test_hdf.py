"""VTKHDF files, of one state or of a series: VTK reads what femops wrote, also from ranks."""

import os
import re
import signal
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest

import femops
from femops.errors import FileError, MissingExtraError, RankError
from femops.io.vtk import hdf_file, journal
from support import fixtures
from support.cases.series import saved
from support.vtk import needs_vtk, read_vtk

h5py = pytest.importorskip("h5py", reason="needs the extra hdf")
pytestmark = needs_vtk

folder = fixtures.shared_folder


def steps_of(path):
    """Time and grid of each step, by vtkHDFReader, which names no time where there is one step."""
    import pyvista
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline as Pipeline
    from vtkmodules.vtkIOHDF import vtkHDFReader

    reader = vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    times = reader.GetOutputInformation(0).Get(Pipeline.TIME_STEPS())
    if times is None:
        with h5py.File(path) as file:
            times = file["VTKHDF/Steps/Values"][: file["VTKHDF/Steps"].attrs["NSteps"]]
    for time in times:
        reader.UpdateTimeStep(time)
        grid = pyvista.UnstructuredGrid()
        grid.DeepCopy(reader.GetOutputDataObject(0))
        yield time, grid


def wave(x, time):
    return np.sin(x[0] + time) + x[1] * x[-1] ** 2


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_vtk_reads_fields_of_high_order_at_all_times(tmp_path, dim):
    """Values at the nodes, which are VTK's, of continuous and discontinuous fields."""
    sample = {1: None, 2: "disc.mesh", 3: "ball.mesh"}[dim]
    mesh = femops.read_mesh(femops.sample(sample)) if sample else femops.box((5,))
    V, Q = femops.H1(mesh, 4), femops.L2(mesh, 2, ncomp=2)
    times, path = [0.0, 0.25, 3.0], tmp_path / "run.vtkhdf"
    with femops.io.TimeSeries(path) as series:
        for t in times:
            u = femops.GridFunction(V, V.interpolate(lambda x, t=t: x[0] ** 4 + t))
            q = femops.GridFunction(Q, Q.interpolate(lambda x, t=t: (x[0] ** 2, t * x[-1])))
            assert series.save(t, u=u, q=q) == path
    grid = femops.io.to_pyvista(V, u=V.interpolate(lambda x: x[0] ** 4), q=q)
    read = list(steps_of(path))
    assert [time for time, _ in read] == times
    for t, found in read:
        x = found.points.T
        assert found.n_cells == mesh.num_elements
        assert np.array_equal(found.celltypes, grid.celltypes)
        assert np.array_equal(found.points, grid.points)
        assert np.array_equal(found.cells, grid.cells)
        assert np.array_equal(found["attribute"], mesh.element_attributes)
        assert np.abs(found["u"] - grid["u"] - t).max() < 1e-12
        assert np.abs(found["q"][:, 0] - x[0] ** 2).max() < (1e-12 if dim == 1 else 0.2)
    assert np.abs(read[1][1]["q"][:, 1] / 0.25 - read[2][1]["q"][:, 1] / 3.0).max() < 1e-12


def test_the_mesh_is_stored_where_it_changes(tmp_path):
    path, meshes = tmp_path / "run.vtkhdf", [femops.box((4, 4)), femops.box((2, 3))]
    with femops.io.TimeSeries(path) as series:
        for t, k in enumerate([0, 0, 1, 1, 0]):
            V = femops.H1(meshes[k], 3)
            series.save(t, V, u=V.interpolate(lambda x, t=t: x[0] + t))
    with h5py.File(path) as file:
        assert list(file["VTKHDF/NumberOfCells"]) == [16, 6, 16]
        assert list(file["VTKHDF/Steps/PartOffsets"]) == [0, 0, 1, 1, 2]
    for (t, grid), cells in zip(steps_of(path), [16, 16, 6, 6, 16], strict=True):
        assert grid.n_cells == cells
        assert np.abs(grid["u"] - grid.points[:, 0] - t).max() < 1e-12


def test_steps_after_a_checkpoint_are_removed(tmp_path):
    """The mesh of a step that is removed is not that of the next step."""
    path, V = tmp_path / "run.vtkhdf", femops.H1(femops.disc(order=2), order=3)
    finer = femops.H1(V.mesh.refine(), order=3)
    saved(path, V, [0.0, 1.0])
    saved(path, finer, [2.0, 3.0], existing="continue")
    series = saved(path, finer, [1.5], existing="continue", until=1.0)
    assert series.times == (0.0, 1.0, 1.5)
    assert saved(path, finer, [1.75], existing="continue", until=1.5).times[-2:] == (1.5, 1.75)
    read = list(steps_of(path))
    assert [time for time, _ in read] == [0.0, 1.0, 1.5, 1.75]
    for (time, found), W in zip(read, (V, V, finer, finer), strict=True):
        assert found.n_cells == W.mesh.num_elements
        assert np.abs(found["u"] - found.points[:, 0] - time).max() < 1e-12
    assert saved(path, V, [7.0], existing="continue", until=-1.0).times == (7.0,)


def test_existing_files(tmp_path):
    V, path = femops.H1(femops.box((2, 2)), 2), tmp_path / "run.vtkhdf"
    u = V.interpolate(lambda x: x[0])
    with femops.io.TimeSeries(path) as series:
        series.save(0.0, V, u=u)
    with pytest.raises(FileError, match="exists"):
        femops.io.TimeSeries(path)
    with femops.io.TimeSeries(path, "continue") as series:
        assert series.times == (0.0,)
        series.save(1.0, V, u=2 * u)
        with pytest.raises(FileError, match="not later"):
            series.save(1.0, V, u=u)
        with pytest.raises(FileError, match="differ from"):
            series.save(2.0, V, v=u)
    assert [float(grid["u"].max()) for _, grid in steps_of(path)] == [1.0, 2.0]
    with femops.io.TimeSeries(path, "replace") as series:
        assert series.times == ()
        series.save(0.5, V, u=u)
    assert [time for time, _ in steps_of(path)] == [0.5]
    path.write_bytes(b"not HDF5")
    with pytest.raises(FileError, match="not a series that can be read"):
        femops.io.TimeSeries(path, "continue")
    with h5py.File(path, "w") as file:
        file.create_group("VTKHDF")
    with pytest.raises(FileError, match="not written by femops"):
        femops.io.TimeSeries(path, "continue")


def test_fields_that_differ_between_steps(tmp_path):
    """They would be rounded, or an array of another step would appear: also after a restart."""
    path, V = tmp_path / "run.vtkhdf", femops.H1(femops.box((2, 2)), 2)
    W, u = femops.H1(V.mesh, 2, ncomp=2), V.interpolate(lambda x: x[0] / 3.0)
    with femops.io.TimeSeries(path) as series:
        series.save(0.0, V, u=u.astype(np.float32))
    with femops.io.TimeSeries(path, "continue") as series:
        for owner, fields in ((V, {"u": u}), (W, {"u": W.zeros("float32")}), (V, {"v": u})):
            with pytest.raises(FileError, match="save the same at each step"):
                series.save(1.0, owner, **fields)
        series.save(1.0, V, u=2.0 * u.astype(np.float32))
    last = [grid for _, grid in steps_of(path)][-1]
    assert "v" not in last.point_data
    assert last["u"].max() == 2.0 * np.float32(1.0 / 3.0)


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="cannot reserve space on a disk")
def test_a_full_disk(tmp_path):
    """HDF5 that finds no room would leave a file without any step, or end the process."""
    import resource

    path, V = tmp_path / "run.vtkhdf", femops.H1(femops.box((6, 6)), 3)
    series, (soft, hard) = femops.io.TimeSeries(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    series.save(0.0, V, u=V.zeros())
    before = path.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        for file in (path, tmp_path / "other.vtkhdf"):
            with pytest.raises(FileError, match="too large"):
                series.save(1.0, V, u=V.zeros()) if file is path else femops.save(file, V.mesh)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    series.save(1.0, V, u=V.zeros() + 1.0)
    assert [grid["u"].max() for _, grid in steps_of(path)] == [0.0, 1.0]


def killed_while_it_overwrites(path, monkeypatch):
    """Make a series of a step, and leave the journal of a second one. Return the space."""
    V = femops.H1(femops.box((2, 2)), 2)
    series = femops.io.TimeSeries(path)
    series.save(0.0, V, u=V.zeros())

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            series.save(1.0, V, u=V.zeros() + 1.0)
    assert len(list(path.parent.iterdir())) == 2
    return V


def test_a_program_killed_while_it_overwrites(tmp_path, monkeypatch):
    """It leaves a journal, which does the rest."""
    path = tmp_path / "run.vtkhdf"
    V = killed_while_it_overwrites(path, monkeypatch)
    with femops.io.TimeSeries(path, "continue") as series:
        assert series.times == (0.0, 1.0)
        series.save(2.0, V, u=V.zeros() + 2.0)
    assert [path] == list(tmp_path.iterdir())
    assert [grid["u"].max() for _, grid in steps_of(path)] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("at", [1, 3, 9])
def test_an_interrupt_while_hdf5_writes_waits_for_its_end(tmp_path, monkeypatch, at):
    V = femops.H1(femops.box((3, 3)), 2)
    path, write, calls = tmp_path / "run.vtkhdf", journal.JournaledFile.write, []

    def interrupted(self, data):
        calls.append(data)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)
        return write(self, data)

    series = femops.io.TimeSeries(path)
    series.save(0.0, V, u=V.zeros())
    monkeypatch.setattr(journal.JournaledFile, "write", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        series.save(1.0, V, u=V.zeros())
    assert signal.getsignal(signal.SIGINT) is handler
    assert len(calls) > 9
    series.save(2.0, V, u=V.zeros())
    assert femops.io.TimeSeries(path, existing="continue").times == (0.0, 2.0)


@pytest.mark.parametrize("error", [KeyError("bad header"), ValueError("name already exists")])
def test_a_file_that_another_program_changes_meanwhile(tmp_path, monkeypatch, error):
    V = femops.H1(femops.box((2, 2)), 2)
    series = femops.io.TimeSeries(tmp_path / "run.vtkhdf")

    def fail(*_):
        raise error

    monkeypatch.setattr(hdf_file, "_append", fail)
    for save in (lambda: femops.save(tmp_path / "u.vtkhdf", V), lambda: series.save(0.0, V)):
        with pytest.raises(FileError, match="is damaged, or another program changes it"):
            save()
    assert [file.name for file in tmp_path.iterdir()] == ["run.vtkhdf"]


def test_the_journal_of_a_file_that_was_written_anew(tmp_path, monkeypatch):
    path = tmp_path / "run.vtkhdf"
    V = killed_while_it_overwrites(path, monkeypatch)
    femops.save(path, V, u=V.zeros() + 7.0)
    assert [path] == list(tmp_path.iterdir())
    whole = path.read_bytes()
    with pytest.raises(FileError, match="was not written by femops"):
        femops.io.TimeSeries(path, "continue")
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [lambda whole: whole, lambda whole: whole[:-9]])
def test_a_replaced_series_needs_no_journal(tmp_path, monkeypatch, damage):
    path = tmp_path / "run.vtkhdf"
    V = killed_while_it_overwrites(path, monkeypatch)
    left = tmp_path / ".run.vtkhdf-femops-journal"
    left.write_bytes(damage(left.read_bytes()))
    with femops.io.TimeSeries(path, "replace") as series:
        series.save(5.0, V, u=V.zeros() + 5.0)
    assert [path] == list(tmp_path.iterdir())
    assert [grid["u"].max() for _, grid in steps_of(path)] == [5.0]


def test_the_journal_of_an_earlier_copy(tmp_path, monkeypatch):
    """Steps that were saved after it are not removed."""
    path, left = tmp_path / "run.vtkhdf", tmp_path / ".run.vtkhdf-femops-journal"
    V = killed_while_it_overwrites(path, monkeypatch)
    copied = left.read_bytes()
    with femops.io.TimeSeries(path, "continue") as series:
        series.save(2.0, V, u=V.zeros() + 2.0)
    whole = path.read_bytes()
    left.write_bytes(copied)
    with pytest.raises(FileError, match="holds the change of another file than"):
        femops.io.TimeSeries(path, "continue")
    assert path.read_bytes() == whole


@pytest.mark.skipif(os.name != "posix", reason="links")
@pytest.mark.parametrize("place", [(hdf_file, "recover"), (hdf_file, "_make_room"), (os, "fsync")])
def test_a_link_that_another_user_puts_in_place_of_the_series(tmp_path, monkeypatch, place):
    """It is put there while a step is saved, and leads to another file of this user."""
    path, V = tmp_path / "run.vtkhdf", femops.H1(femops.box((2, 2)), 2)
    series, own = femops.io.TimeSeries(path), tmp_path / "own"
    series.save(0.0, V, u=V.zeros())
    own.write_text("precious")
    work, names = getattr(*place), sorted(file.name for file in tmp_path.iterdir())

    def exchanged(*arguments, **options):
        result = work(*arguments, **options)
        if not path.is_symlink():
            path.rename(tmp_path / "away")
            path.symlink_to(own)
        return result

    monkeypatch.setattr(*place, exchanged)
    with suppress(FileError):
        series.save(1.0, V, u=V.zeros())
    assert own.read_text() == "precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*names, "away"])


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_link_in_place_of_the_temporary_file(tmp_path, monkeypatch):
    V, own, work = femops.H1(femops.box((2, 2)), 1), tmp_path / "own", hdf_file.write_empty
    own.write_text("precious")

    def exchanged(path, *arguments):
        work(path, *arguments)
        path.unlink()
        path.symlink_to(own)

    monkeypatch.setattr(hdf_file, "write_empty", exchanged)
    with pytest.raises(FileError, match="symbolic links"):
        femops.save(tmp_path / "run.vtkhdf", V, u=V.zeros())
    assert own.read_text() == "precious"


@pytest.mark.parametrize("name", ["a/b", "."])
def test_names_of_groups_are_refused(tmp_path, name):
    V, path = femops.H1(femops.box((2, 2)), 1), tmp_path / "run.vtkhdf"
    with pytest.raises(FileError, match="choose another name"):
        femops.save(path, V, **{name: V.zeros()})
    with pytest.raises(FileError, match="choose another name"):
        femops.io.TimeSeries(path).save(0.0, V, **{name: V.zeros()})


def test_a_program_that_stops_leaves_a_series(tmp_path, monkeypatch):
    """A step counts when its last number is written; no mesh is taken for that of the next step."""
    path, spaces = tmp_path / "run.vtkhdf", [femops.H1(femops.box((n, 1)), 2) for n in (2, 3)]
    series = femops.io.TimeSeries(path)
    series.save(0.0, spaces[0], u=spaces[0].interpolate(1.0))

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("femops.io.vtk.series._put", stop)
        with pytest.raises(KeyboardInterrupt):
            series.save(1.0, spaces[1], u=spaces[1].interpolate(7.0))
    assert [time for time, _ in steps_of(path)] == [0.0]
    series.save(1.0, spaces[1], u=spaces[1].interpolate(3.0))
    femops.io.TimeSeries(path, "continue").save(2.0, spaces[1], u=spaces[1].interpolate(4.0))
    found = [(t, grid.n_cells, float(grid["u"].max())) for t, grid in steps_of(path)]
    assert found == [(0.0, 2, 1.0), (1.0, 3, 3.0), (2.0, 3, 4.0)]


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match="pip install h5py"):
        femops.io.TimeSeries(tmp_path / "run.vtkhdf")
    V = femops.H1(femops.box((2, 2)), 1)
    with pytest.raises(MissingExtraError, match=r"take a \.vtu"):
        femops.save(tmp_path / "u.vtkhdf", V, u=V.zeros())


def rows_of(grid):
    """Nodes, values and attributes of the cells, one a row, whatever the order of the cells."""
    nodes = grid.cells.reshape(grid.n_cells, -1)[:, 1:]
    rows = np.concatenate([grid.points[nodes].reshape(len(nodes), -1), grid["u"][nodes]], axis=1)
    rows = np.column_stack([rows, grid.celltypes, grid.cell_data["attribute"]])
    return rows[np.lexsort(np.round(grid.points[nodes].mean(axis=1), 9).T)]


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("sample", ["disc.mesh", "ball.mesh"])
def test_save_writes_one_state(comm, folder, sample):
    whole = femops.read_mesh(femops.sample(sample))
    V = femops.H1(femops.distribute(whole, comm), 3)
    path = femops.save(folder / "u.vtkhdf", V, u=V.interpolate(lambda x: wave(x, 1.0)))
    assert path == folder / "u.vtkhdf"
    if comm.rank == 0:
        assert [file.name for file in folder.iterdir()] == ["u.vtkhdf"]
        S = femops.H1(whole, 3)
        expected = femops.io.to_pyvista(S, u=S.interpolate(lambda x: wave(x, 1.0)))
        found = read_vtk(path)
        assert found.n_cells == whole.num_elements
        np.testing.assert_allclose(rows_of(found), rows_of(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parallel(2, 4)
def test_ranks_without_elements(comm, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are such
        V = femops.L2(femops.box((1, 1), comm=comm), 2)
    femops.save(folder / "u.vtkhdf", V, u=V.interpolate(lambda x: x[0]))
    if comm.rank == 0:
        found = read_vtk(folder / "u.vtkhdf")
        assert found.n_cells == 1
        assert np.abs(found["u"] - found.points[:, 0]).max() < 1e-12


@pytest.mark.parallel(1, 3)
def test_a_series_of_ranks(comm, folder):
    """Meshes change, and another number of ranks continues the series."""
    path, wholes = folder / "run.vtkhdf", [femops.box((4, 4)), femops.box((3, 5))]

    def save(series, mesh, t):
        V = femops.H1(mesh, 2)
        assert series.save(t, V, u=V.interpolate(lambda x: x[0] * x[1] + t)) == path

    meshes = [femops.distribute(mesh, comm) for mesh in wholes]
    with femops.io.TimeSeries(path, comm=comm) as series:
        for t, k in enumerate([0, 0, 1, 1]):
            save(series, meshes[k], t)
    with femops.io.TimeSeries(path, "continue", comm=comm) as series:
        assert series.times == (0.0, 1.0, 2.0, 3.0)
        save(series, meshes[1], 4)
    if comm.rank == 0:
        with femops.io.TimeSeries(path, "continue") as series:
            save(series, wholes[1], 5)
            save(series, wholes[1], 6)
        with h5py.File(path) as file:
            last = [2, 2] if comm.size > 1 else [1, 1]  # the cells are numbered otherwise
            assert list(file["VTKHDF/Steps/PartOffsets"]) == [0, 0, 1, 1, 1, *last]
        for (t, grid), cells in zip(steps_of(path), [16, 16, *[15] * 5], strict=True):
            assert grid.n_cells == cells
            x, y, _ = grid.points.T
            assert np.abs(grid["u"] - x * y - t).max() < 1e-12


@pytest.mark.parallel(2)
def test_ranks_that_do_not_see_the_file(comm, folder, monkeypatch):
    V = femops.H1(femops.box((2, 2), comm=comm), 1)
    series = femops.io.TimeSeries(folder / "run.vtkhdf", comm=comm)
    series.save(0.0, V, u=V.zeros())
    with monkeypatch.context() as patch:
        if comm.rank == 1:
            patch.setattr(type(folder), "is_file", lambda _: False)
        with pytest.raises(FileError if comm.rank == 1 else RankError, match="ranks share"):
            series.save(1.0, V, u=V.zeros())
    assert series.times == (0.0,)
    series.save(1.0, V, u=V.interpolate(2.0))
    if comm.rank == 0:
        assert [float(grid["u"].max()) for _, grid in steps_of(folder / "run.vtkhdf")] == [0, 2]


def linked(file, other):
    del file["VTKHDF/Points"]
    file["VTKHDF/Points"] = h5py.ExternalLink(str(other), "/x")


def linked_to_a_pipe(file, other):
    pipe = other.with_name("pipe")
    os.mkfifo(pipe)
    file.move("VTKHDF", "elsewhere")
    file["VTKHDF"] = h5py.ExternalLink(str(pipe), "/x")


def stored_elsewhere(file, other):
    del file["VTKHDF/Points"]
    space = {"external": [(str(other), 0, h5py.h5f.UNLIMITED)], "maxshape": (None, 3)}
    file["VTKHDF"].create_dataset("Points", (0, 3), "f8", **space)


def bomb(file, _):
    del file["VTKHDF/Steps/Values"]
    options = {"chunks": (2**26,), "compression": "gzip", "maxshape": (None,)}
    file["VTKHDF/Steps"].create_dataset("Values", (2**36,), "f8", **options)
    file["VTKHDF/Steps"].attrs["NSteps"] = 2**36


def another_kind(file, _):
    del file["VTKHDF/PointData"]
    file["VTKHDF/PointData"] = np.zeros(3)


def without(file, _):
    del file["VTKHDF/Steps/PartOffsets"]


def more_steps(file, _):
    file["VTKHDF/Steps"].attrs["NSteps"] = 7


def no_number(file, _):
    file["VTKHDF/Steps"].attrs["NSteps"] = "many"


def large_chunks(file, _):
    """HDF5 would take 128 MiB for a number more."""
    del file["VTKHDF/PointData/u"]
    file["VTKHDF/PointData"].create_dataset("u", (25,), "f8", maxshape=(None,), chunks=(2**24,))


def one_array_with_two_names(file, _):
    del file["VTKHDF/Offsets"]
    file["VTKHDF/Offsets"] = file["VTKHDF/Connectivity"]


def no_time(file, _):
    file["VTKHDF/Steps/Values"][0] = np.nan


def no_places(file, _):
    file["VTKHDF/Steps/PartOffsets"].resize(0, axis=0)


def without_chunks(file, _):
    """HDF5 would go through the chunks of all rows, for years."""
    file["VTKHDF/Steps/Values"].resize(2**50, axis=0)


CHANGES = [linked, stored_elsewhere, bomb, another_kind, without, more_steps, no_number]
CHANGES += [without_chunks, one_array_with_two_names]


if os.name == "posix":
    CHANGES.append(linked_to_a_pipe)


@pytest.mark.parametrize("change", [linked, stored_elsewhere])
def test_an_open_series_that_another_user_exchanges(tmp_path, change):
    """A step that is saved to it is in no other file."""
    path, other = tmp_path / "run.vtkhdf", tmp_path / "other"
    V = femops.H1(femops.box((2, 2)), 2)
    series = femops.io.TimeSeries(path)
    other.write_bytes(b"mine")
    with h5py.File(path, "r+") as file:
        change(file, other)
    with pytest.raises(FileError, match="is not a series that can be read"):
        series.save(0.0, V, u=V.zeros())
    assert other.read_bytes() == b"mine"


def test_texts_of_variable_length_are_not_read(tmp_path):
    """HDF5 ends the process where they are damaged."""
    path = tmp_path / "run.vtkhdf"
    femops.io.TimeSeries(path)
    with h5py.File(path, "r+") as file:
        file["VTKHDF"].attrs["femops_mesh"] = "0" * 32
    with pytest.raises(FileError, match="was not written by femops"):
        femops.io.TimeSeries(path, existing="continue")


@pytest.mark.parametrize("place", ["VTKHDF/PointData", "VTKHDF", "VTKHDF/Steps"])
def test_types_of_parts_in_parts_are_not_read(tmp_path, place):
    """A file of kilobytes may have a type of thousands of parts, which takes h5py minutes."""
    path, kind = tmp_path / "run.vtkhdf", h5py.h5t.NATIVE_INT8
    femops.io.TimeSeries(path)
    for _ in range(100):
        outer = h5py.h5t.create(h5py.h5t.COMPOUND, 1)
        outer.insert(b"a", 0, kind)
        kind = outer
    at = h5py.h5s.create(h5py.h5s.SCALAR)
    with h5py.File(path, "r+") as file:
        if place == "VTKHDF/PointData":
            h5py.h5d.create(file[place].id, b"v", kind, at)
        else:
            name = "femops_mesh" if place == "VTKHDF" else "NSteps"
            del file[place].attrs[name]
            h5py.h5a.create(file[place].id, name.encode(), kind, at)
    with pytest.raises(FileError, match="numbers of another kind"):
        femops.io.TimeSeries(path, existing="continue")


def test_a_file_whose_head_is_further_on(tmp_path):
    """HDF5 looks for it there, where it may be of a version without checksums."""
    path = tmp_path / "run.vtkhdf"
    femops.io.TimeSeries(path)
    with h5py.File(path) as file, h5py.File(tmp_path / "other", "w", userblock_size=512) as other:
        file.copy("VTKHDF", other)
    (tmp_path / "other").rename(path)
    with pytest.raises(FileError, match="does not begin like files of HDF5"):
        femops.io.TimeSeries(path, existing="continue")


def test_damaged_heads_of_arrays_are_seen(tmp_path):
    """By their checksums: without them some would end the process."""
    path, V = tmp_path / "run.vtkhdf", femops.H1(femops.box((2, 2)), 2)
    with femops.io.TimeSeries(path) as series:
        series.save(0.0, V, u=V.zeros())
    whole = path.read_bytes()
    assert whole[8] == 3  # the version of HDF5 from which heads have checksums
    heads = [match.start() for match in re.finditer(b"OHDR", whole)]
    assert len(heads) > 10
    for at in (16, *(head + 9 for head in heads)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(FileError, match="is not a series that can be read"):
            femops.io.TimeSeries(path, "continue")


def test_a_series_without_checksums_is_refused(tmp_path):
    path = tmp_path / "run.vtkhdf"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_group("VTKHDF")
    with pytest.raises(FileError, match="without checksums: choose another name"):
        femops.io.TimeSeries(path, "continue")


@pytest.mark.parametrize("change", [*CHANGES, large_chunks, no_time, no_places])
def test_a_file_that_femops_did_not_write_so(tmp_path, change):
    """Neither is another file written, nor is there memory that the file does not fill."""
    path, other = tmp_path / "run.vtkhdf", tmp_path / "other"
    V = femops.H1(femops.box((2, 2)), 2)
    with femops.io.TimeSeries(path) as series:
        series.save(0.0, V, u=V.zeros())
    other.write_bytes(b"mine")
    with h5py.File(path, "r+") as file:
        change(file, other)
    before = path.read_bytes()
    with pytest.raises(FileError, match="is not a series that can be read"):
        femops.io.TimeSeries(path, existing="continue")
    assert other.read_bytes() == b"mine"
    assert path.read_bytes() == before
