"""Text of the sources of kernels."""

from pathlib import Path

import pytest

from femops_kernels.cuda.device.sources import source_of


def test_a_source_is_found_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators ask for dozens of sources each."""
    text = source_of("device")
    assert "__device__" in text

    def none(*_: object, **__: object) -> None:
        raise AssertionError("a file is looked for again")

    monkeypatch.setattr(Path, "rglob", none)
    monkeypatch.setattr(Path, "read_text", none)
    assert source_of("device") == text
