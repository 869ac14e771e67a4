"""Operators on a device: what is wrong is one clear error, that says how to mend it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import scipy.sparse.linalg

import femops
from femops.errors import DeviceError, KernelError, OperatorError, SpaceError, VectorError
from femops_kernels.cuda.operator.dofs import DofTable, Shared
from femops_kernels.simd.runs import equal_runs
from support.cuda.guarded import guarded_device

MESH = femops.box((3, 3))


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [3, True, b"cuda", ["cuda"]])
def test_what_names_no_device(device: Any) -> None:
    message = "device is .*: give 'cuda', or 'cuda:1' for the second GPU"
    with pytest.raises(SpaceError, match=message):
        femops.H1(MESH, 1, device=device)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", r"no device is called 'gpu': choose \"cuda\""),
        ("cpu", r"called 'cpu': .*; leave it out for the host$"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        femops.L2(MESH, 1, device=name)


@pytest.mark.parametrize("make", [femops.H1, femops.L2])
def test_what_to_install(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r'CuPy, .* pip install "cupy-cuda13x\[ctk\]"') as caught:
        make(MESH, 1, device="cuda")
    assert "\n" not in str(caught.value)


def test_reproducible_is_yes_or_no() -> None:
    with pytest.raises(SpaceError, match="reproducible is 'yes': give True or False"):
        femops.H1(MESH, 1, reproducible="yes")  # type: ignore[arg-type]


# --- vectors --------------------------------------------------------------------------------------


def uncoupled(u: Any, p: Any) -> Any:
    return {"u": u, "p": p}


def cubic(u: Any) -> Any:
    return {"value": u**3, "grad": u.grad}


@final
class There:
    """Spaces, operators and vectors on a device, and what is beside them on the host."""

    def __init__(self) -> None:
        self.device = guarded_device()
        self.V, self.home = femops.H1(MESH, 2, device=self.device), femops.H1(MESH, 2)
        self.W = femops.Product(u=self.V, p=self.V)
        self.A, self.at_home = femops.mass(self.V), femops.mass(self.home)
        self.F = femops.residual(cubic, self.V)
        self.C = self.A.constrained([0])
        self.x = self.V.interpolate(1.0)
        self.host = np.ones(self.V.size)
        self.probe = femops.Probe(MESH, [[0.4, 0.6]])


@pytest.fixture(scope="module")
def there() -> There:
    return There()


Use = Callable[[There], Any]
HOST_ARRAYS: dict[str, tuple[str, Use]] = {
    "apply": ("x", lambda t: t.A.apply(t.host)),
    "out": ("out", lambda t: t.A.apply(t.x, t.host)),
    "product": ("x", lambda t: t.A @ t.host),
    "columns": ("x", lambda t: t.A @ np.ones((t.V.size, 2))),
    "dot": ("x", lambda t: t.A.dot(t.host)),
    "rhs": ("b", lambda t: t.A.rhs(t.host)),
    "values": ("values", lambda t: t.C.rhs(t.x, t.host)),
    "residual": ("u", lambda t: t.F.residual(t.host)),
    "jacobian": ("u", lambda t: t.F.jacobian(t.host)),
    "split": ("vector", lambda t: t.W.split(np.ones(t.W.size))),
    "join": ("p", lambda t: t.W.join(u=t.x, p=t.host)),
}


SCIPY: dict[str, Use] = {
    "cg": lambda t: scipy.sparse.linalg.cg(t.A, t.host),
    "eigsh": lambda t: scipy.sparse.linalg.eigsh(t.A, 1),
    "matvec": lambda t: t.A.matvec(t.host),
    "rmatvec": lambda t: t.A.rmatvec(t.host),
    "matmat": lambda t: t.A.matmat(t.host[:, None]),
    "rmatmat": lambda t: t.A.rmatmat(t.host[:, None]),
}


COMPOSED: dict[str, Use] = {
    "product": lambda t: t.A @ t.A,
    "times": lambda t: t.A * t.A,
    "dot": lambda t: t.A.dot(t.A),
    "power": lambda t: t.A**2,
    "complex factor": lambda t: 2j * t.A,
    "complex factor behind": lambda t: t.A * np.complex64(2j),
    "sum": lambda t: t.A + scipy.sparse.linalg.aslinearoperator(np.eye(t.V.size)),
    "difference": lambda t: t.A - scipy.sparse.linalg.aslinearoperator(np.eye(t.V.size)),
}


DEVICE_ARRAYS: dict[str, Use] = {
    "operator": lambda t: t.at_home.apply(t.x),
    "product": lambda t: t.at_home @ t.x,
    "times": lambda t: t.at_home * t.x,
    "dot": lambda t: t.at_home.dot(t.x),
    "constraints": lambda t: t.A.constrained(t.x),
    "rows": lambda t: t.A.eliminated(rows=t.x),
    "matvec": lambda t: t.at_home.matvec(t.x),
    "rmatvec": lambda t: t.at_home.rmatvec(t.x),
    "matmat": lambda t: t.at_home.matmat(t.x),
    "rmatmat": lambda t: t.at_home.rmatmat(t.x),
    "rhs": lambda t: t.at_home.rhs(t.x),
    "norm": lambda t: femops.l2_norm(t.V, t.x),
    "error": lambda t: femops.l2_error(t.V, t.x, 1.0),
    "h1 error": lambda t: femops.h1_error(t.V, t.x, 1.0, [0.0, 0.0]),
    "seminorm": lambda t: femops.h1_seminorm_error(t.V, t.x, [0.0, 0.0]),
    "integral": lambda t: femops.integrate(t.V, t.x),
    "check_vector": lambda t: t.V.check_vector(t.x, "x"),
    "values": lambda t: t.V.values(t.x),
    "gradient": lambda t: t.V.gradient(t.x),
    "sample": lambda t: t.V.sample(t.x, 3),
    "ghosts": lambda t: t.V.l_vec(t.x),
    "elements": lambda t: t.V.restriction.gather(t.x),
    "product of spaces": lambda t: t.W.check_vector(t.W.zeros()),
    "save": lambda t: femops.save("there.vtu", t.V, x=t.x),
    "picture": lambda t: femops.io.picture("there.png", t.V, t.x),
    "probe": lambda t: t.probe(t.V, t.x),
    "state": lambda t: femops.io.save_state("there.state", {"x": (t.V, t.x)}),
    "field": lambda t: femops.GridFunction(t.V, t.x),
    "coefficient": lambda t: femops.mass(t.V, t.device.upload(np.ones((9, 16)))),
    "other coefficient": lambda t: t.A.update(rho=t.x),
    "load": lambda t: femops.load(t.V, t.x),
    "flux": lambda t: femops.load(t.V, flux=t.x),
    "function": lambda t: t.V.interpolate(t.x),
    "a function's values": lambda t: t.V.interpolate(lambda x: t.x),
}


@final
class Other:
    """An array of another library on the device."""

    def __init__(self, array: Any, read_only: bool = False) -> None:
        interface = dict(array.__cuda_array_interface__)
        self.__cuda_array_interface__ = interface | {"data": (interface["data"][0], read_only)}
        self.array = array


def beside(t: There, lent: Callable[[Any], Any] = lambda array: array) -> Any:
    """Two vectors, half of each in the other."""
    both = t.W.zeros()
    return t.A.apply(both[: t.V.size], lent(both[t.V.size // 2 :][: t.V.size]))


WRONG: dict[str, tuple[str, Use]] = {
    "type": (
        r"x has type float32, float64 is needed: convert it by .astype\(float64\)",
        lambda t: t.A.apply(t.V.zeros("float32")),
    ),
    "whole numbers": (
        "x has type int64: femops computes in float64 and float32",
        lambda t: t.A.apply(t.device.upload(np.ones(t.V.size, int))),
    ),
    "strided": (
        r"x is not contiguous in memory: pass x.copy\(\)",
        lambda t: t.A.apply(t.W.zeros()[::2]),
    ),
    "short": ("x has 48 entries", lambda t: t.A.apply(t.x[1:])),
    "short product": ("x has 48 entries", lambda t: t.A @ t.x[1:]),
    "long out": ("out has 98 entries", lambda t: t.A.apply(t.x, t.W.zeros())),
    "out in place": ("out overlaps the vector", lambda t: t.A.apply(t.x, t.x)),
    "out beside": ("out overlaps the vector", beside),
    "out of another library beside": ("out overlaps the vector", lambda t: beside(t, Other)),
    "out of another library": (
        "out is read-only: give an array that can be written",
        lambda t: t.A.apply(t.x, Other(t.V.zeros(), read_only=True)),
    ),
    "state in place": ("out overlaps the vector", lambda t: t.F.residual(t.x, t.x)),
    "no array": ("x: .*neither __cuda_array_interface__ nor DLPack", lambda t: t.A @ [1.0, 2.0]),
    "another device": (
        "x: .*lies on another device",
        lambda t: t.A @ femops.H1(MESH, 2, device=guarded_device()).zeros(),
    ),
    "not finite": ("not finite", lambda t: t.A.rhs(t.x + np.nan)),
    "vector type": ("take float64 or float32", lambda t: t.V.zeros(int)),
    "product's part": ("u has 3 entries", lambda t: t.W.join(u=t.x[:3])),
}


MIXED: dict[str, Use] = {
    "form": lambda t: femops.form(lambda u: {"value": u}, t.V, t.home),
    "divergence": lambda t: femops.divergence(
        femops.H1(MESH, 2, 2, device=t.device), femops.L2(MESH, 1)
    ),
    "product": lambda t: femops.Product(u=t.V, p=t.home),
    "two devices": lambda t: femops.Product(u=t.V, p=femops.H1(MESH, 1, device=guarded_device())),
    "sum": lambda t: t.A + t.at_home,
    "difference of operators": lambda t: t.A - t.at_home,
}


HOST = r"^{0} is an array of the host, .* by cupy.asarray\({0}\)$"
ON_GPU = r" is on a GPU: .* give .*\.get\(\)$"
SOLVERS = "SciPy's solvers do: solve by femops.cg or cupyx.scipy.sparse.linalg"
COMPOSES = r"SciPy composes .* as A @ \(B @ x\)"
ONE_DEVICE = r"^spaces on the guarded host, the .* one device$"
REFUSED = [
    *((VectorError, HOST.format(what), use) for what, use in HOST_ARRAYS.values()),
    *((VectorError, ON_GPU, use) for use in DEVICE_ARRAYS.values()),
    *((VectorError, SOLVERS, use) for use in SCIPY.values()),
    *((OperatorError, COMPOSES, use) for use in COMPOSED.values()),
    *((VectorError, message, use) for message, use in WRONG.values()),
    *((SpaceError, ONE_DEVICE, use) for use in MIXED.values()),
]
NAMES = [*HOST_ARRAYS, *DEVICE_ARRAYS, *SCIPY, *COMPOSED, *WRONG, *MIXED]


@pytest.mark.parametrize(("error", "message", "use"), REFUSED, ids=NAMES)
def test_what_is_refused(
    error: type[Exception],
    message: str,
    use: Use,
    there: There,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is copied from the device to find it."""
    monkeypatch.chdir(tmp_path)
    before = there.device.host.downloads
    with pytest.raises(error, match=message):
        use(there)
    assert there.device.host.downloads == before or use not in DEVICE_ARRAYS.values()


def test_fields_take_copies_from_a_device(there: There) -> None:
    """As the message says."""
    field = femops.GridFunction(there.V, there.x.get())
    result = femops.mass(there.V, field) @ there.x
    np.testing.assert_allclose(result.get(), (there.A @ there.x).get(), rtol=1e-12)
    assert femops.l2_norm(there.V, there.x.get()) == pytest.approx(1.0)


@pytest.mark.parametrize("level", ["full", "element"])
def test_levels_that_are_of_the_host(level: str, there: There) -> None:
    message = (
        f"no kernels for level '{level}': choose one of partial, matrix-free or auto; assemble"
    )
    for use in (
        lambda: femops.mass(there.V, level=level),
        lambda: there.A.at_level(level),
        lambda: there.F.jacobian(there.x).at_level(level),
        lambda: femops.boundary_mass(there.V, level=level),
    ):
        with pytest.raises(OperatorError, match=message):
            use()


def test_elements_that_need_too_much_shared_memory() -> None:
    device = guarded_device()
    V = femops.H1(femops.box((1, 1, 1)), 9, ncomp=3, device=device)
    message = (
        r"an element needs 63888 bytes of shared memory.* has 49152.*: "
        "take a lower order or fewer components"
    )
    with pytest.raises(KernelError, match=message):
        femops.elasticity(V, 1.0, 1.0).apply(V.zeros())
    assert device.host.launches == 0


def test_more_dofs_than_a_kernel_counts() -> None:
    nodes = np.array([[2**31 - 2, 2**31 - 1]])
    table = DofTable.of(nodes, equal_runs(1, 2, broken=True))
    assert table.starts.tolist() == [[2**31 - 2]]
    message = "numbered up to 2147483648, a GPU kernel counts to 2147483647: use more GPUs"
    with pytest.raises(KernelError, match=message):
        DofTable.of(nodes + 1, equal_runs(1, 2, broken=True))


def test_more_turned_dofs_than_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element sees the same inner dofs the other way around."""
    monkeypatch.setattr("femops_kernels.cuda.operator.dofs._LARGEST", 7)
    indices = np.tile([0, 2, 1, 3], (4, 1))
    assert len(DofTable.of(indices[:3], equal_runs(1, 4)).turned) == 7
    with pytest.raises(KernelError, match=r"8 dofs stand in another .* counts to 7: use"):
        DofTable.of(indices, equal_runs(1, 4))


def test_more_shared_nodes_than_a_kernel_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in the order of the elements; the limit is lowered, to need no memory."""
    monkeypatch.setattr("femops_kernels.cuda.operator.dofs._LARGEST", 7)
    three, four = np.arange(6).reshape(3, 2), np.arange(8).reshape(4, 2)
    assert len(Shared.of(three, equal_runs(1, 2, broken=False)).slots) == 6
    with pytest.raises(KernelError, match=r"8 nodes are shared by elements, a GPU .* to 7"):
        Shared.of(four, equal_runs(1, 2, broken=False))


def test_lanes_are_the_cpus(there: There) -> None:
    makers = {
        "linear": lambda: femops.mass(there.V, lanes=4),
        "of fields": lambda: femops.form(uncoupled, there.W, lanes=4),
        "nonlinear": lambda: femops.residual(cubic, there.V, lanes=4),
    }
    for make in makers.values():
        with pytest.raises(OperatorError, match=r"lanes = 4 on a GPU: .* leave them out"):
            make()
