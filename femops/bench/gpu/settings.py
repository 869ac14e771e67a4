"""Choice of what the benchmark of a GPU measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from femops.bench.gpu.gas import GAS, GasCase
from femops.bench.gpu.setup import Sizes
from femops.bench.gpu.vectors import VECTORS, VectorsCase
from femops.bench.problems import FOOTPRINTS, PROBLEMS, check_asked, choose, default_dofs
from femops.bench.tensor.products import Products
from femops.operators.execution.device import LEVELS
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Amounts

GPU_DOFS = 1e7
"""About how many dofs fill a GPU, and none of its caches."""


@final
@dataclass(frozen=True)
class GpuSettings:
    """Choice of what is measured.

    Attributes
    ----------
    orders : sequence of int
        In the order in which they are measured, the most important first.
    problems, meshes, levels : sequence of str
    dofs : float, optional
        About how many; `GPU_DOFS` if omitted, an eighth at p = 1 and half at p = 2, where setting
        up a mesh takes the longest.
    seconds : float
        For how long each case is timed.
    budget : float
        Seconds for all. Steps for which there is no time left are left out, and noted.
    products : Products
        Batches of small matrices that are multiplied.
    gas : sequence of GasCase
        Runs of gas dynamics.
    vectors : sequence of VectorsCase
        Operators on many vectors.
    amounts : Amounts
        Of work to measure the limits with.
    device : str or Device
    """

    orders: Sequence[int] = (6, 4, 8, 3, 2, 5, 7, 1)
    problems: Sequence[str] = tuple(PROBLEMS)
    meshes: Sequence[str] = ("cartesian", "multilinear")
    levels: Sequence[str] = tuple(reversed(LEVELS))
    dofs: float | None = None
    seconds: float = 0.15
    budget: float = 450.0
    products: Products = Products()  # noqa: RUF009  (frozen)
    gas: Sequence[GasCase] = GAS
    vectors: Sequence[VectorsCase] = VECTORS
    amounts: Amounts = Amounts()  # noqa: RUF009  (frozen)
    device: str | Device = "cuda"

    def check(self) -> None:
        """Check names, orders and dofs.

        Raises
        ------
        OperatorError, TensorError
            An unknown name, or nothing to measure.
        """
        self.products.check()
        dofs = () if self.dofs is None else (self.dofs,)
        check_asked(problems=self.problems, meshes=self.meshes, orders=self.orders, dofs=dofs)
        choose("level", self.levels, LEVELS, where=" on a GPU")

    def sizes(self, most: float = GPU_DOFS, prefix: str = "") -> list[Sizes]:
        """Return what is measured for each order; names begin with the prefix."""
        problems = [PROBLEMS[name] for name in dict.fromkeys(self.problems)]
        found = []
        for order in dict.fromkeys(self.orders) if problems and self.meshes else ():
            share = default_dofs("ram", order) / FOOTPRINTS["ram"]
            dofs = share * most if self.dofs is None else self.dofs
            found.append(Sizes(problems, self.meshes, self.levels, order, dofs, prefix))
        return found
