"""The kernel that applies an operator, and its inputs."""
