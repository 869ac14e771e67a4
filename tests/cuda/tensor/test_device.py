"""Batches and groups on a device: they move when asked, and nothing else does."""

import sys

import numpy as np
import pytest

import femops
from femops.errors import TensorError
from femops.tensor import Batch, Group, Index, Interleaved, Mapped, Strided, Tiled, gemm, group_gemm
from support.cuda.guarded import guarded_device
from support.cuda.host_device import HostStream, host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require

VALUES = np.random.default_rng(0).standard_normal((19, 3, 4))
LAYOUTS = (Strided(), Strided("F"), Tiled((2, 3)), Interleaved(4), Mapped(lambda i, j: 9 * j + i))


@pytest.fixture
def device():
    return guarded_device()


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_a_batch_goes_there_and_back(device, layout):
    here = Batch((3, 4), 19, layout=layout).assign(VALUES)
    there = here.to(device)
    assert (there.device, there.layout, there.lanes) == (device, layout, here.lanes)
    assert there.to(device) is there
    assert here.to("cpu") is here
    assert (device.host.uploads, device.host.downloads) == (1, 0)  # the block as it is
    back = there.to("cpu")
    there.assign(1.0)
    assert np.array_equal(back.numpy(), VALUES)
    assert np.all(there.numpy() == 1.0)


def test_parts_go_alone(device):
    batch = Batch((3, 4), 19, layout=Interleaved(4)).assign(VALUES)
    part = batch[4:12, 1:, 2].to(device)
    assert np.array_equal(part.numpy(), VALUES[4:12, 1:, 2])
    assert part.array().shape == (8, 2)
    backwards = Batch.wrap(VALUES[::-2, :, ::-1]).to(device)
    assert np.array_equal(backwards.numpy(), VALUES[::-2, :, ::-1])
    assert np.array_equal(backwards[3:5, 0].numpy(), VALUES[::-2, 0, ::-1][3:5])
    assert Batch((3,), 0).to(device).numpy().shape == (0, 3)


def test_streams_are_not_waited_for(device):
    stream = HostStream()
    given = VALUES.copy()
    there = Batch.wrap(given).to(device, stream)
    given[:] = 0.0  # the copy is of what there was
    assert not there.numpy().any()
    stream.synchronize()
    assert np.array_equal(there.numpy(), VALUES)
    group = Group([VALUES[0], VALUES[1, :2]]).to(device, stream)
    stream.synchronize()
    here = group.to("cpu", stream)
    assert not here[1].any()
    stream.synchronize()
    assert np.array_equal(here[1], VALUES[1, :2])


def test_arrays_of_a_device_are_not_copied(device):
    array = device.upload(VALUES)
    batch = Batch.wrap(array)
    batch[2, 1].assign(5.0)
    assert np.all(array.get()[2, 1] == 5.0)
    grouped = device.upload(np.zeros((5, 3, 4, 4)))
    Batch.wrap(grouped, Interleaved(4), members=19)[4:8].assign(device.upload(VALUES[4:8]))
    assert np.array_equal(grouped.get()[1], np.moveaxis(VALUES[4:8], 0, -1))
    assert device.host.downloads == 2


def test_a_group_goes_there_and_back(device):
    arrays = [VALUES[0], VALUES[1, :2].T, VALUES[2, 1:, 1:]]
    there = Group(arrays).to(device)
    assert there.device is device
    assert device.host.uploads == 1
    assert there.to(device) is there
    for one, other in zip(there.to("cpu"), arrays, strict=True):
        assert np.array_equal(one, other)
    assert Group().to(device).device is None


def test_new_batches_are_where_the_operands_are(device):
    A, B = (np.random.default_rng(seed).standard_normal((9, 3, 3)) for seed in (2, 3))
    assert device.owns(gemm(device.upload(A), device.upload(B)))
    a = Batch.wrap(A).copy(Interleaved(4)).to(device)
    made = gemm(a, device.upload(B))
    assert (made.device, made.lanes) == (device, 4)
    assert np.allclose(made.numpy(), A @ B)
    empty = Batch((2, 3), 5, "complex64", Interleaved(2), device=device)
    assert empty.copy(Strided("F")).device is device
    assert not empty.numpy().any()


def test_members_that_shared_memory_does_not_hold_are_read_where_they_are():
    """Only some operands are staged, or none."""
    rng = np.random.default_rng(8)
    A, B = (rng.standard_normal((3, 12, 12)) for _ in "AB")
    found = []
    for nbytes in (48 * 1024, 2500, 500):
        small = guarded_device(shared_bytes=nbytes)
        found.append(gemm(small.upload(A), small.upload(B)).get())
    assert np.allclose(found, A @ B, rtol=1e-13)


def test_large_results_are_shared_by_thread_blocks(device):
    rng = np.random.default_rng(9)
    A, B = rng.standard_normal((3, 61, 4)), rng.standard_normal((3, 4, 57))
    a, b = (Batch.wrap(X).copy(Interleaved(2)).to(device) for X in (A, B))
    assert np.allclose(gemm(a, b).numpy(), A @ B, rtol=1e-13, atol=1e-13)


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("layout", [Strided(), Interleaved(4)], ids=repr)
def test_nothing_is_found_by_sanitizers(layout, sanitizer):
    require(sanitizer)
    host, rng = host_device(), np.random.default_rng(3)
    A, B = rng.standard_normal((37, 5, 3)), rng.standard_normal((37, 3, 4))
    a, b = (Batch.wrap(X).copy(layout).to(host) for X in (A, B))
    with host.recording() as launches:
        c = gemm(a, b)
    (launch,) = launches
    assert np.allclose(c.array(), A @ B)
    assert np.array_equal(replay(launch, sanitizer)[-1], c.view.array)


X = np.ones((5, 3, 3))
i, j, k = (Index(name) for name in "ijk")


def indexed(device):
    c = Batch((3, 3), 5, device=device)
    c[i, j] += Batch.wrap(X)[i, k] * Batch.wrap(X)[k, j]


CASES = {
    "operands": (lambda d: gemm(X, d.upload(X)), "on the host and the guarded host: copy them"),
    "output": (lambda d: gemm(X, X, d.upload(X)), "on .*: copy them to one, by to"),
    "einsum": (lambda d: femops.tensor.einsum("ij,jk,kl", X, X, d.upload(X)), "copy them to one"),
    "indices": (indexed, "copy them to one"),
    "a group": (lambda d: Group([X[0], d.upload(X[0])]), "copy them to one"),
    "groups": (lambda d: group_gemm(Group([X[0]]), Group([d.upload(X[0])])), "copy them to one"),
    "two devices": (lambda d: gemm(d.upload(X), guarded_device().upload(X)), "copy them to one"),
    "another device": (
        lambda d: Batch.wrap(d.upload(X)).to(guarded_device()),
        "not copied to .* directly: copy them to 'cpu' first",
    ),
    "values": (lambda d: Batch.wrap(d.upload(X)).assign(X), "values on the host for tensors on"),
    "no device": (lambda _: Batch((2,), 3).to(3), "device is 3: give a text"),
    "no stream": (lambda d: Batch((2,), 3).to(d, 3), "stream is 3: give a stream of CuPy"),
    "integers": (lambda d: Batch.wrap(d.upload(X.astype(int))), "an array of int64: convert"),
    "output that is an operand": (
        lambda d: gemm(A := d.upload(X), A, A[::-1]),
        "out overlaps an operand",
    ),
    "complex numbers in between": (
        lambda d: Batch.wrap(d.upload(np.ones(9))[1:].view("complex128").reshape(4, 1)),
        "not whole numbers apart",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(device, case):
    call, message = CASES[case]
    with pytest.raises(TensorError, match=message):
        call(device)
    assert device.host.launches == 0


def test_without_a_device_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(femops.errors.DeviceError, match="pip install"):
        Batch((2,), 3).to("cuda")
