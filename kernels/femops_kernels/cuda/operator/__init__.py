"""The kernel that applies an operator, and what it reads."""
