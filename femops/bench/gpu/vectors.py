"""Operators on many vectors at once on a GPU, beside one vector after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

from femops.bench.bounds import Demand
from femops.bench.gpu.clocks import clocks
from femops.bench.gpu.record import Row
from femops.bench.gpu.run import Run, relative_difference
from femops.bench.problems import PROBLEMS, make_mesh
from femops.bench.timing import batch_times
from femops.fields.multivector import MultiVector
from femops.spaces.h1_l2 import H1
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


def vectors_rows(case: VectorsCase, run: Run) -> None:
    """Measure an operator on many vectors."""
    if run.rates is not None:
        run.measure("vectors", case.name, partial(_rows, case, run, run.rates))


def _rows(case: VectorsCase, run: Run, rates: Rates) -> list[Row]:
    device = run.device
    space = H1(make_mesh(_MESH, case.order, case.dofs), case.order, device=device)
    operator = PROBLEMS[case.problem].operator(space, _LEVEL)
    many = MultiVector.random(space, case.nvec)
    result = many.empty_like(space)
    times = batch_times(device, partial(operator.apply_many, many, result), run.seconds)
    last, alone = case.nvec - 1, space.zeros()
    x = device.upload(device.download(many[last]))  # contiguous
    single = batch_times(device, partial(operator.apply, x, alone), run.seconds).median
    bound = Demand.of(operator).of_vectors(case.nvec, space.size).bound(rates)
    facts = {"name": case.name, "problem": case.problem, "mesh": _MESH, "order": case.order}
    facts |= {"level": _LEVEL, "dofs": space.size, "nvec": case.nvec}
    return [
        facts
        | {
            "width": many.panels.shape[2],
            "seconds_median": times.median,
            "seconds_launch": times.launch,
            "seconds_one": single,
            **bound.speed(space.size * case.nvec, times.median),
            "over_one_by_one": case.nvec * single / times.median,
            "off_one": relative_difference(*map(device.download, (result[last], alone))),
            **clocks(device),
        }
    ]
