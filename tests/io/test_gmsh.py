"""Gmsh files: node order, both versions, ASCII and binary, groups, and everything refused."""

import os
import sys
import threading
import traceback
import tracemalloc
from contextlib import nullcontext
from time import process_time

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import femops
from femops.errors import MeshError
from femops.io.gmsh.nodes import ELEMENTS, gmsh_order
from femops.io.gmsh.reader import attributes_of
from femops_meshes import MeshFormatError, scrambled
from support import gmsh_files
from support.gmsh_files import KINDS, TYPES, convert, document, need_gmsh, of_mesh, reference_nodes

SQUARE = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (1, 1, 0), (2, 1, 0)]
LEFT, RIGHT = (1, 2, 5, 4), (2, 3, 6, 5)
CUBE = np.indices((2, 2, 2)).reshape(3, -1).T


def written(folder, *arguments, name="a.msh"):
    path = folder / name
    path.write_text(document(*arguments))
    return path


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_node_order_is_that_of_gmsh(dim):
    assert ELEMENTS[dim] == {kind: degree for degree, kind in TYPES[dim].items()}
    for degree in TYPES[dim]:
        nodes = reference_nodes()[dim, degree][gmsh_order(dim, degree)]
        grid = np.indices([degree + 1] * dim).reshape(dim, -1)[::-1].T / degree
        np.testing.assert_allclose(nodes, grid, atol=1e-14, err_msg=str(degree))


@pytest.mark.parametrize(
    ("dim", "degree", "kind"),
    [(3, 1, KINDS[0]), (3, 3, KINDS[2]), (2, 4, KINDS[1]), (1, 2, KINDS[3])],
)
def test_a_curved_mesh_comes_back_whole(tmp_path, dim, degree, kind):
    """Elements turned in all ways: neighbours see their common face in every orientation."""
    if dim == 3:
        mesh = scrambled(femops.ball(order=degree) if degree > 1 else femops.box((2, 2, 3)), seed=5)
    else:
        mesh = femops.box((3,) * dim, order=degree)
    if degree > 1:
        mesh = mesh.mapped(lambda x: x + 0.02 * np.sin(2 * x[::-1]))
    mesh = mesh.with_attributes(elements=1 + np.arange(mesh.num_elements) % 2)
    source = tmp_path / "source.msh"
    source.write_text(of_mesh(mesh, degree, [(dim, 2, "odd ones")]))
    path = convert(source, tmp_path / "made.msh", *kind)
    read = femops.read_mesh(path, reorder=False)
    assert (read.order, read.num_vertices) == (degree, mesh.num_vertices)
    assert read.continuous
    assert read.element_names == {"odd ones": (2,)}
    # Gmsh lists elements by group
    order = np.argsort(mesh.element_attributes, kind="stable")
    np.testing.assert_allclose(read.coordinates, mesh.coordinates[order], atol=1e-8)
    assert np.array_equal(read.element_attributes, mesh.element_attributes[order])
    assert sides(read) == sides(mesh)


def sides(mesh):
    """Boundary faces as sets of corner positions, with attributes."""
    where = np.zeros((mesh.num_vertices, mesh.dim))
    g = mesh.order
    corners = np.indices([g + 1] * mesh.dim).reshape(mesh.dim, -1)
    ends = np.flatnonzero(((corners == 0) | (corners == g)).all(axis=0))
    where[mesh.elements] = mesh.coordinates[:, ends]
    rows = np.round(where[mesh.boundary], 6) + 0.0
    return {
        (int(a), frozenset(map(tuple, row.tolist())))
        for a, row in zip(mesh.boundary_attributes, rows, strict=True)
    }


def test_names_are_known_to_spaces(tmp_path):
    need_gmsh()
    elements = [(1, 5, 1, 1, 4), (1, 8, 2, 3, 6), (3, 7, 1, *LEFT), (3, 9, 1, *RIGHT)]
    names = [(1, 5, "inlet"), (1, 8, "out let"), (2, 7, "stone"), (0, 1, "unused")]
    mesh = femops.read_mesh(written(tmp_path, SQUARE, elements, names))
    assert mesh.element_names == {"stone": (7,)}
    assert mesh.boundary_names == {"inlet": (5,), "out let": (8,)}
    assert "inlet = 5" in repr(mesh)
    V = femops.H1(mesh.refine(), 2)
    inlet = V.boundary_dofs("inlet")
    assert np.array_equal(inlet, V.boundary_dofs(5))
    assert np.allclose(V.dof_coordinates()[inlet, 0], 0)
    assert len(inlet) == 5
    both = V.boundary_dofs(["inlet", 8])
    assert np.array_equal(both, V.boundary_dofs([5, 8]))
    with pytest.raises(femops.errors.SpaceError, match=r"'inlett': it has inlet, out let, 1, 5, 8"):
        V.boundary_dofs("inlett")


def test_tags_of_ten_digits_have_names(tmp_path):
    largest = 2**31 - 1
    elements = [(1, largest, 1, 1, 4), (3, 2**30, 1, *LEFT), (3, 8, 1, *RIGHT)]
    names = [(1, largest, "inlet"), (2, 2**30, "stone")]
    mesh = femops.read_mesh(written(tmp_path, SQUARE, elements, names))
    assert mesh.boundary_names == {"inlet": (largest,)}
    assert mesh.element_names == {"stone": (2**30,)}
    assert mesh.element_attributes.tolist() == [2**30, 8]


def test_names_of_version_2_0_have_no_dimension(tmp_path):
    elements = [(1, 5, 1, 1, 4), (3, 7, 1, *LEFT), (3, 8, 1, *RIGHT)]
    path = written(tmp_path, SQUARE, elements, [(1, 5, "inlet"), (2, 7, "stone")])
    text = path.read_text().replace('1 5 "inlet"', '5"inlet"').replace('2 7 "stone"', '7 "stone"')
    with pytest.raises(MeshFormatError, match="a name should come as"):
        femops.read_mesh(rewritten(path, text))
    mesh = femops.read_mesh(rewritten(path, text.replace("2.2 0 8", "2 0 8")))
    assert mesh.boundary_names == {"inlet": (5,)}
    assert mesh.element_names == {"stone": (7,)}


def test_groups_without_elements_are_told(tmp_path):
    """Gmsh writes names, but no groups, in version 2.2 with Mesh.SaveAll."""
    elements = [(1, 0, 1, 1, 4), (3, 0, 1, *LEFT), (3, 0, 1, *RIGHT)]
    path = written(tmp_path, SQUARE, elements, [(1, 5, "inlet"), (2, 7, "stone"), (3, 1, "none")])
    with pytest.warns(UserWarning, match=r"group\(s\) 'inlet', 'stone': .* only with Mesh.SaveAll"):
        mesh = femops.read_mesh(path)
    assert mesh.boundary_names == mesh.element_names == {}


def rewritten(path, text):
    path.write_text(text)
    return path


def test_ghosts_of_version_2_come_twice(tmp_path):
    """With Mesh.SaveAll Gmsh lists ghosts again, on an entity of their own."""
    elements = [(3, 0, 1, *LEFT), (3, 0, 2, *RIGHT), (3, 0, 5, *RIGHT)]
    path = written(tmp_path, SQUARE, elements)
    text, ghost = path.read_text(), "2 1 -2"
    for number, entity in ((2, 2), (3, 5)):
        text = text.replace(f"{number} 3 2 0 {entity} ", f"{number} 3 5 0 {entity} {ghost} ")
    path.write_text(text)
    mesh = femops.read_mesh(path)
    assert (mesh.num_elements, mesh.num_boundary, mesh.volume()) == (2, 6, 2.0)
    path.write_text(text.replace("3 3 5 0 5", "3 3 5 0 2"))  # again on one entity
    with pytest.raises(MeshError, match=r"1 element.*twice in one group"):
        femops.read_mesh(path)


def test_what_is_in_no_group(tmp_path):
    """The rest of the exterior gets a free number."""
    need_gmsh()
    elements = [(1, 1, 1, 1, 4), (1, 4, 1, 2, 5), (3, 0, 1, *LEFT), (3, 0, 1, *RIGHT)]
    mesh = femops.read_mesh(written(tmp_path, SQUARE, elements))
    assert mesh.element_attributes.tolist() == [1, 1]
    # 1 and 4 (a wall inside) are groups, five faces remain
    assert sorted(mesh.boundary_attributes.tolist()) == [1, 2, 2, 2, 2, 2, 4]
    path = written(tmp_path, SQUARE, [(1, 0, 1, 1, 4), (3, 0, 1, *LEFT), (3, 0, 1, *RIGHT)])
    for version, binary in KINDS:
        target = convert(path, tmp_path / "b.msh", version, binary, save_all=1)
        mesh = femops.read_mesh(target)
        assert mesh.volume() == pytest.approx(2)
        assert set(mesh.element_attributes) == set(mesh.boundary_attributes) == {1}
        assert mesh.num_boundary == 6
        assert mesh.element_names == mesh.boundary_names == {}
    # entities without a group beside others that have one, in version 4
    path = written(tmp_path, SQUARE, [(1, 3, 1, 1, 4), (3, 7, 1, *LEFT), (3, 0, 2, *RIGHT)])
    mesh = femops.read_mesh(convert(path, tmp_path / "b.msh", 4.1, 1, save_all=1))
    assert sorted(mesh.element_attributes.tolist()) == [1, 7]


def test_overlapping_groups(tmp_path):
    need_gmsh()
    elements = [
        *[(3, 7, 1, *LEFT), (3, 8, 2, *RIGHT), (3, 9, 3, *RIGHT)],
        *[(1, 2, 1, 1, 4), (1, 3, 2, 1, 4), (1, 3, 2, 3, 6)],
    ]
    path = written(tmp_path, SQUARE, elements, [(1, 2, "left"), (1, 3, "ends"), (2, 8, "b")])
    mesh = femops.read_mesh(path, reorder=False)
    assert mesh.element_attributes.tolist() == [7, 10]
    assert mesh.element_names == {"b": (10,), "9": (10,)}
    assert mesh.boundary_names == {"left": (4,), "ends": (4, 5)}
    V = femops.H1(mesh, 1)
    assert np.allclose(V.dof_coordinates()[V.boundary_dofs("ends"), 0], [0, 0, 2, 2])
    with pytest.raises(femops.errors.SpaceError, match="no boundary attribute 3"):
        V.boundary_dofs(3)


def test_numbers_of_groups():
    def numbers(count, members, names=()):
        sets = [tuple(sorted({tag for one, tag in members if one == k})) for k in range(count)]
        result = attributes_of(np.arange(count), sets, dict(names))
        return result.numbers.tolist(), result.without, result.names

    assert numbers(2, []) == ([1, 1], 1, {})
    assert numbers(3, [(0, 1), (1, 2)]) == ([1, 2, 3], 3, {})
    assert numbers(2, [(0, 5), (0, 5)], {5: "a"}) == ([5, 1], 1, {"a": (5,)})
    # two tags of one name
    assert numbers(2, [(0, 5), (1, 6)], {5: "a", 6: "a"}) == ([5, 6], 1, {"a": (5, 6)})
    # 1 overlaps with 2: neither tag stays, and 3 is for things in no group
    got = numbers(4, [(0, 1), (1, 1), (1, 2), (2, 2)], {1: "a"})
    assert got == ([4, 5, 6, 3], 3, {"a": (4, 5), "2": (5, 6)})


def test_holes_of_a_sparse_file_take_no_memory(tmp_path):
    with (tmp_path / "a.msh").open("wb") as file:
        file.write(b"$MeshFormat\n4.1 1 8\n")
        file.truncate(2**40)
    with pytest.raises(MeshError, match="it has a hole from byte 1048576 on"):
        femops.read_mesh(tmp_path / "a.msh")


def test_elements_listed_clockwise_and_sparse_numbers(tmp_path):
    need_gmsh()
    path = written(tmp_path, SQUARE, [(3, 1, 1, *LEFT), (3, 1, 1, *RIGHT[::-1])])
    assert femops.read_mesh(path).volume() == pytest.approx(2)
    line = written(tmp_path, SQUARE, [(1, 1, 1, 1, 2), (1, 1, 1, 3, 2)])
    assert femops.read_mesh(line).volume() == pytest.approx(2)
    # and nodes of no element
    text = document(SQUARE, [(3, 1, 1, *LEFT)]).replace("\n3 2 0 0", "\n1003 2 0 0")
    path.write_text(text)
    assert femops.read_mesh(path).num_vertices == 4


REFUSED = {
    "tetrahedra": (
        [(4, 1, 1, 1, 2, 4, 5), (3, 1, 1, *LEFT)],
        r"quadril.* beside tetrahedra.*leave",
    ),
    "serendipity": (
        [(16, 1, 1, 1, 2, 5, 4, 3, 6, 3, 6)],
        r"quadrilateral\(s\) of degree 2, 8 nodes.*Mesh\.SecondOrderIncomplete = 0",
    ),
    "degrees": ([(3, 1, 1, *LEFT), (10, 2, 2, *RIGHT, 1, 1, 1, 1, 1)], r"degrees \[1, 2\]"),
    "degrees in one group": (
        [(3, 1, 1, *LEFT), (10, 1, 1, *RIGHT, 1, 1, 1, 1, 1)],
        r"degrees \[1, 2\]",
    ),
    "lines in one group": ([(1, 1, 1, 1, 2), (8, 1, 1, 2, 3, 4)], r"degrees \[1, 2\]"),
    "points": ([(15, 1, 1, 1)], "holds no elements"),
    "dangling": ([(3, 1, 1, *LEFT), (1, 2, 1, 3, 6)], "sides of no element"),
    "no face": ([(3, 1, 1, *LEFT), (1, 2, 1, 1, 5)], "not faces of any element"),
    "twisted": ([(3, 1, 1, 1, 5, 2, 4)], "inverted"),
    "hexahedra": ([(17, 1, 1, *range(1, 9), *[1] * 12)], r"hexahedron\(s\) of degree 2, 20 nodes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    need_gmsh()
    elements, message = REFUSED[case]
    path = written(tmp_path, CUBE if "hexahedra" in case else SQUARE, elements)
    with pytest.raises(MeshError, match=message) as error:
        femops.read_mesh(path)
    assert str(error.value).startswith(str(path))
    shown = "".join(traceback.format_exception(error.value))
    assert shown.count(str(error.value).removeprefix(f"{path}: ")) == 1


def test_planes(tmp_path):
    """A plane z = constant is two-dimensional, another surface is refused."""
    need_gmsh()
    x = np.array(SQUARE, dtype=float)
    assert femops.read_mesh(written(tmp_path, x + np.array([0, 0, 3]), [(3, 1, 1, *LEFT)])).dim == 2
    for tilted in (x[:, [0, 2, 1]], x + 0.1 * x[:, [1, 2, 0]]):
        with pytest.raises(MeshError, match="higher dimension are not supported"):
            femops.read_mesh(written(tmp_path, tilted, [(3, 1, 1, *LEFT)]))
    with pytest.raises(MeshError, match="not finite"):
        femops.read_mesh(written(tmp_path, x + np.array([0, 0, np.nan]), [(3, 1, 1, *LEFT)]))


def test_other_versions_and_files(tmp_path):
    good = document(SQUARE, [(3, 1, 1, *LEFT)])
    cases = {
        "$NOD\n1\n": r"does not begin with \$MeshFormat",
        "\x1f\x8b": r"does not begin with \$MeshFormat",
        "": r"does not begin with \$MeshFormat",
        good.replace("2.2 0 8", "4 0 8"): "version 4; versions 2.2 and 4.1",
        good.replace("2.2 0 8", "hello"): "no version and file type",
        good.removesuffix("$EndElements\n"): r"no \$EndElements: it is truncated",
        "$MeshFormat": r"no \$EndMeshFormat: it is truncated",
    }
    path = tmp_path / "a.msh"
    for text, message in cases.items():
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(MeshError, match=message):
            femops.read_mesh(path)
    with pytest.raises(MeshError, match="does not exist"):
        femops.read_mesh(tmp_path / "none.msh")


@pytest.mark.parametrize("name", ["Nodes", "ParametricNodes", ""])
def test_a_model_that_has_no_mesh(tmp_path, name):
    """As Gmsh writes it in version 2.2, binary, and in 4.1."""
    head = b"$MeshFormat\n2.2 1 8\n\x01\x00\x00\x00\n$EndMeshFormat\n"
    empty = (f"${part}\n0\n\n$End{part}\n".encode() for part in (name, "Elements"))
    path = tmp_path / "a.msh"
    path.write_bytes(head + b"".join(empty) * bool(name))
    with pytest.raises(MeshError, match="let Gmsh generate the mesh before it saves"):
        femops.read_mesh(path)


def test_a_group_of_points_alone(tmp_path):
    """Gmsh then saves the points alone, and the message says why."""
    path = tmp_path / "a.msh"
    path.write_text(
        "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n1\n1 0 0 0\n$EndNodes\n"
        "$Elements\n1\n1 15 2 5 1 1\n$EndElements\n"
    )
    with pytest.raises(MeshError, match="saves only what is in one: group the elements"):
        femops.read_mesh(path)


def test_no_script_is_run(tmp_path, monkeypatch):
    """Gmsh runs what is no mesh as a script, and `<name>.opt` too."""
    monkeypatch.delitem(sys.modules, "gmsh", raising=False)  # other tests load it
    script = f'SystemCall "touch {tmp_path / "ran"}";\n'
    (tmp_path / "a.msh").write_text(script)
    with pytest.raises(MeshError):
        femops.read_mesh(tmp_path / "a.msh")
    path = written(tmp_path, SQUARE, [(3, 1, 1, *LEFT)])
    (tmp_path / "a.msh.opt").write_text(script)
    assert femops.read_mesh(path).num_elements == 1
    assert not (tmp_path / "ran").exists()
    assert "gmsh" not in sys.modules  # it is not loaded here


def test_a_file_that_is_exchanged_while_it_is_read(tmp_path):
    """What is checked is what is read: a script that takes its place is never run."""
    good = written(tmp_path, SQUARE, [(3, 1, 1, *LEFT)], name="good").read_bytes()
    script = f'SystemCall "touch {tmp_path / "ran"}";\n'.encode()
    path, stop = tmp_path / "a.msh", threading.Event()
    path.write_bytes(good)

    def exchange():
        while not stop.is_set():
            for content in (script, good):
                (tmp_path / "next").write_bytes(content)
                os.replace(tmp_path / "next", path)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(20):
            mesh, message = outcome(path, split=False)
            # the format is told by the first line, before the file is copied and parsed
            refused = "$MeshFormat" in message or "should begin here" in message
            assert refused if mesh is None else mesh.num_elements == 1
    finally:
        stop.set()
        thread.join()
    assert not (tmp_path / "ran").exists()


OPTIONS = """
import gmsh
gmsh.initialize(readConfigFiles=False)
option = gmsh.option.setNumber
option("General.Terminal", 0)
for x in (0, 1):
    gmsh.model.occ.addRectangle(x, 0, 0, 1, 1, x + 1)
gmsh.model.occ.fragment([(2, 1)], [(2, 2)])
gmsh.model.occ.synchronize()
gmsh.model.addPhysicalGroup(2, [-1], 7, "one")
gmsh.model.addPhysicalGroup(2, [1, 2], 9, "both")
gmsh.model.addPhysicalGroup(1, [1, -2], 3, "side")
option("Mesh.MeshSizeMin", 0.5)
option("Mesh.MeshSizeMax", 0.5)
option("Mesh.RecombineAll", 1)
option("Mesh.SubdivisionAlgorithm", 1)
gmsh.model.mesh.generate(2)
gmsh.model.mesh.setOrder({order})
tags, _ = gmsh.model.mesh.getElementsByType({{1: 3, 2: 10}}[{order}])
print(len(tags))
option("Mesh.PartitionCreateGhostCells", {ghosts})
if {parts}:
    gmsh.model.mesh.partition({parts})
option("Mesh.MshFileVersion", {version})
option("Mesh.Binary", {binary})
option("Mesh.SaveAll", {save_all})
option("Mesh.SaveParametric", {parametric})
option("Mesh.SaveGroupsOfNodes", 1)
gmsh.write({path!r})
"""


@pytest.mark.parametrize(("version", "binary"), KINDS)
@pytest.mark.parametrize(
    ("parts", "ghosts", "save_all", "parametric", "order"),
    [(2, 0, 0, 0, 1), (3, 1, 0, 0, 2), (0, 0, 1, 0, 1), (0, 0, 0, 1, 2), (2, 1, 1, 1, 1)],
)
def test_options_of_gmsh(tmp_path, version, binary, parts, ghosts, save_all, parametric, order):
    path = str(tmp_path / "a.msh")
    words = {"parts": parts, "ghosts": ghosts, "save_all": save_all, "parametric": parametric}
    words |= {"version": version, "binary": binary, "order": order, "path": path}
    count = int(gmsh_files.run(OPTIONS.format(**words)))
    lost = save_all and version == 2.2  # Gmsh leaves out the groups of such a file
    with pytest.warns(UserWarning, match="'both', 'one', 'side'") if lost else nullcontext():
        mesh = femops.read_mesh(path)
    assert (mesh.num_elements, mesh.order) == (count, order)
    assert mesh.volume() == pytest.approx(2.0)
    if not lost:
        assert mesh.element_names.keys() == {"one", "both"}
        one = np.isin(mesh.element_attributes, mesh.element_names["one"])
        assert (one == (mesh.element_centers()[:, 0] < 1)).all()
        assert np.isin(mesh.element_attributes, mesh.element_names["both"]).all()
        assert mesh.boundary_names == {"side": (3,)}


def test_versions_as_other_programs_write_them(tmp_path):
    good = document(SQUARE, [(3, 5, 1, *LEFT)])
    new = convert(written(tmp_path, SQUARE, [(3, 5, 1, *LEFT)]), tmp_path / "b.msh", 4.1, 0)
    comment = "$Comments\n of a program\n$EndComments\n"
    for text in (
        *(good.replace("2.2 0 8", f"{version} 0 8") for version in ("2.200000", "2.0", "2", "2.1")),
        *(new.read_text().replace("4.1 0 8", f"{version} 0 8") for version in ("4.10", "4.100")),
        comment + good,
        good.replace("\n", "\r\n"),
        new.read_text().replace("\n", "\r\n"),
    ):
        (tmp_path / "a.msh").write_bytes(text.encode())
        mesh = femops.read_mesh(tmp_path / "a.msh")
        assert mesh.element_attributes.tolist() == [5]


def test_the_other_byte_order(tmp_path):
    """Every number of a file of version 2.2 turned round."""
    path = convert(written(tmp_path, SQUARE, [(3, 5, 1, *LEFT)]), tmp_path / "b.msh", 2.2, 1)
    data = path.read_bytes()
    nodes = data.index(b"$Nodes\n4\n") + 9
    elements = data.index(b"$Elements\n1\n") + 12
    swapped = bytearray(data.replace(b"\x01\0\0\0\n$End", b"\0\0\0\x01\n$End"))
    records = np.frombuffer(data, [("n", "<i4"), ("x", "<f8", 3)], 4, nodes)
    swapped[nodes : nodes + 112] = records.astype([("n", ">i4"), ("x", ">f8", 3)]).tobytes()
    whole = np.frombuffer(data, "<i4", 10, elements)
    swapped[elements : elements + 40] = whole.astype(">i4").tobytes()
    path.write_bytes(swapped)
    mesh = femops.read_mesh(path)
    assert mesh.volume() == 1.0
    assert mesh.element_attributes.tolist() == [5]


def test_group_zero_is_no_group(tmp_path):
    """As in version 2.2, also in version 4.1, where Gmsh writes such a tag."""
    path = written(tmp_path, SQUARE, [(3, 4, 1, *LEFT), (3, 8, 2, *RIGHT)])
    new = convert(path, tmp_path / "b.msh", 4.1, 0)
    text = new.read_text()
    assert text.count(" 1 4 ") == 1
    new.write_text(text.replace(" 1 4 ", " 1 0 "))
    path.write_text(path.read_text().replace("1 3 2 4 1", "1 3 2 0 1"))
    for file in (path, new):
        assert femops.read_mesh(file, reorder=False).element_attributes.tolist() == [1, 8]


DAMAGES = {
    "a letter in a number": ("2 3 2 9 2 2 3 6 5", "2 3 2 9 2 2 3 6 u", 'line 20 .*"u" is no num'),
    "a sign for the end of a line": ("$Elements\n3", "$Elements\x1c3", "a section such as"),
    "a digit lost": ("2 3 2 9 2 2 3 6 5", "2 3 2 9 2 2 3 6  ", "type 3 with 2 tags has 9 numbers"),
    "a line lost": ("\n2 3 2 9 2 2 3 6 5", "", "3 more lines should follow, 2 do"),
    "a line too many": ("$Elements\n3", "$Elements\n2", "1 lines more than its counts"),
    "a form feed": ("2 3 2 9 2 2 3 6 5", "2 3 2 9 2\x0c2 3 6 5", r'"\\x0c" between numbers'),
    "an underscore": ("\n2 1.0 0.0", "\n2 1_0 0.0", '"_" between numbers'),
    "an unknown type": ("2 3 2 9 2", "2 34 2 9 2", "Gmsh's type 34 are unknown"),
    "a node twice": ("\n5 1.0", "\n4 1.0", "node 4 has two positions"),
    "an element twice": ("3 3 2 7 3 1 2 5 4", "3 3 2 9 3 2 3 6 5", "twice in one group"),
    "a section twice": ("$Elements", "$Nodes\n0\n$EndNodes\n$Elements", r"second section \$Nodes"),
    "a name": ('"stone"', "stone", 'line 6 .a name should come as: 2 7 "plate"'),
    "a wide tag": ("2 3 2 9 2 2 3 6 5", f"2 3 2 {-(2**63)} 2 2 3 6 5", "line 20 .*no number of 4"),
    "a long count": ('1\n2 9 "stone"', "1" * 5000 + '\n2 9 "stone"', "number of names, 1"),
    "names": ('1\n2 9 "stone"', '2\n2 9 "stone"', "number of names, 1"),
    "two names": ('1\n2 9 "stone"', '2\n2 9 "stone"\n2 9 "sand"', "group 9 of .* has two names"),
    "other tags": ("2 3 2 9 2 2 3 6 5", "2 3 4 9 2 7 1 2 3 6 5", "number of partitions"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damages_that_gmsh_does_not_see(tmp_path, case):
    elements = [(3, 7, 1, *LEFT), (3, 9, 2, *RIGHT), (3, 7, 3, *LEFT)]
    elements[2] = (1, 4, 3, 1, 2)
    if case == "an element twice":
        elements[2] = (3, 7, 3, *LEFT)
    x = np.array(SQUARE, dtype=float)
    path = written(tmp_path, x, elements, [(2, 9, "stone")])
    old, new, message = DAMAGES[case]
    text = path.read_text()
    assert text.count(old) == 1
    path.write_bytes(text.replace(old, new).encode())
    with pytest.raises(MeshError, match=message) as caught:
        femops.read_mesh(path)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).isprintable()


def test_elements_that_overlap_are_refused(tmp_path):
    """One wrong number folds an element back over its neighbour; all its angles are right."""
    nodes = [*SQUARE, (0.2, 0, 0), (0.2, 1, 0)]
    path = written(tmp_path, nodes, [(3, 1, 1, *LEFT), (3, 1, 1, 2, 7, 8, 5)])
    with pytest.raises(MeshError, match=r"both elements of 1 face.*same side.*elements 0 and 1"):
        femops.read_mesh(path)


@pytest.mark.parametrize("to", [0.25, 0.5], ids=["side", "inside"])
@pytest.mark.parametrize("dim", [2, 3])
def test_elements_that_overlap_at_a_vertex_are_refused(tmp_path, dim, to):
    """One wrong number draws a corner of the last element inwards, over the elements beside it."""
    mesh = femops.box((4,) * dim)
    where = np.zeros((mesh.num_vertices, 3))
    where[mesh.elements, :dim] = mesh.coordinates
    end = [0.5] * dim if to == 0.5 else [to, to, 0.0][-dim:]  # surrounded, or on a side of the box
    numbers = [int(np.flatnonzero((where[:, :dim] == x).all(axis=1))[0]) for x in (end, 0.75)]
    last = int(mesh.element_centers().sum(axis=1).argmax())
    around = [0, 1, 3, 2] if dim == 2 else [0, 1, 3, 2, 4, 5, 7, 6]
    cells = mesh.elements.copy()
    cells[last][cells[last] == numbers[1]] = numbers[0]
    rows = [({2: 3, 3: 5}[dim], 1, 1, *row) for row in (cells[:, around] + 1).tolist()]
    # no element is inverted, and no face has both elements on the same side
    with pytest.raises(MeshError, match=rf"overlap at \d vertex\(es\), elements .*\b{last}\b"):
        femops.read_mesh(written(tmp_path, where, rows))


def test_other_nodes_on_a_common_side_are_refused(tmp_path):
    """Of quadratic elements; corners are the same, and what lies between them is not."""
    path = tmp_path / "a.msh"
    path.write_text(of_mesh(femops.box((2, 1), order=2), 2, []))
    assert femops.read_mesh(path).continuous
    nodes, sign, elements = path.read_text().partition("$Elements")
    rows = [line.split() for line in elements.split("\n")]
    first, last = (row for row in rows if row[1:2] == ["10"])
    (common,) = {*first[9:13]} & {*last[9:13]}
    line, other = (
        " ".join(word if word != common else new for word in last) for new in (common, "16")
    )
    nodes = nodes.replace("$Nodes\n15", "$Nodes\n16").replace("$EndN", "16 0.55 0.5 0\n$EndN")
    path.write_text(nodes + sign + elements.replace(line, other))
    with pytest.raises(MeshError, match=r"1 element\(s\) have other nodes on a common face"):
        femops.read_mesh(path)


def test_an_entity_that_comes_twice(tmp_path):
    path = written(tmp_path, SQUARE, [(3, 4, 1, *LEFT), (3, 8, 2, *RIGHT)])
    new = convert(path, tmp_path / "b.msh", 4.1, 0)
    text = new.read_text()
    assert "\n2 1 0 0 2 1 0 1 8 0" in text
    new.write_text(text.replace("\n2 1 0 0 2 1 0 1 8 0", "\n1 1 0 0 2 1 0 1 8 0"))
    with pytest.raises(MeshError, match=r"\$Entities is damaged .*entity 1 of dimension 2 comes"):
        femops.read_mesh(new)


SECTIONS = {
    "comments": lambda n: "$Comments\n$EndComments\n" * n,
    "entities": lambda n: (
        f"$Entities\n{n} 0 0 0\n" + "".join(f"{k} 0 0 0 0\n" for k in range(n)) + "$EndEntities\n"
    ),
}


@pytest.mark.parametrize("kind", SECTIONS)
def test_many_sections_and_rows_are_read_in_proportion_to_their_number(tmp_path, kind):
    path = written(tmp_path, SQUARE, [(3, 7, 1, *LEFT)])
    text, seconds = path.read_text(), []
    for count in (2000, 32_000):
        new = text.replace("2.2 0 8", "4.1 0 8") if kind == "entities" else text
        path.write_text(new.replace("$Nodes", SECTIONS[kind](count) + "$Nodes"))
        begin = process_time()
        with pytest.raises(MeshError) if kind == "entities" else nullcontext():
            femops.read_mesh(path)
        seconds.append(process_time() - begin)
    assert seconds[1] < 64 * seconds[0]


def test_many_groups_are_read_in_proportion_to_their_number(tmp_path):
    seconds = []
    for count in (1000, 16_000):
        nodes = [(k, y, 0) for k in range(count + 1) for y in (0, 1)]
        cells = [(3, k + 1, 1, *(2 * k + np.array([1, 3, 4, 2]))) for k in range(count)]
        path = written(tmp_path, nodes, cells, [(2, k + 1, "all") for k in range(count)])
        begin = process_time()
        assert len(femops.read_mesh(path).element_names["all"]) == count
        seconds.append(process_time() - begin)
    assert seconds[1] < 64 * seconds[0]


def of_entities(groups, cells):
    """Text of a file, version 4.1: a row of squares, the groups and the squares of each entity."""
    count = max(map(max, cells)) + 1
    nodes = [f"{k} {y} 0" for k in range(count + 1) for y in (0, 1)]
    tags = "\n".join(map(str, range(1, len(nodes) + 1)))
    lines = [f"$Entities\n0 0 {len(groups)} 0"]
    for k, one in enumerate(groups, 1):
        lines.append(f"{k} 0 0 0 1 1 0 {len(one)} {' '.join(map(str, one))} 0")
    lines += [f"$EndEntities\n$Nodes\n1 {len(nodes)} 1 {len(nodes)}\n2 1 0 {len(nodes)}", tags]
    total = sum(map(len, cells))
    lines += [*nodes, f"$EndNodes\n$Elements\n{len(cells)} {total} 1 {total}"]
    for k, mine in enumerate(cells, 1):
        lines.append(f"2 {k} 3 {len(mine)}")
        lines += [f"1 {2 * c + 1} {2 * c + 3} {2 * c + 4} {2 * c + 2}" for c in mine]
    return "\n".join(["$MeshFormat\n4.1 0 8\n$EndMeshFormat", *lines, "$EndElements", ""])


def test_groups_take_no_memory_beyond_a_multiple_of_the_file(tmp_path):
    count, path = 3000, tmp_path / "a.msh"
    path.write_text(of_entities([range(1, count + 1)], [range(count)]))
    tracemalloc.start()
    mesh = femops.read_mesh(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * path.stat().st_size  # one number for each pair would take 1000 times
    assert {*mesh.element_attributes.tolist()} == {count + 2}
    assert mesh.element_names == {str(k + 1): (count + 2,) for k in range(count)}
    # all elements are also in a group each, so that each of the names has as many numbers
    cells = [range(count), *([k] for k in range(count))]
    groups = [range(1, count + 1), *([count + k] for k in range(1, count + 1))]
    path.write_text(of_entities(groups, cells))
    with pytest.raises(MeshFormatError, match=r"groups overlap in 3000 ways with 9003000 tags"):
        femops.read_mesh(path)
    path.write_text(of_entities([(1, 2), (3,)], [range(2), [0]]))
    names = {"1": (5, 6), "2": (5, 6), "3": (6,)}
    assert femops.read_mesh(path).element_names == names


@pytest.mark.parametrize("count", [0, 1])
def test_blocks_of_an_entity_share_its_groups(tmp_path, count):
    many, path = 600, tmp_path / "a.msh"
    text = of_entities([range(1, many + 1)], [range(many)])
    head, block = text.split(f"\n2 1 3 {many}\n")
    rows = block.split("\n")[:many]
    blocks = [f"2 1 3 1\n{row}" for row in rows] if count else ["2 1 3 0"] * many
    whole = [] if count else [f"2 1 3 {many}", *rows]
    start = head.rindex("$Elements\n")
    lines = [f"{head[:start]}$Elements", f"{many + (not count)} {many} 1 {many}", *blocks, *whole]
    path.write_text("\n".join([*lines, "$EndElements", ""]))
    tracemalloc.start()
    mesh = femops.read_mesh(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * path.stat().st_size  # a number for each block and group took 1000 times
    assert mesh.num_elements == many
    assert mesh.element_names == {str(k + 1): (many + 2,) for k in range(many)}


def test_many_attributes_are_split_in_the_time_of_many_elements(tmp_path):
    count, seconds, path = 1600, [], tmp_path / "a.mesh"
    points = "\n".join(f"{k // 2} {k % 2}" for k in range(2 * count + 1))
    for most in (1, 1, count):  # the first time modules are loaded
        rows = (f"{k % most + 1} 2 {2 * k} {2 * k + 2} {2 * k + 1}" for k in range(count))
        head = f"MFEM mesh v1.0\n\ndimension\n2\n\nelements\n{count}\n" + "\n".join(rows)
        path.write_text(f"{head}\nboundary\n0\nvertices\n{2 * count + 1}\n2\n{points}\n")
        begin = process_time()
        mesh = femops.read_mesh(path, split=True)
        seconds.append(process_time() - begin)
        assert np.bincount(mesh.element_attributes).tolist() == [0, *[3 * count // most] * most]
    assert seconds[2] < 10 * seconds[1]  # it was 20, and grew with the count


def test_names_hold_no_escapes(tmp_path):
    path = written(tmp_path, SQUARE, [(3, 7, 1, *LEFT)], [(2, 7, "\x1b[31mred\x9b é")])
    mesh = femops.read_mesh(path)
    assert mesh.element_names == {r"\x1b[31mred\x9b é": (7,)}


@pytest.fixture(scope="module")
def real_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    mesh = femops.box((2, 1, 1), order=2)
    source = folder / "source.msh"
    source.write_text(of_mesh(mesh, 2, [(3, 1, "all")]))
    sources = [source, *(folder / f"{name}.msh" for name in ("simplices", "glued"))]
    # a tetrahedron and a prism
    elements = [(2, 5, 1, 2, 3, 5), (4, 1, 1, 1, 5, 3, 2), (6, 2, 2, 5, 7, 3, 6, 8, 4)]
    sources[1].write_text(document(CUBE, elements, [(3, 1, "tip"), (2, 5, "skin")]))
    squares = document(
        [(x, y, 0) for y in (0, 1) for x in range(4)],
        [(1, 3, 1, 1, 5), (1, 4, 2, 4, 8)]
        + [
            (2, 1, 1, *row) for k in (1, 2, 3) for row in ((k, k + 1, k + 4), (k + 1, k + 5, k + 4))
        ],
    )
    links = "$Periodic\n3\n0 1 4\n1\n1 4\n0 5 8\n1\n5 8\n1 1 2\n2\n1 4\n5 8\n$EndPeriodic\n"
    sources[2].write_text(squares + links)
    files = [
        convert(source, folder / f"{source.stem}{k}.msh", *kind)
        for source in sources[:2]
        for k, kind in enumerate(KINDS)
    ]
    alike = folder / "alike.msh"
    elements = [
        (4, 1, 1, 1, 5, 3, 2),
        (4, 2, 1, 5, 3, 2, 8),
        (2, 5, 1, 2, 3, 5),
        (2, 6, 2, 1, 2, 3),
    ]
    alike.write_text(document(CUBE, elements, [(3, 1, "tip"), (2, 5, "between")]))
    files += [sources[2]]
    files += [convert(alike, folder / f"alike{k}.msh", *kind) for k, kind in enumerate(KINDS)]
    # Gmsh would number nodes anew in the glued one, and keep the old numbers in $Periodic
    return Files(file.read_bytes() for file in files)


class Files(tuple):
    """Contents of files, too long to be shown."""

    __slots__ = ()

    def __repr__(self):
        return "files"


MUTATIONS = st.tuples(
    st.integers(0, 12),
    st.floats(0, 1),
    st.sampled_from(["cut", "flip", "delete", "insert", "number"]),
    st.binary(min_size=1, max_size=8),
)


def test_files_to_be_mutated_are_good(real_files, tmp_path):
    for which, data in enumerate(real_files):
        (tmp_path / "a.msh").write_bytes(data)
        mesh, message = outcome(tmp_path / "a.msh", split=True)
        assert message == ""
        assert mesh.num_elements == [*4 * [2], *4 * [10], 18, *4 * [8]][which]
        assert which != 8 or mesh.num_boundary == 12
        if which > 8:
            assert femops.read_mesh(tmp_path / "a.msh").num_elements == 2


@settings(
    max_examples=100,  # others each time
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(mutation=MUTATIONS, split=st.booleans())
@example(mutation=(8, 0.8125, "cut", b"0"), split=True)  # in the word $Periodic
def test_mutated_files_give_a_mesh_or_one_clear_error(real_files, tmp_path, mutation, split):
    which, place, how, extra = mutation
    data = real_files[which]
    last = len(data) - 1
    k = 12 + int(place * (len(data) - 13))
    data = {
        "cut": data[:k],
        "flip": data[:k] + extra + data[k + len(extra) :],
        "delete": data[:k] + data[k + len(extra) :],
        "insert": data[:k] + extra + data[k:],
        "number": data[:k] + b"\xff\xff\xff\x7f" + data[k + 4 :],
    }[how]
    path = tmp_path / "mutated.msh"
    path.write_bytes(data)
    mesh, message = outcome(path, split=split)
    if mesh is None:
        assert str(path) in message
        assert "\n" not in message
    else:
        mesh.validate()
        # without its last end of line a file is whole, and also without its last section
        assert how != "cut" or k == last or data.rstrip().endswith(b"$EndElements")


def outcome(path, *, split):
    try:
        return femops.read_mesh(path, split=split), ""
    except MeshError as error:
        return None, str(error)
