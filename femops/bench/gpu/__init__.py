"""Speed of operators on a GPU, beside a bound; kernels checked against the CPU's."""

from femops.bench.gpu.gas import GasCase
from femops.bench.gpu.phases import run_phases
from femops.bench.gpu.products import Products
from femops.bench.gpu.run import (
    GpuSettings,
    run_gas,
    run_gpu,
    run_products,
    run_solves,
    run_tuning,
    run_vectors,
)
from femops.bench.gpu.vectors import VectorsCase

__all__ = [
    "GasCase",
    "GpuSettings",
    "Products",
    "VectorsCase",
    "run_gas",
    "run_gpu",
    "run_phases",
    "run_products",
    "run_solves",
    "run_tuning",
    "run_vectors",
]
