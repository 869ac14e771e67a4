"""CPU and GPU kernels: lanes, lines, specialisation."""
