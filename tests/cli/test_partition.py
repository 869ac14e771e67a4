"""``femops mesh partition``."""

import json
import sys

import pytest

import femops

SHARED = ("shared_vertices", "shared_edges", "surface")


def test_mesh_partition(run):
    arguments = ["mesh", "partition", "ball.mesh", "--parts", 3, "--refine", 1]
    code, out, _ = run(*arguments, "--order", 4, "--json")
    facts = json.loads(out)
    assert code == 0
    mesh = femops.read_mesh(femops.sample("ball.mesh"), refine=1)
    cut = femops.partition(mesh, 3)
    assert (facts["method"], facts["parts"], facts["empty"]) == ("curve", 3, 0)
    assert (facts["elements"], facts["balance"]) == (448, cut.balance)
    assert [facts[name] for name in SHARED] == cut.total_shared.tolist()
    each = facts["per_part"]
    assert each["elements"] == cut.elements.tolist()
    assert each["neighbours"] == [2, 2, 2]
    for name, column in zip(SHARED, cut.shared.T, strict=True):
        assert each[name] == column.tolist()
    assert facts["owned_dofs"] == sum(each["owned_dofs"]) == femops.H1(mesh, 4).ndofs
    assert each["shared_dofs"] == cut.shared_dofs(4).tolist()
    assert (facts["messages"], facts["numbers"]) == cut.exchange(4)
    code, out, _ = run(*arguments)
    assert code == 0
    assert f"balance {cut.balance:.4g}" in out
    row = next(line.split() for line in out.splitlines() if "surface" in line)
    total, each = cut.total_shared[-1], cut.shared[:, -1]
    assert row == ["surface", str(total), str(min(each)), f"{each.mean():.6g}", str(max(each))]
    assert "dofs" not in out


def test_mesh_partition_of_boxes(run):
    for box, dim in (("6", 1), ("3x2", 2), ("1x3x2", 3)):
        code, out, _ = run("mesh", "partition", box, "--parts", 8, "--json")
        facts = json.loads(out)
        assert (code, facts["elements"], facts["empty"]) == (0, 6, 2)
        assert ("shared_vertices" in facts, "shared_edges" in facts) == (dim > 1, dim > 2)
    out = run("mesh", "partition", "6", "--parts", 8)[1]
    assert "2 parts are empty: the mesh has 6 elements" in out
    assert json.loads(run("mesh", "info", "3x2", "--json")[1])["elements"] == 6
    code, out, _ = run("mesh", "partition", "3x2", "--parts", 2, "--refine", 2, "--json")
    assert json.loads(out)["elements"] == 96


def test_mesh_partition_by_metis(run, monkeypatch):
    arguments = ["mesh", "partition", "disc.mesh", "--parts", 2, "--method", "metis", "--json"]
    monkeypatch.setitem(sys.modules, "pymetis", None)
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert "pip install pymetis" in err
    monkeypatch.undo()
    pytest.importorskip("pymetis", reason="needs the extra metis")
    facts = json.loads(run(*arguments)[1])
    assert (facts["method"], facts["balance"]) == ("metis", 1.0)


def test_mesh_partition_refuses(run):
    for arguments, code, message in (
        ("disc.mesh", 2, "Missing option '--parts'"),
        ("disc.mesh --parts 0", 2, "got '0': give a whole number >= 1"),
        ("disc.mesh --parts 2 --method random", 2, "'curve', 'metis'"),
        ("disc.mesh --parts 2 --order 0", 2, "whole number >= 1"),
        ("3x0 --parts 2", 1, "'3x0' is no box: give its elements"),
        ("99999x99999x99999 --parts 2", 1, "GiB of memory"),
        ("3x3 --parts 2 --refine 999", 1, "vertices could not be numbered"),
    ):
        got, out, err = run("mesh", "partition", *arguments.split())
        assert (got, out) == (code, ""), arguments
        assert message in " ".join(err.split()), arguments
