"""Where an operator runs: on the host, on a device, on many ranks."""
