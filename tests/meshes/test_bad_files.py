"""Files that are no meshes: one clear error each, whatever is wrong with them."""

import os
import re
import tracemalloc
from itertools import combinations, islice, product
from time import process_time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from femops_meshes import (
    MeshError,
    MeshFileError,
    MeshFormatError,
    MeshGeometryError,
    MeshTopologyError,
    ball,
    box,
    read_mesh,
    read_mfem,
    sample,
    scrambled,
    write_mfem,
)

SQUARES = """MFEM mesh v1.0

# two squares
dimension
2

elements
2
1 3 0 1 4 3
2 3 1 2 5 4

boundary
2
1 1 0 1
2 1 2 5

vertices
6
2
0 0
1 0
2 0
0 1
1 1
2 1
"""

CURVED = """MFEM mesh v1.0
dimension
1
elements
1
1 1 0 1
boundary
0
vertices
2
nodes
FiniteElementSpace
FiniteElementCollection: H1_1D_P2
VDim: 1
Ordering: 0
0
1
0.5
"""

CHANGES = [
    ("MFEM mesh v1.0", "NFEM mesh", MeshFormatError, "line 1: .*begin with"),
    ("MFEM mesh v1.0", "MFEM NC mesh v1.0", MeshFormatError, "geometry 0: in this mesh"),
    ("MFEM mesh v1.0", "MFEM NC mesh v1.1", MeshFormatError, "halved unevenly"),
    ("MFEM mesh v1.0", "MFEM mesh v1.4", MeshFormatError, "begin with"),
    ("MFEM mesh v1.0", "MFEM NURBS mesh v1.0", MeshFormatError, "NURBS"),
    ("MFEM mesh v1.0", "$MeshFormat", MeshFormatError, "Gmsh"),
    ("dimension\n2", "dimension\n4", MeshFormatError, "line 5: .*from 1 to 3, got 4"),
    ("dimension\n2", "dimension\ntwo", MeshFormatError, 'whole number, got "two"'),
    ("dimension\n2", "2", MeshFormatError, '"dimension" should come here'),
    ("elements\n2", "elements\n3", MeshFormatError, 'line 12: element 3 of 3 .* got "boundary"'),
    ("elements\n2", "elements\n1", MeshFormatError, 'line 10: "boundary" should .* "2 3 1 2 5 4"'),
    ("elements\n2", "elements\n0", MeshFormatError, "number of elements must be >= 1"),
    ("elements\n2", "elements\n-2", MeshFormatError, "must be >= 1, got -2"),
    ("elements\n2", "elements\n2 2", MeshFormatError, "whole number"),
    ("elements\n2", "elements\n1000000000000000000", MeshFormatError, "whole number"),
    ("elements\n2", "elements\n100000000000000000", MeshFormatError, "characters are left"),
    ("1 3 0 1 4 3", "1 4 0 1 4 3", MeshFormatError, "tetrahedron"),
    ("1 3 0 1 4 3", "1 77 0 1 4 3", MeshFormatError, "unknown"),
    ("1 3 0 1 4 3", "1 3 0 1 4", MeshFormatError, "5 numbers: a square has 6"),
    ("1 3 0 1 4 3", "1 3 0 1 4 x", MeshFormatError, "whole numbers"),
    ("1 3 0 1 4 3", "1 3 0 1 4 9", MeshTopologyError, "1 element.*don't exist.*number.s. 0 "),
    ("1 3 0 1 4 3", "1 3 0 1 1 3", MeshTopologyError, "two corners"),
    ("1 3 0 1 4 3", "0 3 0 1 4 3", MeshTopologyError, "from 1"),
    ("1 3 0 1 4 3", "99999999999 3 0 1 4 3", MeshTopologyError, "from 1"),
    ("1 3 0 1 4 3", "1 3 0 1 3 4", MeshGeometryError, "1 of 2 .*inverted.*number.s. 0 "),
    ("1 1 0 1", "1 1 0 4", MeshTopologyError, "not faces of any element: number.s. 0"),
    ("1 1 0 1", "1 1 0 8", MeshTopologyError, "vertices of no element"),
    ("boundary\n2", "boundary\n5", MeshFormatError, "boundary element 3 of 5"),
    ("vertices\n6", "vertices\n4", MeshFormatError, "should end here"),
    ("vertices\n6", "vertices\n7", MeshFormatError, "truncated|ends"),
    ("vertices\n6", "vertices\n900000000000000000", MeshFormatError, "characters are left"),
    ("6\n2\n0 0", "6\n3\n0 0", MeshFormatError, "surfaces"),
    ("2 1\n", "2 nan\n", MeshGeometryError, 'line 25: "nan" .*not finite'),
    ("2 1\n", "2 1e999\n", MeshGeometryError, "not finite"),
    ("2 1\n", "2 1e150\n", MeshGeometryError, "beyond"),
    ("2 1\n", "2 1_0\n", MeshFormatError, "line 25: .*not a number"),
    ("2 1\n", "2 one\n", MeshFormatError, 'line 25: "one"'),
    ("2 1\n", "2\n", MeshFormatError, "the file ends"),
    ("2 1\n", "2 1 1\n", MeshFormatError, "number 13"),
]
CURVED_CHANGES = [
    ("H1_1D_P2", "H1@U_1D_P2", MeshFormatError, "H1@U_1D_P2.*not supported.*known are"),
    ("H1_1D_P2", "H1_T1_1D_P2", MeshFormatError, "not supported"),
    ("H1_1D_P2", "L2_T9_1D_P2", MeshFormatError, "not supported"),
    ("H1_1D_P2", "H1_2D_P2", MeshFormatError, "has dimension 2, the mesh has 1"),
    ("H1_1D_P2", "H1_1D_P0", MeshFormatError, "from 1 to 32, got 0"),
    ("H1_1D_P2", "H1_1D_P999999", MeshFormatError, "from 1 to 32"),
    ("H1_1D_P2", "H1_1D_P3", MeshFormatError, "4 nodes .* gives 3"),
    ("H1_1D_P2", "H1_1D_P1", MeshFormatError, "2 nodes .* gives 3"),
    ("H1_1D_P2", "L2_1D_P31", MeshFormatError, "characters are left"),
    ("VDim: 1", "VDim: 3", MeshFormatError, "surfaces"),
    ("VDim: 1", "Vdim: 1", MeshFormatError, "should come here"),
    ("Ordering: 0", "Ordering: 2", MeshFormatError, "from 0 to 1"),
    ("0.5\n", "inf\n", MeshGeometryError, "not finite"),
    ("0.5\n", "0.5\n0.7\n", MeshFormatError, "3 nodes .* gives 4"),
    ("0.5\n", "3.5\n", MeshGeometryError, "inverted"),
    ("nodes\n", "nods\n", MeshFormatError, 'whole number, got "nods"'),
]


@pytest.mark.parametrize(("text", "changes"), [(SQUARES, CHANGES), (CURVED, CURVED_CHANGES)])
def test_each_defect_has_its_error_with_file_and_line(tmp_path, text, changes):
    path = tmp_path / "bad.mesh"
    for old, new, error, message in changes:
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(error, match=message) as caught:
            read_mesh(path)
        assert type(caught.value) is error, (old, new)
        assert str(path) in str(caught.value)


def test_the_texts_themselves_are_good():
    assert read_mfem(SQUARES).volume() == 2
    assert read_mfem(CURVED).order == 2


def test_no_file(tmp_path):
    for path in (tmp_path / "none.mesh", tmp_path, "a\0b", "", tmp_path / ("x" * 300)):
        with pytest.raises(MeshFileError):
            read_mesh(path)
    with pytest.raises(MeshFileError, match="does not exist"):
        read_mesh(tmp_path / "none.mesh")
    for name in ("ball.mesh", "disc"):
        with pytest.raises(MeshFileError, match=rf'read_mesh\(femops.sample\("{name}"\)\)'):
            read_mesh(tmp_path / name)


FOREIGN = [
    ("a.vtk", b"# vtk DataFile Version 3.0\nGenerated by MFEM\nASCII\n", "VTK, .* meshio"),
    ("b.vtk", b"# vtk DataFile Version 3.0\n\nBINARY\n\0\0", r"meshio\.read\('b\.vtk'\)"),
    ("c", b'<?xml version="1.0"?>\n<VTKFile type="UnstructuredGrid">', "VTK"),
    ("d.mesh", b"MeshVersionFormatted 2\nDimension 2\n", "Medit"),
    ("d.geo", b"Point(1) = {0, 0, 0};\n", "geometry without elements; .* gmsh -3 d.geo"),
    ("e.inp", b"** made by hand\n*NODE\n1, 0, 0\n", "Abaqus"),
    ("f.e", b"CDF\1\0\0", "Exodus"),
    ("f.unv", b"    -1\n  2411\n", "let Gmsh convert it, as by gmsh f.unv -save -o f.msh"),
    ("\x1b[31m.vtk", b"# vtk", r"\\x1b\[31m.vtk has the format"),
    ("g.cgns", b"\x89HDF\r\n\x1a\n\0", "CGNS"),
    ("h", b"solid x\n", "surface alone"),
]
OTHER = [
    (b"", "the file ends"),
    (b"\n\n# only a comment\n", "the file ends"),
    (b"MFEM mesh v1.0\n\0\0", "binary"),
    (b"\x89PNG\r\n\x1a\n", "not text"),
    (b"\x1f\x8b\x08\0", "gzip"),
    (SQUARES.encode("utf-16"), "not text|binary"),
    (SQUARES.replace("elements", "élements").encode(), r'got "\\xe9lements"'),
    (SQUARES.replace("1 3 0 1 4 3", "1 3 0 1 4 ٣").encode(), "whole numbers"),
    (b"x" * 100_000, "begin with"),
    (b"MFEM mesh v1.0\x1b[31m", r'got "MFEM mesh v1.0\\x1b\[31m"'),
]


def test_other_formats_are_named_with_the_way_to_convert_them(tmp_path):
    for name, content, words in FOREIGN:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(MeshFormatError, match=words) as error:
            read_mesh(tmp_path / name)
        assert "MFEM and Gmsh are read" in str(error.value)
        (tmp_path / name).write_text(SQUARES)  # content tells, where it is known
        assert read_mesh(tmp_path / name).num_elements == 2


def test_other_content(tmp_path):
    path = tmp_path / "a.mesh"
    for content, message in OTHER:
        path.write_bytes(content)
        with pytest.raises(MeshFormatError, match=message) as caught:
            read_mesh(path)
        assert len(str(caught.value)) < 600
        assert str(caught.value).isprintable()


def test_a_pipe_or_device_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(MeshFileError, match="not a regular file"):
            read_mesh(path)


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch):
    """Whatever was seen before the file is opened."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.mesh").write_text(SQUARES)
    seen = (tmp_path / "a.mesh").stat()
    monkeypatch.setattr(os, "stat", lambda *_, **__: seen)
    with pytest.raises(MeshFileError, match="not a regular file"):
        read_mesh(tmp_path / "pipe")


def test_holes_of_a_sparse_file_take_no_memory(tmp_path):
    with (tmp_path / "a.mesh").open("wb") as file:
        file.write(SQUARES.encode())
        file.truncate(2**40)
    with pytest.raises(MeshFileError, match="it has a hole from byte 1048576 on"):
        read_mesh(tmp_path / "a.mesh")


def test_many_names_are_read_in_proportion_to_their_number(tmp_path):
    seconds = []
    for count in (1000, 16_000):
        sets = f"\nattribute_sets\n{count}\n" + "".join(f'"{k}"\n1\n1\n' for k in range(count))
        text = SQUARES.replace("v1.0", "v1.3").replace("\nboundary", f"{sets}\nboundary")
        (tmp_path / "a.mesh").write_text(text + "mfem_mesh_end\n")
        begin = process_time()
        assert len(read_mesh(tmp_path / "a.mesh").element_names) == count
        seconds.append(process_time() - begin)
    assert seconds[1] < 64 * seconds[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    (tmp_path / "a.mesh").write_text(SQUARES)
    (tmp_path / "a.mesh").chmod(0)
    with pytest.raises(MeshFileError, match="check path and rights"):
        read_mesh(tmp_path / "a.mesh")


INLINE = "MFEM INLINE mesh v1.0\ntype = quad\nnx = 4\nny = 3\nsx = 1.0\nsy = 2.25\n"


def test_every_truncation_is_an_error():
    for text in (SQUARES, CURVED):
        whole = text.rstrip()
        for end in range(len(whole) - 1):
            try:
                mesh = read_mfem(whole[:end] + "\n")
            except MeshError:
                continue
            # only the last number can lose digits without anyone noticing
            assert end > whole.rindex("\n")
            assert mesh.num_elements > 0


@pytest.mark.parametrize("text", [SQUARES, CURVED, INLINE], ids=["vertices", "nodes", "inline"])
def test_a_last_line_without_an_end_is_told_of(text):
    with pytest.warns(UserWarning, match="cut within its last number"):
        read_mfem(text.rstrip())


def test_the_last_line_of_newer_versions_is_not_left_out():
    """MFEM requires it. Without it nobody would notice that the last number has lost digits."""
    for version in ("v1.2", "v1.3"):
        whole = CURVED.replace("v1.0", version).rstrip() + "\nmfem_mesh_end\n"
        assert read_mfem(whole).num_elements > 0
        for end in range(len(CURVED.rstrip()) - 20, len(whole) - 1):
            with pytest.raises(MeshFormatError):
                read_mfem(whole[:end] + "\n")


def test_absurd_counts_allocate_nothing(tmp_path):
    path = tmp_path / "a.mesh"
    cases = product((10**9, 10**17, 10**18, 10**30), ("elements", "boundary", "vertices"))
    for (huge, section), text in product(cases, (SQUARES, CURVED)):
        path.write_text(re.sub(rf"{section}\n\d+", f"{section}\n{huge}", text))
        tracemalloc.start()
        if section == "vertices" and text is CURVED and huge < 10**18:
            # vertices of no element are dropped: this file says nothing wrong
            assert read_mesh(path).num_vertices == 2
        else:
            with pytest.raises(MeshFormatError):
                read_mesh(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2e6


def test_nodes_that_are_missing_take_no_memory(tmp_path):
    """Hexahedra and a tetrahedron of degree 6, in 8 kB; their nodes would take 800 kB."""
    path, rows = tmp_path / "a.mesh", [*islice(combinations(range(14), 8), 300)]
    lines = [f"1 5 {' '.join(map(str, row))}" for row in rows]
    path.write_text(
        f"MFEM mesh v1.0\n\ndimension\n3\n\nelements\n{len(rows) + 1}\n"
        + "\n".join([*lines, "1 4 0 1 2 3"])
        + "\n\nboundary\n0\n\nvertices\n14\n\nnodes\nFiniteElementSpace\n"
        "FiniteElementCollection: H1_3D_P6\nVDim: 3\nOrdering: 1\n\n1 2 3\n"
    )
    tracemalloc.start()
    try:
        with pytest.raises(MeshFormatError, match="need 112530 numbers"):
            read_mesh(path)
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    meshes = {
        "segments": box(5, order=2),
        "torus": scrambled(box((3, 3), periodic=True, order=2), 1),
        "cubes": scrambled(box((2, 1, 2)), 2),
        "curved": scrambled(ball(1, order=2), 3),
        "named": box((2, 2)).with_names({"all": 1}, {"walls": (1, 2), "a b": 4}),
    }
    for name, mesh in meshes.items():
        write_mfem(mesh, folder / f"{name}.mesh", digits=6)
    return [path.read_bytes() for path in (*sorted(folder.iterdir()), sample("periodic"))]


NUMBERS = ["-1", "0", "1", "2", "3", "5", "7", "31", "1e400", "nan", "-inf", "1e-320", "99999999"]
NUMBERS += ["1000000000000000000", "9223372036854775808", "-9223372036854775809", "1e300", "0x10"]
PLACE = st.floats(0, 1, exclude_max=True)
BYTES = {
    "delete": lambda data, at, n, new: data[:at] + data[at + n % 40 :],
    "replace": lambda data, at, n, new: data[:at] + new + data[at + len(new) :],
    "double": lambda data, at, n, new: data[: at + n] + data[at:],
}
LINES = {
    "drop": lambda lines, k: [*lines[:k], *lines[k + 1 :]],
    "repeat": lambda lines, k: [*lines[: k + 1], *lines[k:]],
    "swap": lambda lines, k: [*lines[:k], *lines[k : k + 2][::-1], *lines[k + 2 :]],
    "to the end": lambda lines, k: [*lines[:k], *lines[k + 1 :], lines[k]],
}
CHANGE = st.tuples(
    st.sampled_from([*BYTES, *LINES, "number"]),
    PLACE,
    st.integers(1, 200),
    st.one_of(st.binary(min_size=1, max_size=6), st.sampled_from(NUMBERS).map(str.encode)),
)


def changed(data, change):
    kind, place, n, new = change
    if kind in BYTES:
        return BYTES[kind](data, int(place * len(data)), n, new)
    if kind in LINES:
        lines = data.split(b"\n")
        return b"\n".join(LINES[kind](lines, int(place * len(lines))))
    words = list(re.finditer(rb"[-+.\deE]*\d[-+.\deE]*", data))
    if not words:
        return data
    word = words[int(place * len(words))]
    return data[: word.start()] + new + data[word.end() :]


@pytest.mark.filterwarnings("ignore:.*cut within its last number")
@given(which=PLACE, changes=st.lists(CHANGE, min_size=1, max_size=3))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_real_file_is_a_mesh_or_a_mesh_error(originals, tmp_path_factory, which, changes):
    data = originals[int(which * len(originals))]
    for change in changes:
        data = changed(data, change)
    path = tmp_path_factory.getbasetemp() / "changed.mesh"
    path.write_bytes(data)
    mesh, message = None, ""
    try:
        mesh = read_mesh(path)
    except MeshError as error:
        message = str(error)
    if mesh is None:
        assert str(path) in message
        assert len(message) < 1000
    else:
        mesh.validate()
        assert mesh.volume() > 0
        assert np.isfinite(mesh.coordinates).all()
