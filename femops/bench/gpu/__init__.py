"""Speed of operators on a GPU, beside a bound; kernels checked against the CPU's."""

from femops.bench.gpu.drawing import draw_gpu
from femops.bench.gpu.run import GpuSettings, run_gpu, run_tuning

__all__ = ["GpuSettings", "draw_gpu", "run_gpu", "run_tuning"]
