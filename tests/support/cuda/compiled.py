"""What kernels compiled without a GPU need: lines at the end of a test run."""

from __future__ import annotations

from typing import Any

NAME = "compiled"
"""Of the property in which a test notes (architecture, variant, registers, bytes spilled)."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many were compiled, and which needs most."""
    found: dict[str, list[tuple[int, str, int]]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in getattr(report, "user_properties", ()):
            if name == NAME and report.when == "call":
                arch, variant, registers, spilled = value
                found.setdefault(arch, []).append((registers, variant, spilled))
    if found:
        terminalreporter.section("GPU kernels compiled")
    for arch, variants in sorted(found.items()):
        registers, most, _ = max(variants)
        spilling = sum(1 for _, _, spilled in variants if spilled)
        terminalreporter.line(
            f"{arch}: {len(variants)} variants, at most {registers} registers ({most}), "
            f"{spilling} spill"
        )
