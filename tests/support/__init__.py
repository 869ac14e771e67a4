"""What tests stand on: oracles, cases, and what runs ranks and kernels where there are none."""
