"""Operators on many vectors at once on a GPU, beside one vector after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

from femops.bench.bounds import Demand
from femops.bench.gpu.clocks import clocks
from femops.bench.gpu.record import Record, Row
from femops.bench.gpu.validation import relative_difference
from femops.bench.problems import PROBLEMS, Progress, make_mesh
from femops.bench.timing import batch_times
from femops.fields.multivector import MultiVector
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Rates

_MESH, _LEVEL = "multilinear", "partial"


@final
@dataclass(frozen=True)
class VectorsCase:
    """An operator on elements that are not affine, with numbers stored at points.

    Attributes
    ----------
    problem : str
        Of `femops.bench.problems.PROBLEMS`, with one component.
    order : int
    nvec : int
        Number of vectors.
    dofs : float
        About how many a vector has.
    """

    problem: str
    order: int
    nvec: int = 64
    dofs: float = 5e5

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"{self.nvec} vectors, {self.problem}, order {self.order}"


VECTORS = tuple(VectorsCase(problem, order) for order in (6, 4, 8) for problem in ("bp3", "bp1"))
"""Cases, the most important first; vectors in and out take 512 MB."""


def vectors_rows(
    device: Device,
    case: VectorsCase,
    rates: Rates,
    seconds: float,
    found: Record,
    progress: Progress,
) -> None:
    """Add the row of a case to a record."""
    row = found.measure(case.name, partial(_row, device, case, rates, seconds))
    if row is not None:
        rate, gain = row["dofs_per_second"] * 1e-9, row["over_one_by_one"]
        progress(f"{case.name}: {rate:.3g} GDoF/s, {gain:.3g} times one by one")
        found.vectors.append(row)


def _row(device: Device, case: VectorsCase, rates: Rates, seconds: float) -> Row:
    space = H1(make_mesh(_MESH, case.order, case.dofs), case.order, device=device)
    operator = PROBLEMS[case.problem].operator(space, _LEVEL)
    many = MultiVector.random(space, case.nvec)
    result = many.empty_like(space)
    times = batch_times(device, partial(operator.apply_many, many, result), seconds)
    last, alone = case.nvec - 1, space.zeros()
    x = device.upload(device.download(many[last]))  # contiguous
    single = batch_times(device, partial(operator.apply, x, alone), seconds).median
    bound = Demand.of(operator).of_vectors(case.nvec, space.size).bound(rates)
    return {
        "name": case.name,
        "problem": case.problem,
        "mesh": _MESH,
        "order": case.order,
        "level": _LEVEL,
        "dofs": space.size,
        "nvec": case.nvec,
        "width": many.panels.shape[2],
        "seconds_median": times.median,
        "seconds_launch": times.launch,
        "seconds_one": single,
        "dofs_per_second": space.size * case.nvec / times.median,
        "limit": space.size * case.nvec / bound.seconds,
        "bound": bound.name,
        "fraction_of_limit": bound.seconds / times.median,
        "over_one_by_one": case.nvec * single / times.median,
        "off_one": relative_difference(*map(device.download, (result[last], alone))),
        **clocks(device),
    }
