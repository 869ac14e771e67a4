"""What tests of commands share."""

import pytest

from femops.cli import main
from support import fixtures

small_limits = fixtures.small_limits


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command line in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        code = stop.value.code or 0
        assert "Traceback" not in err
        return code, out, err

    return call
