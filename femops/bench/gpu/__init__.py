"""Benchmark of a GPU, which compares speeds with a bound, and results with the CPU's results."""

from femops.bench.gpu.cases import FacesCase, GasCase, RefinedCase, SimplicesCase, VectorsCase
from femops.bench.gpu.phases import run_phases
from femops.bench.gpu.works import GpuSettings, run_gpu
from femops.bench.tensor.products import Products

__all__ = [
    "FacesCase",
    "GasCase",
    "GpuSettings",
    "Products",
    "RefinedCase",
    "SimplicesCase",
    "VectorsCase",
    "run_gpu",
    "run_phases",
]
