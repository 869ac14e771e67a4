"""Runs on a device: the states of the host, of which none moves between outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from femops.errors import HydroError
from femops.hydro import Lagrangian, Simulation, Snapshot, built_in, load_run, problem, save_run
from femops_kernels.cuda.operator.cg_state import DEVICE_STATE
from support import fixtures
from support.cuda.guarded import GuardedDevice, guarded_device

one_thread = fixtures.one_thread

MESHES = {1: "segment01", 2: "square01_quad", 3: "cube01_hex"}


@pytest.fixture(scope="module")
def device() -> GuardedDevice:
    return guarded_device(options=["-O1"])


def begun(name: str, dim: int, ode: str, device: Any, mesh: str = "") -> Simulation:
    equations = Lagrangian(
        problem(name),
        built_in(mesh or MESHES[dim]).refine(2 if dim == 1 else 1),
        cg_tol=1e-13,
        device=device,
    )
    return Simulation.begin(equations, ode)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "dim", "ode", "mesh"),
    [
        ("sod", 1, "rk2", ""),
        ("sedov", 2, "rk4", ""),
        ("taylor-green", 2, "rk2avg", ""),
        ("rayleigh-taylor", 2, "euler", "rt2D"),
        ("triple-point", 3, "rk2", "box01_hex"),
    ],
)
def test_the_states_of_the_host(
    name: str, dim: int, ode: str, mesh: str, device: GuardedDevice
) -> None:
    there, here = (begun(name, dim, ode, where, mesh) for where in (device, None))
    for run in (there, here):
        run.run(10.0, max_steps=2)
    assert device.owns(there.state)
    assert (there.t, there.dt) == pytest.approx((here.t, here.dt), rel=1e-11)
    scale = abs(here.state).max()
    np.testing.assert_allclose(there.state.get(), here.state, rtol=0, atol=1e-10 * scale)
    assert there.e_norm == pytest.approx(here.e_norm, rel=1e-11)
    energies = [run.equations.total_energy(run.state) for run in (there, here)]
    assert energies[0] == pytest.approx(energies[1], rel=1e-12)
    density = [Snapshot.of(run).density.vector for run in (there, here)]
    np.testing.assert_allclose(density[0], density[1], rtol=1e-9)


def test_no_field_moves_between_outputs(
    device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host looks at the time step of a stage, and exchanges the few numbers of solves."""
    run = begun("sedov", 2, "rk4", device)
    run.run(10.0, max_steps=1)
    sizes: list[int] = []
    for name in ("upload", "download", "download_later"):
        copies = getattr(device.host, name)

        def copied(array: Any, *rest: Any, copies: Any = copies) -> Any:
            sizes.append(array.size)
            return copies(array, *rest)

        monkeypatch.setattr(device.host, name, copied)
    run.run(10.0, max_steps=4)
    assert len(sizes) >= 3 * 2 * 2  # steps, stages, components
    assert max(sizes) <= DEVICE_STATE < run.equations.E.size


def test_checkpoints_go_from_one_to_the_other(tmp_path: Path, device: GuardedDevice) -> None:
    there = begun("sedov", 2, "rk4", device)
    there.run(10.0, max_steps=1)
    path = save_run(tmp_path / "a.state", there)
    again, here = (
        load_run(path, begun("sedov", 2, "rk4", where).equations) for where in (device, None)
    )
    assert again.state.get().tobytes() == here.state.tobytes() == there.state.get().tobytes()
    for run in (again, here, there):
        run.run(10.0, max_steps=2)
    np.testing.assert_allclose(there.state.get(), again.state.get(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(here.state, again.state.get(), rtol=0, atol=1e-11)


def test_what_goes_wrong_is_told(device: GuardedDevice) -> None:
    with pytest.raises(HydroError, match="take 'partial'"):
        Lagrangian(problem("sod"), built_in("segment01"), assembly="full", device=device)
    run = begun("sedov", 2, "rk4", device)
    state = run.state.get()
    state[run.equations.on_host.slice("energy")][3] = np.nan
    run.state[:] = device.upload(state)
    with pytest.raises(HydroError, match=r"step 1 .*the energy is not finite"):
        Simulation(run.equations, run.state, 0.0, 1e-3, 0).run(1.0)
