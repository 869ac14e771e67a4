"""Sources of kernels: joined, compiled, and kept on disk."""
