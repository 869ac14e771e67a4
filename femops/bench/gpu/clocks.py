"""Clocks of a device during a measurement, and reasons for throttling."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from femops_kernels.cuda.device.device import Device

_FIELDS = {
    "clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
    "throttled": "clocks_event_reasons.active",
}
_PATIENCE = 10  # seconds


def clocks(device: Device) -> dict[str, Any]:
    """Return the present clocks of a device from ``nvidia-smi``; None for missing values."""
    found = dict.fromkeys(_FIELDS)
    program = shutil.which("nvidia-smi")
    if program is None or not device.bus:
        return found
    asked = f"--query-gpu={','.join(_FIELDS.values())}"
    command = [program, asked, "--format=csv,noheader,nounits", "-i", device.bus]
    try:
        said = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return found
    words = [word.strip() for word in said.stdout.split(",")]
    if said.returncode or len(words) != len(_FIELDS):
        return found
    return {name: _value(word) for name, word in zip(_FIELDS, words, strict=True)}


def _value(word: str) -> float | str | None:
    """Convert a word: numbers to float, hexadecimal words to text, "[N/A]" and the like to None."""
    if word.startswith("0x"):
        return hex(int(word, 16))
    try:
        return float(word)
    except ValueError:
        return None
