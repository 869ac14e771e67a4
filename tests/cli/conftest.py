"""What tests of commands share."""

from importlib.util import find_spec

import pytest

from femops.cli import app, main
from femops.io.plots import scene
from support import fixtures

small_limits = fixtures.small_limits
one_thread = fixtures.one_thread


@pytest.fixture(autouse=True, scope="package")
def _built_once():
    """Typer reads the signatures of all commands, which takes longer than most commands here."""
    command = app.typer.main.get_command(app.build())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.typer.main, "get_command", lambda _: command)
        yield


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch):
    """Of few points and patches: what they show is tested elsewhere, and drawing takes long."""
    monkeypatch.setattr(scene, "PATCHES", 2000)
    if find_spec("matplotlib"):
        from matplotlib.figure import Figure

        save = Figure.savefig
        small = lambda *given, **options: save(*given, **options | {"dpi": 20})  # noqa: E731
        monkeypatch.setattr(Figure, "savefig", small)


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
