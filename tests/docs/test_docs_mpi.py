"""The pages on ranks are true on several too."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parallel(3)
@pytest.mark.parametrize("name", ["parallel.md", "checkpoints.md"])
def test_pages_run_on_many_ranks(comm, tmp_path, monkeypatch, name):
    monkeypatch.chdir(comm.broadcast(str(tmp_path)))
    monkeypatch.setattr("femops.parallel.Serial", lambda: comm)
    page, namespace = DOCS / name, {"__name__": "__main__"}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
    with redirect_stdout(io.StringIO()):
        exec(compile(code, str(page), "exec"), namespace)
    assert namespace["comm"] is comm
