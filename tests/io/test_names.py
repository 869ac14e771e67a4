"""Names that cannot be: of fields, by XML, and of files, by the system."""

import os
import sys
from xml.etree import ElementTree as ET

import pytest

import femops
from femops.errors import FileError
from femops_meshes import write_mfem

SPACE = femops.H1(femops.box((2, 2)), 1)
LONG = "x" * 300

WRITERS = {
    ".vtu": lambda path: femops.save(path, SPACE, u=SPACE.zeros()),
    ".pvtu": lambda path: femops.save(path, SPACE, u=SPACE.zeros()),
    ".pvd": femops.io.TimeSeries,
    ".state": lambda path: femops.io.save_state(path, {"u": (SPACE, SPACE.zeros())}),
    ".png": lambda path: femops.io.picture(path, SPACE.mesh),
    ".mesh": lambda path: write_mfem(SPACE.mesh, path),
}


def test_fields_whose_names_xml_cannot_hold(tmp_path):
    series = femops.io.TimeSeries(tmp_path / "run.pvd")
    before = (tmp_path / "run.pvd").read_bytes()
    for name in ("", "\1", "a\0b", "\x1f", "\ud800", "\ufffe"):
        fields = {"good": SPACE.zeros(), name: SPACE.zeros()}
        for write in (
            lambda fields=fields: femops.save(tmp_path / "u.vtu", SPACE, **fields),
            lambda fields=fields: femops.save(tmp_path / "u.pvtu", SPACE, **fields),
            lambda fields=fields: series.save(0.0, SPACE, **fields),
        ):
            with pytest.raises(FileError, match=r"the field .* cannot be written .*: choose anoth"):
                write()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["run", "run.pvd"]
    assert (tmp_path / "run.pvd").read_bytes() == before


def test_fields_whose_names_xml_can_hold(tmp_path):
    given = ["<&>", "\t", "a\r\nb", '"', "é", "\U0001f600", "\x7f", " "]
    path = femops.save(tmp_path / "u.vtu", SPACE, **{name: SPACE.zeros() for name in given})
    text = path.read_bytes().split(b"<AppendedData")[0] + b"</VTKFile>"
    arrays = ET.fromstring(text).findall(".//PointData/DataArray")
    assert [array.attrib["Name"] for array in arrays] == given


@pytest.mark.parametrize("suffix", WRITERS)
def test_files_that_the_system_refuses(tmp_path, suffix):
    for name in (LONG, "a\0b", LONG + "/a"):
        with pytest.raises(femops.errors.Errors, match=r"cannot write|can't be written"):
            WRITERS[suffix](f"{tmp_path}/{name}{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove a current folder")
def test_a_current_folder_that_was_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    for suffix, write in WRITERS.items():
        with pytest.raises(femops.errors.Errors, match=r"cannot write|can't be written"):
            write(f"a{suffix}")
    with pytest.raises(femops.errors.MeshError, match=r"a\.mesh does not exist: correct"):
        femops.read_mesh("a.mesh")


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_folder_that_cannot_be_searched(tmp_path, monkeypatch, suffix):
    """Root can search any: the system's refusal is played."""
    looked = os.stat

    def stat(path, *arguments, **options):
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(f"{tmp_path}/"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return looked(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", stat)
    for made in ("mkdir", "open"):
        monkeypatch.setattr(os, made, refusing(tmp_path, getattr(os, made)))
    with pytest.raises(femops.errors.Errors, match="Permission denied"):
        WRITERS[suffix](f"{tmp_path}/run{suffix}")


def refusing(folder, function):
    def refuse(path, *arguments, **options):
        if os.fspath(path).startswith(f"{folder}/"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return function(path, *arguments, **options)

    return refuse


def test_files_that_an_index_cannot_name(tmp_path):
    for name in ("a\1.pvd", "a\udcff.pvd", "a\1.pvtu"):
        with pytest.raises(FileError, match="XML cannot hold"):
            WRITERS[name[name.index(".") :]](tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_files_to_read(tmp_path):
    for read, suffix in ((femops.io.load_state, "state"), (femops.read_mesh, "mesh")):
        for name in (LONG, "a\0b"):
            with pytest.raises(femops.errors.Errors, match=r"cannot read|can't be read"):
                read(f"{tmp_path}/{name}.{suffix}")
