"""What CUDA says of a GPU, as CuPy hands it on."""

FACTS = {
    "name": b"NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "totalGlobalMem": 150 * 10**9,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
    "reservedSharedMemPerBlock": 1024,
    "regsPerMultiprocessor": 65536,
    "maxThreadsPerMultiProcessor": 2048,
    "maxBlocksPerMultiProcessor": 32,
}
