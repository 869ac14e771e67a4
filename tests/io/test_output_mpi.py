"""Files that ranks write together: VTK reads in them what one process writes."""

import sys
import warnings
from importlib.util import find_spec

import numpy as np
import pytest

import femops
from femops.errors import CommunicatorError, FileError, RankError, SpaceError, VectorError
from femops.io.vtk import pieces
from femops.io.vtk.vtu_file import Piece
from support import fixtures
from support.cases.rank_meshes import SAMPLES
from support.mpi_runs import launch, why_not
from support.vtk import needs_vtk, read_vtk

SUFFIXES = [".vtu", ".pvtu"]
needs_metis = pytest.mark.skipif(find_spec("pymetis") is None, reason="needs the extra metis")


folder = fixtures.shared_folder


def flow(mesh):
    """A vector field, and a pressure of a lower order."""
    V, Q = femops.H1(mesh, 3, ncomp=mesh.dim), femops.H1(mesh, 1)
    u = V.interpolate(lambda x: [x[k] ** 3 - x[-1] for k in range(len(x))])
    return V, {"u": u, "p": femops.GridFunction(Q, Q.interpolate(lambda x: np.exp(x[0])))}


def l2_and_h1(mesh):
    """A field that jumps, in float32, and one that does not."""
    Q, V = femops.L2(mesh, 2), femops.H1(mesh, 2, family="bernstein")
    u = Q.interpolate(lambda x: np.sin(9 * x[0])).astype(np.float32)
    return Q, {"u": u, "v": femops.GridFunction(V, V.interpolate(lambda x: x[0] * x[-1]))}


def h1_and_l2(mesh):
    """Of no space: a field that jumps beside one that does not."""
    Q, fields = l2_and_h1(mesh)
    return None, {"v": fields["v"], "u": femops.GridFunction(Q, fields["u"])}


def constant(mesh):
    Q = femops.L2(mesh, 0)
    return Q, {"u": Q.interpolate(lambda x: x[0])}


def nothing(mesh):
    return femops.H1(mesh, 1), {}


def cells(path):
    """All that VTK finds in the cells of a file, one a row, whatever their order: the types too."""
    grid = read_vtk(path)
    nodes = grid.cells.reshape(grid.n_cells, -1)[:, 1:]
    names = sorted(grid.point_data)
    columns = [grid.points, *(grid[name].reshape(grid.n_points, -1) for name in names)]
    rows = np.concatenate([column[nodes].reshape(len(nodes), -1) for column in columns], axis=1)
    rows = np.column_stack([rows, grid.celltypes, grid.cell_data["attribute"]])
    centers = grid.points[nodes].mean(axis=1)
    order = np.lexsort(np.round(centers, 9).T)
    return rows[order], [(name, str(grid[name].dtype), grid[name].shape[1:]) for name in names]


def check_file(path, case, mesh, expected):
    """The file has the cells of that which this process alone writes."""
    femops.save(expected, *case(mesh)[:1], **case(mesh)[1])
    (got, kinds), (rows, expected_kinds) = cells(path), cells(expected)
    assert kinds == expected_kinds
    np.testing.assert_allclose(got, rows, rtol=1e-12, atol=1e-12)


@pytest.mark.sample(2)
@needs_vtk
@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("ball", flow),
        ("ball", l2_and_h1),
        ("disc", flow),
        ("disc", constant),
        ("disc", h1_and_l2),
        ("periodic", flow),
        ("periodic", nothing),
        ("line", l2_and_h1),
        ("one", flow),
        ("one", constant),
        pytest.param("disc by metis", flow, marks=needs_metis),
    ],
)
def test_cells_are_those_of_one_process(comm, folder, name, case, suffix):
    sample, _, method = name.partition(" by ")
    whole = (SAMPLES | {"one": lambda: femops.box((1, 1))})[sample]()
    space, fields = case(femops.distribute(whole, comm, method=method or "curve"))
    path = femops.save(folder / f"u{suffix}", space, **fields)
    assert path == folder / f"u{suffix}"
    if comm.rank == 0:
        check_file(path, case, whole, folder / "serial.vtu")


@pytest.mark.parallel(1, 2, 4)
def test_files_of_ranks(comm, folder):
    """Those that are named by an index are not changed, but replaced by others."""
    V = femops.H1(femops.box((4, 4), comm=comm), 2)
    for time in ("1", "2", "3"):
        femops.save(folder / "u.pvtu", V, u=V.zeros())
        if comm.rank == 0:
            names = [f"u_{time}_{rank}.vtu" for rank in range(comm.size)]
            assert sorted(f.name for f in (folder / "u").iterdir()) == names
            text = (folder / "u.pvtu").read_text()
            assert [f'Source="u/{name}"' in text for name in names] == [True] * comm.size
            assert text.count("<Piece") == comm.size
            assert sorted(f.name for f in folder.iterdir()) == ["u", "u.pvtu"]
            (folder / "u" / "u_0_0.vtu").touch()  # such a name has no piece, so it stays
            (folder / "u" / "u_0_0.vtu").unlink()
        comm.barrier()
    femops.save(folder / "u.vtu", V, u=V.zeros())
    if comm.rank == 0:
        assert sorted(f.name for f in folder.iterdir()) == ["u", "u.pvtu", "u.vtu"]


def contents(folder):
    return {f: f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("where", ["first", "last"])
def test_a_failure_leaves_the_old_files(comm, folder, monkeypatch, suffix, where):
    V = femops.H1(femops.box((4, 4), comm=comm), 2)
    femops.save(folder / f"u{suffix}", V, u=V.zeros())
    before, bad = contents(folder), 0 if where == "first" else comm.size - 1

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if comm.rank == bad:
            patch.setattr(Piece, "write_data", full)
        with pytest.raises(FileError if comm.rank == bad else RankError, match="No space left"):
            femops.save(folder / f"u{suffix}", V, u=V.zeros() + 1)
        comm.barrier()
        assert contents(folder) == before
    femops.save(folder / f"u{suffix}", V, u=V.zeros() + 1)
    assert contents(folder) != before


@pytest.mark.parallel(2, 4)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_folders_that_ranks_do_not_share(comm, folder, monkeypatch, suffix):
    V = femops.H1(femops.box((4, 4), comm=comm), 2)
    true_check = pieces._check_there

    def check_without_the_last(target, files, lengths):
        files[-1].unlink()
        true_check(target, files, lengths)

    monkeypatch.setattr(pieces, "_check_there", check_without_the_last)
    message = f"rank 0 does not see the files of rank {comm.size - 1}, .* that all ranks share"
    with pytest.raises(FileError if comm.rank == 0 else RankError, match=message):
        femops.save(folder / f"u{suffix}", V, u=V.zeros())
    comm.barrier()
    assert contents(folder) == {}


@pytest.mark.parallel(2, 4)
def test_ranks_that_disagree(comm, tmp_path, folder):
    V = femops.H1(femops.box((4, 4), comm=comm), 1)
    last = comm.rank == comm.size - 1
    u = V.zeros()
    own = tmp_path / str(comm.rank)
    own.mkdir()
    for path, fields, message in [
        (own / "u.pvtu", {}, "disagree about what is saved: the path is .* on rank 0, but"),
        (folder / "u.pvtu", {"v" if last else "u": u}, "names, spaces and types of fields"),
        (folder / "u.vtu", {"u": u.astype("f4") if last else u}, "names, spaces and types"),
    ]:
        with pytest.raises(CommunicatorError, match=message):
            femops.save(path, V, **fields)
    with pytest.raises(VectorError if last else RankError, match="u has 1 entries"):
        femops.save(folder / "u.pvtu", V, u=np.zeros(1) if last else u)
    with pytest.raises(FileError, match=r"end in \.vtu, \.pvtu or \.vtkhdf: name it 'u\.vtu'"):
        femops.save(folder / "u.vtk", V)
    comm.barrier()
    assert contents(folder) == {}


@pytest.mark.parallel(1, 2)
def test_one_rank_warns(comm, folder):
    V = femops.H1(femops.box((2, 2), comm=comm), 11)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        femops.save(folder / "u.pvtu", V)
    assert ["degree 11 is written" in str(w.message) for w in seen] == [True] * (comm.rank == 0)


@pytest.mark.parallel(2)
def test_a_field_of_this_rank_alone(comm, folder):
    V = femops.H1(femops.box((4, 4), comm=comm), 1)
    local = femops.H1(V.mesh, 1)
    with pytest.raises(SpaceError, match="p is a field on another mesh"):
        femops.save(folder / "u.pvtu", V, p=femops.GridFunction(local, local.zeros()))


@pytest.mark.parallel(3)
def test_pictures_of_ranks_are_those_of_one_process(comm, folder):
    pytest.importorskip("matplotlib")

    def drawn(ranks, name):
        V = femops.H1(femops.box((2, 1), comm=ranks), 2, ncomp=2)
        u, mesh = V.interpolate(lambda x: (x[0], x[1] ** 2)), V.distributed or V.mesh
        files = [
            femops.io.picture(folder / f"{name}{k}.png", *what)
            for k, what in enumerate([(V, u), (mesh,)])
        ]
        return V, [*files, femops.io.movie(folder / f"{name}.gif", [("0", V, u)])]

    V, ours = drawn(comm, "ranks")
    if comm.rank == 0:
        _, alone = drawn(None, "alone")
        assert [file.read_bytes() for file in ours] == [file.read_bytes() for file in alone]
    with pytest.raises(VectorError, match="u has 3 entries"):
        femops.io.picture(folder / "u.png", V, np.zeros(3))
    with pytest.raises(SpaceError, match=r"shared by 3: femops\.io\.picture\('u\.png'"):
        femops.plot(V.distributed)
    pytest.importorskip("pyvista")
    grid = femops.io.to_pyvista(V, V.zeros())
    assert (grid.n_cells, grid.point_data["u"].shape[1]) == (V.mesh.num_elements, 3)


KILLED = """
import os, shutil, signal, sys
import femops
from mpi4py import MPI
from femops.io.vtk.vtu_file import Piece

target, rank = sys.argv[1], MPI.COMM_WORLD.rank
V = femops.H1(femops.box((4, 4), comm=MPI.COMM_WORLD), 2)
femops.save(target, V, u=V.zeros())
if rank == 0:
    shutil.copy(target, target + ".before")
MPI.COMM_WORLD.Barrier()
if rank == 1:
    Piece.write_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
femops.save(target, V, u=V.zeros() + 1)
"""


@pytest.mark.skipif(why_not() is not None, reason="needs the extra mpi")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_rank_that_is_killed(tmp_path, suffix):
    target = tmp_path / f"u{suffix}"
    code, text = launch(2, [sys.executable, "-c", KILLED, str(target)], 60)
    assert code != 0, text
    assert target.read_bytes() == (tmp_path / f"u{suffix}.before").read_bytes(), text
    if suffix == ".pvtu":
        assert all((tmp_path / "u" / f"u_1_{rank}.vtu").is_file() for rank in range(2))
        assert not (tmp_path / "u" / "u_2_1.vtu").exists()
