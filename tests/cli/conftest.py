"""What tests of commands share."""

import pytest

from femops.cli import app, main
from support import fixtures

small_limits = fixtures.small_limits


@pytest.fixture(autouse=True, scope="package")
def _built_once():
    """Typer reads the signatures of all commands, which takes longer than most commands here."""
    command = app.typer.main.get_command(app.build())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.typer.main, "get_command", lambda _: command)
        yield


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
