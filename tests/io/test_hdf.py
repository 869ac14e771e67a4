"""Series in one VTKHDF file: VTK reads the cells, nodes, values and times that femops wrote."""

import sys

import numpy as np
import pytest

import femops
from femops.errors import FileError, MissingExtraError
from support import fixtures

h5py = pytest.importorskip("h5py", reason="needs the extra hdf")
pyvista = pytest.importorskip("pyvista", reason="needs the extra viz")

folder = fixtures.shared_folder


def steps_of(path):
    """Time and grid of each step, by vtkHDFReader, which names no time where there is one step."""
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


def test_cells_are_as_good_as_the_field(tmp_path):
    """VTK interpolates the cells: a wrong order of nodes would show between them."""
    mesh = femops.read_mesh(femops.sample("ball.mesh"))
    V = femops.H1(mesh, 4)
    series = femops.io.TimeSeries(tmp_path / "run.vtkhdf")
    for t in (0.0, 1.0):
        series.save(t, V, u=V.interpolate(lambda x, t=t: wave(x, t)))
    where = np.random.default_rng(1).uniform(-0.5, 0.5, (50, 3))
    for t, grid in steps_of(tmp_path / "run.vtkhdf"):
        found = pyvista.PolyData(where).sample(grid)
        inside = found["vtkValidPointMask"] == 1  # VTK does not find some
        assert inside.sum() > 30
        assert np.abs(found["u"] - wave(where.T, t))[inside].max() < 2e-3


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


def test_a_program_that_stops_leaves_a_series(tmp_path, monkeypatch):
    """A step counts when its last number is written."""
    V, path = femops.H1(femops.box((2, 2)), 2), tmp_path / "run.vtkhdf"
    series = femops.io.TimeSeries(path)
    series.save(0.0, V, u=V.interpolate(1.0))

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("femops.io.vtk.hdf._put", stop)
        with pytest.raises(KeyboardInterrupt):
            series.save(1.0, V, u=V.interpolate(7.0))
    assert [time for time, _ in steps_of(path)] == [0.0]
    femops.io.TimeSeries(path, "continue").save(2.0, V, u=V.interpolate(3.0))
    assert [(t, float(grid["u"].max())) for t, grid in steps_of(path)] == [(0.0, 1.0), (2.0, 3.0)]


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match="pip install h5py"):
        femops.io.TimeSeries(tmp_path / "run.vtkhdf")


@pytest.mark.parallel(2)
def test_several_ranks_are_refused(comm, folder):
    with pytest.raises(FileError, match=r"take a \.pvd file"):
        femops.io.TimeSeries(folder / "run.vtkhdf", comm=comm)
